"""Differentiated services code points: a number, or the name of a class (RFC 2474, 2597, 3246, 5865, 8622)."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field, WithJsonSchema

_NAMES = {
    "BE": 0,
    "LE": 1,
    "EF": 46,
    "VA": 44,
    **{f"CS{number}": 8 * number for number in range(8)},
    **{f"AF{number}{drop}": 8 * number + 2 * drop for number in range(1, 5) for drop in range(1, 4)},
}


def code_point(value: object) -> object:
    """The number of a class's name; anything else as it is."""
    if isinstance(value, str):
        if value.upper() in _NAMES:
            return _NAMES[value.upper()]
        if value.isdecimal():
            return int(value)
        raise ValueError(f"{value!r} is no code point: give 0 to 63, or a class such as EF, CS1 or AF41")
    return value


Dscp = Annotated[
    int,
    BeforeValidator(code_point),
    Field(ge=0, le=63),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0, "maximum": 63}, {"enum": sorted(_NAMES)}]}),
]
"""A code point, 0 to 63, or the name of its class."""
