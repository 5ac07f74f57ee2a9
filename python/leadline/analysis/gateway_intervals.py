"""Intervals of what a gateway cost, within one test: batch means of its CPU time and memory over the steady window.

Owns the series of each word of `CpuAttribution`. What is CPU time by payload, or by packets, is a ratio of sums, whose
interval is that of what the parts of the window differ from it. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from leadline.analysis.flows import Flow
from leadline.analysis.gateway_model import CountedTime, GatewayStatistics
from leadline.analysis.gateways import attribution_of, interfaces_of
from leadline.analysis.host_metrics import covers, machine_samples
from leadline.analysis.interfaces import header_bytes, segments
from leadline.analysis.model import Metric, Window
from leadline.analysis.test_data import CPU_KINDS, HostSample, ProcessUse, TestData
from leadline.analysis.window import byte_curves, interval_rates, named_rates
from leadline.plan import gateway_metrics as names
from leadline.plan.sut import CpuAttribution
from leadline.statistics import mean_of_series
from leadline.statistics.estimate import Values

_AGENT = frozenset({"agent"})
_IDLE = ("idle", "iowait")
_NO_SERIES = "its samples cover too little of the steady window"
_NO_PAYLOAD = "payload was not counted at intervals"
_NO_PACKETS = "packets were not counted at intervals"


@dataclass(frozen=True, slots=True)
class _Counter:
    """A counter of CPU seconds that is added or, with a sign of -1, taken away."""

    sign: float
    t_ns: Values
    values_s: Values

    @classmethod
    def of(cls, points: Sequence[tuple[int, float]], sign: float = 1.0) -> _Counter:
        t_ns, values = zip(*points, strict=True)
        return cls(sign, np.array(t_ns, dtype=np.float64), np.array(values, dtype=np.float64))


@dataclass(frozen=True, slots=True)
class _Precision:
    """Half of a figure's interval as a share of it, or why there is none."""

    half: float | None
    reason: str | None


def with_bounds(
    figures: Mapping[str, Metric],
    gateways: Iterable[GatewayStatistics],
    data: TestData,
    flows: Sequence[Flow],
    window: Window | None,
) -> dict[str, Metric]:
    """The figures of gateways with `low` and `high`, or with the reason why they have none; others as they are."""
    found = dict(figures)
    for gateway in gateways:
        for figure, precision in _precisions(data, gateway, flows, window):
            name = names.metric_of(gateway.host, figure)
            if name in found and found[name].value is not None:
                found[name] = _bounded(found[name], precision)
    return found


def _bounded(metric: Metric, precision: _Precision) -> Metric:
    if precision.half is None or metric.value is None:
        return replace(metric, unbounded=precision.reason)
    half = precision.half * metric.value
    return replace(metric, low=max(0.0, metric.value - half), high=metric.value + half)


