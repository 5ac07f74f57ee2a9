"""Quantiles of the beta distribution, of Student's t and of the binomial distribution: all of them are inverses of one
integral, the regularised incomplete beta function I_x(a, b).

Owns that integral and its inverses, to 1e-10 of their value or better, for shapes of 0.5 to 1e9. scipy has them too,
and is larger than all else that is installed (`docs/decisions/0016-small-installation.md`); the tests compare both.

The tail that x lies in is integrated by Gauss and Legendre's rule, outward from x: neither rounding nor cost grows with
the shapes, as those of a continued fraction do.

Source: NIST Digital Library of Mathematical Functions, 8.17. The factor before the integral: C. Loader, Fast and
accurate computation of binomial probabilities (2000).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray

_NODES = 48
_RANGE = 38.0
"""The logarithm by which the integrand has fallen where the integral ends: e^-38 is below the rounding of a sum."""
_MOST_LOG_ODDS = 700.0
_CLOSE_TO_STEP, _CLOSE_TO_SECANT = 1e-5, 1e-8
"""How far the logarithm of a probability may be from its goal for a step of Halley's, which cubes that, or a secant's
to be the last."""
_MAX_STEPS = 200
_STIRLING_FROM = 16.0


def beta_quantile(a: float, b: float, probability: float) -> float:
    """The x with I_x(a, b) = `probability`: what a beta-distributed value stays below with this probability.

    Raises:
        ValueError: a shape is not above 0, or `probability` does not lie between 0 and 1.
    """
    if not (a > 0 and b > 0 and 0 < probability < 1):
        raise ValueError(f"a beta distribution of shapes {a} and {b} has no quantile at {probability}")
    likely = math.log(a) - math.log(b)
    if a > 1 and b > 1:
        # Abramowitz and Stegun, 26.5.22.
        normal = normal_quantile(probability)
        middle, skew = 2 / (1 / (2 * a - 1) + 1 / (2 * b - 1)), 1 / (2 * b - 1) - 1 / (2 * a - 1)
        square = (normal**2 - 3) / 6
        likely += 2 * (normal * math.sqrt(middle + square) / middle + skew * (square + 5 / 6 - 2 / (3 * middle)))
    return _share(_beta_log_odds(a, b, probability, likely))


def student_quantile(freedom: float, confidence: float) -> float:
    """The bound that |t| stays below with a probability of `confidence`, for Student's t with `freedom` degrees of
    freedom.

    Raises:
        ValueError: `freedom` is not above 0, or `confidence` does not lie between 0 and 1.
    """
    if not (freedom > 0 and 0 < confidence < 1):
        raise ValueError(f"t has no quantile for {freedom} degrees of freedom at {confidence}")
    # Abramowitz and Stegun, 26.7.5.
    normal = normal_quantile(0.5 + confidence / 2)
    likely = normal + (normal**3 + normal) / (4 * freedom) + (5 * normal**5 + 16 * normal**3) / (96 * freedom**2)
    # |t| exceeds the bound with the probability I_x(freedom / 2, 1 / 2), where x is freedom / (freedom + bound²).
    log_odds = _beta_log_odds(
        freedom / 2, 0.5, 1 - confidence, math.log(freedom) - 2 * math.log(max(likely, confidence))
    )
    return math.sqrt(freedom * math.exp(-log_odds))


def binomial_quantile(probability: float, number: float, share: float) -> float:
    """The count k with I_1-share(number - k, k + 1) = `probability`: at most k of `number` independent values, each of
    which is counted with the probability `share`, are counted with this probability. Neither k nor `number` need be
    whole; k goes from 0 to `number` - 1, which are the result where the quantile lies beyond them.

    Raises:
        ValueError: `number` is below 1, or one of the others does not lie between 0 and 1.
    """
    if number < 1 or not 0 < probability < 1 or not 0 < share < 1:
        raise ValueError(f"a count of {number} at {share} has no quantile at {probability}")
    if number * math.log1p(-share) >= math.log(probability):
        return 0.0
    if number * math.log(share) >= math.log1p(-probability):
        return number - 1.0
    log_odds = math.log1p(-share) - math.log(share)

    def excess(count: float) -> float:
        """By how much the logarithm of the smaller of both tails at a count is too high for the quantile."""
        a, b = number - count, count + 1
        if probability <= 0.5:
            return _log_probability(a, b, log_odds)[0] - math.log(probability)
        return math.log1p(-probability) - _log_probability(b, a, -log_odds)[0]

    # Cornish and Fisher's expansion, with the half of a count that continuity asks for.
    normal, deviation = normal_quantile(probability), math.sqrt(number * share * (1 - share))
    likely = number * share - 0.5 + normal * deviation + (1 - 2 * share) * (normal**2 - 1) / 6
    return _root(excess, 0.0, number - 1.0, likely, 0.01 * deviation)


def _root(function: Callable[[float], float], low: float, high: float, likely: float, step: float) -> float:
    """Where a function that rises from below 0 at `low` to above 0 at `high` is 0: by secants through the latest two
    points, or by halving what may hold the root where a secant leaves that. Begins with two points close to `likely`.
    """
    before, at = (min(max(point, low), high) for point in (likely, likely + step))
    value_before, value = function(before), function(at)
    for _ in range(_MAX_STEPS):
        low, high = (max(low, at), high) if value < 0 else (low, min(high, at))
        slope = (value - value_before) / (at - before) if at != before else 0.0
        following = at - value / slope if slope > 0 else low
        if slope > 0 and abs(value) <= _CLOSE_TO_SECANT:
            return following
        if not low < following < high:
            following = (low + high) / 2
        before, value_before = at, value
        at, value = following, function(following)
    return at


def normal_quantile(probability: float) -> float:
    """The value that a normal variable stays below with this probability, within 0.0005: Abramowitz and Stegun,
    26.2.23."""
    root = math.sqrt(-2 * math.log(min(probability, 1 - probability)))
    above = 2.515517 + root * (0.802853 + root * 0.010328)
    below = 1 + root * (1.432788 + root * (0.189269 + root * 0.001308))
    return math.copysign(root - above / below, probability - 0.5)


def _beta_log_odds(a: float, b: float, probability: float, likely: float) -> float:
    """The logarithm of x / (1 - x) at a quantile, which is exact close to both ends; `likely` is close to it."""
    if probability > 0.5:
        return -_lower_log_odds(b, a, math.log1p(-probability), -likely)
    return _lower_log_odds(a, b, math.log(probability), likely)


def _lower_log_odds(a: float, b: float, log_probability: float, likely: float) -> float:
    """The same for a probability of at most a half, by Halley's steps: the logarithm of I_x is concave in that of the
    odds."""
    at = likely
    for _ in range(_MAX_STEPS):
        at = min(max(at, -_MOST_LOG_ODDS), _MOST_LOG_ODDS)
        found, scale = _log_probability(a, b, at)
        off = found - log_probability
        bend = a - (a + b) * _share(at) - 1 / scale
        at -= off * scale / max(1 - off * scale * bend / 2, 0.5)
        if abs(off) <= _CLOSE_TO_STEP or (off > 0 and at < -_MOST_LOG_ODDS):
            break
    return at


def _log_probability(a: float, b: float, log_odds: float) -> tuple[float, float]:
    """The logarithm of I_x(a, b), and the inverse of its slope over the logarithm of the odds."""
    if log_odds <= math.log(a) - math.log(b):
        return _log_tail(a, b, log_odds)
    beyond, scale = _log_tail(b, a, -log_odds)
    inside = -math.expm1(min(beyond, -1e-300))
    # Far beyond the quantile nothing is left above: any large number says so.
    return math.log(inside), scale * inside / max(math.exp(beyond), 1e-300)


def _log_tail(a: float, b: float, log_odds: float) -> tuple[float, float]:
    """The same for an x of at most a / (a + b).

    With t = x e^-v the integral is x^a (1 - x)^(b - 1) / B(a, b) times that of e^-av ((1 - x e^-v) / (1 - x))^(b - 1)
    over all v from 0 on.
    """
    odds = math.exp(log_odds)
    nodes, weights = _rule()
    end = _integral_end(a, b, odds)
    v = nodes * end
    heights = np.exp((b - 1) * np.log1p(-odds * np.expm1(-v)) - a * v)
    integral = float(heights @ weights) * end * (1 + odds)
    return _log_factor(a, b, log_odds) + math.log(integral), integral


def _integral_end(a: float, b: float, odds: float) -> float:
    """A v where the integrand has fallen by `_RANGE`: by Newton's steps, which come from above after the first, for its
    logarithm is concave. Below a shape of 1 it falls faster than e^-av."""
    end = _RANGE / a
    if b <= 1:
        return end
    for _ in range(_MAX_STEPS):
        left = math.exp(-end)
        growth = odds * (1 - left)
        height = (b - 1) * math.log1p(growth) - a * end
        slope = (b - 1) * odds * left / (1 + growth) - a
        step = (height + _RANGE) / slope
        end -= step
        if abs(step) <= 0.05 * end:
            break
    return end


@cache
def _rule() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Nodes and weights from 0 to 1, closest at 0: where a shape is below 1 the integrand has a pole just before."""
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    roots = (nodes + 1) / 2
    return roots**2, weights * roots


