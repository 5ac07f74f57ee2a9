"""Finds or replaces the numbers that JSON and figures lack: NaN, infinity, and what is beyond a double's range.

Python's parsers read them (`NaN`, `Infinity`, `1e400`); a figure made of one is none. Pure.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

_SUSPECT = re.compile(rb"NaN|Infinity|[eE]\+?\d{3}|\d{300}")
"""A document without these has only finite numbers; one with them may have them in a text."""


def may_be_infinite(content: bytes) -> bool:
    """Whether JSON text may have a number that is not finite; False is certain."""
    return _SUSPECT.search(content) is not None


def find_infinite(document: Any) -> str | None:
    """The place and value of the first number that is not finite, as in `cases[0].rate is NaN`; None without one."""
    waiting: list[tuple[str, Any]] = [("", document)]
    while waiting:
        place, value = waiting.pop()
        if isinstance(value, dict):
            waiting += [(f"{place}.{key}" if place else str(key), one) for key, one in reversed(value.items())]
        elif isinstance(value, list):
            waiting += [(f"{place}[{index}]", one) for index, one in reversed([*enumerate(value)])]
        elif _is_infinite(value):
            shown = "NaN" if isinstance(value, float) and math.isnan(value) else "beyond the range of numbers"
            return f"{place or 'the document'} is {shown}"
    return None


def replace_infinite(value: Any) -> Any:
    """The value with null in place of NaN and infinity, which JSON lacks."""
    if isinstance(value, Mapping):
        return {key: replace_infinite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [replace_infinite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def load_finite(content: bytes) -> Any:
    """The document in JSON text.

    Raises:
        ValueError: it is not JSON, or has a number that is not finite; the text names its place.
        RecursionError: it is nested too deeply.
    """
    document = json.loads(content)
    if may_be_infinite(content) and (found := find_infinite(document)) is not None:
        raise ValueError(found)
    return document


def _is_infinite(value: Any) -> bool:
    try:
        return isinstance(value, int | float) and not math.isfinite(value)
    except OverflowError:  # an integer that no double can hold
        return True
