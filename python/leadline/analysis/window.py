"""Finds the steady window, and computes rates in it.

With many flows, those that begin early or end late run with less competition. Averages over each flow's own time then
add up to more than the path ever carried (the head and tail effect). Rates are therefore taken over one window that
all flows share: from the last flow's start, or the end of the warm-up, to the first flow's end.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Protocol

import numpy as np

from leadline.analysis.flows import Curve, Flow
from leadline.analysis.model import Interval, Window
from leadline.analysis.test_spec import TestSpec
from leadline.quantities import rounded_share
from leadline.registry import KINDS
from leadline.statistics import warm_up_end
from leadline.statistics.estimate import Values
from leadline.statistics.means import batch_means, variance_of_mean
from leadline.statistics.truncation import BATCH as WARM_UP_BATCH

NS_PER_S = 1e9
MOST_WARM_UP = 0.25
"""Of the window: what a warm-up may take."""
_STANDARD_ERRORS, _LEAST_DIFFERENCE = 3.0, 0.01
_LEAST_KEPT = 0.5
"""Of the rate that would be cut: what is left after it, where it is a warm-up."""

RateColumn = tuple[str, float, list[Curve]]
"""A rate's name, the factor on its counter, and the flows' counters."""

# More than any chart or table shows. With more, neighbouring intervals are merged; no count is lost.
MOST_INTERVALS = 20_000


def steady_window(flows: Iterable[Flow], warmup_ns: int, start_at_ns: int | None) -> Window | None:
    """The window of all flows that began; None if none did. Its length is 0 if they never ran at the same time."""
    begun = [(flow.start_ns, flow.end_ns) for flow in flows if flow.start_ns is not None and flow.end_ns is not None]
    if not begun:
        return None
    first_start, last_start = min(start for start, _ in begun), max(start for start, _ in begun)
    first_end, last_end = min(end for _, end in begun), max(end for _, end in begun)
    due = [flow.due_ns for flow in flows if flow.due_ns is not None]
    origin = max(due) if due else start_at_ns if start_at_ns is not None else first_start
    start = max(last_start, origin + warmup_ns) if warmup_ns else last_start
    start = min(start, last_end)
    return Window(first_start, start, max(start, first_end), last_end)


def rate_per_s(curves: Sequence[Curve], window: Window | None) -> float | None:
    """The curves' growth per second in the window, summed; None without a window or a curve."""
    if window is None or window.end_ns <= window.start_ns or not curves:
        return None
    growth = sum(curve.growth(window.start_ns, window.end_ns) for curve in curves)
    return growth / ((window.end_ns - window.start_ns) / NS_PER_S)


def arrived_afterwards(curves: Sequence[Curve], window: Window | None) -> bool:
    """Whether all that arrived came after the window. Its rate is unknown then, not 0: the test was shorter than the
    delay of its path, or than a stall of its receiver.
    """
    total = sum(curve.total for curve in curves)
    return window is not None and total > 0 == sum(float(curve.at(window.end_ns)) for curve in curves)


def byte_curves(flows: Iterable[Flow]) -> list[Curve]:
    """Delivered bytes, of the flows that report them."""
    return [flow.delivered_bytes for flow in flows if flow.delivered_bytes is not None]


def unit_curves(flows: Iterable[Flow]) -> list[Curve]:
    """Delivered datagrams or answers, of the flows that report them."""
    return [flow.delivered_units for flow in flows if flow.delivered_units is not None]


def intervals(flows: Sequence[Flow], window: Window | None, spec: TestSpec) -> tuple[Interval, ...]:
    """Rates of each interval from the first start to the last end, summed over flows."""
    if window is None or window.last_end_ns <= window.first_start_ns:
        return ()
    edges = _edges(window.first_start_ns, window.last_end_ns, spec.interval_ns)
    seconds = np.diff(edges) / NS_PER_S
    columns = {
        name: factor * np.diff(np.sum([curve.at(edges) for curve in curves], axis=0)) / seconds
        for name, factor, curves in rate_columns(spec, flows)
        if curves
    }
    found = []
    for index, (start, end) in enumerate(pairwise(edges)):
        values: dict[str, float | None] = {name: float(column[index]) for name, column in columns.items()}
        inside = bool(start >= window.start_ns and end <= window.end_ns)
        first = window.first_start_ns
        found.append(Interval(float(start - first) / NS_PER_S, float(end - first) / NS_PER_S, values, inside))
    return tuple(found)


def rate_columns(spec: TestSpec, flows: Sequence[Flow]) -> list[RateColumn]:
    """The rates of a kind of test; the leading one first."""
    kind: RateKind = KINDS.find(spec.kind)
    return kind.rate_columns(spec, flows)


