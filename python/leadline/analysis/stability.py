"""Decides whether figures are stable: intervals in a test, halves of a test, and repeats of a case.

The plan has one limit (`limits.stability.spread`), a share of the mean. In a test, the window is cut into ten parts
of equal length, and their standard deviation is compared with the limit. Parts with few operations scatter by chance
alone, so that part (the variance of a count is its mean, after Poisson) is subtracted first. A change point is
detected between the window's halves: their means differ by more than the limit, and by more than the parts' noise
explains (Welch's t above `SHIFT_T`). Jumps elsewhere, and several of them, show as spread.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from leadline.analysis.flows import Flow
from leadline.analysis.model import Metric, Reason, Verdict, Window
from leadline.analysis.test_data import TestData
from leadline.analysis.window import rate_columns

# Ten parts: enough for a standard deviation and a test of halves, few enough that one slow interval of 100 ms in a
# window of 10 s does not decide.
PARTS = 10

# A part shorter than one interval would be interpolated between readings, not measured.
LEAST_INTERVALS_PER_PART = 1

# |t| above 4 at eight degrees of freedom: under 0.5 % by chance for one test.
SHIFT_T = 4.0

# Reasons that concern one test.
INTERVALS_DISAGREE, CHANGE_POINT = "intervals-disagree", "change-point"
# One that concerns the repeats of a case.
REPEATS_DISAGREE = "repeats-disagree"


def within_test(data: TestData, flows: Sequence[Flow], window: Window | None) -> Iterator[tuple[Verdict, Reason]]:
    """Disagreement of the parts of one test's window. Not for a rate in stages, whose parts differ by design."""
    parts = _parts(data, flows, window)
    if parts is None or not data.spec.steady:
        return
    mean = float(parts.mean())
    if mean <= 0:
        return
    limit = data.stability_spread
    noise = math.sqrt(mean) if data.spec.counts_units else 0.0
    deviation = math.sqrt(max(0.0, float(parts.var(ddof=1)) - noise**2)) / mean
    if deviation > limit:
        text = f"parts of the window differ by {deviation:.1%} of their mean; the limit is {limit:.1%}"
        yield Verdict.UNSTABLE, Reason(INTERVALS_DISAGREE, text)
    first, second = parts[: PARTS // 2], parts[PARTS // 2 :]
    shift = float(second.mean() - first.mean())
    error = math.sqrt(max(float(first.var(ddof=1) + second.var(ddof=1)), 2 * noise**2) / (PARTS // 2))
    if abs(shift) > limit * mean and abs(shift) > SHIFT_T * error:
        change = f"the second half of the window differs from the first by {shift / mean:+.1%} of the mean"
        text = f"{change}; the limit is {limit:.1%}"
        yield Verdict.UNSTABLE, Reason(CHANGE_POINT, text)


def between_repeats(figure: Metric, values: Sequence[float], limit: float, name: str) -> Reason | None:
    """Repeats that leave a figure's mean less certain than the plan allows: half of its 95 % interval by the mean.

    The interval of two repeats has 12.7 standard errors on each side, which says little: their distance is taken.
    """
    mean = figure.value or 0.0
    if len(values) < 2 or mean <= 0 or figure.low is None or figure.high is None:
        return None
    if len(values) == 2:
        spread, what = abs(values[1] - values[0]) / mean, f"the two repeats' {name} differ by"
    else:
        spread, what = (figure.high - figure.low) / 2 / mean, f"{len(values)} repeats leave {name} uncertain by ±"
    if spread <= limit:
        return None
    return Reason(
        REPEATS_DISAGREE, f"{what}{'' if what.endswith('±') else ' '}{spread:.1%} of the mean; the limit is {limit:.1%}"
    )


def _parts(data: TestData, flows: Sequence[Flow], window: Window | None) -> NDArray[np.float64] | None:
    """Growth of the leading counter in each of ten equal parts; None if the window is too short."""
    if window is None:
        return None
    _, _, curves = rate_columns(data.spec, flows)[0]
    length_ns = window.end_ns - window.start_ns
    if not curves or length_ns < PARTS * LEAST_INTERVALS_PER_PART * data.spec.interval_ns:
        return None
    if not any(len(curve.t_ns) > 2 for curve in curves):
        return None  # only totals: the rate is even by construction, which proves nothing
    edges = np.linspace(window.start_ns, window.end_ns, PARTS + 1)
    return np.asarray(np.diff(np.sum([curve.at(edges) for curve in curves], axis=0)), dtype=np.float64)
