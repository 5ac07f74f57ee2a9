"""Fits whose coefficients are 0 or more, against scipy's."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import least_squares, nnls

from leadline.statistics.least_squares import fit_nonnegative, solve_nonnegative

Values = NDArray[np.float64]


def test_linear_fits_are_scipys() -> None:
    random = np.random.default_rng(3)
    for _ in range(200):
        size = 10 ** random.uniform(-6, 6, 3)
        terms = random.uniform(-0.3, 1, (int(random.integers(3, 12)), 3)) * size
        values = random.standard_normal(len(terms))
        theirs, _ = nnls(terms / size, values)
        assert solve_nonnegative(terms, values) * size == pytest.approx(theirs, rel=1e-9, abs=1e-12)


def test_terms_that_only_take_away_have_no_part() -> None:
    terms = np.array([[-1.0, 0.0], [-2.0, 0.0], [-3.0, 0.0]])
    assert solve_nonnegative(terms, np.array([1.0, 2.0, 3.0])).tolist() == [0, 0]


def decay(at: Values, truth: Values, noise: Values) -> Values:
    return np.asarray(truth[0] * np.exp(-truth[1] * at) + truth[2] + noise)


def test_curved_fits_are_scipys_also_at_their_bounds() -> None:
    random = np.random.default_rng(4)
    at = np.linspace(0, 4, 15)
    at_bounds = 0
    for number in range(60):
        truth = np.array([5.0, 0.7, 0.0 if number % 2 else 1.0])
        figures = decay(at, truth, 0.05 * random.standard_normal(len(at)))

        def errors(x: Values, figures: Values = figures) -> tuple[Values, Values]:
            fading = np.exp(-x[1] * at)
            slopes = np.column_stack((fading, -x[0] * at * fading, np.ones_like(at)))
            return np.asarray(x[0] * fading + x[2] - figures), slopes

        start = np.array([3.0, 0.3, 0.5])
        theirs = least_squares(
            lambda x: errors(x)[0], start, lambda x: errors(x)[1], (0, np.inf), xtol=1e-15, ftol=1e-15, gtol=1e-15
        ).x
        found = fit_nonnegative(errors, start)
        assert found == pytest.approx(theirs, rel=1e-5, abs=1e-5)
        # Never worse than the oracle, which stays off its bounds by a hair.
        assert np.sum(errors(found)[0] ** 2) <= np.sum(errors(theirs)[0] ** 2) * (1 + 1e-12)
        at_bounds += int(found[2] == 0)
    assert 10 <= at_bounds <= 30


def test_coefficients_without_finite_errors_are_not_taken() -> None:
    def errors(x: Values) -> tuple[Values, Values]:
        return np.log(x) - 3.0, 1 / x[:, np.newaxis]

    assert fit_nonnegative(errors, np.array([1e4]))[0] == pytest.approx(np.exp(3), rel=1e-12)
