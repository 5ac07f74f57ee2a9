"""Which figures other work cannot have changed, by how long the load's threads waited for a CPU.

Other work takes CPU time from a thread while that thread is ready to run and waits; the kernel counts these waits to
the nanosecond. Where both ends name them, and the processes of a gateway between them, they bound what other work did,
and otherwise the time in which any task of the machines waited. A rate without them would be higher by their share of
the time at most, and a percentile can only have moved if they are at least as long as what the operations next to it
would have had to be delayed by. CPUs that others keep awake are another matter, which the verdict's scope has. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from leadline.analysis import disturbance
from leadline.analysis.histograms import Histogram
from leadline.analysis.host_metrics import machine_samples, neighbours, processes_use
from leadline.analysis.metrics import received_units, sum_of_flows
from leadline.analysis.model import Metric
from leadline.analysis.own_cpu import SERVER
from leadline.analysis.scope import EXPLAINED, Family, family_of
from leadline.analysis.test_data import TestData
from leadline.analysis.validity import Evidence
from leadline.contract import records
from leadline.plan.gateway_metrics import GATEWAYS
from leadline.plan.percentiles import histogram_of

MOVED = 0.05
"""Of a percentile, from where on it counts as moved."""
FORWARDS_PERCENT = 1.0
"""Of one CPU, from where on a gateway's processes forward what passes it: with less the kernel does."""


@dataclass(frozen=True, slots=True)
class _Waits:
    """What the threads of both ends waited for a CPU."""

    share: float
    """Of the time: the longest wait of a thread at each end, and all waits of the gateways' processes, together."""
    delay_us: float
    """By how much operations were delayed in total, at most: a wait delays all that its thread has in flight."""


def find_unmoved_figures(evidence: Evidence, figures: Mapping[str, Metric]) -> frozenset[str]:
    """The rates and percentiles that the threads' waits are too short to have changed; none where the waits of a part
    of the path are not known."""
    waits = _read_waits(evidence)
    if waits is None:
        return frozenset()
    unmoved = set()
    for name, metric in figures.items():
        if family_of(name) is Family.RATE:
            is_unmoved = waits.share <= EXPLAINED
        else:
            asked = histogram_of(name)
            is_unmoved = asked is not None and _is_percentile_unmoved(
                evidence.histograms.named(asked.histogram), asked.percentile, waits.delay_us
            )
        if is_unmoved and metric.value is not None:
            unmoved.add(name)
    return frozenset(unmoved)


def _is_percentile_unmoved(times: Histogram, percentile: float, delay_us: float) -> bool:
    """Whether all delays together are too short to have lifted a percentile by `MOVED`: then the operations between it
    and the lower value would all have been shorter than that."""
    value_us = times.percentile_us(percentile)
    if value_us is None:
        return False
    lower_us = value_us / (1 + MOVED)
    between = (times.middles_us > lower_us) & (times.middles_us <= value_us)
    needed = float(np.dot(times.middles_us[between] - lower_us, times.counts[between]))
    return delay_us < needed


def _read_waits(evidence: Evidence) -> _Waits | None:
    """The waits of both ends, or of all that ran on their machines; None where neither is known, or of a fleet."""
    if evidence.data.fleet_reports() or not evidence.data.load_outcomes():
        return None
    return _read_thread_waits(evidence) or _read_machine_waits(evidence)


def _read_machine_waits(evidence: Evidence) -> _Waits | None:
    """The time in which any task of the machines waited for a CPU, gateways included, as the kernel keeps it (PSI)."""
    data, window = evidence.data, evidence.window
    if window is None or not data.samples:
        return None
    share = delay_us = 0.0
    for hosts in disturbance.machines(data):
        samples = machine_samples(data, hosts[0])
        known = [(one.t_ns, one.cpu_stalled_s) for one in samples if one.cpu_stalled_s is not None]
        before = [one for one in known if one[0] <= window.start_ns][-1:]
        after = [one for one in known if one[0] >= window.end_ns][:1]
        if not before or not after or not samples[-1].cpus:
            return None
        # It is a mean over CPUs: one of them may have had all of it.
        stalled_s = samples[-1].cpus * (after[0][1] - before[0][1])
        share += stalled_s * 1e9 / (after[0][0] - before[0][0])
        delay_us += 1e6 * stalled_s * _count_in_flight(evidence, 1)
    return _Waits(share, delay_us)


