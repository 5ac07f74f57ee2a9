"""Where a warm-up ends inside a window: MSER-5.

Owns the statistic. It finds one stretch at the beginning that differs from the rest; jumps in the middle and the cut of
late starts and early ends are not its work.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from leadline.statistics.estimate import Values, one_dimension
from leadline.statistics.means import batch_means

BATCH = 5
"""Values in a batch: the 5 of MSER-5."""
LEAST_BATCHES = 10
"""Of fewer batches no part can be distinguished from the rest."""
TOLERANCE = 6.0
"""How far above its minimum the statistic may be where the kept part begins, divided by the number of batches: an
ordinary batch raises or lowers it by about 1. The minimum itself drops ordinary batches that happen to be outliers."""


@dataclass(frozen=True, slots=True)
class Truncation:
    """Where the kept part of a series begins.

    `start` is the index of its first value, a multiple of the batch size plus the values that fill no batch; 0 where
    nothing is cut. None where no warm-up end was found, and `reason` says why. `minimum` is where the statistic is
    least: what MSER-5 alone would have cut.
    """

    start: int | None
    minimum: int | None
    reason: str | None = None


def warm_up_end(values: ArrayLike, batch: int = BATCH) -> Truncation:
    """The end of the warm-up of a series of values from intervals of equal length, by MSER-5.

    The statistic of a cut is the squared standard error of the mean of the batches that are left. The cut is the
    earliest whose statistic is nearly least (`TOLERANCE`): the least one drops ordinary batches too. Cuts of more than
    half are not looked at, because few batches may agree by chance; a statistic that still falls there, and is not
    nearly as low in the first quarter, means that the series never became steady.

    Measured for 300 values with a warm-up of 50 that is 2 or 5 standard deviations off: within one batch of the truth
    in 97 to 98 % of cases; the minimum alone, as MSER-5 was published, in 78 to 80 %. Of a ramp the last batches, which
    are within the noise, are kept: within one batch in 81 %, within two in 99 %. Without a warm-up at most one batch
    is cut in 97 %.

    Of values with a lag-1 correlation of 0.3, 0.5, 0.7 and 0.8, a warm-up of 5 standard deviations ends within one
    batch in 98, 97, 95 and 93 %; without one, at most one batch is cut in 97, 97, 96 and 94 %. A warm-up of 2 standard
    deviations is as large as the slow changes of such a series are anyway: within one batch in 93, 82, 63 and 52 %, and
    nearly all others end too early. Batches of ten do not help (91, 80, 58 and 46 % within five values of the truth),
    nor does another tolerance: where slow changes are that large, the interval of the mean tells of them.

    Source: K. P. White, M. J. Cobb, S. C. Spratt, A comparison of five steady-state truncation heuristics for
    simulation, Winter Simulation Conference 2000; K. Hoad, S. Robinson, R. Davies, Automating warm-up length
    estimation, Journal of the Operational Research Society 61 (2010).

    Raises:
        ValueError: no value, one that is not finite, or a batch of no values.
    """
    array = one_dimension(values)
    if batch < 1:
        raise ValueError(f"a batch of {batch} values is none")
    count = len(array) // batch
    if count < LEAST_BATCHES:
        return Truncation(None, None, f"{len(array)} intervals are too few: {LEAST_BATCHES * batch} are needed")
    spare = len(array) - count * batch
    statistics = _statistics(batch_means(array, batch))
    best = int(np.argmin(statistics[: count // 2 + 1]))
    minimum = best * batch + spare if best else 0
    nearly = statistics[: best + 1] <= statistics[best] * (1 + TOLERANCE / (count - best))
    start = int(np.argmax(nearly))
    if best == count // 2 and start >= count // 4:
        return Truncation(None, minimum, "the series does not become steady in its first half")
    return Truncation(start * batch + spare if start else 0, minimum)


def _statistics(batches: Values) -> Values:
    """The sum of the squared deviations of the batches that are left, divided by the square of their number, for each
    number of batches that are cut."""
    left = np.arange(len(batches), 0, -1)
    centered = batches - batches.mean()
    sums = np.cumsum(centered[::-1])[::-1]
    squares = np.cumsum((centered**2)[::-1])[::-1]
    # Rounding can leave a hair below 0 of equal values.
    return np.asarray(np.maximum(squares - sums**2 / left, 0) / left**2)
