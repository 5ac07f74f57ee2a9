"""Names that look like rich's markup or emoji codes: every table prints them as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass, replace
from io import StringIO
from typing import Any

import pytest
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from sample_runs import gateway_run, one_result
from sample_trends import compared, regressed

from leadline.cli.terminal import Terminal
from leadline.report import measurement, run_renderables, run_summary
from leadline.report.comparisons import comparison_blocks
from leadline.report.ladders import ladder_blocks
from leadline.report.trends import trend_blocks
from made_ladders import PLAIN, TUNNEL, ladders

PLAIN_NAME = "tcp-up"
# As long as the plain name: the tables have the same layout.
ODD_NAMES = ["[/tcp]", "[red]x", "[/a=b]", ":cat:x"]


def drawn(*blocks: RenderableType) -> str:
    out = StringIO()
    Terminal(file=out, width=160, color_system=None).print(*blocks, sep="\n")
    return out.getvalue()


def renamed(value: Any, odd: str) -> Any:
    """A copy of a record with another name in all of its texts."""
    if isinstance(value, str) and type(value) is str:
        return value.replace(PLAIN_NAME, odd)
    if isinstance(value, dict):
        return {renamed(key, odd): renamed(one, odd) for key, one in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(renamed(one, odd) for one in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{field.name: renamed(getattr(value, field.name), odd) for field in fields(value)})
    return value


@pytest.mark.parametrize("odd", ODD_NAMES)
def test_tables_print_names_as_they_are(odd: str) -> None:
    pair, trend = compared(), regressed()
    pair = replace(pair, figures=tuple(replace(one, metric=PLAIN_NAME) for one in pair.figures))
    histories = tuple(replace(one, plan=f"{PLAIN_NAME} {number}") for number, one in enumerate(trend.histories))
    trend = replace(trend, histories=tuple(replace(one, metric=PLAIN_NAME) for one in histories))
    ladder = [replace(one, sut=PLAIN_NAME) for one in ladders({"c01": TUNNEL, "c02": PLAIN}).values()]
    result = replace(one_result("http"), errors={PLAIN_NAME: 3}, error_examples={PLAIN_NAME: PLAIN_NAME})
    assert PLAIN_NAME in drawn(*trend_blocks(trend)) and PLAIN_NAME in drawn(*comparison_blocks([pair]))
    drawings: list[tuple[Callable[[Any], Iterable[RenderableType]], Any]] = [
        (run_renderables, gateway_run()),
        (run_summary, gateway_run()),
        (trend_blocks, trend),
        (comparison_blocks, [pair]),
        (ladder_blocks, ladder),
        (lambda one: [measurement(one)], result),
    ]
    for draw, record in drawings:
        text = drawn(*draw(record))
        assert PLAIN_NAME in text
        assert drawn(*draw(renamed(record, odd))) == text.replace(PLAIN_NAME, odd)


@pytest.mark.parametrize("odd", ODD_NAMES)
def test_terminal_prints_plain_strings_as_they_are(odd: str) -> None:
    table = Table(f"{odd} head", title=f"{odd} title", caption=f"{odd} caption")
    table.add_row(f"{odd} cell")
    text = drawn(f"{odd} line", Group(f"{odd} group", Padding(f"{odd} padding", (0, 0, 0, 1))), table)
    for word in ("line", "group", "padding", "head", "title", "caption", "cell"):
        assert f"{odd} {word}" in text
