"""Plans with measured costs: what CPU a link needs, what link a CPU carries, and how many clients.

FreeS/WAN's rule (its documentation of 2002, "Estimating CPU overheads") is the same arithmetic with costs from the
literature: 140 cycles per byte are C * 17.5 MHz for C Mbit/s, and C * 25 MHz with some time to spare. Here costs come
from `analysis.gateways`: the line through CPU time per packet over packet sizes is a cost per packet and one per byte.
Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from leadline.analysis.gateway_model import GatewayStatistics
from leadline.analysis.model import Bound, Metric, RunAnalysis, TestResult, Verdict
from leadline.analysis.size_model import Bounded, ClientNeed, CostPoint, GatewayCost, LinkNeed
from leadline.plan import gateway_metrics as names
from leadline.statistics import Estimate, line, mean_of_repeats

BUSY = 0.7
"""The share of a CPU that a gateway is planned to use: 17.5 / 0.7 is FreeS/WAN's 25."""
PACKETS = (1400.0, 64.0)
"""Payload sizes of the tables: a full packet, and a small one."""
LINKS: tuple[tuple[str, float], ...] = (
    ("DSL", 1e6),
    ("cable", 3e6),
    ("Ethernet", 10e6),
    ("ADSL2+", 24e6),
    ("T3, E3", 45e6),
    ("100M", 100e6),
    ("OC3", 155e6),
    ("VDSL2", 250e6),
    ("1G", 1e9),
    ("2.5G", 2.5e9),
    ("10G", 10e9),
    ("25G", 25e9),
    ("40G", 40e9),
    ("100G", 100e9),
)
"""Links by name, and their rates in bit/s: FreeS/WAN's, and those of today."""

_GIB = 2**30
_LEAST_SPAN = 2.0
"""The largest packets by the smallest ones, from where on they separate two costs: sizes that are nearer to each other
are those of one load, whose answers and acknowledgements vary from one repeat to the next."""
_LEAST_PAYLOAD_BYTES = 32
"""Packets with a smaller payload, as of requests of a byte and their acknowledgements, are no measure of a link: their
cost by the bytes that they carry means nothing."""
_FEW_CLIENTS = 2
"""Of a single client, its share of what the system takes anyway is not known."""
_SYSTEM = "sut"


_USELESS = "too uncertain to plan with: measure longer (duration), or more often (repeat)"


@dataclass(frozen=True, slots=True)
class Work:
    """CPU cycles, or ns of CPU time, for each packet and for each byte of its payload."""

    per_packet: float
    per_byte: float

    def per_s(self, bps: float, packet_bytes: float) -> float:
        """The cycles, or ns, of each second in which packets of this payload carry this rate of payload."""
        octets_per_s = bps / 8
        return octets_per_s * self.per_byte + octets_per_s / packet_bytes * self.per_packet

    def bps(self, per_s: float, packet_bytes: float) -> float:
        """The rate of payload, in packets of this payload, that this many cycles, or ns, of each second carry."""
        return 8 * per_s / (self.per_byte + self.per_packet / packet_bytes)

    def scaled(self, factor: float) -> Work:
        """The same in another unit."""
        return Work(self.per_packet * factor, self.per_byte * factor)


@dataclass(frozen=True, slots=True)
class Carried:
    """What link a CPU carries, in packets of one size: payload in bit/s, at its end and as planned."""

    packet_bytes: float | None
    cores: int
    """Cores that take part: no more than the system's threads."""
    bps: float
    planned_bps: float
    bps_low: float | None = None
    bps_high: float | None = None
    """Bounds of `bps` at 95 %, of which `planned_bps` has the same share; None where the cost has none."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a plan is made for."""

    links: Sequence[tuple[str, float]]
    """Names and rates of payload, bit/s; empty for `LINKS`."""
    packets: Sequence[float]
    """Payload of each packet, bytes."""
    hz: float | None
    """Clock of the CPU to plan with; None for the measured one."""
    cores: int
    threads: int | None
    """Threads that share the work; None for as many as were measured."""
    busy: float
    """The share of the CPU that the gateway is planned to use."""


@dataclass(frozen=True, slots=True)
class Size:
    """A plan with one cost."""

    cost: GatewayCost
    cycles_per_packet: float | None
    """None where the clock speed of the measured CPU is unknown."""
    cycles_per_byte: float | None
    busy: float
    hz: float | None
    """Clock of the CPU that the plan is for."""
    cores: int
    usable: int
    """Cores that take part: no more than the system's threads."""
    links: tuple[LinkNeed, ...]
    carried: tuple[Carried, ...]


