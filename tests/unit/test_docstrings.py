"""Docstrings of the package: each public item has one, and its first sentence says what the item is or does."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python" / "leadline"
GENERATED = {PACKAGE / "contract" / name for name in ("models.py", "records.py")}
FRAGMENTS = frozenset({
    "against", "also", "as", "at", "beside", "between", "but", "by", "for", "from", "in", "it", "like", "of", "on",
    "only", "or", "over", "per", "relative", "that", "these", "they", "those", "to", "until", "while", "with",
    "without",
})  # fmt: skip
"""First words of a part of a sentence, which needs the item's name to be understood: `From the first to the last.`"""

Item = tuple[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]


def test_public_items_have_docstrings() -> None:
    missing = [
        f"{path.relative_to(PACKAGE)}: {name}"
        for path, items in _files()
        for name, node in items
        if not any(part.startswith("_") for part in name.split(".")) and ast.get_docstring(node) is None
    ]
    assert missing == []


def test_docstrings_begin_with_what_the_item_is_or_does() -> None:
    fragments = [
        f"{path.relative_to(PACKAGE)}: {name}: {text.splitlines()[0]}"
        for path, items in _files()
        for name, node in items
        if (text := ast.get_docstring(node)) is not None and _is_fragment(text)
    ]
    assert fragments == []


@pytest.mark.parametrize(
    ("text", "is_fragment"),
    [
        ("From the first due time to the last connect.", True),
        ("To two digits.", True),
        ("The time of the first flow.", False),
        ("Format a number.", False),
    ],
)
def test_a_fragment_is_found_by_its_first_word(text: str, is_fragment: bool) -> None:
    assert _is_fragment(text) == is_fragment


def test_nested_items_are_found_but_not_those_inside_of_functions() -> None:
    nested = "class A:\n    class B:\n        def c(self): ...\n    def d(self):\n        def e(): ...\n"
    code = f"{nested}if True:\n    def f(): ...\n"
    assert [name for name, _ in _items(ast.parse(code), "")] == ["A", "A.B", "A.B.c", "A.d", "f"]


def _files() -> Iterator[tuple[Path, list[Item]]]:
    for path in sorted(set(PACKAGE.rglob("*.py")) - GENERATED):
        yield path, list(_items(ast.parse(path.read_text()), ""))


def _items(node: ast.AST, prefix: str) -> Iterator[Item]:
    """Classes, functions and methods, with their qualified names; those inside of functions belong to their code."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield prefix + child.name, child
        if isinstance(child, ast.ClassDef):
            yield from _items(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.stmt) and not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _items(child, prefix)


def _is_fragment(text: str) -> bool:
    return text.split(maxsplit=1)[0].rstrip(",:;").lower() in FRAGMENTS
