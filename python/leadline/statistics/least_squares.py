"""Least squares whose coefficients are 0 or more: of a linear law exactly, of another one step by step.

For a few coefficients: the linear fit tries every choice of those that are 0.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np

from leadline.statistics.estimate import Values

_MAX_STEPS = 500
_FIRST_DAMPING = 1e-3
_MOST_DAMPING = 1e12
_CLOSE = 1e-12


def solve_nonnegative(terms: Values, values: Values) -> Values:
    """The coefficients, 0 or more, with which the columns of `terms` add up to the values best."""
    sizes = np.linalg.norm(terms, axis=0)
    sizes[sizes == 0] = 1.0
    best, least = np.zeros(len(sizes)), float(values @ values)
    for chosen in product((False, True), repeat=len(sizes)):
        free = np.array(chosen)
        if not free.any():
            continue
        found = np.zeros(len(sizes))
        found[free] = np.linalg.lstsq((terms / sizes)[:, free], values, rcond=None)[0]
        rest = terms / sizes @ found - values
        if found.min() >= 0 and float(rest @ rest) < least:
            best, least = found, float(rest @ rest)
    return np.asarray(best / sizes)


def fit_nonnegative(errors: Callable[[Values], tuple[Values, Values]], start: Values) -> Values:
    """The coefficients, 0 or more, with the least sum of squared errors, close to those of `start`.

    `errors` gives the errors for some coefficients, and a row of slopes for each error; errors that are not finite
    forbid the coefficients. Each step is Levenberg's and Marquardt's, with the coefficients that would leave 0 for
    below it held there.

    Source: D. W. Marquardt, An algorithm for least-squares estimation of nonlinear parameters, Journal of the Society
    for Industrial and Applied Mathematics 11 (1963).
    """
    at = np.array(start, dtype=np.float64)
    found, slopes = errors(at)
    damping = _FIRST_DAMPING
    for _ in range(_MAX_STEPS):
        gradient = slopes.T @ found
        free = (at > 0) | (gradient < 0)
        if not free.any() or damping > _MOST_DAMPING:
            break
        sizes = np.sqrt(damping) * np.diag(np.linalg.norm(slopes[:, free], axis=0))
        step = np.zeros(len(at))
        step[free] = np.linalg.lstsq(
            np.vstack((slopes[:, free], sizes)), -np.concatenate((found, np.zeros(len(sizes)))), rcond=None
        )[0]
        following = np.maximum(at + step, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            errors_there, slopes_there = errors(following)
        if not float(errors_there @ errors_there) <= float(found @ found):
            damping *= 10
            continue
        is_close = bool(np.all(np.abs(following - at) <= _CLOSE * np.maximum(at, following)))
        at, found, slopes = following, errors_there, slopes_there
        damping /= 10
        if is_close:
            break
    return at
