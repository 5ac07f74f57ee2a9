"""Rows of the benchmarks: the ratio of neighbouring rounds, the verdict of a bound, and how both are written."""

from __future__ import annotations

import pytest
from rows import Bound, Row, above, at_least, at_most, below, bounded, compared, failed, line, not_worse, table


def test_ratio_is_the_median_of_the_rounds_and_not_of_the_figures() -> None:
    # The machine was half as fast in the second round: the ratio of the medians would be 1.5.
    row = compared("rate", "k/s", "wrk", [(12, 10), (6, 5), (24, 8)])
    assert row.ratio == pytest.approx(1.2)
    assert row.ratios == pytest.approx((1.2, 3.0))
    assert row.ours == "12 k/s"
    assert row.theirs == "wrk: 8 k/s"
    assert row.holds is None


@pytest.mark.parametrize(
    ("bound", "holds", "misses"),
    [
        (at_most(0.15), 0.15, 0.151),
        (at_least(1.15), 1.15, 1.149),
        (below(0.9), 0.899, 0.9),
        (above(1.3), 1.301, 1.3),
        (Bound("exactly 50,000", lambda count: count == 50_000), 50_000, 49_999),
    ],
)
def test_bound_decides_at_its_edge(bound: Bound, holds: float, misses: float) -> None:
    assert bounded("figure", holds, "", bound).holds is True
    assert bounded("figure", misses, "", bound).holds is False
    assert compared("figure", "", "peer", [(holds, 1)], bound=bound).holds is True
    assert compared("figure", "", "peer", [(misses, 1)], bound=bound).holds is False
    assert bounded("figure", holds, "", bound).bound == bound.says


@pytest.mark.parametrize(
    ("pairs", "is_cost", "holds"),
    [
        ([(106, 100), (107, 100), (108, 100)], True, False),
        ([(104, 100), (104, 100), (104, 100)], True, True),
        ([(120, 100), (120, 100), (99, 100)], True, True),
        ([(50, 100), (50, 100), (50, 100)], True, True),
        ([(94, 100), (93, 100), (92, 100)], False, False),
        ([(94, 100), (93, 100), (101, 100)], False, True),
        ([(200, 100), (200, 100), (200, 100)], False, True),
    ],
    ids=["dearer", "within 5 %", "one round cheaper", "cheaper", "slower", "one round faster", "faster"],
)
def test_figure_is_worse_than_before_only_beyond_the_noise(
    pairs: list[tuple[float, float]], is_cost: bool, holds: bool
) -> None:
    assert not_worse("figure", "", "the older agent", pairs, is_cost=is_cost).holds is holds


def test_failed_row_misses_its_bound_and_says_why() -> None:
    row = failed("sessions", "k6 ended", at_most(0.15))
    assert line(row) == "sessions: failed: k6 ended  (at most 0.15)  MISSED"


def test_line_gives_the_range_of_the_rounds_where_they_differ() -> None:
    assert "ratio 1.20 (1.20 to 3.00)" in line(compared("rate", "", "wrk", [(12, 10), (6, 5), (24, 8)]))
    assert line(compared("rate", "k/s", "wrk", [(6, 5)])) == "rate: 6 k/s  wrk: 5 k/s  ratio 1.20"


def test_table_keeps_a_reason_of_several_lines_in_one_cell() -> None:
    _, _, written = table([Row("rows", "failed: a\nb | c", bound="at most 1", holds=False)])
    assert written == "| rows | failed: a b \\| c |  |  | at most 1, **missed** |"
