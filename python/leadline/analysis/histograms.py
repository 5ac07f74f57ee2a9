"""Latency histograms: decoded, merged, and only then evaluated. Percentiles are never merged.

The agent writes HdrHistogram's V2 encoding (deflated, base64); `hdr_v2` reads it. A histogram here is the list of its
occupied buckets, so merging adds counts, whatever range each was recorded with. A bucket stands for its values as in
HdrHistogram: percentiles and maximum are a bucket's highest value, the minimum its lowest, the mean its middle. With
three significant digits the error is below 0.1 %.
"""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leadline.analysis.hdr_v2 import DEFLATED_COOKIE, PLAIN_COOKIE, occupied_buckets
from leadline.dataset import reads_strictly
from leadline.errors import DatasetError

NS_PER_US = 1000.0


class DamagedHistogram(ValueError):
    """An encoded histogram that cannot be read, or whose count differs from the reported one."""


@dataclass(frozen=True)
class Histogram:
    """Occupied buckets in ascending order: lowest and highest value, ns, and count. Its arrays never change."""

    lows_ns: NDArray[np.int64]
    highs_ns: NDArray[np.int64]
    counts: NDArray[np.int64]

    @cached_property
    def reached(self) -> NDArray[np.int64]:
        """The number of values in each bucket or below it."""
        return np.cumsum(self.counts)

    @cached_property
    def count(self) -> int:
        """The number of values."""
        return int(self.counts.sum())

    @property
    def min_us(self) -> float | None:
        """The lowest value of the smallest value's bucket, µs."""
        return float(self.lows_ns[0]) / NS_PER_US if len(self.counts) else None

    @property
    def max_us(self) -> float | None:
        """The highest value of the largest value's bucket, µs."""
        return float(self.highs_ns[-1]) / NS_PER_US if len(self.counts) else None

    @cached_property
    def mean_us(self) -> float | None:
        """Mean of the buckets' middles, µs."""
        if not len(self.counts):
            return None
        return float(np.average(self.middles_us, weights=self.counts))

    @cached_property
    def middles_us(self) -> NDArray[np.float64]:
        """Middle of each bucket, µs."""
        middles = self.lows_ns + (self.highs_ns - self.lows_ns + 1) // 2
        return middles.astype(np.float64) / NS_PER_US

    @cached_property
    def stdev_us(self) -> float | None:
        """Standard deviation of the buckets' middles, over all values (not n - 1), µs."""
        mean_us = self.mean_us
        if mean_us is None:
            return None
        return math.sqrt(float(np.average((self.middles_us - mean_us) ** 2, weights=self.counts)))

    @cached_property
    def log_centre(self) -> tuple[float, float, float]:
        """The logarithm of the median (of ns), the variance that chance gives it if values are independent, and how far
        84 % and 16 % of the values lie apart, halved: the standard deviation of a lognormal one. Not of an empty one.
        """
        around = math.sqrt(self.count) / 2
        below, median, above, bottom, top = (
            math.log(max(1, self.highs_ns[np.searchsorted(self.reached, min(max(rank, 1.0), self.count))]))
            for rank in (
                self.count / 2 - around,
                self.count / 2,
                self.count / 2 + around,
                0.16 * self.count,
                0.84 * self.count,
            )
        )
        return median, ((above - below) / 2) ** 2, (top - bottom) / 2

    @cached_property
    def steps_from_median(self) -> NDArray[np.int64]:
        """How far each bucket is from the median, in thousandths of the logarithm. Not of an empty one."""
        logs = np.log(np.maximum(1, self.highs_ns)) - self.log_centre[0]
        return np.rint(1000 * logs).astype(np.int64)

    @property
    def within_stdev(self) -> float | None:
        """Share of the values that lie within one standard deviation of the mean."""
        mean_us, stdev_us = self.mean_us, self.stdev_us
        if mean_us is None or stdev_us is None:
            return None
        near = np.abs(self.middles_us - mean_us) <= stdev_us
        return int(self.counts[near].sum()) / self.count

    def percentile_us(self, percentile: float) -> float | None:
        """The value at or below which `percentile` (0 to 100) of the values lie, µs; None when empty."""
        at = self.bucket_at(percentile)
        return None if at is None else float(self.highs_ns[at]) / NS_PER_US

    def bucket_at(self, percentile: float) -> int | None:
        """The position of the bucket with a percentile, by nearest rank; None when empty."""
        if not len(self.counts):
            return None
        return int(np.searchsorted(self.reached, rank_of(percentile, self.count)))

    def percentiles_us(self, percentiles: Sequence[float]) -> list[float] | None:
        """`percentile_us` of each, together; None when empty."""
        if not len(self.counts):
            return None
        ranks = [rank_of(percentile, self.count) for percentile in percentiles]
        found: list[float] = (self.highs_ns[np.searchsorted(self.reached, ranks)] / NS_PER_US).tolist()
        return found

    def share_above_us(self, limit_us: float) -> float | None:
        """The share of the values whose bucket lies above a limit, µs; None when empty."""
        if not len(self.counts):
            return None
        return int(self.counts[self.lows_ns > limit_us * NS_PER_US].sum()) / self.count


