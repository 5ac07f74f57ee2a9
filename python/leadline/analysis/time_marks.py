"""The parts of a test in which something was wrong: seconds in which other work or a hypervisor took the CPUs, and
stalls of the rate. Charts shade them.

The bound for a second is that of `disturbance` for the whole test. A stall is not judged here: the verdict on the rate
has it in its interval. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from leadline.analysis.disturbance import LIMIT_SHARE, controller_percent, machines
from leadline.analysis.flows import Flow
from leadline.analysis.host_metrics import machine_samples
from leadline.analysis.model import Interval, Window
from leadline.analysis.test_data import CPU_KINDS, HostSample, TestData
from leadline.analysis.test_spec import TestSpec
from leadline.analysis.trial_records import MarkKind, TimeMark
from leadline.analysis.window import unit_curves
from leadline.statistics.estimate import Values

STALLED = 0.1
"""Of the median rate: less is a stall."""
LEAST_STALLED_S = 0.2
"""A shorter gap is within what sockets and schedulers do."""
LEAST_MISSING = 10
"""Operations that a stall has to leave out: fewer are missing by chance."""
MIN_PARTS = 3
"""Of a load, as long as the shortest stall, to know its usual rate by."""
_SECOND_NS = 1_000_000_000


def time_marks(
    data: TestData, window: Window | None, intervals: Sequence[Interval], *, counts_operations: bool
) -> tuple[TimeMark, ...]:
    """The marks in the order of their beginning; neighbouring seconds of the same kind are one mark."""
    if window is None or window.last_end_ns <= window.first_start_ns:
        return ()
    found = [*_disturbed(data, window), *_stalls(intervals, data.spec.steady, counts_operations)]
    return tuple(sorted(found, key=lambda mark: mark.start_s))


def ends_in_stall(spec: TestSpec, flows: Sequence[Flow]) -> bool:
    """Whether answers at a rate stopped coming before the load's end: what has no answer then waits for one thing."""
    curves, ends_ns = unit_curves(flows), [flow.end_ns for flow in flows if flow.end_ns is not None]
    starts_ns = [flow.start_ns for flow in flows if flow.start_ns is not None]
    if not spec.paced or not spec.steady or not spec.counts_units or not curves or not ends_ns or not starts_ns:
        return False
    first_ns, last_ns = min(starts_ns), max(ends_ns)
    parts = int((last_ns - first_ns) / 1e9 / LEAST_STALLED_S)
    if parts < MIN_PARTS:
        return False
    edges = np.linspace(last_ns - parts * LEAST_STALLED_S * 1e9, last_ns, parts + 1)
    grown = np.diff(np.sum([curve.at(edges) for curve in curves], axis=0))
    usual = float(np.median(grown[:-1]))
    return usual >= LEAST_MISSING and float(grown[-1]) < STALLED * usual


def _disturbed(data: TestData, window: Window) -> Iterator[TimeMark]:
    """Seconds from the first flow's start on; a rest of less than half a second belongs to the last one."""
    length_ns = window.last_end_ns - window.first_start_ns
    seconds = max(1, round(length_ns / _SECOND_NS))
    edges = window.first_start_ns + np.arange(seconds + 1, dtype=np.float64) * _SECOND_NS
    edges[-1] = window.last_end_ns
    for hosts in machines(data):
        machine = [one for one in machine_samples(data, hosts[0]) if one.cpu_s is not None]
        if len(machine) < 2 or not machine[-1].cpus:
            continue
        limit = LIMIT_SHARE * machine[-1].cpus
        stolen, other = _taken(data, hosts, machine, edges)
        for kind, shares in ((MarkKind.STOLEN, stolen), (MarkKind.OTHER_WORK, other)):
            if shares is not None:
                at_s = (edges - window.first_start_ns) / 1e9
                yield from _joined(kind, shares, shares > limit, at_s)


def _taken(
    data: TestData, hosts: Sequence[str], machine: Sequence[HostSample], edges: Values
) -> tuple[Values, Values | None]:
    """CPUs that a hypervisor took, and that other work used, in each second; None for the latter where the hosts'
    control groups are not known."""
    seconds = np.diff(edges) / 1e9
    t_ns = np.array([one.t_ns for one in machine], dtype=np.float64)
    accounts = np.array([one.cpu_s for one in machine], dtype=np.float64).T
    use = {kind: np.diff(np.interp(edges, t_ns, row)) / seconds for kind, row in zip(CPU_KINDS, accounts, strict=True)}
    # Outside of the samples nothing grows, idle time included: that is not known, and no other work.
    covered = (edges[:-1] >= t_ns[0]) & (edges[1:] <= t_ns[-1])
    groups = [_group_use(data.samples.get(host, ()), edges, seconds) for host in hosts] if data.in_lab else [None]
    known = [one for one in groups if one is not None]
    if len(known) < len(groups):
        return use["steal"], None
    own = np.sum([use["idle"], use["iowait"], use["steal"], use["softirq"], use["irq"], *known], axis=0)
    left = (machine[-1].cpus or 0) - own - controller_percent(data, hosts) / 100
    return use["steal"], np.where(covered, left, 0.0)


def _group_use(samples: Sequence[HostSample], edges: Values, seconds: Values) -> Values | None:
    known = [(one.t_ns, one.cgroup_s) for one in samples if one.cgroup_s is not None]
    if len(known) < 2:
        return None
    t_ns, spent_s = zip(*known, strict=True)
    return np.asarray(np.diff(np.interp(edges, t_ns, spent_s)) / seconds, dtype=np.float64)


def _stalls(intervals: Sequence[Interval], steady: bool, counts_operations: bool) -> Iterator[TimeMark]:
    """Neighbouring intervals of the window in which the leading rate is hardly there."""
    inside = [one for one in intervals if one.in_window]
    leading = next((name for one in inside for name, value in one.values.items() if value is not None), None)
    if not steady or leading is None:
        return
    rates = np.array([one.values.get(leading) or 0.0 for one in inside], dtype=np.float64)
    usual = float(np.median(rates))
    if usual <= 0:
        usual = float(rates.mean())
    at_s = np.array([inside[0].start_s, *(one.end_s for one in inside)], dtype=np.float64)
    for mark in _joined(MarkKind.STALL, rates, rates < STALLED * usual, at_s):
        length_s = mark.end_s - mark.start_s
        missing = length_s * usual if counts_operations else LEAST_MISSING
        if length_s >= LEAST_STALLED_S * 0.99 and missing >= LEAST_MISSING:
            yield mark


def _joined(kind: MarkKind, figures: Values, marked: NDArray[np.bool_], at_s: Values) -> Iterator[TimeMark]:
    """A mark for each run of marked parts, with the mean of its figures."""
    ends = np.flatnonzero(np.diff(np.concatenate(([False], marked, [False])).astype(np.int8)))
    for first, last in zip(ends[::2].tolist(), ends[1::2].tolist(), strict=True):
        yield TimeMark(kind, float(at_s[first]), float(at_s[last]), float(figures[first:last].mean()))
