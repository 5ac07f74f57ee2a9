"""Ratios of two systems contain the truth, and the four words are right as often as they say."""

from __future__ import annotations

import numpy as np
import pytest

from leadline.statistics import Comparison, Estimate, compare, ratio_of_estimates, ratio_of_means, with_slow_changes
from synthetic import ar1, assert_share, contains

RESAMPLES = (pytest.param(1000), pytest.param(4000, marks=pytest.mark.full_matrix))
"""A quarter of the default is enough to see the method's coverage."""


def noisy(
    repeats: int, deviation: float, seed: int, sets: int = 1000
) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    return 1 + deviation * np.random.default_rng(seed).standard_normal((sets, repeats))


@pytest.mark.parametrize("resamples", RESAMPLES)
@pytest.mark.parametrize("repeats", [3, 5, 10])
def test_interval_contains_the_true_ratio(repeats: int, resamples: int) -> None:
    pairs = zip(noisy(repeats, 0.02, 1), 2 * noisy(repeats, 0.04, 2), strict=True)
    estimates = [ratio_of_means(first, second, resamples=resamples) for first, second in pairs]
    assert_share([contains(found.low, found.high, 2.0) for found in estimates], 0.93, 0.97)


@pytest.mark.parametrize("resamples", RESAMPLES)
def test_interval_of_skewed_repeats_contains_the_true_ratio(resamples: int) -> None:
    rows = np.exp(0.4 * np.random.default_rng(3).standard_normal((500, 20)))
    estimates = [ratio_of_means(row[:10], row[10:], resamples=resamples) for row in rows]
    assert_share([contains(found.low, found.high, 1.0) for found in estimates], 0.93, 0.97)


@pytest.mark.parametrize("resamples", RESAMPLES)
@pytest.mark.parametrize("repeats", [3, 10])
def test_identical_systems_are_called_different_in_at_most_5_percent(repeats: int, resamples: int) -> None:
    pairs = zip(noisy(repeats, 0.02, 4, 4000), noisy(repeats, 0.02, 5, 4000), strict=True)
    words = [
        compare(ratio_of_means(first, second, resamples=resamples), margin=0.01, higher_is_better=True)
        for first, second in pairs
    ]
    assert_share([word in (Comparison.FASTER, Comparison.SLOWER) for word in words], 0.0, 0.05)


@pytest.mark.parametrize("resamples", RESAMPLES)
def test_difference_of_5_percent_under_2_percent_noise_is_found_with_10_repeats(resamples: int) -> None:
    pairs = zip(noisy(10, 0.02, 6), 1.05 * noisy(10, 0.02, 7), strict=True)
    words = [
        compare(ratio_of_means(first, second, resamples=resamples), margin=0.02, higher_is_better=True)
        for first, second in pairs
    ]
    assert_share([word is Comparison.FASTER for word in words], 0.95)


def test_pairs_cancel_what_both_sides_share() -> None:
    common = noisy(10, 0.2, 8, 200)
    pairs = list(zip(common * noisy(10, 0.01, 9, 200), common * 1.05 * noisy(10, 0.01, 10, 200), strict=True))
    together = [ratio_of_means(first, second, paired=True, resamples=1000) for first, second in pairs]
    apart = [ratio_of_means(first, second, resamples=1000) for first, second in pairs]
    assert_share([contains(found.low, found.high, 1.05) for found in together], 0.93, 0.97)
    widths = [np.median([(found.high or 0) - (found.low or 0) for found in side]) for side in (together, apart)]
    assert widths[0] < widths[1] / 5


@pytest.mark.parametrize("repeats", [3, 4, 5, 7, 8, 10])
def test_few_pairs_have_intervals_that_contain_the_truth_and_are_not_wide_by_accident(repeats: int) -> None:
    """Noise of 2 % leaves three pairs uncertain by 6 %; two pairs that happen to be equal must not make it 100 %."""
    common = noisy(repeats, 0.1, 13)
    pairs = zip(common * noisy(repeats, 0.02, 14), 0.9 * common * noisy(repeats, 0.02, 15), strict=True)
    found = [ratio_of_means(first, second, paired=True, resamples=1000) for first, second in pairs]
    assert_share([contains(one.low, one.high, 0.9) for one in found], 0.93, 0.97)
    halves = [half for one in found if (half := one.half_width_ratio) is not None]
    assert len(halves) == len(found)
    assert np.quantile(halves, 0.9) <= {3: 0.13, 4: 0.08, 5: 0.06, 7: 0.05, 8: 0.04, 10: 0.035}[repeats]


def test_pairs_of_which_two_are_equal_have_a_narrow_interval() -> None:
    found = ratio_of_means([100.0, 110.0, 120.0], [90.0, 99.001, 107.0], paired=True)
    assert found.half_width_ratio == pytest.approx(0.013, abs=0.002)


def test_same_seed_gives_the_same_interval() -> None:
    first, second = noisy(10, 0.1, 11, 1)[0], noisy(10, 0.1, 12, 1)[0]
    assert ratio_of_means(first, second) == ratio_of_means(first, second)
    assert ratio_of_means(first, second) != ratio_of_means(first, second, seed=1)


