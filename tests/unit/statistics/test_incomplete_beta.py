"""The package's own quantiles against scipy's, also where the arguments are extreme."""

from __future__ import annotations

import math
from itertools import product

import pytest
from scipy.special import bdtr, bdtrik, betainc, betaincinv, stdtrit

from leadline.statistics.incomplete_beta import beta_quantile, binomial_quantile, student_quantile

SHAPES = (0.5, 0.7, 1, 1.5, 2, 3.3, 10, 25.5, 100, 333.3, 1e4, 1e6, 1e7, 1e9)
PROBABILITIES = (1e-12, 1e-6, 1e-3, 0.005, 0.025, 0.05, 0.3, 0.5, 0.7, 0.95, 0.975, 0.995, 1 - 1e-6)
FREEDOMS = (0.1, 0.5, 1, 1.5, 2, 2.5, 3, 4, 7.7, 20, 33.3, 100, 1e3, 1e5, 1e7, 1e9)
CONFIDENCES = (0.01, 0.1, 0.5, 0.8, 0.9, 0.95, 0.99, 0.999, 1 - 1e-9)
NUMBERS = (1.0, 1.7, 2.0, 5.0, 30.3, 100.0, 368.0, 5e3, 1e5, 1e6, 1e8, 1e9)
SHARES = (1e-5, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 0.99999)


def test_beta_quantiles_are_scipys() -> None:
    wrong, compared = [], 0
    for a, b, probability in product(SHAPES, SHAPES, PROBABILITIES):
        theirs = float(betaincinv(a, b, probability))
        # scipy's inverse is not one for a few extreme shapes, and 1e-8 off where one is 2 and the other 1e9.
        if betainc(a, b, theirs) == pytest.approx(probability, rel=1e-7, abs=0) and theirs < 1:
            compared += 1
            tolerance = 1e-10 if max(a, b) < 1e7 else 5e-8
            if beta_quantile(a, b, probability) != pytest.approx(theirs, rel=tolerance, abs=0):
                wrong.append((a, b, probability, theirs))
    assert not wrong
    assert compared > 0.9 * len(SHAPES) ** 2 * len(PROBABILITIES)


@pytest.mark.parametrize("b", [10, 1e5, 1e9])
def test_beta_quantiles_have_the_probability_of_a_closed_form(b: float) -> None:
    for probability in PROBABILITIES:
        x = beta_quantile(2, b, probability)
        assert -math.expm1(b * math.log1p(-x) + math.log1p(b * x)) == pytest.approx(probability, rel=1e-9, abs=1e-15)


def test_beta_quantiles_have_their_probability_where_scipys_inverse_fails() -> None:
    for probability in PROBABILITIES:
        found = beta_quantile(1e3, 1e9, probability)
        assert betainc(1e3, 1e9, found) == pytest.approx(probability, rel=1e-9, abs=0)


def test_students_quantiles_are_scipys() -> None:
    for freedom, confidence in product(FREEDOMS, CONFIDENCES):
        # Of the lower tail: what is added to a half would be rounded.
        theirs = -float(stdtrit(freedom, (1 - confidence) / 2))
        assert student_quantile(freedom, confidence) == pytest.approx(theirs, rel=1e-10, abs=0)


def test_students_quantile_of_hardly_any_confidence_lies_close_to_the_middle() -> None:
    # Where the density is 3/8 for 4 degrees of freedom.
    assert student_quantile(4, 1e-6) == pytest.approx(1e-6 / 2 / (3 / 8), rel=1e-9)


def test_binomial_quantiles_are_scipys() -> None:
    wrong = []
    for number, share, probability in product(NUMBERS, SHARES, PROBABILITIES):
        theirs = min(max(float(bdtrik(probability, number, share)), 0.0), number - 1)
        # Its own tolerance is 1e-10 of the count.
        if binomial_quantile(probability, number, share) != pytest.approx(theirs, rel=2e-10, abs=1e-9):
            wrong.append((number, share, probability, theirs))
    assert not wrong


def test_whole_counts_are_their_cumulative_probabilitys_quantiles() -> None:
    for count in range(20):
        probability = float(bdtr(count, 20, 0.4))
        if 0 < probability < 1 - 1e-9:
            assert binomial_quantile(probability, 20, 0.4) == pytest.approx(count, abs=1e-9)


def test_arguments_without_a_quantile_are_refused() -> None:
    for a, probability in ((0, 0.5), (1, 1.0), (1, 0.0)):
        with pytest.raises(ValueError, match="no quantile"):
            beta_quantile(a, 1, probability)
    for freedom, confidence in ((0, 0.95), (3, 1.0)):
        with pytest.raises(ValueError, match="no quantile"):
            student_quantile(freedom, confidence)
    for number, share in ((0.5, 0.5), (10, 0.0)):
        with pytest.raises(ValueError, match="no quantile"):
            binomial_quantile(0.5, number, share)
