"""The Universal Scalability Law: what contention and coherency cost, where the peak is, and the knee before it.

Owns the fit. The law is a model of throughput against a number of clients, connections or cores; figures that are not a
throughput have `growth`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from leadline.statistics.estimate import CONFIDENCE, Estimate, Values, one_dimension, t_quantile, unbounded
from leadline.statistics.growth import means_by_number
from leadline.statistics.least_squares import fit_nonnegative, solve_nonnegative

LEAST_NUMBERS = 4
"""Three coefficients leave one degree of freedom then. Six numbers are better."""
_FARTHEST = 100.0
"""The factor by which a bound of the knee may be off; beyond it there is none."""
_NONE = 1e-4
"""A contention or coherency that costs less than this share at the largest number is 0."""


@dataclass(frozen=True, slots=True)
class Scalability:
    """Coefficients of X(N) = rate N / (1 + contention (N - 1) + coherency N (N - 1)).

    `rate` is the throughput of one (lambda, also gamma), in the figures' unit; `contention` (sigma, also alpha) is the
    share that is serialised; `coherency` (kappa, also beta) what each pair costs. All are 0 or more.

    `peak` is the number with the highest throughput, None without coherency: throughput then only levels off. `knee` is
    the number from which on one percent more brings less than half a percent of throughput, None where that never
    comes. `residual` is the standard deviation of the figures around the law, as a share of it.
    """

    rate: Estimate
    contention: Estimate
    coherency: Estimate
    peak: Estimate | None
    knee: float | None
    residual: float
    most_measured: float
    """The largest number that was measured: a peak or a knee beyond it is an extrapolation."""
    knee_low: float | None = None
    knee_high: float | None = None
    """Bounds of the knee; None where it has none, or may never come."""

    def throughput(self, number: float) -> float:
        """What the law says at a number, in the figures' unit."""
        cost = 1 + self.contention.value * (number - 1) + self.coherency.value * number * (number - 1)
        return self.rate.value * number / cost


def scalability(numbers: ArrayLike, throughputs: ArrayLike, confidence: float = CONFIDENCE) -> Scalability | None:
    """The law fitted to per-number means; None with fewer than `LEAST_NUMBERS` different numbers.

    Least squares of the logarithms with all coefficients bounded by 0, because noise is a share of the throughput. It
    starts from a form of the law that is linear, where the bounds are exact: N / X is a sum of 1, N - 1 and N (N - 1).
    Intervals are Student's t on the fit's linearised covariance, cut off at 0.

    Measured for rate 1000, contention 0.05 and coherency 0.001 at 1 to 64 (seven numbers, three repeats, 2 % noise):
    the peak, the rate and both coefficients within 10 % of the truth in 99 %, intervals that contain it in 94 to 96 %.

    Source: N. J. Gunther, A general theory of computational scalability based on rational functions, arXiv:0808.1431
    (2008). The knee: L. Kleinrock, Power and deterministic rules of thumb for probabilistic problems in computer
    communications, ICC 1979: throughput divided by response time is greatest where this elasticity is one half.

    Raises:
        ValueError: arrays of different lengths, or a number or a throughput that is not above 0.
    """
    at, means = means_by_number(numbers, throughputs)
    if at[0] <= 0 or min(one_dimension(throughputs)) <= 0:
        raise ValueError("numbers and throughputs have to be above 0")
    if len(at) < LEAST_NUMBERS:
        return None
    found, covariance, residual = _fit(at, means)
    quantile = t_quantile(len(at) - 3, confidence)
    halves = quantile * np.sqrt(np.diag(covariance))
    rate, contention, coherency = (
        Estimate(float(value), max(0.0, float(value - half)), float(value + half), len(at))
        for value, half in zip(found, halves, strict=True)
    )
    knee = _knee(contention.value, coherency.value)
    peak = _peak(contention, coherency, covariance, quantile)
    bounds = _knee_bounds(found, covariance, knee, quantile)
    return Scalability(rate, contention, coherency, peak, knee, residual, float(at[-1]), *bounds)


