"""Which module of a Rust crate uses which, read from its sources: `use` trees, paths in code, and re-exports, which are
followed to the module that defines the name. Test code is left out. Owns the reading; `test_architecture` judges.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path

CratePath = tuple[str, ...]
"""A path within one crate, from its root: () is the root, ("load", "tcp") a module or an item of `load`."""

_COMMENT = r"(?P<comment>//[^\n]*|/\*.*?\*/)"
_LITERAL = r"""b?r(?P<hashes>#*)".*?"(?P=hashes)|b?"(?:\\.|[^"\\])*"|b?'(?:\\.[^']*|[^\\'])'"""
_TEXT = re.compile(f"{_COMMENT}|{_LITERAL}", re.S)
_USE = re.compile(r"\b(pub(?:\([^)]*\))?\s+)?use\s+([^;]+);")
_PATH = re.compile(r"\b\w+(?:\s*::\s*\w+)+")
_DECLARED = re.compile(r"^\s*(?:pub(?:\([^)]*\))?\s+)?mod\s+(\w+)\s*;", re.M)


@dataclass(slots=True)
class _Module:
    path: CratePath
    code: str
    """Without comments, literals, tests and `use` statements."""
    imports: dict[str, CratePath] = field(default_factory=dict)
    """What `use` brings into scope: the local name, and its path as written from the crate's root."""
    globs: list[CratePath] = field(default_factory=list)
    children: frozenset[str] = frozenset()


def module_graph(source: Path) -> dict[str, set[str]]:
    """The modules of the crate whose `src` folder this is, and the modules that each uses; `crate` is its root."""
    modules = {module.path: module for module in (_read(path, file) for path, file in _files(source))}
    graph: dict[str, set[str]] = {_name(path): set() for path in modules}
    for module in modules.values():
        for path in _used(module):
            target = _home(path, modules)
            if target is not None and target != module.path:
                graph[_name(module.path)].add(_name(target))
    return graph


def circles(graph: Mapping[str, Set[str]]) -> Iterator[list[str]]:
    """The groups of modules that use one another in a circle, each sorted, in the order of their first."""
    reach = {name: _reachable(name, graph) for name in graph}
    seen: set[str] = set()
    for name in sorted(graph):
        circle = sorted(other for other in reach[name] if name in reach[other])
        if circle and name not in seen:
            seen.update(circle)
            yield circle


def _reachable(start: str, graph: Mapping[str, Set[str]]) -> set[str]:
    reached: set[str] = set()
    ahead = [start]
    while ahead:
        for name in graph[ahead.pop()] - reached:
            reached.add(name)
            ahead.append(name)
    return reached


def _files(source: Path) -> Iterator[tuple[CratePath, Path]]:
    for file in sorted(source.rglob("*.rs")):
        parts = file.relative_to(source).with_suffix("").parts
        if "tests" in parts:
            continue
        if parts[-1] in ("mod", "lib", "main"):
            parts = parts[:-1]
        yield parts, file


def _read(path: CratePath, file: Path) -> _Module:
    text = _without_tests(_TEXT.sub(_blank, file.read_text()))
    module = _Module(path, _USE.sub(";", text), children=frozenset(_DECLARED.findall(text)))
    for _, tree in _USE.findall(text):
        for parts, name in _flattened(" ".join(tree.split())):
            target = _absolute(parts, module)
            if target is None:
                continue
            if name == "*":
                module.globs.append(target)
            else:
                module.imports[name] = target
    return module


def _blank(match: re.Match[str]) -> str:
    """Nothing for a comment, an empty literal for a literal; each may contain what looks like the other."""
    return "" if match["comment"] else '""'


def _without_tests(text: str) -> str:
    """The text without items under `#[cfg(test)]`."""
    while (start := text.find("#[cfg(test)]")) >= 0:
        end = start + len("#[cfg(test)]")
        depth = 0
        while end < len(text):
            character = text[end]
            end += 1
            depth += (character == "{") - (character == "}")
            if depth == 0 and character in ";}":
                break
        text = text[:start] + text[end:]
    return text


def _flattened(tree: str) -> Iterator[tuple[list[str], str]]:
    """Each leaf of a use tree: its path and the name that it has here."""
    head, brace, rest = tree.partition("{")
    prefix = [part.strip() for part in head.split("::") if part.strip()]
    if not brace:
        path, _, alias = tree.partition(" as ")
        parts = [part.strip() for part in path.split("::") if part.strip()]
        if parts == ["self"]:
            yield [], alias.strip() or "self"
        elif parts[-1] == "*":
            yield parts[:-1], "*"
        else:
            yield parts, alias.strip() or parts[-1]
        return
    for branch in _branches(rest.rstrip()[:-1]):
        for parts, name in _flattened(branch):
            yield prefix + parts, (prefix[-1] if name == "self" else name)


def _branches(text: str) -> Iterator[str]:
    depth, start = 0, 0
    for at, character in enumerate(text):
        depth += (character == "{") - (character == "}")
        if character == "," and depth == 0:
            yield text[start:at]
            start = at + 1
    if text[start:].strip():
        yield text[start:]


def _absolute(parts: list[str], module: _Module) -> CratePath | None:
    """A path as written in a module, from the crate's root; None for another crate's."""
    if not parts:
        return None
    here = module.path
    if parts[0] == "crate":
        return tuple(parts[1:])
    if parts[0] == "self":
        return (*here, *parts[1:])
    up = 0
    while up < len(parts) and parts[up] == "super":
        up += 1
    if up:
        return (*here[: len(here) - up], *parts[up:])
    return (*here, *parts) if parts[0] in module.children else None


def _used(module: _Module) -> Iterator[CratePath]:
    yield from module.imports.values()
    yield from module.globs
    for match in _PATH.finditer(module.code):
        parts = [part.strip() for part in match.group().split("::")]
        absolute = _absolute(parts, module)
        if absolute is None and parts[0] in module.imports:
            absolute = (*module.imports[parts[0]], *parts[1:])
        if absolute is not None:
            yield absolute


def _home(path: CratePath, modules: Mapping[CratePath, _Module], *, depth: int = 0) -> CratePath | None:
    """The module that defines what a path names."""
    owner = path
    while owner not in modules:
        owner = owner[:-1]
    if owner == path or depth > 8:
        return owner
    module, name = modules[owner], path[len(owner)]
    if name in module.imports and module.imports[name] != path:
        return _home((*module.imports[name], *path[len(owner) + 1 :]), modules, depth=depth + 1)
    return owner


def _name(path: CratePath) -> str:
    return "::".join(path) or "crate"
