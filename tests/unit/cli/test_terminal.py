"""Tables on a narrow terminal: a number and its unit stay together. Every command prints them by this console."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

import leadline
from leadline.cli.terminal import Terminal


def printed(renderable: object, width: int) -> list[str]:
    """The lines without the spaces that fill them up."""
    console = Terminal(file=io.StringIO(), width=width)
    console.print(renderable)
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


@pytest.mark.parametrize(
    "quantity", ["±1.6 %", "850 Mbit/s", "12.5 µs", "64.0 MiB", "131 k/s", "≥ 940", "> ±100 %", "7 min"]
)
def test_number_and_unit_share_a_line_at_any_width(quantity: str) -> None:
    whole = f"The plain route carries so much {quantity} and no more than that"
    for width in range(18, len(whole) + 2):
        lines = printed(Padding(Text(whole, style="bold"), (0, 0, 0, 1)), width)
        assert any(quantity in line for line in lines), (width, lines)
        assert " ".join(line.strip() for line in lines) == whole


def test_cells_and_plain_strings_keep_units_and_plain_words_wrap() -> None:
    table = Table.grid()
    table.add_column(width=10)
    table.add_row("in all 5 % of it")
    assert printed(table, 40) == ["in all 5 %", "of it"]
    assert printed("it lost 5 % of it", 9) == ["it lost", "5 % of it"]
    assert printed("3 servers of 12 hosts", 10) == ["3 servers", "of 12", "hosts"]
    assert printed("8 s and 9 seconds", 10) == ["8 s and 9", "seconds"]


def test_no_other_console_is_made() -> None:
    """A console of rich's own would interpret names as markup."""
    package = Path(leadline.__file__).parent
    sources = {path.name: path.read_text(encoding="utf-8") for path in package.rglob("*.py")}
    assert [name for name, source in sources.items() if re.search(r"\bConsole\(", source)] == []
