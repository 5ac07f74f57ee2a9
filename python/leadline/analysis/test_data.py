"""The data of one test: its hosts' events, on the controller's clock, reduced to what the analysis needs.

A run has one sample or point per journal line, so these are named tuples, which are fast to create. A `TestData` is
filled event by event, from a journal or directly from agents, in order of arrival.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from types import MappingProxyType
from typing import Any, NamedTuple, cast

from leadline.analysis.link_changes import LinkChange
from leadline.analysis.model import Ceiling, ClientBringUp
from leadline.analysis.test_spec import HostSpecs, TestSpec
from leadline.contract import records
from leadline.plan.limits import StabilityLimit

CPU_KINDS = ("user", "system", "softirq", "irq", "steal", "iowait", "idle")
"""Order of the figures in `HostSample.cpu_s`."""

DEFAULT_STABILITY_SPREAD = StabilityLimit().spread
"""The limit for the spread of repeats or intervals, as a share of their mean, if the plan sets none."""


_CPU_ACCOUNTS = itemgetter(*(f"{kind}_s" for kind in CPU_KINDS))
_DROPPED = itemgetter("dropped")


class ProcessUse(NamedTuple):
    """The counters of one process at one instant."""

    name: str
    pid: int
    user_s: float
    system_s: float
    resident_bytes: int
    threads: int
    scheduled_s: float | None = None
    """CPU time by the scheduler's clock, where it is known for the whole process: exact, `user_s` and `system_s` are
    hundredths of a second."""
    runnable_wait_s: float | None = None
    """Time that its threads were ready to run and waited for a CPU, summed; null in most samples of several threads."""

    @classmethod
    def read(cls, row: records.ProcessSample) -> ProcessUse:
        """Convert a process of an `observation` event."""
        name, pid, user_s, system_s, resident_bytes, threads = _PROCESS_COUNTERS(row)
        exact_s, waited_s = row.get("scheduled_s"), row.get("runnable_wait_s")
        return cls(name, pid, user_s, system_s, resident_bytes, threads, exact_s, waited_s)


_PROCESS_COUNTERS = itemgetter(*ProcessUse._fields[:-2])


class InterfaceUse(NamedTuple):
    """One interface's counters: bytes and packets, of what it received and of what it sent."""

    name: str
    counted: tuple[tuple[int, int], tuple[int, int]]
    dropped: tuple[int, int] = (0, 0)
    """Packets dropped on receipt and on sending, because a queue was full."""
    errors: tuple[int, int] = (0, 0)
    """Packets that were damaged on receipt, or could not be sent."""


class QueueUse(NamedTuple):
    """The queue by which packets leave an interface: its discipline, and what it counted."""

    name: str
    kind: str
    packets: int
    drops: int
    backlog_bytes: int


_QUEUE_COUNTERS = itemgetter(*QueueUse._fields)


class QuotaUse(NamedTuple):
    """A CPU quota that holds for a host from above: its control group, its CPUs, and how long it held threads back."""

    group: str
    cpus: float
    throttled_s: float


class ThreadUse(NamedTuple):
    """The CPU time of one thread of a process at one instant."""

    pid: int
    tid: int
    cpu_s: float


_NONE: Mapping[int, float] = MappingProxyType({})


class ClockCheck(NamedTuple):
    """One comparison of a host's clock with the controller's, ns."""

    at_ns: int
    """When, by the controller's clock."""
    offset_ns: int
    bound_ns: int


class LostHost(NamedTuple):
    """A client host that a trial went on without."""

    at_ns: int
    """When it was lost, by the controller's clock."""
    reason: str


