"""Estimates quantiles, mean and spread of durations of which some are only known as a lower bound (right-censored).

A request without an answer when it was given up, or at the end, took at least its age. Each figure states whether it
is a lower bound. Why Kaplan-Meier, its assumptions, and the alternative if they do not hold:
docs/decisions/0008-censored-latencies.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from leadline.analysis.histograms import EMPTY, NS_PER_US, Histogram, merge, rank_of
from leadline.analysis.model import Distribution, Percentiles

DISTRIBUTION_PERCENTILES = (50.0, 66.0, 75.0, 80.0, 90.0, 95.0, 98.0, 99.0, 99.9, 99.99, 99.999)
"""Percentiles of a `Distribution`: those that Leadline, wrk or ab prints."""

# The last percentile of a curve, and how many points halve the distance to 100 %.
_LAST_PERCENTILE = 99.999
_POINTS_PER_HALVING = 5
# Products of survival shares are exact to about 1e-13. One value in a billion is more than this.
_ROUNDING = 1e-9
# If completed durations alone give an upper bound this close, the quantile is known.
_CLOSE = 1.01

BEYOND_NS = 1 << 62
"""Longer than any duration: that of an operation of which no more than its age is known."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of a distribution, µs; `is_bound` if it is a lower bound."""

    value_us: float | None
    is_bound: bool = False


