"""What each gateway on a test's path cost: CPU and memory of the system under test, also per bit, byte, packet and
client.

Owns what CPU time counts as a system's, by the word of its module (`CpuAttribution`), which the journal has. Costs are
per payload that was delivered, and per packet that crossed the gateway, inside the steady window. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from leadline.analysis import kernel_time
from leadline.analysis.gateway_model import CountedTime, GatewayStatistics
from leadline.analysis.host_metrics import (
    busy_percent,
    covers,
    cpu_percent,
    machine_samples,
    neighbours,
    processes_use,
    rate_inside,
)
from leadline.analysis.interfaces import header_bytes, segments
from leadline.analysis.model import (
    Bound,
    ClientStatistics,
    Metric,
    Reason,
    Verdict,
    Window,
)
from leadline.analysis.test_data import HostSample, TestData
from leadline.plan import gateway_metrics as names
from leadline.plan.metric_specs import MetricSpec
from leadline.plan.sut import CpuAttribution

SHARED = "gateway-shares-cpus"
"""Code of the note that a gateway's CPU time is an upper bound, as other work is in it."""

UNSEEN = "gateway-time-unseen"
"""Code of the note that it is all busy time of its machine, as no counter shows the system's own."""
_CODES = {CountedTime.TICKS: SHARED, CountedTime.BUSY: UNSEEN}

_AGENT = frozenset({"agent"})
_NOT_OBSERVED = "no agent observes the gateway"
_FEW_SAMPLES = "the gateway's samples cover too little of the steady window"
_NO_WINDOW = "there is no steady window"
_BASES = {
    (True, CountedTime.TICKS): "soft interrupts of the machine that the hosts share, and busy time that no tick of its "
    "timer saw",
    (True, CountedTime.BUSY): "all busy time of the machine that the hosts share: ticks of its timer do not show this "
    "load's forwarding",
    (False, CountedTime.OWN): "the kernel's work on its machine",
    (False, CountedTime.BUSY): "all busy time of its machine: ticks of its timer do not show what of it was the "
    "kernel's",
}
"""What a kernel's CPU time is, by whether hosts share its machine, and what it was read from."""


@dataclass(frozen=True, slots=True)
class _Known:
    """A value, or why it is unknown."""

    value: float | None
    reason: str | None = None
    counted: CountedTime = CountedTime.OWN

    @property
    def at_most(self) -> bool:
        """Whether the value is an upper bound, since other work is in it."""
        return self.counted is not CountedTime.OWN


@dataclass(frozen=True, slots=True)
class _Use:
    """What a system used on one gateway: percent of one CPU, and bytes."""

    cpu: _Known
    memory: _Known
    basis: str
    threads: int | None = None


@dataclass(frozen=True, slots=True)
class Traffic:
    """What a test's figures say of the load on its path: payload, datagrams, clients."""

    payload_bps: float | None
    datagrams_per_s: float | None
    clients: float | None

    @classmethod
    def of(cls, clients: ClientStatistics | None, figures: Mapping[str, Metric]) -> Traffic:
        """The traffic from the client table, or for tunnels without load from the clients that connected."""
        configured = figures.get("configured")
        number = clients.clients if clients is not None else configured.value if configured is not None else None
        datagrams = figures.get("packets_per_s")
        return cls(
            payload_bps=clients.total_bps if clients is not None else None,
            datagrams_per_s=datagrams.value if datagrams is not None else None,
            clients=number,
        )


def gateways_of(data: TestData) -> tuple[str, ...]:
    """The gateways on the test's path: those that are observed, and those that a plan gave by address."""
    return tuple(host for host in names.GATEWAYS if host in data.samples or host in data.given_gateways)


def attribution_of(data: TestData) -> CpuAttribution:
    """The word of the system's module. Journals of before it have none: there processes tell."""
    if data.cpu_attribution in tuple(CpuAttribution):
        return CpuAttribution(data.cpu_attribution)
    if data.sut_processes:
        return CpuAttribution.PROCESS
    return CpuAttribution.KERNEL if data.in_lab or not data.given_gateways else CpuAttribution.MACHINE


def statistics_of(data: TestData, window: Window | None, traffic: Traffic) -> tuple[GatewayStatistics, ...]:
    """Each gateway with what it cost, and what it carried meanwhile."""
    return tuple(_statistics(data, host, window, traffic) for host in gateways_of(data))


def figures(gateways: Iterable[GatewayStatistics]) -> dict[str, Metric]:
    """The metrics of all gateways; unknown ones have their reason."""
    specs = {spec.name: spec for spec in names.GATEWAY_METRICS}
    found = {}
    for gateway in gateways:
        for figure, known in _figures(gateway).items():
            name = names.metric_of(gateway.host, figure)
            found[name] = _metric(specs[name], known)
    return found


def notes(gateways: Iterable[GatewayStatistics]) -> Iterator[Reason]:
    """Why the CPU time of a gateway is known from one side only."""
    bound: dict[tuple[str, str], list[str]] = {}
    for gateway in gateways:
        if gateway.at_most and gateway.cpu_percent is not None:
            bound.setdefault((_CODES[gateway.counted], gateway.basis), []).append(gateway.host)
    for (code, basis), hosts in bound.items():
        yield Reason(code, f"the CPU time of {' and '.join(hosts)} is an upper bound: it is {basis}")


