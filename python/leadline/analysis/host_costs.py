"""What a test cost each host: CPU time per byte, per packet and per operation, each of one span for CPU time and work:
the steady window, or all of the test where only the threads' own accounts are known.

In a lab a host's CPU time is that of its control group: the load, the system under test and the agent. Work that the
kernel does in soft interrupts for no process is in none of them; the whole machine's CPU time has it. On other hosts
it is that of the agent, whose threads the load's are. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from leadline.analysis.flows import Flow
from leadline.analysis.gateway_model import GatewayStatistics
from leadline.analysis.host_metrics import (
    busy_percent,
    cgroup_percent,
    cpu_percent,
    machine_samples,
    neighbours,
    observer_percent,
    processes_use,
)
from leadline.analysis.host_usage import AGENT
from leadline.analysis.interfaces import header_bytes, segments
from leadline.analysis.ladder_model import HostCost
from leadline.analysis.model import Window
from leadline.analysis.test_data import InterfaceUse, TestData
from leadline.analysis.window import byte_curves, rate_per_s, unit_curves
from leadline.contract import records
from leadline.plan.gateway_metrics import GATEWAYS

MACHINE = "machine"
"""The name of all CPUs of the machine that the hosts share."""
ANSWERING_SIDE = "answering side"
"""The name of a server that is known by its session alone."""
CONTROL_GROUP, LOAD_THREADS, WHOLE_MACHINE = "control group", "load threads", "whole machine"


@dataclass(frozen=True, slots=True)
class Work:
    """What was done in a time, by which the CPU time of the same time is divided."""

    seconds: float
    payload_bytes: float | None
    operations: float | None


@dataclass(frozen=True, slots=True)
class _Spent:
    """A host's CPU time, as percent of one CPU and in all of a time, with the work and the packets of that time."""

    percent: float | None
    cpu_s: float | None
    work: Work
    packets: float | None


def host_costs(
    data: TestData, flows: Sequence[Flow], window: Window | None, gateways: Sequence[GatewayStatistics] = ()
) -> tuple[HostCost, ...]:
    """The cost of one test on each of its hosts, the generating ones first, then the whole machine. Of a gateway it is
    that of the system under test, as `gateways` has it."""
    if window is None or window.end_ns <= window.start_ns:
        return ()
    return tuple(_costs(data, flows, window, {one.host: one for one in gateways}))


def _costs(
    data: TestData, flows: Sequence[Flow], window: Window, crossed: Mapping[str, GatewayStatistics]
) -> Iterator[HostCost]:
    inside = _inside(flows, window)
    gateways = [host for host in reversed(GATEWAYS) if host in data.samples]
    others = [host for host in data.samples if host not in (*data.hosts, *gateways)]
    for host in (*data.hosts, *gateways, *others):
        gateway = crossed.get(host)
        if gateway is not None and gateway.cpu_percent is not None and gateway.at_most:
            cost = _cost(host, gateway.basis, _spent(None, inside, gateway.packets_per_s))
            yield replace(cost, reason="only an upper bound of its CPU time is known")
        elif gateway is not None and gateway.cpu_percent is not None:
            yield _cost(host, gateway.basis, _spent(gateway.cpu_percent, inside, gateway.packets_per_s))
        else:
            yield _of_host(data, host, flows, window, inside)
    if not others and (receiver := _of_threads(_reports(data, "receiver"), flows, window, None)) is not None:
        yield _cost(ANSWERING_SIDE, LOAD_THREADS, receiver)
    seen: set[frozenset[str]] = set()
    for host in data.samples:
        together = frozenset(neighbours(data, host) & data.samples.keys()) or frozenset({host})
        if together not in seen:
            seen.add(together)
            machine = machine_samples(data, host)
            busy = busy_percent(cpu_percent(machine, window), machine)
            packets = _packets_per_s(data, host, window) if len(together) == 1 else None
            name = MACHINE if len(data.samples) == len(together) else f"{MACHINE} of {host}"
            yield _cost(name, WHOLE_MACHINE, _spent(busy, inside, packets))


def _of_host(data: TestData, host: str, flows: Sequence[Flow], window: Window, inside: Work) -> HostCost:
    """The cost of a host: by its control group, by its agent without what observing takes, or by the load's threads,
    whose CPU time is known for their whole life alone."""
    samples = data.samples.get(host, [])
    packets = _packets_per_s(data, host, window)
    percent = cgroup_percent(samples, window)
    if percent is not None:
        return _cost(host, CONTROL_GROUP, _spent(percent, inside, packets))
    agent = processes_use(data, host, window, {AGENT})
    if agent is not None:
        observing = observer_percent(samples, window)
        percent = max(0.0, agent.user_percent + agent.system_percent - observing)
        return _cost(host, LOAD_THREADS, _spent(percent, inside, packets))
    mine = _reports(data, "generator", host) if host in data.hosts else _reports(data, "receiver")
    spent = _of_threads(mine, flows, window, _packets_per_s(data, host, _whole(window)))
    return _cost(host, LOAD_THREADS, spent or _spent(None, inside, packets))