def sized(cost: GatewayCost, asked: Asked) -> Size:
    """What links need, and what the CPU carries."""
    sizes = asked.packets if cost.per_packet_ns is not None else [fmean(point.packet_bytes for point in cost.points)]
    clock_hz, work = cost.clock_hz, work_of(cost)
    cycles = work.scaled(clock_hz / 1e9) if clock_hz is not None else None
    threads = asked.threads if asked.threads is not None else cost.threads
    usable = asked.cores if threads is None else min(asked.cores, threads)
    # Without a clock, the plan is for CPUs like the measured one, whose work is in ns of each second.
    known = cycles if cycles is not None else work
    hz = asked.hz if cycles is not None and asked.hz is not None else clock_hz if cycles is not None else None
    return Size(
        cost=cost,
        cycles_per_packet=None if cycles is None or cost.per_packet_ns is None else cycles.per_packet,
        cycles_per_byte=None if cycles is None else cycles.per_byte,
        busy=asked.busy,
        hz=hz,
        cores=asked.cores,
        usable=usable,
        links=tuple(
            _of_cpu(_bounded_need(need, cost), hz, asked.busy)
            for need in link_needs(work, asked.links or LINKS, sizes, clock_hz=clock_hz, busy=asked.busy)
        ),
        carried=tuple(
            _bounded_link(one, cost)
            for one in carried(known, sizes, hz=hz or 1e9, cores=asked.cores, threads=threads, busy=asked.busy)
        ),
    )


def given_cost(cycles_per_packet: float, cycles_per_byte: float) -> GatewayCost:
    """A cost in cycles, as one of a CPU of 1 GHz, on which a cycle is a nanosecond."""
    return GatewayCost(
        system="given cycles",
        kind="",
        host="",
        points=(),
        per_packet_ns=Bounded(cycles_per_packet),
        per_byte_ns=Bounded(cycles_per_byte),
        at_most=False,
        threads=None,
        clock_hz=1e9,
    )


def clocked(cost: GatewayCost, hz: float | None) -> GatewayCost:
    """The cost of a CPU with this clock, where one is given."""
    return cost if hz is None else replace(cost, clock_hz=hz)


def _of_cpu(need: LinkNeed, hz: float | None, busy: float) -> LinkNeed:
    """The need in CPUs of this clock, with time to spare."""
    if need.cpus is None:
        return need
    cpus = (need.hz / hz if need.hz is not None and hz is not None else need.cpus) / busy
    low, high = (None if one is None else one * cpus / need.cpus for one in (need.cpus_low, need.cpus_high))
    return replace(need, cpus=cpus, cpus_low=low, cpus_high=high)


def _uncertainty(cost: GatewayCost, packet_bytes: float | None) -> float | None:
    """Half of the interval of the cost of a packet with its bytes, as a share of it; None without one. The errors of
    both costs depend on each other: where one is too high, the other is too low."""
    fixed, per_byte = cost.per_packet_ns, cost.per_byte_ns
    if per_byte.high is None or (fixed is not None and fixed.high is None):
        return None
    of_bytes = per_byte.high - per_byte.value
    if fixed is None or fixed.high is None or packet_bytes is None:
        return of_bytes / per_byte.value if per_byte.value > 0 else None
    of_packet, of_bytes = fixed.high - fixed.value, of_bytes * packet_bytes
    square = of_packet**2 + of_bytes**2 + 2 * (cost.correlation or 0.0) * of_packet * of_bytes
    return math.sqrt(max(square, 0.0)) / (fixed.value + per_byte.value * packet_bytes)


def _bounded_need(need: LinkNeed, cost: GatewayCost) -> LinkNeed:
    half = _uncertainty(cost, need.packet_bytes)
    if half is None or need.cpus is None:
        return need
    return replace(need, cpus_low=need.cpus * max(0.0, 1 - half), cpus_high=need.cpus * (1 + half))


def _bounded_link(one: Carried, cost: GatewayCost) -> Carried:
    """A cost that may be nothing carries any link."""
    half = _uncertainty(cost, one.packet_bytes)
    if half is None:
        return one
    return replace(one, bps_low=one.bps / (1 + half), bps_high=one.bps / (1 - half) if half < 1 else None)


