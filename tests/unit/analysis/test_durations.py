"""Durations under right-censoring: a textbook's figures, loads in virtual time whose truth is known, and bounds that
hold whatever the truth is."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_journals import histogram

from leadline.analysis.durations import Figure, Sample, curve, distribution
from leadline.analysis.histograms import EMPTY, decode

MS = 1_000_000

# Remission of leukaemia under 6-mercaptopurine, weeks (Freireich et al. 1963), the standard example of the estimate.
RELAPSED = (6, 6, 6, 7, 10, 13, 16, 22, 23)
STILL_WELL = (6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35)

PERCENTILES = (0.0, 1.0, 10.0, 50.0, 75.0, 90.0, 99.0, 99.9, 100.0)


def recorded(completed_us: Iterable[float], ages_us: Iterable[float] = (), independent: bool = True) -> Sample:
    parts = (decode(histogram("x", [round(us * 1000) for us in values])) for values in (completed_us, ages_us))
    return Sample(*parts, independent=independent)


def near(value: float) -> Any:
    return pytest.approx(value, rel=2e-3)


def nearest_rank(ordered: Sequence[float], percentile: float) -> float:
    return ordered[max(1, math.ceil(percentile / 100 * len(ordered))) - 1]


def test_a_textbooks_quantiles_and_restricted_mean() -> None:
    found = recorded(RELAPSED, STILL_WELL)
    # Its survival: 0.857, 0.807, 0.753, 0.690, 0.627, 0.538, 0.448.
    for percentile, weeks in ((14.0, 6), (15.0, 7), (24.0, 10), (30.0, 13), (37.0, 16), (46.0, 22), (55.0, 23)):
        assert found.percentile(percentile) == Figure(near(weeks)), percentile
    assert found.percentile(56.0).is_bound
    assert found.mean == Figure(near(23.287), is_bound=True)


def test_without_ages_every_figure_is_the_histograms() -> None:
    plain = decode(histogram("x", [value * 1000 for value in (1, 2, 2, 9, 400)]))
    found = Sample(plain)
    assert found.percentile(60.0) == Figure(plain.percentile_us(60.0))
    assert (found.mean, found.stdev) == (Figure(plain.mean_us), Figure(plain.stdev_us))
    assert (found.min, found.max) == (Figure(plain.min_us), Figure(plain.max_us))
    assert (found.within_stdev, found.is_open) == (plain.within_stdev, False)
    nothing = Sample(EMPTY)
    assert (nothing.percentile(50.0), nothing.mean, nothing.min) == (Figure(None), Figure(None), Figure(None))
    assert curve("x", nothing).points == ()


def closed_loop(takes_ms: Callable[[], float], connections: int, lasts_ms: float) -> Sample:
    """What a closed loop records in virtual time: each connection's answers, and the age of its last request."""
    completed, ages = [], []
    for _ in range(connections):
        now_ms = 0.0
        while (ended_ms := now_ms + takes_ms()) < lasts_ms:
            completed.append((ended_ms - now_ms) * 1000)
            now_ms = ended_ms
        ages.append((lasts_ms - now_ms) * 1000)
    return recorded(completed, ages)


def test_a_server_that_always_takes_900_ms_is_known_after_a_second() -> None:
    found = closed_loop(lambda: 900.0, connections=20, lasts_ms=1000)
    for figure in (found.min, found.percentile(1.0), found.percentile(50.0), found.mean, found.percentile(99.0)):
        assert figure == Figure(near(900_000))
    assert (found.count, found.censored) == (20, 20)


def test_a_constant_latency_has_it_as_every_figure() -> None:
    chance = random.Random(1)
    found = closed_loop(lambda: 100.0 + chance.uniform(-0.5, 0.5), connections=10, lasts_ms=1050)
    for figure in (found.min, found.percentile(1.0), found.percentile(50.0), found.mean, found.percentile(99.0)):
        assert not figure.is_bound
        assert figure.value_us == pytest.approx(100_000, rel=0.02)


@pytest.mark.parametrize("shape", ["exponential", "bimodal", "uniform"])
def test_a_load_of_few_answers_a_connection_is_estimated_without_bias(shape: str) -> None:
    chance = random.Random(7)
    draws: dict[str, Callable[[], float]] = {
        "exponential": lambda: chance.expovariate(1 / 300),
        "bimodal": lambda: 600.0 if chance.random() < 0.3 else 40.0,
        "uniform": lambda: chance.uniform(0, 600),
    }
    draw = draws[shape]
    truth = sorted(draw() for _ in range(200_000))
    found = closed_loop(draw, connections=20_000, lasts_ms=1000)
    for percentile in (25.0, 50.0, 75.0, 90.0):
        exact = nearest_rank(truth, percentile) * 1000
        assert found.percentile(percentile).value_us == pytest.approx(exact, rel=0.03), percentile
        assert not found.percentile(percentile).is_bound
    # What was completed in time alone is too fast, and ages as values are worse.
    if shape == "exponential":
        naive = found.completed.percentile_us(90.0)
        assert naive is not None and naive < 0.9 * nearest_rank(truth, 90.0) * 1000


def test_a_stall_to_the_end_is_in_the_percentiles() -> None:
    # 1,000 requests a second for five; from the third second on none is answered.
    found = recorded([1000.0] * 3000, [number * 1000.0 for number in range(2000)])
    assert found.percentile(50.0) == Figure(near(1000))
    p99 = found.percentile(99.0)
    assert p99.is_bound and p99.value_us == near(1_950_000)
    assert found.max == Figure(near(1_999_000), is_bound=True)
    assert found.mean.is_bound and found.mean.value_us is not None and found.mean.value_us > 0.4 * 1_000_000


