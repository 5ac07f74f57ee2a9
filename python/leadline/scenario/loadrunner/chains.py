"""Long chains of `else if` as one `switch`: links nested in each other would be too deep for a file. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from leadline.scenario.conversion import Made

MIN_LINKS = 4
"""Links of a chain that is rewritten."""


def flatten(steps: list[Any], unique: Callable[[str], str]) -> list[Any]:
    """The steps, and those below them, with a `switch` in place of each long chain; `unique` names variables."""
    found: list[Any] = []
    for step in steps:
        if not isinstance(step, dict):
            found.append(step)
            continue
        links, rest = _find_links(step)
        if len(links) < MIN_LINKS:
            for key, value in step.items():
                if key in _LISTS and isinstance(value, list):
                    step[key] = flatten(value, unique)
            found.append(step)
            continue
        found += _make_switch(step, links, rest, unique)
    return found


def _find_links(step: dict[str, Any]) -> tuple[list[tuple[str, list[Any]]], list[Any]]:
    """The conditions of a chain with their steps, and the steps of its last `else`."""
    found: list[tuple[str, list[Any]]] = []
    rest: list[Any] = [step]
    while len(rest) == 1 and isinstance(rest[0], dict) and isinstance(rest[0].get("if"), str):
        one = rest[0]
        found.append((one["if"], one["then"]))
        rest = one.get("else", [])
    return found, rest


def _make_switch(
    step: dict[str, Any], links: list[tuple[str, list[Any]]], rest: list[Any], unique: Callable[[str], str]
) -> list[Any]:
    name, line = unique("choice"), getattr(step, "line", None)
    text = "'none'"
    for number, (condition, _) in reversed(list(enumerate(links, 1))):
        text = f"({condition}) ? 'case {number}' : ({text})"
    cases = {f"case {number}": flatten(steps, unique) for number, (_, steps) in enumerate(links, 1)}
    chosen, choice = Made(line, set={name: f"${{{text}}}"}), Made(line, switch=f"${{{name}}}", cases=cases)
    chosen.origin = choice.origin = getattr(step, "origin", None)
    if rest:
        choice["default"] = flatten(rest, unique)
    return [chosen, choice]


_LISTS = frozenset({"steps", "then", "else", "before", "after", "default", "once"})
