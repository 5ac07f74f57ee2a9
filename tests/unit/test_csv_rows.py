"""CSV that every reader reads back, and in which no cell is a formula."""

from __future__ import annotations

import ast
import csv
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

import leadline
from leadline.csv_rows import csv_text


def read_back(*cells: Any, line_end: str = "\n") -> list[list[str]]:
    return list(csv.reader(StringIO(csv_text([cells], line_end=line_end), newline="")))


@pytest.mark.parametrize(
    "text",
    [
        "=1+1",
        "+cmd|' /C calc'!A0",
        "-2+3",
        "@SUM(A1)",
        "\t=1",
        "\r=1",
        " =1",
        "\n=1",
        "\uff1d1",
        "--1",
        "-",
        "-x",
        "+1",
    ],
)
def test_formula_becomes_text(text: str) -> None:
    assert read_back(text, "x") == [[f"'{text}".replace("\r", "\n"), "x"]]


@pytest.mark.parametrize("value", [-1, -1.5, "-1", "-1.5", "-1e-9", "0", "1=1", "a-b", "", "x@y", "'=1", None, True])
def test_number_and_plain_text_stay(value: Any) -> None:
    assert read_back(value) == [["" if value is None else str(value)]]


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_cr_begins_no_row(line_end: str) -> None:
    text = csv_text([["a\r=1", "b\r\nc"], ["d", "e"]], line_end=line_end)
    assert text.replace(line_end, "\n") == '"a\n=1","b\nc"\nd,e\n'


def test_nothing_else_writes_csv() -> None:
    root = Path(leadline.__file__).parent
    found = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if "csv" in (text := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute) and node.attr in ("writer", "DictWriter", "write_csv")
    }
    assert found == {"csv_rows.py"}
