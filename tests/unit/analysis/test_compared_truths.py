"""What a tool reports is right, wrong, doubted by the tool itself, or not reported."""

from __future__ import annotations

import pytest

from leadline.analysis.tool_output import Reported
from leadline.analysis.truths import Figure, Mark, Score, ToolRun, compare, score

P99 = Figure("latency_p99_us", "us", tolerance=0.1, slack=500)
LOST = Figure("lost", "count")
LIMIT = Figure("limited_by", "")


@pytest.mark.parametrize(
    ("figure", "true", "reported", "mark"),
    [
        (P99, 200_000.0, Reported(180_000), Mark.RIGHT),
        (P99, 200_000.0, Reported(11_000), Mark.WRONG),
        # ab prints whole milliseconds.
        (P99, 2500.0, Reported(2000), Mark.RIGHT),
        (P99, 10_000.0, Reported(30_000, "at most"), Mark.DOUBTED),
        (P99, 30_000.0, Reported(10_000, "at most"), Mark.WRONG),
        (P99, 30_000.0, Reported(10_000, "at least"), Mark.DOUBTED),
        (P99, 10_000.0, Reported(30_000, "at least"), Mark.WRONG),
        (P99, 10_000.0, Reported(30_000, "not known"), Mark.DOUBTED),
        (P99, 10_000.0, Reported(None, "not known"), Mark.DOUBTED),
        # A bound that is near the truth is right.
        (P99, 10_000.0, Reported(10_500, "at most"), Mark.RIGHT),
        (LOST, 20.0, Reported(20), Mark.RIGHT),
        (LOST, 20.0, Reported(19), Mark.WRONG),
        (LOST, 0.0, Reported(-3), Mark.WRONG),
        (LIMIT, "server", Reported("server"), Mark.RIGHT),
        (LIMIT, "server", Reported("generator"), Mark.WRONG),
        (LIMIT, "server", Reported("not known"), Mark.DOUBTED),
        (LIMIT, "server", Reported(None), Mark.SILENT),
    ],
)
def test_mark_of_a_figure(figure: Figure, true: float | str, reported: Reported, mark: Mark) -> None:
    (comparison,) = compare([figure], {figure.name: true}, {figure.name: reported})
    assert comparison.mark is mark


def test_figure_that_a_tool_lacks_is_silent() -> None:
    (comparison,) = compare([LOST], {"lost": 20.0, "sent": 2000.0}, {})
    assert (comparison.mark, comparison.reported, comparison.off) == (Mark.SILENT, None, None)


def test_offset_is_a_share_of_the_true_value() -> None:
    half, none, words = compare(
        [P99, LOST, LIMIT],
        {"latency_p99_us": 200_000.0, "lost": 0.0, "limited_by": "server"},
        {"latency_p99_us": Reported(100_000), "lost": Reported(4), "limited_by": Reported("link")},
    )
    assert (half.off, none.off, words.off) == (-0.5, None, None)


def test_score_counts_each_mark_and_failure() -> None:
    comparisons = compare(
        [P99, LOST, LIMIT],
        {"latency_p99_us": 200_000.0, "lost": 1.0, "limited_by": "server"},
        {"latency_p99_us": Reported(200_000), "lost": Reported(4)},
    )
    runs = [
        ToolRun("a", "wrk", (), comparisons),
        ToolRun("b", "wrk", (), (), error="wrk did not end"),
        ToolRun("c", "wrk", (), (), undecided="one CPU"),
    ]
    assert score(runs) == Score(right=1, wrong=1, doubted=0, silent=1, failed=1)


@pytest.mark.parametrize(
    ("score", "is_perfect"),
    [
        (Score(2, 0, 0, 0, 0), True),
        (Score(0, 0, 0, 0, 0), False),
        (Score(2, 1, 0, 0, 0), False),
        (Score(2, 0, 1, 0, 0), False),
        (Score(2, 0, 0, 1, 0), False),
        (Score(2, 0, 0, 0, 1), False),
    ],
)
def test_score_is_perfect_if_all_is_right(score: Score, is_perfect: bool) -> None:
    assert score.is_perfect is is_perfect
