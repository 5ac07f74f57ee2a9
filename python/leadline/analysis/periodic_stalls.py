"""Stalls of a rate that come at regular intervals: a property of what is measured (a garbage collection, a flush to
disk), which a longer test would show in the same way, and no instability.

The mean of such a rate is that of its whole cycles, which resemble each other although its intervals do not. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from leadline.analysis.model import Reason
from leadline.statistics import Estimate, mean_of_repeats, mean_of_series
from leadline.statistics.estimate import Values

PERIODIC_STALLS = "periodic-stalls"
MIN_STALLS = 5
"""Fewer may be regular by chance."""
STALLED_SHARE = 0.5
"""Of the median rate: an interval with less belongs to a stall."""
MAX_DEVIATION = 0.1
"""Of the time from one stall to the next, by its mean; or one interval, if that is more."""
MAX_STALLED_SHARE = 0.5
"""Of all intervals: a rate that is low for longer has two levels."""


@dataclass(frozen=True, slots=True)
class Stalls:
    """Regular stalls, in intervals: how many, where the first begins, the time from one to the next, their length (at
    the usual rate, what is missing takes as long)."""

    count: int
    first: int
    period: float
    length: float


def find_stalls(rates: Values) -> Stalls | None:
    """The stalls of a series of rates; None if they are few or irregular."""
    low = rates < STALLED_SHARE * float(np.median(rates))
    begins = np.flatnonzero(np.diff(np.concatenate(([False], low)).astype(np.int8)) == 1)
    if len(begins) < MIN_STALLS or low.mean() > MAX_STALLED_SHARE:
        return None
    gaps = np.diff(begins)
    period = float(gaps.mean())
    if float(np.abs(gaps - period).max()) > max(1.0, MAX_DEVIATION * period):
        return None
    lost = 1 - float(rates.mean()) / float(np.median(rates))
    return Stalls(len(begins), int(begins[0]), period, max(0.0, lost) * len(rates) / len(begins))


def mean_of_rates(rates: Values) -> Estimate:
    """The mean of a series of rates with its interval: of its whole cycles if it stalls regularly."""
    estimate, stalls = mean_of_series(rates), find_stalls(rates)
    if stalls is None:
        return estimate
    grown = np.concatenate(([0.0], np.cumsum(rates)))
    # A stall that begins inside an interval may be seen one interval later.
    starts = max(0.0, stalls.first - 1.0) + stalls.period * np.arange(stalls.count)
    cycles = np.diff(np.interp(starts, np.arange(len(grown)), grown)) / stalls.period
    found = mean_of_repeats(cycles)
    if found.low is None or found.high is None:
        return estimate
    # The window rarely ends with a cycle, so its mean is a little off that of whole ones.
    half = (found.high - found.low) / 2 + abs(estimate.value - found.value)
    return Estimate(estimate.value, estimate.value - half, estimate.value + half, found.independent)


def note(rates: Values, interval_s: float) -> Iterator[Reason]:
    """What a rate with regular stalls says of what is measured."""
    stalls = find_stalls(rates)
    if stalls is not None:
        text = f"the rate stalls for about {stalls.length * interval_s:.2g} s every {stalls.period * interval_s:.2g} s"
        yield Reason(
            PERIODIC_STALLS,
            f"{text}, {stalls.count} times: so regular a pattern is a property of what is measured, as of a collection "
            "of garbage or a flush to disk",
        )
