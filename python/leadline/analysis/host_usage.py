"""What a host did between two samples: rates and shares from the kernel's cumulative counters.

CPU figures are shares of one CPU. Figures that a sample lacks are None; a counter that went down (an interface that
was made again) gives no rate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leadline.contract.models import (
    CpuSample,
    NetworkSample,
    ObservationEvent,
    PressureSample,
    ProcessSample,
    SoakerSample,
)

AGENT = "agent"
_LOOPBACK = "lo"


@dataclass(frozen=True, slots=True)
class CpuUse:
    """One CPU, as shares of its time."""

    cpu: int
    user: float
    system: float
    softirq: float
    """Soft and hardware interrupts."""
    steal: float
    iowait: float
    idle: float
    mhz: float | None
    """Clock speed at the end."""
    left: float | None = None
    """What the soaker found to be left."""
    left_by_kernel: float | None = None
    """What was left by the kernel's accounting: idle time, and the soaker's own."""
    speed: float | None = None
    """The soaker's fastest slice of all, by its fastest one in this interval: below 1 where the clock was slower."""


@dataclass(frozen=True, slots=True)
class InterfaceUse:
    """One interface."""

    name: str
    rx_bps: float
    tx_bps: float
    rx_packets_per_s: float
    tx_packets_per_s: float
    rx_packets: int
    tx_packets: int
    dropped: int
    """By the interface, and by the queue in front of it."""
    errors: int


@dataclass(frozen=True, slots=True)
class DiskUse:
    """One disk."""

    name: str
    read_bytes_per_s: float
    written_bytes_per_s: float
    operations_per_s: float
    busy: float
    """Share of the time with a request outstanding."""


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """One process that was asked for."""

    name: str
    pid: int
    user: float | None
    """Share of one CPU; None in its first sample."""
    system: float | None
    resident_bytes: int
    threads: int


@dataclass(frozen=True, slots=True)
class HostUsage:
    """A host between two samples; `start_s` and `end_s` count from the first one."""

    start_s: float
    end_s: float
    cpus: tuple[CpuUse, ...]
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    context_switches_per_s: float | None
    interrupts_per_s: float | None
    pressure: dict[str, float | None]
    """Share of the time in which some task was stalled, by resource: `cpu`, `memory`, `io`, `irq`."""
    interfaces: tuple[InterfaceUse, ...]
    disks: tuple[DiskUse, ...]
    tcp_retransmits: int | None
    tcp_segments: int | None
    """Segments sent, without retransmissions."""
    backlog_drops: int | None
    """Frames that were dropped because a CPU's backlog was full."""
    quota_cpus: float | None
    """CPUs of the quota that holds for the host from above; None if there is none."""
    quota_throttled_s: float | None
    thermal_throttles: int | None
    """Times that a core was slowed down because it was hot; None if the kernel does not count them."""
    processes: tuple[ProcessUse, ...]
    observer: float
    """What observing cost, as a share of one CPU, without the soaker."""

    @property
    def length_s(self) -> float:
        """The time between the samples."""
        return self.end_s - self.start_s

    def cpu(self, kind: str) -> float | None:
        """A share of CPU time, as the mean over the CPUs; None if it is not known of all."""
        values = [getattr(one, kind) for one in self.cpus]
        known = [value for value in values if value is not None]
        return sum(known) / len(known) if known and len(known) == len(values) else None

    def traffic(self, figure: str) -> float:
        """A figure of all interfaces but the loopback one; of that if there is no other."""
        others = [one for one in self.interfaces if one.name != _LOOPBACK]
        return float(sum(getattr(one, figure) for one in others or self.interfaces))


@dataclass(frozen=True, slots=True)
class CommandCost:
    """How a command ended, and what it used, with the children that it waited for."""

    argv: tuple[str, ...]
    code: int | None
    signal: int | None
    elapsed_s: float
    user_s: float | None
    system_s: float | None
    max_resident_bytes: int | None
    """The largest resident memory of one of these processes; None if it is not known, or less than this program's."""

    @property
    def status(self) -> int:
        """The exit code as a shell would give it."""
        return 128 + self.signal if self.signal is not None else self.code or 0


@dataclass(frozen=True, slots=True)
class MachineCost:
    """What the whole machine did while a command ran: seconds of CPU time, and packets of its interfaces."""

    user_s: float
    system_s: float
    softirq_s: float
    rx_packets: int
    tx_packets: int