def _fit(at: Values, means: Values) -> tuple[Values, Values, float]:
    """Rate, contention and coherency; their covariance; and the deviation of the figures' logarithms from the law."""
    start = _start(at, means)
    # In units of `scale` the coefficients are of one size. Those that start at their bound stay there.
    scale = np.array([start[0], 1 / at[-1], 1 / at[-1] ** 2])
    free = start > scale * _NONE

    def errors(scaled: Values) -> tuple[Values, Values]:
        rate, contention, coherency = _whole(scaled, free) * scale
        cost = 1 + contention * (at - 1) + coherency * at * (at - 1)
        slopes = np.column_stack((np.full_like(at, -1 / rate), (at - 1) / cost, at * (at - 1) / cost)) * scale
        return np.asarray(np.log(means * cost / (rate * at))), np.asarray(slopes)

    def free_errors(scaled: Values) -> tuple[Values, Values]:
        found, slopes = errors(scaled)
        return found, slopes[:, free]

    fitted = fit_nonnegative(free_errors, (start / scale)[free])
    coefficients = _whole(fitted, free) * scale
    found, slopes = errors(fitted)
    variance = float(found @ found) / (len(at) - 3)
    covariance = np.asarray(np.linalg.pinv(slopes.T @ slopes) * variance * np.outer(scale, scale), np.float64)
    coefficients = np.where(coefficients > scale * _NONE, coefficients, 0.0)
    return coefficients, covariance, math.sqrt(variance)


def _whole(some: Values, free: NDArray[np.bool_]) -> Values:
    """The coefficients that are free, and 0 for the others."""
    whole = np.zeros(len(free))
    whole[free] = some
    return whole


def _start(at: Values, means: Values) -> Values:
    """The coefficients by linear least squares of relative errors."""
    terms = np.column_stack((np.ones_like(at), at - 1, at * (at - 1)))
    found = solve_nonnegative(terms * (means / at)[:, np.newaxis], np.ones_like(at))
    inverse = found[0] if found[0] > 0 else float(at[0] / means[0])
    return np.array([1 / inverse, found[1] / inverse, found[2] / inverse])


_MAX_HALF_WIDTH = math.log(1e6)
"""Of the logarithm of a peak: a million times more or less is no interval. It grows without bound near contention 1."""


def _peak(contention: Estimate, coherency: Estimate, covariance: Values, quantile: float) -> Estimate | None:
    """The square root of (1 - contention) / coherency; its interval from that of its logarithm."""
    if coherency.value <= 0 or contention.value >= 1:
        return None
    peak = math.sqrt((1 - contention.value) / coherency.value)
    slopes = np.array([0.0, -0.5 / (1 - contention.value), -0.5 / coherency.value])
    half = quantile * math.sqrt(float(slopes @ covariance @ slopes))
    if not coherency.low:
        return unbounded(peak, coherency.independent, "throughput may also never fall again: coherency may be 0")
    if half > _MAX_HALF_WIDTH:
        return unbounded(peak, coherency.independent, "throughput may never rise: contention may be 1")
    return Estimate(peak, peak * math.exp(-half), peak * math.exp(half), coherency.independent)


def _knee_bounds(
    coefficients: Values, covariance: Values, knee: float | None, quantile: float
) -> tuple[float | None, float | None]:
    """The interval of the knee from that of its logarithm, by the coefficients' covariance (delta method)."""
    if knee is None or knee <= 1:
        return None, None
    slopes = np.zeros(3)
    for place in (1, 2):
        step = max(float(coefficients[place]) * 1e-4, 1e-12)
        moved = coefficients.copy()
        moved[place] += step
        beside = _knee(float(moved[1]), float(moved[2]))
        slopes[place] = (math.log(beside or knee) - math.log(knee)) / step
    half = quantile * math.sqrt(max(float(slopes @ covariance @ slopes), 0.0))
    if half > math.log(_FARTHEST):
        return None, None
    return max(1.0, knee * math.exp(-half)), knee * math.exp(half)


def _knee(contention: float, coherency: float) -> float | None:
    """Where d ln X / d ln N = (1 - contention - coherency N²) / (1 + contention (N - 1) + coherency N (N - 1)) is one
    half."""
    if coherency > 0:
        linear = contention - coherency
        knee = (math.sqrt(linear**2 + 12 * coherency * max(1 - contention, 0)) - linear) / (6 * coherency)
    elif contention > 0:
        knee = (1 - contention) / contention
    else:
        return None
    return max(1.0, knee)