def _statistics(data: TestData, host: str, window: Window | None, traffic: Traffic) -> GatewayStatistics:
    attribution = attribution_of(data)
    use = _used(data, host, window, attribution)
    return GatewayStatistics(
        host=host,
        attribution=attribution.value,
        basis=use.basis,
        cpu_percent=use.cpu.value,
        cpu_unknown=use.cpu.reason,
        at_most=use.cpu.at_most,
        counted=use.cpu.counted,
        memory_bytes=use.memory.value,
        memory_unknown=use.memory.reason,
        threads=use.threads,
        payload_bps=traffic.payload_bps,
        packets_per_s=_packets_per_s(data, host, window, traffic),
        clients=traffic.clients,
        clock_hz=_clock_hz(data, host, window),
    )


def _clock_hz(data: TestData, host: str, window: Window | None) -> float | None:
    """Clocks are read once a second; those of a short window are around it."""
    known = [(one.t_ns, one.clock_hz) for one in machine_samples(data, host) if one.clock_hz is not None]
    inside = [hz for t_ns, hz in known if window is not None and window.start_ns <= t_ns <= window.end_ns]
    found = inside or [hz for _, hz in known]
    return float(np.mean(found)) if found else None


def _figures(gateway: GatewayStatistics) -> dict[str, _Known]:
    cpu = _Known(gateway.cpu_percent, gateway.cpu_unknown, gateway.counted)
    memory = _Known(gateway.memory_bytes, gateway.memory_unknown)
    gbps = None if gateway.payload_bps is None else gateway.payload_bps / 1e9
    no_payload, no_packets, no_clients = (
        "no payload was delivered in the window, or how much is not known",
        "the gateway's interfaces were not read, or no packet crossed it",
        "the number of clients is not known",
    )
    # A percent of a CPU is 10 ms of CPU time in a second.
    return {
        names.CPU: cpu,
        names.PER_GBPS: _by(cpu, gbps, no_payload),
        names.PER_BYTE: _by(cpu, gbps and gbps * 1e9 / 8 / 1e7, no_payload),
        names.PER_PACKET: _by(cpu, gateway.packets_per_s and gateway.packets_per_s / 1e7, no_packets),
        names.PER_CLIENT: _by(cpu, gateway.clients, no_clients),
        names.MEMORY: memory,
        names.MEMORY_PER_CLIENT: _by(memory, gateway.clients, no_clients),
    }


def _by(known: _Known, divisor: float | None, reason: str) -> _Known:
    if known.value is None:
        return known
    return _Known(known.value / divisor, None, known.counted) if divisor else _Known(None, reason)


def _metric(spec: MetricSpec, known: _Known) -> Metric:
    metric = Metric(known.value, spec.unit, unknown=known.reason if known.value is None else None)
    if known.value is None or not known.at_most:
        return metric
    return metric.doubted(Verdict.UNDETERMINED, _CODES[known.counted], Bound.MOST)


def _used(data: TestData, host: str, window: Window | None, attribution: CpuAttribution) -> _Use:
    samples = data.samples.get(host, [])
    reason = _NOT_OBSERVED if not samples else _NO_WINDOW if window is None else None
    if reason is None and not covers([sample.t_ns for sample in samples], window):
        reason = _FEW_SAMPLES
    if reason is not None or window is None:
        return _Use(_Known(None, reason), _Known(None, reason), attribution.value)
    match attribution:
        case CpuAttribution.PROCESS:
            use = _of_processes(data, host, window)
        case CpuAttribution.CGROUP:
            use = _of_cgroup(data, host, window)
        case CpuAttribution.KERNEL:
            use = _of_kernel(data, host, window)
        case CpuAttribution.MACHINE:
            use = _of_machine(data, host, window)
    return use if use.cpu.value is None or use.cpu.value > 0 else _of_busy_time(data, host, window, use)


def _of_busy_time(data: TestData, host: str, window: Window, use: _Use) -> _Use:
    """The same where the counters of the system show no CPU time: its work was too short for their steps, or it is not
    in them, as forwarding in the kernel is in no process. All that its machine did is an upper bound."""
    machine = machine_samples(data, host)
    busy = busy_percent(cpu_percent(machine, window), machine)
    if not busy:
        reason = f"no CPU time of {use.basis} was counted, and no busy time of its machine is known"
        return replace(use, cpu=_Known(None, reason))
    basis = f"all busy time of its machine, since no CPU time of {use.basis} was counted"
    return replace(use, cpu=_Known(busy, counted=CountedTime.BUSY), basis=basis)


def _of_processes(data: TestData, host: str, window: Window) -> _Use:
    """The system's processes; other programs with a name of the same system run on other hosts."""
    use = processes_use(data, host, window, data.sut_processes)
    there = {process.name for sample in data.samples[host] for process in sample.processes}
    basis = ", ".join(name for name in data.sut_processes if name in there)
    if use is None:
        unknown = _Known(None, "no process of the system under test was observed there")
        return _Use(unknown, unknown, basis)
    memory = _Known(use.memory_bytes, None if use.memory_bytes is not None else _FEW_SAMPLES)
    return _Use(_Known(use.user_percent + use.system_percent), memory, basis, use.threads)