def is_useless(cost: GatewayCost) -> bool:
    """Whether the interval of the cost of a full packet is wider than the cost itself: a plan with it says nothing."""
    size = None if cost.per_packet_ns is None else PACKETS[0]
    half = _uncertainty(cost, size)
    return half is not None and half >= 1


def work_of(cost: GatewayCost) -> Work:
    """A measured cost in ns."""
    return Work(cost.per_packet_ns.value if cost.per_packet_ns is not None else 0.0, cost.per_byte_ns.value)


def link_needs(
    work: Work,
    links: Iterable[tuple[str, float]],
    sizes: Sequence[float],
    *,
    clock_hz: float | None,
    busy: float = BUSY,
) -> Iterator[LinkNeed]:
    """What each link needs, for each packet size. `work` is in ns of a CPU with this clock."""
    for name, bps in links:
        for size in _sizes(work, sizes):
            cpus = work.per_s(bps, size or 1.0) / 1e9
            hz = None if clock_hz is None else cpus * clock_hz
            yield LinkNeed(name, bps, size, cpus, hz, None if hz is None else hz / busy)


def carried(
    cycles: Work, sizes: Sequence[float], *, hz: float, cores: int, threads: int | None, busy: float = BUSY
) -> list[Carried]:
    """What link this number of cores of this clock carries; `cycles` are for each packet and byte."""
    used = cores if threads is None else min(cores, threads)
    found = []
    for size in _sizes(cycles, sizes):
        bps = cycles.bps(hz * used, size or 1.0)
        found.append(Carried(size, used, bps, bps * busy))
    return found


def of_run(analysis: RunAnalysis) -> tuple[GatewayCost, ...]:
    """The cost of each system on each gateway, by kind of test, with the tables that need nothing else."""
    groups: dict[tuple[str, str, str], list[tuple[TestResult, GatewayStatistics]]] = {}
    for trial in analysis.trials:
        system = _system(trial.parameters, trial.sut, analysis)
        for result in trial.tests:
            # A stack's first tier forwards no packets: `tier_sizing` plans it.
            for gateway in result.gateways if result.status == "done" and not result.tiers else ():
                groups.setdefault((system, result.kind, gateway.host), []).append((result, gateway))
    found = (_cost(*key, rows) for key, rows in groups.items())
    return tuple(sorted((one for one in found if one is not None), key=lambda one: (one.system, one.kind, one.host)))


def _cost(
    system: str, kind: str, host: str, rows: Sequence[tuple[TestResult, GatewayStatistics]]
) -> GatewayCost | None:
    """The line through the figures that hold, or hold as upper bounds."""
    measured = [(point, of) for result, of in rows if (point := _point(result, host)) is not None]
    if not measured:
        return None
    points = tuple(point for point, _ in measured)
    fixed, per_byte, correlation, notes = _fitted(points)
    clocks = [of.clock_hz for _, of in rows if of.clock_hz is not None]
    clock_hz = fmean(clocks) if clocks else None
    at_most = any(
        _usable(found) and _is_bound(found)
        for result, _ in rows
        if (found := result.metrics.get(names.metric_of(host, names.PER_PACKET))) is not None
    )
    work = Work(fixed.value if fixed is not None else 0.0, per_byte.value)
    sizes = PACKETS if fixed is not None else (fmean(point.packet_bytes for point in points),)
    cost = GatewayCost(
        system=system,
        kind=kind,
        host=host,
        points=points,
        per_packet_ns=fixed,
        per_byte_ns=per_byte,
        at_most=at_most,
        threads=max((of.threads for _, of in rows if of.threads is not None), default=None),
        clock_hz=clock_hz,
        clients=_clients([of for _, of in measured]),
        notes=notes,
        correlation=correlation,
    )
    if is_useless(cost):
        return replace(cost, notes=(*notes, _USELESS))
    needs = link_needs(work, LINKS, sizes, clock_hz=clock_hz)
    return replace(cost, links=tuple(_bounded_need(need, cost) for need in needs))


def _point(result: TestResult, host: str) -> CostPoint | None:
    """CPU time per packet at the mean payload of the packets; None where it is not known from above, and of packets
    that hardly carry any."""
    per_packet = result.metrics.get(names.metric_of(host, names.PER_PACKET))
    per_byte = result.metrics.get(names.metric_of(host, names.PER_BYTE))
    if not _usable(per_packet) or not _usable(per_byte):
        return None
    assert per_packet is not None and per_byte is not None and per_packet.value and per_byte.value
    size = per_packet.value / per_byte.value
    return CostPoint(size, per_packet.value) if size >= _LEAST_PAYLOAD_BYTES else None