class HostSample(NamedTuple):
    """One observation of a host, reduced. `cpu_s` is summed over the CPUs since boot, in the order of `CPU_KINDS`."""

    t_ns: int
    cpu_s: tuple[float, ...] | None
    cpus: int | None
    memory_used_bytes: int | None
    cgroup_s: float | None
    observer_cpu_s: float
    processes: tuple[ProcessUse, ...]
    interfaces: tuple[InterfaceUse, ...] = ()
    throttled_s: float | None = None
    """Time that the CPU limit of the host's control group held it back, s; None where it has none."""
    network_bytes: tuple[int, int] | None = None
    """Bytes that all interfaces together received and sent; None if none was read."""
    interrupted_s: tuple[float, ...] = ()
    """Time of each CPU in interrupts and soft interrupts since boot."""
    clock_hz: float | None = None
    """Mean clock speed of the machine's CPUs; None in samples without it."""
    clocks_hz: Mapping[int, float] = _NONE
    """Clock speed of each CPU, by the CPU's number; empty in samples without it."""
    cgroup_bytes: int | None = None
    """Memory of the host's control group; None where that is not counted."""
    heat_throttles: tuple[int, int] | None = None
    """Times that cores, and packages, were slowed down because they were hot; None in samples that do not count it."""
    quota: QuotaUse | None = None
    queues: tuple[QueueUse, ...] = ()
    """By interface; empty where none was read."""
    datagrams: tuple[int, int] | None = None
    """Datagrams that the host's UDP sockets received, and those that their buffers had no room for; None in samples
    that do not count them."""
    backlog_drops: int | None = None
    """Frames that the machine's CPUs dropped because their backlogs were full; None in samples without them."""
    unused_s: Mapping[int, float] = _NONE
    """Time since boot that each CPU was idle, or a hypervisor took; by the CPU's number."""
    busiest_threads: tuple[ThreadUse, ...] = ()
    """Of each process of several threads, the one that used the most CPU time since the sample before that has one."""
    cpu_stalled_s: float | None = None
    """Time since boot in which a task of the machine was ready to run and waited (PSI); None in samples without it."""

    @classmethod
    def read(cls, event: records.ObservationEvent, offset_ns: int) -> HostSample:
        """Convert an `observation` event."""
        machine, cgroup = event.get("machine"), event.get("cgroup")
        cpus = machine["cpus"] if machine else None
        memory = machine["memory"] if machine else None
        interfaces = event["network"]["interfaces"]
        return cls(
            t_ns=event["t_ns"] - offset_ns,
            cpu_s=tuple(map(sum, zip(*map(_CPU_ACCOUNTS, cpus), strict=True))) if cpus else None,
            cpus=len(cpus) if cpus else None,
            memory_used_bytes=memory["total_bytes"] - memory["available_bytes"] if memory else None,
            cgroup_s=cgroup["usage_s"] if cgroup else None,
            observer_cpu_s=event["observer_cpu_s"],
            processes=tuple(map(ProcessUse.read, event["processes"])),
            interfaces=tuple(
                [
                    InterfaceUse(
                        row["name"],
                        ((row["rx_bytes"], row["rx_packets"]), (row["tx_bytes"], row["tx_packets"])),
                        (row["rx_dropped"], row["tx_dropped"]),
                        (row["rx_errors"], row["tx_errors"]),
                    )
                    for row in interfaces
                ]
            ),
            throttled_s=cgroup.get("throttled_s") if cgroup else None,
            network_bytes=_network_bytes(interfaces),
            unused_s={row["cpu"]: row["idle_s"] + row["iowait_s"] + row["steal_s"] for row in cpus or ()},
            interrupted_s=tuple([row["softirq_s"] + row["irq_s"] for row in cpus]) if cpus else (),
            clock_hz=_clock_hz(machine) if machine else None,
            clocks_hz=_clocks_hz(machine) if machine else _NONE,
            cgroup_bytes=cgroup.get("memory_bytes") if cgroup else None,
            heat_throttles=_heat_throttles(machine) if machine else None,
            quota=_quota(event.get("quota")),
            queues=tuple(map(QueueUse._make, map(_QUEUE_COUNTERS, event["network"].get("queues") or ()))),
            datagrams=_datagrams(event["network"].get("udp")),
            backlog_drops=sum(map(_DROPPED, machine["softnet"])) if machine else None,
            busiest_threads=tuple(
                [
                    ThreadUse(row["pid"], busiest["tid"], busiest["cpu_s"])
                    for row in event["processes"]
                    if (busiest := row.get("busiest_thread"))
                ]
            ),
            cpu_stalled_s=_cpu_stalled_s(machine) if machine else None,
        )


