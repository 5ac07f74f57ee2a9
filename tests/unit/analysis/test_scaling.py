"""Exponents that are known beforehand: found, bounded by their interval, and doubted where there is too little."""

from __future__ import annotations

import random

import pytest

from leadline.analysis.model import Growth
from leadline.analysis.scaling import fit

NUMBERS = (50, 100, 200, 400, 800)


def law(
    exponent: float, fixed: float = 0.0, noise: float = 0.0, numbers: tuple[int, ...] = NUMBERS, repeats: int = 1
) -> list[tuple[float, float | None]]:
    """Figures of a law with a fixed cost and even scatter, the same every time."""
    chance = random.Random(7)
    return [
        (number, (fixed + 0.3 * number**exponent) * (1 + chance.uniform(-noise, noise)))
        for number in numbers
        for _ in range(repeats)
    ]


@pytest.mark.parametrize(
    ("exponent", "growth"),
    [(0.0, Growth.CONSTANT), (0.5, Growth.LESS), (1.0, Growth.LINEAR), (1.3, Growth.MORE), (2.0, Growth.MORE)],
)
def test_a_law_without_scatter_is_found_exactly(exponent: float, growth: Growth) -> None:
    found = fit("connect_p50_ms", "ms", law(exponent))
    assert found.exponent == pytest.approx(exponent, abs=1e-9)
    assert found.low == pytest.approx(exponent, abs=1e-6) and found.high == pytest.approx(exponent, abs=1e-6)
    assert found.growth is growth
    assert found.upper_exponent == pytest.approx(exponent, abs=1e-9)
    assert found.notes == ()


@pytest.mark.parametrize("exponent", [0.5, 1.0, 1.5])
def test_the_interval_holds_the_truth_as_often_as_it_promises(exponent: float) -> None:
    chance = random.Random(11)
    held = 0
    for _ in range(400):
        points = [(number, number**exponent * 2 ** chance.gauss(0, 0.1)) for number in NUMBERS]
        found = fit("m", "", points)
        assert found.low is not None and found.high is not None
        held += found.low <= exponent <= found.high
    assert 0.92 <= held / 400 <= 0.98


def test_scatter_that_hides_the_answer_leaves_it_open() -> None:
    clear = fit("m", "", law(1.2, noise=0.02, repeats=3))
    assert clear.growth is Growth.MORE
    blurred = fit("m", "", law(1.2, noise=0.6))
    assert blurred.growth is Growth.UNKNOWN
    assert blurred.low is not None and blurred.low < 1 < (blurred.high or 0)


def test_too_few_numbers_give_no_interval_and_no_answer() -> None:
    two = fit("m", "", law(1.0, numbers=(50, 400)))
    assert two.exponent == pytest.approx(1.0)
    assert (two.low, two.high, two.growth, two.upper_exponent) == (None, None, Growth.UNKNOWN, None)
    assert "2 numbers give no interval" in two.notes[0]
    repeated = fit("m", "", law(1.0, noise=0.01, numbers=(50, 400), repeats=5))
    assert repeated.growth is Growth.UNKNOWN, (
        "two numbers cannot show that the line is one, however often they are tried"
    )
    one = fit("m", "", law(1.0, numbers=(50,), repeats=4))
    assert (one.exponent, one.growth) == (None, Growth.UNKNOWN)
    assert fit("m", "", []).exponent is None


def test_three_numbers_are_told_to_be_few_and_a_short_span_to_be_short() -> None:
    notes = " ".join(fit("m", "", law(1.0, numbers=(50, 100, 150))).notes)
    assert "3 points leave 1 degrees of freedom" in notes
    assert "span a factor of 3 only" in notes


def test_a_fixed_cost_bends_the_line_and_is_named() -> None:
    found = fit("m", "", law(1.0, fixed=100.0))
    assert found.growth is not Growth.LINEAR
    assert found.upper_exponent is not None and found.exponent is not None
    assert found.upper_exponent > found.exponent, "where the fixed cost weighs least it looks most like the truth"
    assert any("a fixed cost hides growth" in note for note in found.notes)
    levelling = fit("m", "", [(number, min(number, 210.0)) for number in NUMBERS])
    assert any("it levels off" in note for note in levelling.notes)


def test_points_without_a_figure_are_left_out_and_counted() -> None:
    found = fit("m", "", [*law(1.0), (1600, None), (3200, 0.0)])
    assert len(found.points) == 5
    assert found.growth is Growth.LINEAR
    assert found.notes == ("2 points have no figure and are left out",)