def _usable(metric: Metric | None) -> bool:
    return metric is not None and bool(metric.value) and (metric.verdict is Verdict.VALID or _is_bound(metric))


def _is_bound(metric: Metric) -> bool:
    return metric.bound is Bound.MOST


def _fitted(points: Sequence[CostPoint]) -> tuple[Bounded | None, Bounded, float | None, tuple[str, ...]]:
    """The cost of a packet and of a byte, in ns, the correlation of their errors, and notes; of a byte alone where all
    packets have about the same size."""
    sizes = [point.packet_bytes for point in points]
    rounded = [_rounded(size) for size in sizes]
    found = line(rounded, [point.ns for point in points]) if max(sizes) >= _LEAST_SPAN * min(sizes) else None
    if found is None:
        mean = mean_of_repeats([point.ns / point.packet_bytes for point in points])
        note = (
            f"packets of about one size alone ({fmean(sizes):.0f} bytes of payload) were measured: an axis of sizes "
            "(packet: [64, 512, 1400]) separates the cost of a packet from that of a byte"
        )
        return None, _bounded(mean), None, (note, *_notes(mean))
    return _bounded(found.fixed), _bounded(found.slope), found.correlation, _notes(found.fixed)


def _rounded(size: float) -> float:
    """Sizes of repeats differ by the few packets that are no payload."""
    return float(f"{size:.2g}")


def _bounded(estimate: Estimate) -> Bounded:
    return Bounded(estimate.value, None if estimate.low is None else max(0.0, estimate.low), estimate.high)


def _notes(estimate: Estimate) -> tuple[str, ...]:
    return (estimate.reason,) if estimate.reason is not None else ()


def _clients(gateways: Sequence[GatewayStatistics]) -> ClientNeed | None:
    """CPU and memory for each client, at the largest number of clients; memory by its growth where numbers differ."""
    known = [one for one in gateways if one.clients]
    if not known:
        return None
    most = max(one.clients or 0.0 for one in known)
    if most < _FEW_CLIENTS:
        return None
    largest = [one for one in known if one.clients == most]
    cpu = [one.cpu_percent for one in largest if one.cpu_percent]
    payload = [one.payload_bps for one in largest if one.payload_bps is not None]
    held = [(one.clients or 0.0, one.memory_bytes) for one in known if one.memory_bytes]
    memory = None
    if held:
        grown = line([number for number, _ in held], [octets for _, octets in held])
        of_largest = [octets / number for number, octets in held if number == most]
        memory = grown.slope if grown is not None else mean_of_repeats(of_largest) if of_largest else None
    per_cpu = _clients_for(100.0 * most, mean_of_repeats(cpu) if cpu else None)
    per_gib = _clients_for(_GIB, memory)
    return ClientNeed(
        clients=most,
        bps_per_client=fmean(payload) / most if payload else None,
        per_cpu=per_cpu.value if per_cpu is not None else None,
        per_gib=per_gib.value if per_gib is not None else None,
        per_cpu_low=per_cpu.low if per_cpu is not None else None,
        per_cpu_high=per_cpu.high if per_cpu is not None else None,
        per_gib_low=per_gib.low if per_gib is not None else None,
        per_gib_high=per_gib.high if per_gib is not None else None,
    )


def _clients_for(room: float, each: Estimate | None) -> Bounded | None:
    """How many fit into some room, of which each takes this much; without an upper bound where that may be nothing."""
    if each is None or each.value <= 0:
        return None
    low, high = (None if bound is None or bound <= 0 else room / bound for bound in (each.high, each.low))
    return Bounded(room / each.value, low, high)


def _system(parameters: Mapping[str, object], sut: str, analysis: RunAnalysis) -> str:
    """The parameters of the system in which the run's cases differ: `openvpn sut.cipher=AES-256-GCM`."""
    differing = []
    for name, value in parameters.items():
        values = {repr(trial.parameters.get(name)) for trial in analysis.trials}
        if name.startswith(f"{_SYSTEM}.") and len(values) > 1 and str(value) != sut:
            differing.append(f"{name}={value}")
    return " ".join([sut, *differing])


def _sizes(work: Work, sizes: Sequence[float]) -> Sequence[float | None]:
    """The size does not matter where a packet by itself costs nothing."""
    return sizes if work.per_packet > 0 else (None,)