def test_equal_repeats_have_a_ratio_without_width() -> None:
    assert ratio_of_means([2.0] * 3, [3.0] * 3) == Estimate(1.5, 1.5, 1.5, 3)


def test_few_repeats_and_zeros_have_no_interval() -> None:
    assert ratio_of_means([1.0, 1.1], [2.0, 2.1, 2.2]).reason == "2 repeats are too few: 3 of each are needed"
    zero = ratio_of_means([1.0, 1.1, 1.2], [0.0, 0.0, 0.3])
    assert (zero.low, zero.high, zero.reason) == (None, None, "a repeat is not above 0: a ratio to it says nothing")
    with pytest.raises(ValueError, match="the baseline's mean is 0"):
        ratio_of_means([0.0] * 3, [1.0] * 3)
    with pytest.raises(ValueError, match="no pairs"):
        ratio_of_means([1.0] * 3, [1.0] * 4, paired=True)


@pytest.mark.parametrize(
    ("low", "high", "of_rates", "of_times"),
    [
        (1.03, 1.08, "faster", "slower"),
        (0.90, 0.95, "slower", "faster"),
        (1.01, 1.05, "faster", "slower"),
        (0.99, 1.01, "equivalent", "equivalent"),
        (1.001, 1.004, "equivalent", "equivalent"),
        (0.99, 1.03, "cannot tell", "cannot tell"),
        (1.0, 1.05, "cannot tell", "cannot tell"),
        (None, None, "cannot tell", "cannot tell"),
    ],
)
def test_word_for_an_interval(low: float | None, high: float | None, of_rates: str, of_times: str) -> None:
    ratio = Estimate(1.0, low, high, 10)
    assert compare(ratio, margin=0.02, higher_is_better=True) == of_rates
    assert compare(ratio, margin=0.02, higher_is_better=False) == of_times


def test_no_margin_makes_nothing_equivalent_but_the_same() -> None:
    assert compare(Estimate(1.0, 1.0, 1.0, 3), margin=0, higher_is_better=True) is Comparison.EQUIVALENT
    assert compare(Estimate(1.0, 0.999, 1.001, 3), margin=0, higher_is_better=True) is Comparison.CANNOT_TELL
    with pytest.raises(ValueError, match="negative"):
        compare(Estimate(1.0, 1.0, 1.0, 3), margin=-0.1, higher_is_better=True)


@pytest.mark.parametrize("repeats", [3, 7])
def test_ratio_of_two_ratios_contains_the_truth(repeats: int) -> None:
    """Shares of 0.8 and 0.6, each of pairs that move together."""
    generator, found = np.random.default_rng(9), []
    for _ in range(300):
        shares = []
        for truth in (0.8, 0.6):
            whole = 1 + 0.1 * generator.standard_normal(repeats)
            noise = 1 + 0.03 * generator.standard_normal((2, repeats))
            shares.append(ratio_of_means(whole * noise[0], truth * whole * noise[1], paired=True))
        ratio = ratio_of_estimates(*shares)
        found.append(contains(ratio.low, ratio.high, 0.75))
    assert_share(found, 0.94, 1.0)


def test_ratio_of_estimates_without_intervals_has_none() -> None:
    known, unknown = Estimate(0.8, 0.7, 0.9, 5), Estimate(0.4, None, None, 1, "1 repeat is too few")
    found = ratio_of_estimates(known, unknown)
    assert (found.value, found.low, found.reason) == (0.5, None, "1 repeat is too few")
    exact = ratio_of_estimates(Estimate(0.5, 0.5, 0.5, 9), Estimate(0.8, 0.7, 0.9, 5))
    assert exact.low == pytest.approx(1.4)
    assert exact.high == pytest.approx(1.8)
    with pytest.raises(ValueError, match="above 0"):
        ratio_of_estimates(Estimate(0.0, 0.0, 0.0, 3), known)


@pytest.mark.parametrize(("repeats", "share"), [(3, 0.04), (5, 0.055), (10, 0.1)])
def test_slow_changes_between_two_sides_are_allowed_for(repeats: int, share: float) -> None:
    """Half of the variance of equal sides changes slowly: without it 6, 13 and 26 % are called different."""
    chance = np.random.default_rng(10)
    rows = 1 + 0.02 * (ar1(0.8, 1000, 2 * repeats, chance) + chance.standard_normal((1000, 2 * repeats))) / 2**0.5
    sides = [(row[:repeats], row[repeats:]) for row in rows]
    found = [with_slow_changes(ratio_of_means(*pair, resamples=1000), *pair) for pair in sides]
    assert_share([not contains(one.low, one.high, 1.0) for one in found], 0.0, share)


def test_change_of_load_widens_by_its_share() -> None:
    sides = [1.0, 1.0, 1.0], [0.9, 0.9, 0.9]
    found = with_slow_changes(ratio_of_means(*sides), *sides, load_change=0.2)
    assert (found.low, found.high) == pytest.approx((0.9 * 0.8, 0.9 / 0.8))
    unbounded = ratio_of_means(sides[0][:2], sides[1][:2])
    assert with_slow_changes(unbounded, sides[0][:2], sides[1][:2]) == unbounded