def _clock_hz(machine: Mapping[str, Any]) -> float | None:
    speeds = _clocks_hz(machine).values()
    return sum(speeds) / len(speeds) if speeds else None


def _clocks_hz(machine: Mapping[str, Any]) -> Mapping[int, float]:
    clocks = machine.get("clocks")
    return {row["cpu"]: 1e6 * row["mhz"] for row in clocks if row.get("mhz")} if clocks else _NONE


def _heat_throttles(machine: Mapping[str, Any]) -> tuple[int, int] | None:
    """Thermal throttles of the cores together, and of the package: every CPU of a package has the package's own
    count."""
    clocks = machine.get("clocks") or ()
    cores = [row["core_throttles"] for row in clocks if row.get("core_throttles") is not None]
    packages = [row["package_throttles"] for row in clocks if row.get("package_throttles") is not None]
    return (sum(cores), max(packages, default=0)) if cores or packages else None


def _cpu_stalled_s(machine: Mapping[str, Any]) -> float | None:
    stalled_us = ((machine.get("pressure") or {}).get("cpu") or {}).get("some_us")
    return None if stalled_us is None else stalled_us / 1e6


def _datagrams(udp: Mapping[str, Any] | None) -> tuple[int, int] | None:
    return (udp["in_datagrams"], udp["receive_buffer_errors"]) if udp else None


def _quota(row: Mapping[str, Any] | None) -> QuotaUse | None:
    return QuotaUse(row["group"], row["cpus"], row["throttled_s"]) if row else None


def _network_bytes(interfaces: Sequence[records.InterfaceSample]) -> tuple[int, int] | None:
    if not interfaces:
        return None
    return sum([row["rx_bytes"] for row in interfaces]), sum([row["tx_bytes"] for row in interfaces])


class FlowKey(NamedTuple):
    """A flow's identity: its host, its task there, and its number in the task."""

    host: str
    task: str
    flow: int


class Point(NamedTuple):
    """A flow's cumulative counters at one instant."""

    t_ns: int
    sent_bytes: int
    received_bytes: int
    sent_units: int | None
    received_units: int | None
    missing_units: int | None = None
    """Datagrams that had not arrived when a later one had; only of the side that receives numbered datagrams."""


@dataclass(frozen=True, slots=True)
class IntervalHistogram:
    """A histogram of one interval, still encoded."""

    host: str
    end_ns: int
    report: records.HistogramReport
    task: str = ""


class ScenarioPoint(NamedTuple):
    """A scenario's users, and what ended in an interval, as a host reported it."""

    t_ns: int
    host: str
    progress: records.ScenarioProgress
    standing: records.Standing | None = None
    """What its threads had done when the users were counted."""


@dataclass(frozen=True, slots=True)
class OutcomeOf:
    """The figures of a finished task. `offset_ns` must be subtracted from every instant in `outcome`."""

    host: str
    task: str
    t_ns: int
    offset_ns: int
    outcome: records.Outcome

    @property
    def fleet(self) -> records.TunnelReport | None:
        """The report of the fleet that ran the test; None if the test ran without a fleet. A fleet runs tests of other
        kinds too, in its tunnels."""
        return self.outcome.get("tunnel")

    @property
    def packets(self) -> records.PacketsReport | None:
        """The report of a generator or receiver of packets; None for other tests."""
        return self.outcome.get("packets")

    @property
    def scenario(self) -> records.ScenarioReport | None:
        """The report of a scenario; None for other tests."""
        return self.outcome.get("scenario")


_OF_RECEIVERS = ("received_bytes", "received_units", "duplicates", "reordered")