def _precisions(
    data: TestData, gateway: GatewayStatistics, flows: Sequence[Flow], window: Window | None
) -> Iterator[tuple[str, _Precision]]:
    host = gateway.host
    used = _cpu_rates(data, gateway, window)
    cpu = cost = per_packet = _Precision(None, _NO_SERIES)
    if used is not None:
        known, rates = used
        cpu = _precision(rates)
        payload = interval_rates(byte_curves(flows), known, (known.end_ns - known.start_ns) // len(rates))
        cost = _cost(rates, payload, _NO_PAYLOAD)
        per_packet = _cost(rates, _packet_rates(data, host, flows, known, len(rates)), _NO_PACKETS)
    memory = _memory(data, host, window)
    yield from (
        *((name, cpu) for name in (names.CPU, names.PER_CLIENT)),
        *((name, cost) for name in (names.PER_GBPS, names.PER_BYTE)),
        (names.PER_PACKET, per_packet),
        *((name, memory) for name in (names.MEMORY, names.MEMORY_PER_CLIENT)),
    )


def _precision(values: Values) -> _Precision:
    estimate = mean_of_series(values)
    return _Precision(estimate.half_width_ratio, estimate.reason)


def _cost(rates: Values, carried: Values | None, unknown: str) -> _Precision:
    """The precision of a ratio of sums (delta method): each part counts by how far its CPU time is from what it carried
    would take."""
    if carried is None or len(carried) != len(rates) or carried.mean() <= 0:
        return _Precision(None, unknown)
    if rates.mean() <= 0:
        return _precision(rates)
    return _precision(np.asarray(1 + rates / rates.mean() - carried / carried.mean()))


def _packet_rates(data: TestData, host: str, flows: Sequence[Flow], window: Window, parts: int) -> Values | None:
    """Packets per second on the wire in equal parts of the window, as `gateways` counts them: of the interface with the
    most of them, or of the load's datagrams where these are more."""
    edges, samples = np.linspace(window.start_ns, window.end_ns, parts + 1), data.samples[host]
    found = [_on_interface(samples, name, edges, data) for name in interfaces_of(samples)]
    datagrams = named_rates(data.spec, flows).get("packets_per_s")
    if datagrams is not None:
        sent = interval_rates(datagrams[2], window, (window.end_ns - window.start_ns) // parts)
        found += [sent] if sent is not None and len(sent) == parts else []
    return max(found, key=lambda rates: float(rates.mean()), default=None)


def _on_interface(samples: Sequence[HostSample], name: str, edges: Values, data: TestData) -> Values:
    """Both directions, with the packets on the wire that each part's bundles become."""
    uses = [(sample.t_ns, use.counted) for sample in samples for use in sample.interfaces if use.name == name]
    t_ns, rates = [at_ns for at_ns, _ in uses], np.zeros(len(edges) - 1)
    for way in (0, 1):
        counts, packets = (np.diff(np.interp(edges, t_ns, [one[way][place] for _, one in uses])) for place in (0, 1))
        on_wire = [
            segments(*one, data.link_mtu_bytes, header_bytes(data.spec))
            for one in zip(counts.tolist(), packets.tolist(), strict=True)
        ]
        rates += packets * on_wire
    return np.asarray(rates * len(rates) * 1e9 / (edges[-1] - edges[0]))


def _memory(data: TestData, host: str, window: Window | None) -> _Precision:
    if window is None:
        return _Precision(None, _NO_SERIES)
    read = _memory_reader(data, attribution_of(data))
    samples = machine_samples(data, host) if attribution_of(data) is CpuAttribution.MACHINE else data.samples[host]
    held = [read(one) for one in samples if window.start_ns <= one.t_ns <= window.end_ns]
    known = [one for one in held if one is not None]
    return _precision(np.array(known)) if known else _Precision(None, _NO_SERIES)


def _memory_reader(data: TestData, attribution: CpuAttribution) -> Callable[[HostSample], float | None]:
    named = frozenset(data.sut_processes)

    def of_processes(sample: HostSample) -> float | None:
        own = [process.resident_bytes for process in sample.processes if process.name in named]
        return float(sum(own)) if own else None

    match attribution:
        case CpuAttribution.PROCESS:
            return of_processes
        case CpuAttribution.CGROUP:
            return lambda sample: sample.cgroup_bytes
        case CpuAttribution.KERNEL:
            return lambda _: None
        case CpuAttribution.MACHINE:
            return lambda sample: sample.memory_used_bytes


def _cpu_rates(data: TestData, gateway: GatewayStatistics, window: Window | None) -> tuple[Window, Values] | None:
    """CPU seconds per second that count as the system's, in equal parts of the window that the samples cover."""
    counters = [one for one in _counters(data, gateway) if len(one.t_ns) > 1]
    if window is None or not counters:
        return None
    t_ns = max((one.t_ns for one in counters), key=len)
    if not covers(t_ns.tolist(), window):
        return None
    start, end = max(window.start_ns, int(t_ns[0])), min(window.end_ns, int(t_ns[-1]))
    parts = round((end - start) / max(data.spec.interval_ns, float(np.median(np.diff(t_ns)))))
    if parts < 1:
        return None
    edges = np.linspace(start, end, parts + 1)
    grown = np.sum([one.sign * np.diff(np.interp(edges, one.t_ns, one.values_s)) for one in counters], axis=0)
    return replace(window, start_ns=start, end_ns=end), np.asarray(grown * parts * 1e9 / (end - start))


def _counters(data: TestData, gateway: GatewayStatistics) -> Iterator[_Counter]:
    """The counters whose sum is the system's CPU time, or its upper bound, as `gateways` has it."""
    host = gateway.host
    samples, machine = data.samples.get(host, []), machine_samples(data, host)
    match gateway.counted, attribution_of(data):
        case CountedTime.BUSY, _:
            yield from _busy(machine, ())
        case CountedTime.TICKS, _:
            yield from _of_machine(machine, ("softirq", "irq"), 1.0)
        case _, CpuAttribution.PROCESS:
            yield from _of_processes(samples, frozenset(data.sut_processes), 1.0, _all_of)
        case _, CpuAttribution.CGROUP:
            points = [(one.t_ns, one.cgroup_s) for one in samples if one.cgroup_s is not None]
            if points:
                yield _Counter.of(points)
                yield from _of_processes(samples, _AGENT, -1.0, _all_of)
        case _, CpuAttribution.KERNEL:
            yield from _busy(machine, ("user", "steal"))
            yield from _of_processes(samples, _AGENT, -1.0, lambda process: process.system_s)
        case _, CpuAttribution.MACHINE:
            yield from _busy(machine, ("steal",))
            yield from _of_processes(samples, _AGENT, -1.0, _all_of)


def _all_of(process: ProcessUse) -> float:
    return process.user_s + process.system_s


def _of_processes(
    samples: Sequence[HostSample], named: frozenset[str], sign: float, read: Callable[[ProcessUse], float]
) -> Iterator[_Counter]:
    spans: dict[int, list[tuple[int, float]]] = {}
    for sample in samples:
        for process in sample.processes:
            if process.name in named:
                spans.setdefault(process.pid, []).append((sample.t_ns, read(process)))
    for points in spans.values():
        yield _Counter.of(points, sign)


def _of_machine(machine: Sequence[HostSample], kinds: Sequence[str], sign: float) -> Iterator[_Counter]:
    places = [CPU_KINDS.index(kind) for kind in kinds]
    points = [(one.t_ns, sum(one.cpu_s[place] for place in places)) for one in machine if one.cpu_s is not None]
    if points:
        yield _Counter.of(points, sign)


def _busy(machine: Sequence[HostSample], without: Sequence[str]) -> Iterator[_Counter]:
    """All CPUs' time that is not idle, from idle time, which the kernel measures; without these kinds."""
    if machine and machine[-1].cpus is not None:
        yield _Counter.of([(one.t_ns, machine[-1].cpus * (one.t_ns - machine[0].t_ns) / 1e9) for one in machine])
        yield from _of_machine(machine, (*_IDLE, *without), -1.0)