def without_warm_up(spec: TestSpec, flows: Sequence[Flow], window: Window | None) -> Window | None:
    """The window from where its leading rate is steady on, by MSER-5: a warm-up that the plan did not leave out.

    What is cut has to differ from the rest by three standard errors, and be at most `MOST_WARM_UP` of the window: a
    rate that differs for longer changes, and has no warm-up. A rate that breaks down early is no warm-up either.
    """
    rates = None
    if spec.steady and window is not None:
        rates = interval_rates(next(iter(named_rates(spec, flows).values()))[2], window, spec.interval_ns)
    if window is None or rates is None:
        return window
    found = warm_up_end(rates)
    if found.start is None:
        return replace(window, unsettled=found.reason)
    share = found.start / len(rates)
    if share > MOST_WARM_UP:
        reason = f"the rate differs in the first {rounded_share(share)} of the window: more than a warm-up takes"
        return replace(window, unsettled=reason)
    if found.start and rates[found.start :].mean() < _LEAST_KEPT * rates[: found.start].mean():
        kept, cut = rounded_share(_LEAST_KEPT), rounded_share(share)
        reason = f"the rate falls to less than {kept} after {cut} of the window: a stall, not a warm-up"
        return replace(window, unsettled=reason)
    if not found.start or not _differs(rates[: found.start], rates[found.start :]):
        return window
    cut_ns = round(share * (window.end_ns - window.start_ns))
    return replace(window, start_ns=window.start_ns + cut_ns, warm_up_ns=cut_ns)


def _differs(cut: Values, kept: Values) -> bool:
    """Whether the mean of what is cut is off by more than its noise, and by 1 %."""
    variance, _ = variance_of_mean(batch_means(kept, WARM_UP_BATCH))
    error = math.sqrt(variance * len(kept) / len(cut))
    difference = abs(float(cut.mean() - kept.mean()))
    return difference > max(_STANDARD_ERRORS * error, _LEAST_DIFFERENCE * float(kept.mean()))


def named_rates(spec: TestSpec, flows: Sequence[Flow]) -> dict[str, RateColumn]:
    """The rates of a kind of test by their metrics; the leading one first."""
    kind: RateKind = KINDS.find(spec.kind)
    columns = rate_columns(spec, flows)
    metrics = {column: metric for metric, column in kind.rate_metrics.items()}
    found = {metrics.get(column[0], column[0]): column for column in columns}
    if spec.direction == "both":
        for direction in ("up", "down"):
            column = throughput_column([flow for flow in flows if flow.direction == direction])
            found[f"throughput_{direction}_bps"] = column
    return found


def interval_rates(curves: Sequence[Curve], window: Window | None, interval_ns: int) -> Values | None:
    """Growth of some counters per second, summed, in equal parts of the window of about `interval_ns`, or of the time
    between two readings where that is longer; None if the counters were not read at intervals."""
    read = [curve for curve in curves if len(curve.t_ns) > 2]
    if window is None or window.end_ns <= window.start_ns or not read:
        return None
    step_ns = max(interval_ns, *(float(np.median(np.diff(curve.t_ns))) for curve in read))
    parts = round((window.end_ns - window.start_ns) / step_ns)
    if parts < 1:
        return None
    edges = np.linspace(window.start_ns, window.end_ns, parts + 1)
    growth = np.diff(np.sum([curve.at(edges) for curve in curves], axis=0))
    return np.asarray(growth * (parts * NS_PER_S / (window.end_ns - window.start_ns)), dtype=np.float64)


class RateKind(Protocol):
    """The attributes of a kind of test that this module uses."""

    @property
    def rate_metrics(self) -> Mapping[str, str]:
        """Metrics whose names differ from those of their rate columns."""

    def rate_columns(self, spec: TestSpec, flows: Sequence[Flow]) -> list[RateColumn]:
        """The rates of the kind; the leading one first."""


def throughput_column(flows: Sequence[Flow]) -> RateColumn:
    """Delivered bits per second."""
    return "throughput_bps", 8.0, byte_curves(flows)


def units_column(name: str, flows: Sequence[Flow]) -> RateColumn:
    """Delivered datagrams or answers per second, by the kind's name for them."""
    return name, 1.0, unit_curves(flows)


def _edges(start_ns: int, end_ns: int, step_ns: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Edges every `step_ns`; a remainder of under half a step belongs to the last interval."""
    steps = max(1, round((end_ns - start_ns) / step_ns))
    if steps > MOST_INTERVALS:
        step_ns *= -(-steps // MOST_INTERVALS)
        steps = max(1, round((end_ns - start_ns) / step_ns))
    edges = start_ns + np.arange(steps + 1, dtype=np.float64) * step_ns
    edges[-1] = end_ns
    return edges
