"""Finds variables that a scenario reads and nothing in it sets, before requests fail by them. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from leadline.scenario.lower_expressions import Lowered


@dataclass(frozen=True, slots=True)
class UnsetVariable:
    """A variable that nothing sets, and where it is read first."""

    name: str
    file: str | None
    line: int | None
    near: str | None
    """A variable with a similar name."""


def find_unset_variables(plan: Lowered) -> tuple[UnsetVariable, ...]:
    """The variables that templates of an agent's plan need and nothing sets; none where a script may set any."""
    texts = [text for key, text in _entries(plan) if key == "lua" and isinstance(text, str)]
    if any(_COMPUTED_NAME.search(text) for text in texts):
        return ()
    known = {name for text in texts for pair in _SET_BY_LUA.findall(text) for name in pair if name}
    endings: list[str] = []
    for key, value in _entries(plan):
        if key in ("variable", "counter") and isinstance(value, str):
            known.add(value)
        elif key == "columns":
            known |= set(value)
        elif key == "variables":
            known |= {one["name"] for one in value}
        elif key == "extractors":
            endings += [one["variable"] for one in value]
    found: dict[str, UnsetVariable] = {}
    for name, source in _read(plan, {}):
        is_made = any(name.startswith(f"{one}_") for one in endings)
        if name not in known and not is_made and name not in found:
            near = difflib.get_close_matches(name, sorted(known), n=1)
            found[name] = UnsetVariable(name, source.get("file"), source.get("line"), near[0] if near else None)
    return tuple(found.values())


def _entries(part: Any) -> Iterator[tuple[str, Any]]:
    """All entries of the mappings in a part, but for the rows of data."""
    pending = [part]
    while pending:
        one = pending.pop()
        if isinstance(one, list):
            pending += one
        elif isinstance(one, dict):
            for key, value in one.items():
                yield key, value
                if key not in ("rows", "files"):
                    pending.append(value)


def _read(part: Any, source: Lowered) -> Iterator[tuple[str, Lowered]]:
    """The variables that are parts of texts, in order, with the place of their step."""
    if isinstance(part, dict):
        source = part.get("source") or source
        for key, value in part.items():
            # Inside of an expression a variable that is not set is nothing, and no mistake.
            if key not in ("arguments", "rows", "files"):
                yield from _read(value, source)
    elif isinstance(part, list):
        for one in part:
            if isinstance(one, dict) and one.get("op") == "variable":
                yield one["name"], source
            else:
                yield from _read(one, source)


_SET_BY_LUA = re.compile(r"""\bvars\s*(?:\.\s*(\w+)|\[\s*["']([^"']+)["']\s*\])""")
_COMPUTED_NAME = re.compile(r"""\bvars\s*\[\s*(?!["'][^"']*["']\s*\])""")
