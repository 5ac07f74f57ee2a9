"""Numbers as text by the formats of C's `printf`. Pure."""

from __future__ import annotations

import re

from leadline.scenario.expressions import Call, Expression, Literal
from leadline.scenario.loadrunner.context import CannotRun

MAX_WIDTH = 40
MAX_DIGITS = 12
MAX_LENGTH = 18
"""Digits of a number in a text: each of as many fits in 64 bits."""


def format_integer(pattern: str, value: Expression) -> Expression:
    """A value by a pattern with one `%d`, `%05lu` or `%s`. Raises CannotRun."""
    match = _PATTERN.fullmatch(pattern)
    if match is None:
        raise CannotRun(f"the format {pattern!r} has no native form")
    before, flags, width, _, after = match.groups()
    parts: list[Expression] = [Literal(before)] if before else []
    parts.append(pad(value, flags, read_whole(width or "0")))
    parts += [Literal(after)] if after else []
    return parts[0] if len(parts) == 1 else Call("concat", tuple(parts))


def read_whole(text: str) -> int:
    """A whole number of decimal digits, with a sign or without one. Raises CannotRun."""
    if len(text) > MAX_LENGTH:
        raise CannotRun(f"a number of {len(text)} digits is too large")
    return int(text)


def pad(value: Expression, flags: str, width: int) -> Expression:
    """A value with zeros or blanks before it, or blanks after it, up to a width."""
    if width > MAX_WIDTH:
        raise CannotRun(f"a width of {width} has no native form")
    if width < 2:
        return value
    fill = "0" if "0" in flags and "-" not in flags else " "
    # The value is computed once: it may be random.
    if "-" in flags:
        return Call(
            "replace_pattern", (Call("concat", (value, Literal(fill * width))), _make_cut(width), Literal("$1"))
        )
    padded = Call("concat", (Literal(fill * width), value))
    return Call("find", (padded, Literal(rf"^{fill}{{0,{width}}}(.{{{width},}})$")))


def format_decimal(value: Expression, digits: int) -> Expression:
    """A number with as many digits behind its point."""
    if digits > MAX_DIGITS:
        raise CannotRun(f"{digits} digits behind the point have no native form")
    rounded = Call("round", (value, Literal(digits)))
    if digits == 0:
        return rounded
    zeros = "0" * digits
    has_point = Call("contains", (rounded, Literal(".")))
    longer = Call("concat", (rounded, Call("if", (has_point, Literal(zeros), Literal(f".{zeros}")))))
    return Call("find", (longer, Literal(rf"^(-?\d+\.\d{{{digits}}})")))


def _make_cut(width: int) -> Literal:
    return Literal(rf"^(.{{{width}}}.*?) {{0,{width}}}$")


_PATTERN = re.compile(r"([^%]*)%([-0+ ]*)(\d*)(l?l?[duis]|s)([^%]*)")
