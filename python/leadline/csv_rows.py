"""Rows as comma-separated values, which no spreadsheet runs as a formula: the one place that writes CSV. Pure.

A spreadsheet takes a cell that begins with `=`, `+`, `-` or `@` for a formula, also after a tab or a CR, and also in
quotes. An apostrophe before it makes it text, as in what OWASP calls CSV injection. Numbers stay numbers.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from io import StringIO
from typing import Any

_FORMULA = re.compile(r"[\t\r\n\0 ]*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\0]")
"""How a formula begins. The last four are the wide forms of these characters."""
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?", re.ASCII)


def csv_text(rows: Iterable[Sequence[Any]], *, line_end: str = "\r\n") -> str:
    """The rows as text; texts that a spreadsheet would run begin with an apostrophe, and None is an empty cell."""
    text = StringIO(newline="")
    csv.writer(text, lineterminator=line_end).writerows([_cell(value) for value in row] for row in rows)
    return text.getvalue()


def _cell(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    # A CR would end the row for some readers, and is not quoted where rows end with LF.
    value = value.replace("\r\n", "\n")
    if _FORMULA.match(value) and _NUMBER.fullmatch(value) is None:
        value = f"'{value}"
    return value.replace("\r", "\n")