EMPTY = Histogram(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64))


def rank_of(percentile: float, count: int) -> int:
    """The rank of a percentile among `count` values by nearest rank, from 1 on."""
    # Rounding may put the product just above a whole number. A relative 1e-12 is far below one value in any count.
    return max(1, math.ceil(percentile / 100.0 * count * (1 - 1e-12)))


def decode(report: Mapping[str, Any]) -> Histogram:
    """Decode a `HistogramReport` of the contract.

    Raises:
        DamagedHistogram: it cannot be read, or holds another number of values than it says.
        DatasetError: the same, in tests of journals that Leadline wrote itself (`reads_strictly`).
    """
    try:
        histogram = Histogram(*occupied_buckets(report["hdr_v2"]))
    except (KeyError, TypeError, ValueError, struct.error, zlib.error) as error:
        raise _damage(report, f"cannot be read: {error}") from error
    if histogram.count != report.get("count"):
        raise _damage(report, f"holds {histogram.count}")
    return histogram


def merge_readable(reports: Iterable[Mapping[str, Any]]) -> tuple[Histogram, int]:
    """One histogram with the counts of all reports, and how many of them cannot be read. If one cannot, it is empty:
    the rest is not what was measured."""
    found, damaged = [], 0
    for report in reports:
        try:
            found.append(decode(report))
        except DamagedHistogram:
            damaged += 1
    return (EMPTY if damaged else merge(found)), damaged


def _damage(report: Mapping[str, Any], how: str) -> Exception:
    text = f"the histogram of {report.get('metric', 'unnamed values')}, of {report.get('count')} values, {how}"
    return DatasetError(f"{text}: in a test, a defect of Leadline") if reads_strictly() else DamagedHistogram(text)


def merge(histograms: Iterable[Histogram]) -> Histogram:
    """One histogram with the counts of all."""
    parts = [histogram for histogram in histograms if len(histogram.counts)]
    if len(parts) < 2:
        return parts[0] if parts else EMPTY
    lows = np.concatenate([part.lows_ns for part in parts])
    highs = np.concatenate([part.highs_ns for part in parts])
    counts = np.concatenate([part.counts for part in parts])
    # Equal ranges have equal buckets; if ranges differ, a wider bucket sorts by its highest value.
    order = np.lexsort((lows, highs))
    lows, highs, counts = lows[order], highs[order], counts[order]
    first = np.flatnonzero(np.concatenate(([True], (np.diff(highs) != 0) | (np.diff(lows) != 0))))
    return Histogram(lows[first], highs[first], np.add.reduceat(counts, first))


def remainder(whole: Histogram, part: Histogram) -> Histogram:
    """The counts of `whole` minus those of `part`, per bucket; both have the same range."""
    left = dict(zip(part.lows_ns.tolist(), part.counts.tolist(), strict=True))
    counts = np.array(
        [count - left.get(low, 0) for low, count in zip(whole.lows_ns.tolist(), whole.counts.tolist(), strict=True)],
        dtype=np.int64,
    )
    kept = counts > 0
    return Histogram(whole.lows_ns[kept], whole.highs_ns[kept], counts[kept])


def deflated(encoded: str) -> str:
    """The encoding in its deflated form, which HdrHistogram's logs contain and `hdrh` reads."""
    content = base64.b64decode(encoded, validate=True)
    if len(content) < 8 or struct.unpack_from(">I", content)[0] != PLAIN_COOKIE:
        return encoded
    packed = zlib.compress(content)
    return base64.b64encode(struct.pack(">II", DEFLATED_COOKIE, len(packed)) + packed).decode("ascii")