def _of_cgroup(data: TestData, host: str, window: Window) -> _Use:
    basis = "the control group of its host without the agent"
    samples = data.samples[host]
    whole = rate_per_s([(one.t_ns, one.cgroup_s) for one in samples if one.cgroup_s is not None], window)
    if whole is None:
        return _Use(_Known(None, "its host has no control group of its own"), _Known(None, "as is its CPU time"), basis)
    held = [
        float(sample.cgroup_bytes)
        for sample in samples
        if sample.cgroup_bytes is not None and window.start_ns <= sample.t_ns <= window.end_ns
    ]
    memory = _Known(float(np.mean(held))) if held else _Known(None, "its control group does not count memory")
    return _Use(_Known(max(0.0, 100.0 * whole - _agent_percent(data, host, window))), memory, basis)


def _of_kernel(data: TestData, host: str, window: Window) -> _Use:
    """All of the kernel's time on a machine of its own. On one that hosts share, an upper bound of its share."""
    memory = _Known(None, "the kernel does not count the memory of its forwarding")
    machine = machine_samples(data, host)
    shares = cpu_percent(machine, window)
    busy = busy_percent(shares, machine)
    if busy is None:
        return _Use(_Known(None, "no agent samples its machine's CPUs"), memory, "the kernel's work")
    is_shared, paced = len(neighbours(data, host)) > 1, kernel_time.is_paced_by_timers(data)
    if is_shared:
        percent, counted = kernel_time.on_shared_machine(shares, busy, window.length_s, paced=paced)
    else:
        agent = processes_use(data, host, window, _AGENT)
        agent_system = agent.system_percent if agent is not None else 0.0
        percent, counted = kernel_time.on_own_machine(shares, busy, agent_system, paced=paced)
    return _Use(_Known(percent, counted=counted), memory, _BASES[is_shared, counted])


def _of_machine(data: TestData, host: str, window: Window) -> _Use:
    basis = "everything on its machine except the agent"
    if len(neighbours(data, host)) > 1:
        unknown = _Known(None, "it shares its machine with other hosts of the test, and its processes are not known")
        return _Use(unknown, unknown, basis)
    machine = machine_samples(data, host)
    shares = cpu_percent(machine, window)
    busy = busy_percent(shares, machine)
    if busy is None:
        unknown = _Known(None, "no agent samples its machine's CPUs")
        return _Use(unknown, unknown, basis)
    held = [
        float(sample.memory_used_bytes)
        for sample in machine
        if sample.memory_used_bytes is not None and window.start_ns <= sample.t_ns <= window.end_ns
    ]
    memory = _Known(float(np.mean(held))) if held else _Known(None, _FEW_SAMPLES)
    return _Use(_Known(max(0.0, busy - shares["steal"] - _agent_percent(data, host, window))), memory, basis)


def _agent_percent(data: TestData, host: str, window: Window) -> float:
    agent = processes_use(data, host, window, _AGENT)
    return agent.user_percent + agent.system_percent if agent is not None else 0.0


def _packets_per_s(data: TestData, host: str, window: Window | None, traffic: Traffic) -> float | None:
    """Packets that crossed, of the interface with the most of them: each packet passes one way or the other through
    every interface on the path. Interfaces count bundles of datagrams as one, so those that arrived are the least."""
    if window is None:
        return None
    samples = data.samples.get(host, [])
    if len(samples) < 2 or not covers([sample.t_ns for sample in samples], window):
        return None
    rates = [_crossed(samples, name, window, data) for name in interfaces_of(samples)]
    most = max(rates, default=0.0)
    crossed = max(most, traffic.datagrams_per_s or 0.0)
    return crossed if crossed > 0 else None


def interfaces_of(samples: Sequence[HostSample]) -> set[str]:
    """The names of the interfaces of a host that packets may cross."""
    return {use.name for sample in samples for use in sample.interfaces if use.name != "lo"}


def _crossed(samples: Sequence[HostSample], name: str, window: Window, data: TestData) -> float:
    """Packets per second on one interface, in both directions, as many as they are on the wire."""
    uses = [(sample.t_ns, use.counted) for sample in samples for use in sample.interfaces if use.name == name]
    total = 0.0
    for way in (0, 1):
        count = rate_per_s([(t_ns, float(counted[way][0])) for t_ns, counted in uses], window) or 0.0
        packets = rate_per_s([(t_ns, float(counted[way][1])) for t_ns, counted in uses], window) or 0.0
        total += packets * segments(count, packets, data.link_mtu_bytes, header_bytes(data.spec))
    return total


def rate_per_s(points: Sequence[tuple[int, float]], window: Window) -> float | None:
    """Growth of a counter per second inside the window; None if its readings do not cover enough of it."""
    if len(points) < 2 or not covers([t_ns for t_ns, _ in points], window):
        return None
    return rate_inside(points, window)
