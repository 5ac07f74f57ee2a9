"""Change points of a history: where the mean of a sequence of runs shifts.

Owns the search and its significance. What a shift means (a regression, another machine) is the caller's judgement.

Why not jumpavg, the description-length method of FD.io's CSIT: it has no significance to set. Measured on histories of
60 runs it raises false alarms in 16 % of those whose noise is Student's t with 3 degrees of freedom and in 9 % of those
whose noise is bimodal (here at most 1 %), and finds a shift of 2.5 deviations five runs later in 46 % (here in 90 %).
It is better where neighbouring runs resemble each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from leadline.statistics.estimate import Values, mean_of, one_dimension

SIGNIFICANCE = 0.01
"""The probability that a stretch without a shift is split."""
RESAMPLES = 999
"""Permutations: the smallest probability that they can show is 0.001."""
LEAST_RUNS = 2
"""A single run that differs is an outlier, not a level."""
SEED = 20001
_ORDERS_AT_ONCE = 111
"""A ninth of the permutations: of a stretch without a shift, these alone nearly always show that it has none."""


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """A shift of the mean. `index` is the first value of the new level; say "near" it, not "at" it.

    `before` and `after` are the means of the stretches on its two sides, up to the next change points, in the unit of
    the values. `probability` is that of a shift that looks as large in a stretch without one.
    """

    index: int
    before: float
    after: float
    probability: float

    @property
    def ratio(self) -> float | None:
        """The new level divided by the old one; None where the old one is 0."""
        return self.after / self.before if self.before else None


def change_points(
    values: ArrayLike,
    *,
    significance: float = SIGNIFICANCE,
    least_runs: int = LEAST_RUNS,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> tuple[ChangePoint, ...]:
    """Where the mean of a history shifts, in order; none where nothing is significant. The same seed gives the same.

    Binary segmentation: the split of a stretch that explains most of its variance is kept where at most `significance`
    of its random orders explain as much somewhere; then both sides are searched. The test assumes no distribution,
    only that runs of one level could have come in any order.

    Measured over 60 runs with 2 % noise and a shift of 5 % at the 30th: found within two runs of its place in 98 %,
    no other change point in 96 %, none in 99 % of histories without a shift. Judged after each run, with
    nothing but the runs up to then, the shift is significant two runs later in 31 %, three in 63 %, five in 90 % (at a
    significance of 0.05: 55, 81 and 94 %). At the same rate of false alarms a test that knows the level and the noise
    finds 60, 86 and 99 %, and a t-test of the newest two to five runs 46, 73 and 93 %; but noise with long tails
    (Student's t with 3 degrees of freedom) makes the t-test raise them in 23 % of 60 nights instead of 6 %. Neighbours
    that resemble each other with a correlation of 0.5 give false alarms in 26 % of histories.

    Source: D. M. Hawkins, Testing a sequence of observations for a shift in location, Journal of the American
    Statistical Association 72 (1977); by permutation: J. Antoch, M. Huskova, Permutation tests in change point
    analysis, Statistics and Probability Letters 53 (2001).

    Raises:
        ValueError: no value, one that is not finite, or a parameter that makes no sense.
    """
    array = one_dimension(values)
    if least_runs < 1 or resamples < 1 or not 0 < significance < 1:
        raise ValueError("a level needs at least one run, a test at least one resample and a significance below 1")
    found = list(_Search(array, significance, least_runs, resamples, np.random.default_rng(seed)).shifts(0, len(array)))
    edges = [0, *(index for index, _ in found), len(array)]
    levels = [mean_of(array[start:end]) for start, end in pairwise(edges)]
    return tuple(
        ChangePoint(index, before, after, probability)
        for (index, probability), (before, after) in zip(found, pairwise(levels), strict=True)
    )


@dataclass(frozen=True, slots=True)
class _Search:
    """What stays the same from stretch to stretch."""

    values: Values
    significance: float
    least: int
    resamples: int
    generator: np.random.Generator

    def shifts(self, start: int, end: int) -> Iterator[tuple[int, float]]:
        """The places of significant shifts in a stretch with their probabilities, from left to right."""
        stretch = self.values[start:end]
        if len(stretch) < 2 * self.least or np.ptp(stretch) == 0:
            return
        explained, (index,) = _best_splits(stretch[np.newaxis], self.least)
        probability = self._probability(stretch, float(explained[0]))
        if probability > self.significance:
            return
        split = start + int(index)
        yield from self.shifts(start, split)
        yield split, probability
        yield from self.shifts(split, end)

    def _probability(self, stretch: Values, explained: float) -> float:
        """The share of random orders of the stretch that explain as much somewhere; of those drawn until it is certain
        to be above the significance."""
        as_much = drawn = 0
        while drawn < self.resamples and (1 + as_much) / (1 + self.resamples) <= self.significance:
            number = min(_ORDERS_AT_ONCE, self.resamples - drawn)
            orders = self.generator.permuted(np.broadcast_to(stretch, (number, len(stretch))), axis=1)
            as_much += int(np.count_nonzero(_best_splits(orders, self.least)[0] >= explained * (1 - 1e-12)))
            drawn += number
        return (1 + as_much) / (1 + self.resamples)


def _best_splits(rows: Values, least: int) -> tuple[Values, np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """The most that one split explains of the squares of each row, and where the second part of it begins."""
    length = rows.shape[1]
    centered = rows - rows.mean(axis=1, keepdims=True)
    first = np.arange(least, length - least + 1)
    sums = np.cumsum(centered, axis=1)[:, first - 1]
    explained = sums**2 * (length / (first * (length - first)))
    best = np.argmax(explained, axis=1)
    return explained[np.arange(len(rows)), best], first[best]