def _log_factor(a: float, b: float, log_odds: float) -> float:
    """The logarithm of x^a (1 - x)^b / B(a, b), without the rounding of gamma functions that nearly cancel."""
    total = a + b
    stirling = _stirling_rest(total) - _stirling_rest(a) - _stirling_rest(b)
    # a / 2πtotal first: the product of two shapes may be too large.
    size = math.log(a / total * b / (2 * math.pi)) / 2
    return size + stirling - _deviance(a, total, log_odds) - _deviance(b, total, -log_odds)


def _deviance(shape: float, total: float, log_odds: float) -> float:
    """shape ln(shape / expected) + expected - shape, where `expected` is the total times x."""
    x = _share(log_odds)
    off = (total * x - shape) / shape
    logarithm = math.log1p(off) if off > -0.5 else math.log(total / shape) + math.log(x)
    return shape * (off - logarithm)


def _stirling_rest(z: float) -> float:
    """The logarithm of Γ(z + 1) without Stirling's (z + 1/2) ln z - z + ln(2π) / 2."""
    if z < _STIRLING_FROM:
        return math.lgamma(z + 1) - (z + 0.5) * math.log(z) + z - math.log(2 * math.pi) / 2
    square = z * z
    return (1 / 12 - (1 / 360 - (1 / 1260 - (1 / 1680 - 1 / (1188 * square)) / square) / square) / square) / z


def _share(log_odds: float) -> float:
    """The x whose odds these are."""
    return 1 / (1 + math.exp(-log_odds))