def machine_cost(total: HostUsage) -> MachineCost:
    """The whole machine's work between two samples."""

    def seconds(kind: str) -> float:
        return float(sum(getattr(one, kind) for one in total.cpus)) * total.length_s

    return MachineCost(
        user_s=seconds("user"),
        system_s=seconds("system"),
        softirq_s=seconds("softirq"),
        rx_packets=round(total.traffic("rx_packets")),
        tx_packets=round(total.traffic("tx_packets")),
    )


def between(
    before: ObservationEvent,
    after: ObservationEvent,
    *,
    began_ns: int,
    processes: Mapping[int, tuple[int, ProcessSample]] | None = None,
) -> HostUsage | None:
    """What happened between two samples of a machine; None if no time passed, or the machine was not sampled.

    `processes` are earlier samples by process id, with their instants; without them those of `before`.
    """
    seconds = (after.t_ns - before.t_ns) / 1e9
    first, last = before.machine, after.machine
    if seconds <= 0 or first is None or last is None:
        return None
    if processes is None:
        processes = {int(one.pid): (before.t_ns, one) for one in before.processes}
    throttles = [_throttles(one) for one in (before, after)]
    quotas = [before.quota, after.quota]
    tcp = before.network.tcp, after.network.tcp
    sent = _grown(tcp, lambda one: one.out_segments)
    return HostUsage(
        start_s=(before.t_ns - began_ns) / 1e9,
        end_s=(after.t_ns - began_ns) / 1e9,
        cpus=tuple(_cpus(before, after, seconds)),
        memory_used_bytes=last.memory.total_bytes - last.memory.available_bytes,
        memory_total_bytes=last.memory.total_bytes,
        context_switches_per_s=_rate((first, last), lambda one: one.context_switches, seconds),
        interrupts_per_s=_rate((first, last), lambda one: one.interrupts, seconds),
        pressure={name: _stalled(before, after, name, seconds) for name in ("cpu", "memory", "io", "irq")},
        interfaces=tuple(_interfaces(before.network, after.network, seconds)),
        disks=tuple(_disks(before, after, seconds)),
        tcp_retransmits=_count(_grown(tcp, lambda one: one.retransmitted_segments)),
        tcp_segments=_count(sent),
        backlog_drops=_count(_grown((first, last), lambda one: sum(row.dropped for row in one.softnet))),
        quota_cpus=after.quota.cpus if after.quota is not None else None,
        quota_throttled_s=_grown(quotas, lambda one: one.throttled_s),
        thermal_throttles=None if None in throttles else _count(_grown(throttles, lambda number: number)),
        processes=tuple(_process(one, after.t_ns, processes) for one in after.processes if one.name != AGENT),
        observer=(after.observer_cpu_s - before.observer_cpu_s) / seconds,
    )


def _grown(pair: Sequence[Any], read: Callable[[Any], float | None]) -> float | None:
    """The growth of a counter; None where one of the two is not known, or where it went down."""
    values = [None if one is None else read(one) for one in pair]
    if values[0] is None or values[1] is None or values[1] < values[0]:
        return None
    return values[1] - values[0]


def _count(grown: float | None) -> int | None:
    return None if grown is None else round(grown)


def _rate(pair: Sequence[Any], read: Callable[[Any], float | None], seconds: float) -> float | None:
    grown = _grown(pair, read)
    return None if grown is None else grown / seconds


def _stalled(before: ObservationEvent, after: ObservationEvent, resource: str, seconds: float) -> float | None:
    def read(observation: ObservationEvent) -> float | None:
        pressure: PressureSample | None = getattr(observation.machine.pressure, resource)  # type: ignore[union-attr]
        if pressure is None:
            return None
        # Stalls by interrupts are counted for all tasks alone.
        return pressure.some_us if pressure.some_us is not None else pressure.full_us

    stalled_us = _grown((before, after), read)
    return None if stalled_us is None else stalled_us / 1e6 / seconds


def _throttles(observation: ObservationEvent) -> int | None:
    clocks = observation.machine.clocks if observation.machine is not None else None
    counts = [one.core_throttles for one in clocks or () if one.core_throttles is not None]
    return sum(counts) if counts else None


def _cpus(before: ObservationEvent, after: ObservationEvent, seconds: float) -> Iterable[CpuUse]:
    assert before.machine is not None
    assert after.machine is not None
    earlier = {one.cpu: one for one in before.machine.cpus}
    clocks = {one.cpu: one.mhz for one in after.machine.clocks or ()}
    soaked = {one.cpu: one for one in before.soaker or ()}, {one.cpu: one for one in after.soaker or ()}
    for last in after.machine.cpus:
        first = earlier.get(last.cpu)
        if first is not None:
            soaker = soaked[0].get(last.cpu), soaked[1].get(last.cpu)
            yield _cpu(first, last, seconds, clocks.get(last.cpu), soaker)