def _sum(counts: Sequence[int | None]) -> int | None:
    """The sum; None if one of them is unknown."""
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _joined(found: OutcomeOf, received: Sequence[OutcomeOf]) -> OutcomeOf:
    """A generator's outcome with what its receivers counted, as a load has it whose other side reports to it."""
    outcome: dict[str, Any] = {**found.outcome}
    rows = [row for one in received for row in one.outcome["flows"]]
    sums = {name: _sum([cast(Mapping[str, Any], row).get(name) for row in rows]) for name in _OF_RECEIVERS}
    outcome["flows"] = [{**row, **sums} for row in found.outcome["flows"]]
    outcome["histograms"] = [
        *found.outcome["histograms"],
        *(one for far in received for one in far.outcome["histograms"]),
    ]
    outcome["errors"] = {**found.outcome["errors"]}
    for far in received:
        outcome["errors"].update({f"peer_{name}": count for name, count in far.outcome["errors"].items()})
    outcome["receiver"] = {**received[0].outcome["generator"], "side": "peer"}
    counted = received[0].packets
    if found.packets is not None and counted is not None:
        outcome["packets"] = {**found.packets, "receiver": counted["receiver"]}
    return replace(found, outcome=cast(records.Outcome, outcome))


@dataclass(slots=True)
class TestData:
    """The data of one test of one trial. The tests of a trial may share `samples`."""

    __test__ = False  # pytest must not collect this class

    spec: TestSpec
    # Hosts that should generate load.
    hosts: tuple[str, ...] = ()
    # What each host has of the load, where that is not one client with the test's own amounts; `spec` is the largest.
    host_specs: HostSpecs = field(default_factory=lambda: HostSpecs({}, {}))
    # Clients that have no part of the load, because a total is too small for all.
    left_out: tuple[str, ...] = ()
    # The number of clients that the test itself asks for; None: all.
    clients_wanted: int | None = None
    # The tasks that receive it, by host and name, where a load has receivers of its own.
    receivers: frozenset[tuple[str, str]] = frozenset()
    # Those that send it back, to a receiver beside the generator.
    reflectors: frozenset[tuple[str, str]] = frozenset()
    case: str = ""
    repeat: int = 1
    parameters: dict[str, Any] = field(default_factory=dict)
    status: str = "done"  # done | failed | interrupted
    error: str | None = None
    # Planned start of all tasks, on the controller's clock.
    start_at_ns: int | None = None
    # The same on the controller's wall clock, ns since 1970; None in journals of older versions.
    start_wall_ns: int | None = None
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    clock_bounds_ns: dict[str, int] = field(default_factory=dict)
    # Those that the trial went on without, some perhaps only after this test.
    lost_hosts: dict[str, LostHost] = field(default_factory=dict)
    # Of hosts with clocks of their own, before, during and after the test.
    clock_checks: dict[str, list[ClockCheck]] = field(default_factory=dict)
    bring_up: ClientBringUp | None = None
    # Metrics in targets in addition to those of the kind: percentiles.
    asked: tuple[str, ...] = ()
    # Names under which the processes of the system under test are observed.
    sut_processes: tuple[str, ...] = ()
    # The tiers of a stack, as the bring-up names them.
    tiers: tuple[dict[str, Any], ...] = ()
    # What the system's daemons counted themselves, by tier, before the load and after it; None where none was read.
    system_counters: tuple[dict[str, Any], dict[str, Any]] | None = None
    # CPUs that processes may use by the quota of their control group, by host and name.
    cpu_quotas: dict[str, dict[str, float]] = field(default_factory=dict)
    # Whose CPU time on a gateway is the system's (`CpuAttribution`); None in journals that do not say it.
    cpu_attribution: str | None = None
    stability_spread: float = DEFAULT_STABILITY_SPREAD
    # The generator's ceiling, if it was measured.
    ceiling: Ceiling | None = None
    samples: dict[str, list[HostSample]] = field(default_factory=dict)
    outcomes: list[OutcomeOf] = field(default_factory=list)
    # By flow and side (`local`, `peer`).
    progress: dict[tuple[FlowKey, str], list[Point]] = field(default_factory=dict)
    interval_histograms: list[IntervalHistogram] = field(default_factory=list)
    # Changes of the hosts' interfaces in the whole trial.
    link_changes: list[LinkChange] = field(default_factory=list)
    # In the order in which they came.
    scenario_points: list[ScenarioPoint] = field(default_factory=list)
    # The latest figures so far of each task, by host and task; its outcome replaces them.
    scenarios_so_far: dict[tuple[str, str], records.ScenarioReport] = field(default_factory=dict)
    # Single requests that are missing in the journal, by host and task.
    left_out_samples: dict[tuple[str, str], int] = field(default_factory=dict)
    # The latest `Standing` of each task, by host and task.
    standings: dict[tuple[str, str], records.Standing] = field(default_factory=dict)
    # The thread reports of a fleet at each `Standing`, with its instant, by host and task.
    thread_accounts: dict[tuple[str, str], list[tuple[int, Sequence[records.ThreadReport]]]] = field(
        default_factory=dict
    )
    # A server's process that the agent beside it observed too.
    server_pid: int | None = None
    # Gateways that a plan gave by address, each with the clients and the server that share its interfaces: their
    # counters must show that the payload went through.
    given_gateways: dict[str, tuple[str, ...]] = field(default_factory=dict)
    # Rate and MTU of the lab's links; the rate is None where nothing shapes them.
    link_bps: float | None = None
    link_mtu_bytes: int = 1500
    # Whether its hosts are a lab's, each in a control group of its own.
    in_lab: bool = False
    # CPU time of the controller, s, at the test's begin and end, and the machine that it runs on.
    controller_cpu: list[tuple[int, float]] = field(default_factory=list)
    controller_boot_id: str | None = None
    # Whether its load runs on, and these are its figures so far.
    is_running: bool = False
    # Lines of the journal that could not be read while the trial ran.
    unreadable_lines: int = 0
    started_ns: dict[tuple[str, str], int] = field(default_factory=dict)
    # When each task was due and when it began, by the host's own clock.
    starts_ns: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    failures: list[tuple[str, str]] = field(default_factory=list)

    def add(self, host: str, event: Mapping[str, Any], offset_ns: int = 0) -> None:
        """Add one event of `host`, as a plain record. `offset_ns` is the host's clock minus the controller's.

        Events that do not affect a test's figures are ignored.
        """
        match event.get("type"):
            case "progress":
                self._add_progress(host, cast(records.Progress, event), offset_ns)
            case "finished":
                finished = OutcomeOf(host, event["task"], event["t_ns"] - offset_ns, offset_ns, event["outcome"])
                self.outcomes.append(finished)
            case "samples":
                self._count_left_out(host, cast(records.Samples, event))
            case "started":
                self.started_ns[(host, event["task"])] = event["t_ns"] - offset_ns
                self.starts_ns[(host, event["task"])] = (event.get("due_ns", event["t_ns"]), event["t_ns"])
            case "failed":
                self.failures.append((host, event["error"]["message"]))
            case "observation":
                self.samples.setdefault(host, []).append(
                    HostSample.read(cast(records.ObservationEvent, event), offset_ns)
                )

    def _count_left_out(self, host: str, event: records.Samples) -> None:
        """Count what tasks left out. A batch has all that its task left out so far, and batches come in no order."""
        key = (host, event["task"])
        if (count := event["samples"]["left_out"]) > self.left_out_samples.get(key, 0):
            self.left_out_samples[key] = count

    def spec_of(self, host: str) -> TestSpec:
        """The parameters of a host's part of the load."""
        return self.host_specs.by_host.get(host, self.spec)

    @property
    def client_count(self) -> int:
        """The clients of the load, at least one."""
        return sum(self.host_specs.clients.get(host, 1) for host in self.hosts) or 1

    @property
    def connections(self) -> int | None:
        """The connections of all hosts; None where the test has no number of them."""
        found = [self.spec_of(host).connections for host in self.hosts or ("",)]
        return None if not all(found) else sum(one or 0 for one in found)

    @property
    def asked_bps(self) -> float | None:
        """The payload rate of all hosts in one direction that was asked for, bit/s; None if none was."""
        found = [self.spec_of(host).asked_bps for host in self.hosts or ("",)]
        return None if not all(found) else sum(one or 0.0 for one in found)

    @property
    def pacing_bps(self) -> float | None:
        """The rate at which the kernels of all hosts pace them in one direction, bit/s; None if they do not."""
        found = [self.spec_of(host).pacing_bps for host in self.hosts or ("",)]
        return None if not all(found) else sum(one or 0.0 for one in found)

    def load_outcomes(self) -> list[OutcomeOf]:
        """Outcomes of the tasks that generated load, without the server's and those of the load's other parts."""
        own = [found for found in self.outcomes if (found.host, found.task) not in self.other_parts]
        own = [found for found in own if not self.hosts or found.host in self.hosts]
        received = self.receiver_outcomes()
        return [_joined(found, received) if found is own[0] else found for found in own] if received else own

    def points(self, key: FlowKey, side: str) -> list[Point]:
        """What a side counted of a flow at its instants; receivers of their own count as its other side."""
        if side == "peer" and self.receivers:
            own = [self.progress.get((FlowKey(*task, key.flow), "local"), []) for task in sorted(self.receivers)]
            return [point for points in own for point in points]
        return self.progress.get((key, side), [])

    @property
    def other_parts(self) -> frozenset[tuple[str, str]]:
        """The load's tasks that generate nothing."""
        return self.receivers | self.reflectors

    def reflector_outcomes(self) -> list[OutcomeOf]:
        """Outcomes of the tasks that sent the load back."""
        return [found for found in self.outcomes if (found.host, found.task) in self.reflectors]

    def receiver_outcomes(self) -> list[OutcomeOf]:
        """Outcomes of the load's receivers."""
        return [found for found in self.outcomes if (found.host, found.task) in self.receivers]

    def fleet_reports(self) -> list[records.TunnelReport]:
        """The report of each fleet that ran the test."""
        return [report for found in self.load_outcomes() if (report := found.fleet)]

    def scenario_reports(self) -> list[records.ScenarioReport]:
        """A scenario's figures of each task: at its end, or so far."""
        ended = self.load_outcomes()
        finished = {(found.host, found.task) for found in ended}
        reports = [report for found in ended if (report := found.scenario) is not None]
        running = [
            report
            for (host, task), report in self.scenarios_so_far.items()
            if (host, task) not in finished and (not self.hosts or host in self.hosts)
        ]
        return [*reports, *running]

    def accounts(self) -> list[records.Outcome | records.Standing]:
        """The source of `errors` and `counts` of each generating task: its outcome, or its last standing if it was
        interrupted."""
        finished = {(found.host, found.task) for found in self.load_outcomes()}
        standing = [
            account
            for (host, task), account in self.standings.items()
            if (host, task) not in finished | self.other_parts and (not self.hosts or host in self.hosts)
        ]
        return [*(found.outcome for found in self.load_outcomes()), *standing]

    def _add_progress(self, host: str, event: records.Progress, offset_ns: int) -> None:
        t_ns = event["t_ns"] - offset_ns
        for row in event["flows"]:
            key = FlowKey(host, event["task"], row["flow"])
            point = Point(
                t_ns,
                row["sent_bytes"],
                row["received_bytes"],
                row.get("sent_units"),
                row.get("received_units"),
                row.get("missing_units"),
            )
            self.progress.setdefault((key, event["side"]), []).append(point)
        standing, scenario = event.get("standing"), event.get("scenario")
        if scenario is not None:
            self.scenario_points.append(ScenarioPoint(t_ns, host, scenario, standing))
            so_far = scenario.get("so_far")
            if so_far is not None:
                self.scenarios_so_far[(host, event["task"])] = so_far
        if standing is not None:
            self.standings[(host, event["task"])] = standing
            if self.spec.connects_clients:
                accounts_of_task = self.thread_accounts.setdefault((host, event["task"]), [])
                accounts_of_task.append((t_ns, standing["threads"]))
        for report in event["histograms"]:
            self.interval_histograms.append(IntervalHistogram(host, t_ns, report, event["task"]))