class Sample:
    """Completed durations, and the ages of operations that did not complete.

    Without `is_known` the durations could not be read, and the sample is empty.

    `unaged` operations are outstanding without an age, which counts as 0. Ages are `independent` if an operation's
    censoring does not depend on how long it would have taken; with a backlog it does, and where all of them `end
    together`, after a stall.
    """

    def __init__(
        self,
        completed: Histogram,
        ages: Histogram = EMPTY,
        *,
        unaged: int = 0,
        independent: bool = True,
        end_together: bool = False,
        is_known: bool = True,
    ) -> None:
        self.completed = completed
        self.is_known = is_known
        self.ages = ages
        self.censored = ages.count + unaged
        self._independent = independent and not end_together
        self._is_bracketed = independent
        if self.censored:
            self._survival = _kaplan_meier(completed, ages)
            self._pooled = merge((completed, ages, _zeros(unaged)))

    @property
    def count(self) -> int:
        """The number of known durations."""
        return self.completed.count

    @property
    def counts(self) -> tuple[int | None, int | None]:
        """The number of known durations and of ages, as figures: unknown if they could not be read."""
        return (self.count, self.censored) if self.is_known else (None, None)

    @property
    def extremes(self) -> tuple[Histogram, Histogram] | None:
        """All durations as if those of outstanding operations were their ages, and as if they were longer than any
        (`BEYOND_NS`): the true distribution lies between the two. None with a backlog."""
        if not self._is_bracketed:
            return None
        if not self.censored:
            return self.completed, self.completed
        beyond = Histogram(*(np.array([value], dtype=np.int64) for value in (BEYOND_NS, BEYOND_NS, self.censored)))
        return self._pooled, merge((self.completed, beyond))

    @property
    def is_open(self) -> bool:
        """Whether part of the distribution lies beyond all observed values."""
        if not self.censored:
            return False
        return not self._independent or not self.count or float(self._survival[-1]) > 0.0

    @property
    def min(self) -> Figure:
        """The shortest duration; without any, the smallest age."""
        if self.count or not self.censored:
            return Figure(self.completed.min_us)
        return Figure(self._pooled.min_us, is_bound=True)

    @property
    def max(self) -> Figure:
        """The longest duration, or the greatest age if that is larger."""
        if not self.censored:
            return Figure(self.completed.max_us)
        oldest_us = float(self._pooled.lows_ns[-1]) / NS_PER_US
        return Figure(max(self.completed.max_us or 0.0, oldest_us), self.is_open)

    @property
    def mean(self) -> Figure:
        """The area below the survival curve, up to the greatest age if the curve is open."""
        if not self.censored:
            return Figure(self.completed.mean_us)
        if not self.count or not self._independent:
            middles_us = np.concatenate((self.completed.middles_us, self.ages.lows_ns / NS_PER_US))
            total_us = float(middles_us @ np.concatenate((self.completed.counts, self.ages.counts)))
            return Figure(total_us / (self.count + self.censored), is_bound=True)
        values_us, weights = self._weighted()
        return Figure(float(values_us @ weights), self.is_open)

    @property
    def stdev(self) -> Figure:
        """Standard deviation. Values beyond the observed ones count as the greatest age, which can only lower it."""
        if not self.censored:
            return Figure(self.completed.stdev_us)
        if not self.count or not self._independent:
            return Figure(None)
        values_us, weights = self._weighted()
        mean_us = float(values_us @ weights)
        return Figure(math.sqrt(float((values_us - mean_us) ** 2 @ weights)), self.is_open)

    @property
    def within_stdev(self) -> float | None:
        """Share within one standard deviation of the mean; unknown for an open distribution."""
        if not self.censored:
            return self.completed.within_stdev
        mean_us, stdev_us = self.mean.value_us, self.stdev.value_us
        if self.is_open or mean_us is None or stdev_us is None:
            return None
        values_us, weights = self._weighted()
        return float(weights[np.abs(values_us - mean_us) <= stdev_us].sum())

    def percentiles(self, percentiles: Sequence[float]) -> list[Figure]:
        """`percentile` of each; faster than one after the other if all durations are known."""
        if self.censored:
            return [self.percentile(one) for one in percentiles]
        values_us = self.completed.percentiles_us(percentiles)
        return [Figure(None) for _ in percentiles] if values_us is None else [Figure(one) for one in values_us]

    def percentile(self, percentile: float) -> Figure:
        """The duration that `percentile` (0 to 100) percent of all operations do not exceed."""
        if not self.censored:
            return Figure(self.completed.percentile_us(percentile))
        at = self._pooled.bucket_at(percentile)
        least_us = float(self._pooled.lows_ns[at or 0]) / NS_PER_US
        if not self._independent:
            return self._between(percentile, least_us)
        beyond = (1.0 - percentile / 100.0) * (1.0 + _ROUNDING)
        reached = int(np.searchsorted(-self._survival, -beyond)) if self.count else 0
        if reached < len(self._survival):
            return Figure(float(self.completed.highs_ns[reached]) / NS_PER_US)
        return Figure(max(self.completed.max_us or 0.0, least_us), is_bound=True)

    def _between(self, percentile: float, least_us: float) -> Figure:
        """The percentile without an assumption: the lower bound takes each operation as ended at its age, the upper
        bound as never ended."""
        reached = self.completed.reached
        rank = rank_of(percentile, self.count + self.censored)
        at = int(np.searchsorted(reached, rank))
        most_us = float(self.completed.highs_ns[at]) / NS_PER_US if at < len(reached) else math.inf
        return Figure(most_us) if most_us <= least_us * _CLOSE else Figure(least_us, is_bound=True)

    def _weighted(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The completed durations' buckets with their estimated shares, and the share beyond them at the greatest
        age."""
        shares = -np.diff(self._survival, prepend=1.0)
        oldest_us = max(float(self.completed.middles_us[-1]), float(self._pooled.lows_ns[-1]) / NS_PER_US)
        values_us = np.append(self.completed.middles_us, oldest_us)
        return values_us, np.append(shares, self._survival[-1])


def distribution(metric: str, sample: Sample, asked: Iterable[float] = ()) -> Distribution:
    """A sample's figures, µs, with additional percentiles if some were requested."""
    figures = {"min": sample.min, "mean": sample.mean, "stdev": sample.stdev, "max": sample.max}
    wanted = sorted({*DISTRIBUTION_PERCENTILES, *asked})
    percentiles = dict(zip(wanted, sample.percentiles(wanted), strict=True))
    named = {**figures, **{f"{percentile:g}": figure for percentile, figure in percentiles.items()}}
    return Distribution(
        metric=metric,
        count=sample.count,
        min=sample.min.value_us,
        mean=sample.mean.value_us,
        stdev=sample.stdev.value_us,
        within_stdev=sample.within_stdev,
        max=sample.max.value_us,
        percentiles={
            percentile: figure.value_us for percentile, figure in percentiles.items() if figure.value_us is not None
        },
        censored=sample.censored,
        bounds=tuple(name for name, figure in named.items() if figure.is_bound),
    )


def curve(metric: str, sample: Sample) -> Percentiles:
    """Points for a plot with an axis of nines: 5 for each halving of the distance to 100 %, as HdrHistogram prints.

    Ends at 99.999 %, or earlier if less than one value would lie above. From `open_from` on, points are lower bounds.
    """
    count = sample.count + sample.censored
    last = min(_LAST_PERCENTILE, 100.0 * (1.0 - 1.0 / count)) if count else -1.0
    points: list[tuple[float, float]] = []
    open_from: float | None = None
    wanted = [*(step for step in _STEPS if step <= last), last]
    for percentile, figure in zip(wanted, sample.percentiles(wanted), strict=True):
        if figure.value_us is not None and (not points or percentile > points[-1][0]):
            points.append((percentile, figure.value_us))
            if figure.is_bound and open_from is None:
                open_from = percentile
    return Percentiles(metric, count, tuple(points), open_from)


def _steps() -> tuple[float, ...]:
    steps, distance = [], 100.0
    while distance > 100.0 - _LAST_PERCENTILE:
        steps += [100.0 - distance + distance / 2 * part / _POINTS_PER_HALVING for part in range(_POINTS_PER_HALVING)]
        distance /= 2
    return tuple(step for step in steps if step < _LAST_PERCENTILE)


_STEPS = _steps()


def _kaplan_meier(completed: Histogram, ages: Histogram) -> NDArray[np.float64]:
    """The share that lasts longer than each bucket of completed durations. Operations that are censored in a bucket
    are still at risk there: by the convention for ties, durations end before observation does."""
    older = np.concatenate((np.cumsum(ages.counts[::-1])[::-1], [0]))
    ages_at_risk = older[np.searchsorted(ages.lows_ns, completed.lows_ns)]
    at_risk = np.cumsum(completed.counts[::-1])[::-1] + ages_at_risk
    return np.cumprod(1.0 - completed.counts / at_risk, dtype=np.float64)


def _zeros(count: int) -> Histogram:
    one = np.array([count], np.int64)
    return Histogram(np.zeros(1, np.int64), np.zeros(1, np.int64), one) if count else EMPTY
