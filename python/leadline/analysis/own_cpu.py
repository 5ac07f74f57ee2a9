"""The CPU time that a run itself used on a machine: what is left of the machine's busy time is other work.

A lab's hosts have a control group each, whose CPU time the kernel counts to the nanosecond. On given hosts it is that
of the agents, of the processes that are observed, and of a responder's threads, if it may be on the same machine: what
may be the run's own counts as its own. None where a part of the run is not known: a system under test that is not its
processes alone, a server that does not report, a payload that other programs of the machine may carry (two interfaces
have it). Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from leadline.analysis.flows import Flow, build_flows
from leadline.analysis.host_metrics import cgroup_percent, processes_use
from leadline.analysis.model import Window
from leadline.analysis.test_data import InterfaceUse, TestData
from leadline.analysis.window import byte_curves, unit_curves
from leadline.contract import records
from leadline.plan.gateway_metrics import GATEWAYS
from leadline.plan.sut import CpuAttribution

SERVER = "server"
MAIN_SHARE = 0.5
"""Of the bytes of a host's busiest interface, from where on another one carries the payload, too."""
SAME_BUSY = 0.1
"""Of a machine's CPUs: two readings of their busy time that differ by more are of two machines."""


def own_percent(data: TestData, hosts: Sequence[str], window: Window) -> float | None:
    """What the run used on the machine of these hosts, percent of one CPU."""
    if data.in_lab:
        return _sum(cgroup_percent(data.samples.get(host, ()), window) for host in hosts)
    if any(host in GATEWAYS for host in hosts) and not _is_processes(data):
        return None
    if not data.sut_processes and any(_crosses_twice(data, host, window) for host in hosts):
        return None
    return _sum([*(_observed(data, host, window) for host in hosts), _answering(data, hosts, window)])


def _is_processes(data: TestData) -> bool:
    """Whether the system under test is the observed processes alone, and not the kernel or all of its machine."""
    return bool(data.sut_processes) and data.cpu_attribution in (None, CpuAttribution.PROCESS.value)


def _sum(parts: Iterable[float | None]) -> float | None:
    """None where a part is not known."""
    total = 0.0
    for part in parts:
        if part is None:
            return None
        total += part
    return total


def _observed(data: TestData, host: str, window: Window) -> float | None:
    """The agent, what it started, and the processes that it was asked to observe."""
    names = {process.name for sample in data.samples.get(host, ()) for process in sample.processes}
    used = processes_use(data, host, window, names)
    return None if used is None else used.user_percent + used.system_percent


def _answering(data: TestData, hosts: Sequence[str], window: Window) -> float | None:
    """The threads of a responder without an agent, if it may be on this machine. Their CPU time is known of all their
    life alone: the window has as much of it as of their payload, or answers."""
    if SERVER in data.samples:
        return 0.0
    spent_s = 0.0
    for found in data.load_outcomes():
        far = found.outcome.get("receiver")
        if found.host not in hosts:
            continue
        if far is None or not far["threads"]:
            return None
        if answers_here(found.outcome, if_unknown=True):
            spent_s += sum(thread["user_s"] + thread["system_s"] for thread in far["threads"])
    if not spent_s or window.end_ns <= window.start_ns:
        return 0.0 if window.end_ns > window.start_ns else None
    share = _share_inside([flow for flow in build_flows(data) if flow.key.host in hosts], window)
    if share is None:
        return 100.0 * spent_s / ((window.last_end_ns - window.first_start_ns) / 1e9)
    return 100.0 * share * spent_s / ((window.end_ns - window.start_ns) / 1e9)


def _share_inside(flows: Sequence[Flow], window: Window) -> float | None:
    """The part of what these flows delivered that they delivered inside the window; None if nothing was counted."""
    for curves in (byte_curves(flows), unit_curves(flows)):
        total = sum(curve.total for curve in curves)
        if total > 0:
            return sum(curve.growth(window.start_ns, window.end_ns) for curve in curves) / total
    return None


def answers_here(outcome: records.Outcome, *, if_unknown: bool) -> bool:
    """Whether the answering side is on the generator's machine: both ends name the same boot of a kernel. Where an end
    of an older version does not name it: whether both read as many CPUs, equally busy."""
    receiver = outcome.get("receiver")
    own, far = outcome["generator"].get("machine"), receiver.get("machine") if receiver is not None else None
    if own is None or far is None:
        return if_unknown
    boots = own.get("boot_id"), far.get("boot_id")
    if None not in boots:
        return boots[0] == boots[1]
    if own["wall_s"] <= 0 or far["wall_s"] <= 0:
        return if_unknown
    busy = own["busy_s"] / own["wall_s"], far["busy_s"] / far["wall_s"]
    return own["cpus"] == far["cpus"] and abs(busy[0] - busy[1]) <= SAME_BUSY * own["cpus"]


def _crosses_twice(data: TestData, host: str, window: Window) -> bool:
    """Whether several interfaces of a host carried the payload, as through a tunnel, a proxy or a bridge."""
    samples = [one for one in data.samples.get(host, ()) if window.start_ns <= one.t_ns <= window.end_ns]
    if len(samples) < 2:
        return False
    before = {use.name: _bytes(use) for use in samples[0].interfaces}
    grown = [_bytes(use) - before[use.name] for use in samples[-1].interfaces if use.name in before]
    busiest = max(grown, default=0)
    return busiest > 0 and sum(moved >= MAIN_SHARE * busiest for moved in grown) > 1


def _bytes(use: InterfaceUse) -> int:
    return max(use.counted[0][0], use.counted[1][0])
