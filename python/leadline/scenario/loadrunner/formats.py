"""Texts by the formats of C's `printf`. Pure."""

from __future__ import annotations

import re

from leadline.scenario.expressions import Call, Expression, Literal
from leadline.scenario.loadrunner.context import CannotRun
from leadline.scenario.loadrunner.numbers import format_decimal, pad, read_whole
from leadline.scenario.loadrunner.values import Value, character, number


def format_values(pattern: str, values: list[Value]) -> Expression:
    """The text that `sprintf` makes of a pattern and values. Raises CannotRun."""
    parts: list[Expression] = []
    position, left = 0, list(values)
    for match in _FIELD.finditer(pattern):
        if match.start() > position:
            parts.append(Literal(pattern[position : match.start()]))
        position = match.end()
        flags, width, digits, code = match.groups()
        if code == "%":
            parts.append(Literal("%"))
            continue
        if not left:
            raise CannotRun(f"the format {pattern!r} has more fields than values")
        parts.append(_format_field(left.pop(0), flags, read_whole(width or "0"), digits, code))
    if position < len(pattern):
        parts.append(Literal(pattern[position:]))
    if not parts:
        return Literal("")
    return parts[0] if len(parts) == 1 and not isinstance(parts[0], Literal) else Call("concat", tuple(parts))


def _format_field(value: Value, flags: str, width: int, digits: str | None, code: str) -> Expression:
    if code in ("d", "i", "u"):
        return pad(number(value), flags, width)
    if code in ("f", "g"):
        return (
            pad(format_decimal(number(value), read_whole(digits or "6")), flags, width)
            if code == "f"
            else number(value)
        )
    if code == "c":
        return character(value)
    if code == "s":
        tree = (
            value.tree
            if digits is None
            else Call("substring", (value.tree, Literal(0), Literal(read_whole(digits or "0"))))
        )
        return pad(tree, flags.replace("0", ""), width)
    raise CannotRun(f"%{code} has no native form")


_FIELD = re.compile(r"%([-0+ #]*)(\d*)(?:\.(\d*))?(?:hh|h|ll|l|I64|z)?([a-zA-Z%])")
