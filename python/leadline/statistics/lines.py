"""A straight line through figures whose noise is a share of them: a fixed part and a growing one, neither below 0."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from leadline.statistics.estimate import CONFIDENCE, Estimate, Values, t_quantile, unbounded
from leadline.statistics.growth import means_by_number


@dataclass(frozen=True, slots=True)
class Line:
    """`figure = fixed + slope * number`, in the figures' unit."""

    fixed: Estimate
    slope: Estimate
    correlation: float | None = None
    """Of the errors of both, from -1 to 1; None without intervals."""


def line(numbers: ArrayLike, figures: ArrayLike, confidence: float = CONFIDENCE) -> Line | None:
    """The line through per-number means, by least squares of relative errors; None with fewer than two numbers.

    Neither part is below 0: one that would be is 0, and the other is fitted alone. Intervals are Student's t with two
    degrees of freedom fewer than there are numbers, cut off at 0; two numbers have none.

    Source: N. R. Draper, H. Smith, Applied Regression Analysis (3rd edition, 1998), chapters 1 and 9 (weights).

    Raises:
        ValueError: no point, arrays of different lengths, or a figure that is not above 0.
    """
    at, means = means_by_number(numbers, figures)
    if min(means) <= 0:
        raise ValueError("figures have to be above 0: their errors are a share of them")
    if len(at) < 2:
        return None
    terms = np.column_stack((np.ones_like(at), at)) / means[:, np.newaxis]
    found = _above_zero(terms)
    freedom = len(at) - 2
    if freedom < 1:
        reason = "2 numbers give no interval: give at least three"
        fixed, slope = (unbounded(float(value), len(at), reason) for value in found)
        return Line(fixed, slope)
    residuals = terms @ found - 1
    covariance = np.linalg.inv(terms.T @ terms) * float(residuals @ residuals) / freedom
    quantile = t_quantile(freedom, confidence)
    fixed, slope = (
        Estimate(
            float(value),
            max(0.0, float(value) - quantile * math.sqrt(var)),
            float(value) + quantile * math.sqrt(var),
            len(at),
        )
        for value, var in zip(found, np.diag(covariance).tolist(), strict=True)
    )
    spread = math.sqrt(float(covariance[0, 0] * covariance[1, 1]))
    return Line(fixed, slope, float(covariance[0, 1]) / spread if spread > 0 else 0.0)


def _above_zero(terms: Values) -> Values:
    """The coefficients whose sum of terms is nearest to 1, none below 0.

    Where the nearest of all has one below 0, the nearest of those allowed has that one or the other at 0. With two
    coefficients that is all there is to try: a solver of the general problem takes half a second to import.
    """
    found: Values = np.asarray(np.linalg.lstsq(terms, np.ones(len(terms)), rcond=None)[0], dtype=np.float64)
    if found.min() >= 0:
        return found
    alone = np.diag(np.maximum(terms.sum(axis=0) / np.square(terms).sum(axis=0), 0.0))
    residuals = np.square(alone @ terms.T - 1).sum(axis=1)
    nearest: Values = np.asarray(alone[residuals.argmin()], dtype=np.float64)
    return nearest
