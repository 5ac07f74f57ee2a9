"""The Universal Scalability Law: known coefficients are found, with their peak and knee."""

from __future__ import annotations

import math

import numpy as np
import pytest

from leadline.statistics import scalability
from synthetic import assert_share, contains

NUMBERS = np.repeat([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0], 3)
SETS = (pytest.param(200), pytest.param(2000, marks=pytest.mark.full_matrix))


def law(rate: float, contention: float, coherency: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.asarray(rate * NUMBERS / (1 + contention * (NUMBERS - 1) + coherency * NUMBERS * (NUMBERS - 1)))


@pytest.mark.parametrize("sets", SETS)
def test_known_coefficients_are_found_within_10_percent(sets: int) -> None:
    noise = 1 + 0.02 * np.random.default_rng(1).standard_normal((sets, len(NUMBERS)))
    found = [scalability(NUMBERS, law(1000, 0.05, 0.001) * row) for row in noise]
    truths = {"rate": 1000, "contention": 0.05, "coherency": 0.001, "peak": math.sqrt(0.95 / 0.001)}
    for name, truth in truths.items():
        estimates = [getattr(one, name) for one in found]
        assert_share([abs(one.value / truth - 1) <= 0.1 for one in estimates], 0.95)
        assert_share([contains(one.low, one.high, truth) for one in estimates], 0.92, 0.98)


def test_exact_law_is_found_exactly() -> None:
    found = scalability(NUMBERS, law(1000, 0.05, 0.001))
    assert found is not None and found.peak is not None and found.knee is not None
    assert found.rate.value == pytest.approx(1000, rel=1e-6)
    assert found.contention.value == pytest.approx(0.05, rel=1e-5)
    assert found.coherency.value == pytest.approx(0.001, rel=1e-5)
    assert found.peak.value == pytest.approx(30.82, abs=0.01)
    assert found.throughput(64) == pytest.approx(law(1000, 0.05, 0.001)[-1])
    assert found.residual < 1e-6
    assert found.most_measured == 64


def test_one_percent_more_beyond_the_knee_brings_half_a_percent() -> None:
    found = scalability(NUMBERS, law(1000, 0.05, 0.001))
    assert found is not None and found.knee is not None
    gain = math.log(found.throughput(found.knee * 1.001) / found.throughput(found.knee)) / math.log(1.001)
    assert gain == pytest.approx(0.5, abs=1e-3)


def test_linear_throughput_has_neither_peak_nor_knee() -> None:
    found = scalability(NUMBERS, law(1000, 0, 0))
    assert found is not None
    assert (found.contention.value, found.coherency.value, found.peak, found.knee) == (0, 0, None, None)
    assert found.rate.value == pytest.approx(1000, rel=1e-5)


def test_throughput_that_levels_off_has_a_knee_and_no_peak() -> None:
    found = scalability(NUMBERS, law(1000, 0.1, 0))
    assert found is not None
    assert (found.coherency.value, found.peak) == (0, None)
    assert found.knee == pytest.approx(9, rel=1e-3)


def test_peak_that_noise_may_have_made_is_unbounded() -> None:
    noise = 1 + 0.05 * np.random.default_rng(6).standard_normal((40, len(NUMBERS)))
    peaks = [one.peak for row in noise if (one := scalability(NUMBERS, law(1000, 0.1, 0) * row)) is not None]
    found = [peak for peak in peaks if peak is not None]
    assert found
    assert_share([peak.low is None for peak in found], 0.9)
    assert {peak.reason for peak in found if peak.low is None} == {
        "throughput may also never fall again: coherency may be 0"
    }


def test_peak_of_throughput_that_only_falls_is_unbounded() -> None:
    """Contention near 1: the peak is at one, and its logarithm has no bound that is a number."""
    found = scalability([1, 2, 4, 8, 16], [1003.3, 921.8, 832.0, 671.1, 481.7])
    assert found is not None and found.peak is not None
    assert (found.peak.low, found.peak.high) == (None, None)
    assert found.peak.reason == "throughput may never rise: contention may be 1"


def test_few_numbers_and_figures_without_sense() -> None:
    assert scalability([1.0, 2.0, 4.0], [1.0, 2.0, 3.0]) is None
    with pytest.raises(ValueError, match="above 0"):
        scalability([1.0, 2.0, 4.0, 8.0], [1.0, 2.0, 0.0, 3.0])


def test_interval_of_the_knee_contains_the_truth() -> None:
    contention, coherency = 0.05, 0.001
    # d ln X / d ln N = (1 - contention - coherency N^2) / (1 + ...) is one half there.
    at = np.linspace(1, 60, 600_000)
    cost = 1 + contention * (at - 1) + coherency * at * (at - 1)
    knee = float(at[np.argmin(np.abs((1 - contention - coherency * at**2) / cost - 0.5))])
    found = []
    for noise in np.random.default_rng(6).normal(1.0, 0.02, (1000, len(NUMBERS))):
        fitted = scalability(NUMBERS, law(1000, contention, coherency) * noise)
        assert fitted is not None and fitted.knee_low is not None and fitted.knee_high is not None
        found.append(contains(fitted.knee_low, fitted.knee_high, knee))
    assert_share(found, 0.93, 0.97)