def test_nothing_answered_bounds_everything_by_the_ages() -> None:
    found = recorded([], [100.0, 200.0, 300.0, 400.0])
    assert found.percentile(50.0) == Figure(near(200), is_bound=True)
    assert (found.min, found.max) == (Figure(near(100), is_bound=True), Figure(near(400), is_bound=True))
    assert (found.mean, found.stdev.value_us, found.within_stdev) == (Figure(near(250), is_bound=True), None, None)


def test_a_time_out_opens_the_tail_and_not_the_rest() -> None:
    found = recorded([float(us) for us in range(1, 1000)], [10_000.0])
    assert found.percentile(50.0) == Figure(near(500))
    assert found.percentile(99.9) == Figure(near(999))
    assert found.percentile(99.99) == Figure(near(10_000), is_bound=True)
    assert found.max == Figure(near(10_000), is_bound=True) and found.mean.is_bound


def test_a_growing_queue_gives_bounds_and_no_estimate() -> None:
    # Twice of what is served, for ten seconds: request n of 20,000 is due at n/2 ms and served at n ms. The true median
    # of all that fell due is 5 s. As if censoring were independent, it would be 3.75 s.
    completed = [number * 500.0 for number in range(10_000)]
    ages = [(10_000 - number / 2) * 1000.0 for number in range(10_000, 20_000)]
    as_if = recorded(completed, ages).percentile(50.0)
    assert as_if.value_us is not None and 3_600_000 < as_if.value_us < 3_900_000
    found = recorded(completed, ages, independent=False)
    median = found.percentile(50.0)
    assert median.is_bound and median.value_us == near(2_500_000)
    assert found.mean.is_bound and found.max.is_bound and found.stdev == Figure(None)
    # Requests without an age may as well have just been due.
    unaged = Sample(found.completed, found.ages, unaged=20_000, independent=False)
    assert unaged.percentile(50.0).value_us == pytest.approx(0, abs=1)


OUTCOMES = st.lists(st.tuples(st.integers(1, 10_000_000), st.integers(0, 10_000_000)), min_size=1, max_size=80)


@settings(max_examples=60, deadline=None)
@given(OUTCOMES)
def test_without_independence_no_figure_exceeds_the_truth(outcomes: list[tuple[int, int]]) -> None:
    """Of each operation how long it would have taken and when observation ends, both ns, however they depend."""
    completed = [takes / 1000 for takes, until in outcomes if takes <= until]
    found = recorded(completed, [until / 1000 for takes, until in outcomes if takes > until], independent=False)
    truth = sorted(takes / 1000 for takes, _ in outcomes)
    for percentile in PERCENTILES:
        figure, exact = found.percentile(percentile), nearest_rank(truth, percentile)
        assert figure.value_us is not None
        assert figure.value_us <= exact * 1.012 + 0.002
        assert figure.is_bound or figure.value_us >= exact * 0.988 - 0.002
    assert found.mean.value_us is not None and found.mean.value_us <= sum(truth) / len(truth) * 1.002 + 0.002


@settings(max_examples=60, deadline=None)
@given(OUTCOMES)
def test_ages_raise_a_quantile_and_never_lower_it(outcomes: list[tuple[int, int]]) -> None:
    completed = [takes / 1000 for takes, until in outcomes if takes <= until]
    ages = [until / 1000 for takes, until in outcomes if takes > until]
    found, without, pooled = recorded(completed, ages), recorded(completed), recorded([*completed, *ages])
    before = 0.0
    for percentile in PERCENTILES:
        value_us = found.percentile(percentile).value_us
        least_us = [sample.percentile(percentile).value_us or 0.0 for sample in (without, pooled)]
        assert value_us is not None
        # An age bounds by its bucket's lowest value.
        assert value_us >= max(least_us) * 0.999 - 0.001
        assert value_us >= before
        before = value_us
    if completed:
        assert found.mean.value_us is not None and pooled.mean.value_us is not None
        assert found.mean.value_us >= pooled.mean.value_us * 0.998 - 0.002


def test_a_distribution_and_a_curve_name_their_lower_bounds() -> None:
    stalled = recorded([1000.0] * 900, [50_000.0] * 100)
    found = distribution("latency", stalled)
    assert (found.count, found.censored) == (900, 100)
    assert found.bounds == ("mean", "stdev", "max", "95", "98", "99", "99.9", "99.99", "99.999")
    assert found.is_bound(99.0) and found.is_bound("max") and not found.is_bound(90.0)
    drawn = curve("latency", stalled)
    assert drawn.count == 1000 and drawn.open_from is not None and 90.0 < drawn.open_from <= 91.25
    assert [value for percentile, value in drawn.points if percentile >= drawn.open_from] == sorted(
        value for percentile, value in drawn.points if percentile >= drawn.open_from
    )
    assert curve("latency", recorded([1000.0] * 900)).open_from is None


def test_a_curve_climbs_to_five_nines_but_not_past_what_was_counted() -> None:
    many = curve("latency", Sample(decode(histogram("latency", range(1000, 1_201_000)))))
    percentiles = [percentile for percentile, _ in many.points]
    values = [value for _, value in many.points]
    assert percentiles[0] == 0
    assert percentiles[-1] == 99.999
    assert percentiles == sorted(set(percentiles))
    assert values == sorted(values)
    assert 50.0 in percentiles
    few = curve("latency", recorded([1, 2, 3, 4]))
    assert few.points[-1][0] == 75.0
    assert curve("latency", recorded([5])).points == ((0.0, 5.003),)