def _read_thread_waits(evidence: Evidence) -> _Waits | None:
    """The waits of the load's threads and of the processes that forward it; None where those of one part are not
    known."""
    data = evidence.data
    forwarding = _read_gateway_waits(evidence)
    if forwarding is None:
        return None
    longest, delay_us = 0.0, forwarding.delay_us
    for found in data.load_outcomes():
        far = found.outcome.get("receiver")
        if not (far and far["threads"]) and not _is_server_apart(evidence):
            return None
        loads = [found.outcome["generator"], *([far] if far and far["threads"] else [])]
        sides = [list(_read_shares(load)) for load in loads]
        if any(not shares or None in shares for shares in sides):
            return None
        longest = max(longest, sum(max(share or 0.0 for share in shares) for shares in sides))
        for load in loads:
            waited_s = sum(thread.get("runnable_wait_s") or 0.0 for thread in load["threads"])
            delay_us += 1e6 * waited_s * _count_in_flight(evidence, len(load["threads"]))
    return _Waits(longest + forwarding.share, delay_us)


def _read_gateway_waits(evidence: Evidence) -> _Waits | None:
    """The waits of the processes that a gateway and the clients of its tunnels forward with; none without a gateway.
    None where they are not known, or where a gateway's processes used no CPU time, so that its kernel forwards."""
    data, window = evidence.data, evidence.window
    gateways = [host for host in data.samples if host in GATEWAYS]
    if not data.sut_processes or window is None:
        return None if gateways or data.sut_processes else _Waits(0.0, 0.0)
    uses = [processes_use(data, host, window, data.sut_processes) for host in gateways]
    if not uses or any(use is None or use.user_percent + use.system_percent < FORWARDS_PERCENT for use in uses):
        return None
    share = waited_s = 0.0
    for host in data.samples:
        for readings in _read_process_waits(data, host):
            before = [one for one in readings if one[0] <= window.start_ns][-1:]
            after = [one for one in readings if one[0] >= window.end_ns][:1]
            if not before or not after:
                return None
            grown_s = after[0][1] - before[0][1]
            share += 1e9 * grown_s / (after[0][0] - before[0][0])
            waited_s += grown_s
    return _Waits(share, 1e6 * waited_s * max(1, len(data.hosts)) * _count_in_flight(evidence, 1))


def _read_process_waits(data: TestData, host: str) -> Iterator[list[tuple[int, float]]]:
    """The instants and the waits (s) that are known of each process of the system under test on a host."""
    found: dict[int, list[tuple[int, float]]] = {}
    for sample in data.samples[host]:
        for process in sample.processes:
            if process.name in data.sut_processes:
                readings = found.setdefault(process.pid, [])
                if process.runnable_wait_s is not None:
                    readings.append((sample.t_ns, process.runnable_wait_s))
    yield from found.values()


def _read_shares(load: records.LoadReport) -> Iterator[float | None]:
    """The share of its time that each thread waited for a CPU; None where the kernel does not count that."""
    for thread in load["threads"]:
        waited_s = thread.get("runnable_wait_s")
        yield waited_s / thread["wall_s"] if waited_s is not None and thread["wall_s"] > 0 else None


def _is_server_apart(evidence: Evidence) -> bool:
    """Whether the server is observed on a machine without load threads, on which no other work is too much."""
    data, window = evidence.data, evidence.window
    together = neighbours(data, SERVER)
    if SERVER not in data.samples or window is None or not together.isdisjoint(data.hosts):
        return False
    use = disturbance.use_of(data, sorted({SERVER, *together} & data.samples.keys()), window)
    foreign = None if use is None else use.foreign
    return use is not None and foreign is not None and foreign <= 100 * use.cpus * disturbance.LIMIT_SHARE


def _count_in_flight(evidence: Evidence, threads: int) -> float:
    """Operations that a thread of one host had in flight at once, at most: one on each connection, or with times of
    their own as many as fall due in a mean latency."""
    spec, window = evidence.data.spec, evidence.window
    hosts = max(1, len(evidence.data.hosts))
    at_once = float(spec.connections or max(1, len(evidence.flows) / hosts))
    answered, mean_us = sum_of_flows(evidence.flows, received_units), evidence.histograms.named("latency").mean_us
    if spec.paced and answered and mean_us and window is not None and window.length_s > 0:
        at_once = max(at_once, answered / hosts / window.length_s * mean_us / 1e6)
    return max(1.0, at_once / threads)