def _inside(flows: Sequence[Flow], window: Window) -> Work:
    seconds = (window.end_ns - window.start_ns) / 1e9
    rates = rate_per_s(byte_curves(flows), window), rate_per_s(unit_curves(flows), window)
    return Work(seconds, *(None if rate is None else rate * seconds for rate in rates))


def _whole(window: Window) -> Window:
    return replace(window, start_ns=window.first_start_ns, end_ns=window.last_end_ns)


def _spent(percent: float | None, work: Work, packets_per_s: float | None) -> _Spent:
    packets = None if packets_per_s is None else packets_per_s * work.seconds
    return _Spent(percent, None if percent is None else percent / 100 * work.seconds, work, packets)


def _of_threads(
    reports: Iterable[records.LoadReport], flows: Sequence[Flow], window: Window, packets_per_s: float | None
) -> _Spent | None:
    """What the load's threads used from the first start to the last end, and all that they did; None without an
    account."""
    threads = [thread for report in reports for thread in report["threads"] if thread["wall_s"] > 0]
    if not threads:
        return None
    percent = sum(100.0 * (thread["user_s"] + thread["system_s"]) / thread["wall_s"] for thread in threads)
    whole = _whole(window)
    seconds = (whole.end_ns - whole.start_ns) / 1e9
    moved = [
        sum(curve.total for curve in curves) if curves else None for curves in (byte_curves(flows), unit_curves(flows))
    ]
    packets = None if packets_per_s is None else packets_per_s * seconds
    cpu_s = sum(thread["user_s"] + thread["system_s"] for thread in threads)
    return _Spent(percent, cpu_s, Work(seconds, *moved), packets)


def _cost(host: str, source: str, spent: _Spent) -> HostCost:
    missing = []
    if spent.cpu_s is None:
        missing.append("its CPU time is not known")
    if spent.cpu_s is not None and not spent.work.payload_bytes:
        missing.append("no payload was counted")
    if spent.cpu_s is not None and not spent.packets:
        missing.append("its packets are not known")
    return HostCost(
        host=host,
        source=source,
        cpu_percent=spent.percent,
        ns_per_byte=_by(spent.cpu_s, spent.work.payload_bytes),
        ns_per_packet=_by(spent.cpu_s, spent.packets),
        ns_per_operation=_by(spent.cpu_s, spent.work.operations),
        reason=", ".join(missing) or None,
    )


def _by(cpu_s: float | None, number: float | None) -> float | None:
    return 1e9 * cpu_s / number if cpu_s is not None and number else None


def _reports(data: TestData, side: str, host: str | None = None) -> list[records.LoadReport]:
    """The threads' accounts of a side, of all generating hosts or of one."""
    outcomes = [found for found in data.load_outcomes() if host in (None, found.host)]
    return [report for found in outcomes if (report := found.outcome.get(side)) is not None]  # type: ignore[misc]


def _packets_per_s(data: TestData, host: str, window: Window) -> float | None:
    """Packets on the wire that passed the busiest interface, in both directions; None if it is not known.

    An interface counts a segmented packet as one: it is taken as full packets of the interface's MTU.
    """
    inside = [sample for sample in data.samples.get(host, ()) if window.start_ns <= sample.t_ns <= window.end_ns]
    if len(inside) < 2:
        return None
    first, last = inside[0], inside[-1]
    before = {use.name: use for use in first.interfaces}
    mtus = {str(one.get("name")): one.get("mtu") for one in data.facts.get(host, {}).get("interfaces") or ()}
    counts = [
        _on_wire(before[use.name], use, mtus.get(use.name) or data.link_mtu_bytes, header_bytes(data.spec))
        for use in last.interfaces
        if use.name in before
    ]
    seconds = (last.t_ns - first.t_ns) / 1e9
    return max(counts) / seconds if counts and seconds > 0 else None


def _on_wire(first: InterfaceUse, last: InterfaceUse, mtu_bytes: int, headers: int) -> float:
    found = 0.0
    for (bytes_before, packets_before), (bytes_after, packets_after) in zip(first.counted, last.counted, strict=True):
        packets = packets_after - packets_before
        if packets > 0:
            found += packets * segments(bytes_after - bytes_before, packets, mtu_bytes, headers)
    return found