_KINDS = ("user", "system", "irq", "softirq", "steal", "iowait", "idle")
"""All of a CPU's time; `nice` is a part of `user`."""


def _cpu(
    first: CpuSample,
    last: CpuSample,
    seconds: float,
    mhz: float | None,
    soaker: tuple[SoakerSample | None, SoakerSample | None],
) -> CpuUse:
    def used_s(*kinds: str) -> float:
        return float(sum(getattr(last, f"{kind}_s") - getattr(first, f"{kind}_s") for kind in kinds))

    def share(*kinds: str) -> float:
        return used_s(*kinds) / counted_s

    # The kernel counts in ticks, of which a short interval may have one more than it lasted.
    counted_s = max(seconds, used_s(*_KINDS))
    left, speed, own = _left(soaker, seconds)
    idle = share("idle", "iowait")
    return CpuUse(
        cpu=last.cpu,
        user=share("user"),
        system=share("system"),
        softirq=share("softirq", "irq"),
        steal=share("steal"),
        iowait=share("iowait"),
        idle=share("idle"),
        mhz=mhz,
        left=left,
        # The soaker is niced: by the kernel's ticks it had at most what all niced threads had.
        left_by_kernel=None if left is None else idle + min(share("nice"), own),
        speed=speed,
    )


def _left(
    soaker: tuple[SoakerSample | None, SoakerSample | None], seconds: float
) -> tuple[float | None, float | None, float]:
    """What the soaker found to be left, the speed of its CPU, and the CPU time that it was charged, as shares."""
    first, last = soaker
    if first is None or last is None or last.slices < first.slices or last.fastest_ns is None:
        return None, None, 0.0
    left = (last.slices - first.slices) * last.fastest_ns / 1e9 / seconds
    speed = None if last.recent_ns is None else last.fastest_ns / last.recent_ns
    return left, speed, ((last.cpu_s or 0.0) - (first.cpu_s or 0.0)) / seconds


def _interfaces(before: NetworkSample, after: NetworkSample, seconds: float) -> Iterable[InterfaceUse]:
    earlier = {one.name: one for one in before.interfaces}
    known = {one.name: one.drops for one in before.queues or ()}
    queued = {one.name: max(0, one.drops - known[one.name]) for one in after.queues or () if one.name in known}
    for last in after.interfaces:
        first = earlier.get(last.name)
        if first is None or last.rx_bytes < first.rx_bytes or last.tx_bytes < first.tx_bytes:
            continue
        rx, tx = last.rx_packets - first.rx_packets, last.tx_packets - first.tx_packets
        yield InterfaceUse(
            name=last.name,
            rx_bps=8 * (last.rx_bytes - first.rx_bytes) / seconds,
            tx_bps=8 * (last.tx_bytes - first.tx_bytes) / seconds,
            rx_packets_per_s=rx / seconds,
            tx_packets_per_s=tx / seconds,
            rx_packets=rx,
            tx_packets=tx,
            dropped=last.rx_dropped + last.tx_dropped - first.rx_dropped - first.tx_dropped + queued.get(last.name, 0),
            errors=last.rx_errors + last.tx_errors - first.rx_errors - first.tx_errors,
        )


def _disks(before: ObservationEvent, after: ObservationEvent, seconds: float) -> Iterable[DiskUse]:
    assert before.machine is not None
    assert after.machine is not None
    earlier = {one.name: one for one in before.machine.disks or ()}
    for last in after.machine.disks or ():
        first = earlier.get(last.name)
        if first is not None and last.reads >= first.reads and last.writes >= first.writes:
            yield DiskUse(
                name=last.name,
                read_bytes_per_s=(last.read_bytes - first.read_bytes) / seconds,
                written_bytes_per_s=(last.written_bytes - first.written_bytes) / seconds,
                operations_per_s=(last.reads + last.writes - first.reads - first.writes) / seconds,
                busy=(last.busy_ms - first.busy_ms) / 1e3 / seconds,
            )


def _process(last: ProcessSample, t_ns: int, earlier: Mapping[int, tuple[int, ProcessSample]]) -> ProcessUse:
    since_ns, first = earlier.get(int(last.pid), (t_ns, None))
    seconds = (t_ns - since_ns) / 1e9
    known = first is not None and seconds > 0
    return ProcessUse(
        name=last.name,
        pid=int(last.pid),
        user=(last.user_s - first.user_s) / seconds if known and first is not None else None,
        system=(last.system_s - first.system_s) / seconds if known and first is not None else None,
        resident_bytes=last.resident_bytes,
        threads=last.threads,
    )
