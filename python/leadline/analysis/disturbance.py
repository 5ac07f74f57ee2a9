"""Whether something else ran on the machine of a test: CPU time that neither its hosts, nor the network stack, nor
Leadline used, and time that a hypervisor took.

A lab's hosts have a control group each, whose CPU time the kernel counts to the nanosecond. What the machine's CPUs
were busy beyond those groups, soft interrupts and the controller belongs to processes outside of the run. Soft
interrupts are counted by timer ticks on most kernels, and the task that they interrupt may be charged for them too:
what is found is therefore rather too little than too much. On given hosts the system under test may run outside of
every known group, so there only stolen time counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from leadline.analysis.host_metrics import busy_percent, cgroup_percent, cpu_percent, machine_samples, neighbours
from leadline.analysis.model import Reason, Verdict, Window
from leadline.analysis.test_data import TestData

DISTURBED = "other-work"
STOLEN = "cpu-stolen"
LIMIT_SHARE = 0.05
"""Of the machine's CPUs: what other work, or a hypervisor, may take before a trial counts as disturbed."""


@dataclass(frozen=True, slots=True)
class Use:
    """What a machine's CPUs did inside the window, in percent of one CPU."""

    cpus: int
    busy: float
    hosts: float | None
    """The control groups of the run's hosts; None where one of them is not known."""
    softirq: float
    controller: float
    stolen: float

    @property
    def foreign(self) -> float | None:
        """What is left: other work."""
        if self.hosts is None:
            return None
        return max(0.0, self.busy - self.stolen - self.hosts - self.softirq - self.controller)


def findings(data: TestData, window: Window | None) -> Iterator[tuple[Verdict, Reason]]:
    """Each machine on which other work, or a hypervisor, took more than `LIMIT_SHARE` of its CPUs."""
    if window is None or window.end_ns <= window.start_ns:
        return
    seen: set[frozenset[str]] = set()
    for host in data.samples:
        together = frozenset(neighbours(data, host) & data.samples.keys())
        if together in seen:
            continue
        seen.add(together)
        use = use_of(data, sorted(together) or [host], window)
        if use is None:
            continue
        limit = 100.0 * use.cpus * LIMIT_SHARE
        where = f"{use.cpus} CPUs that {host} is on" if len(together) < 2 else f"{use.cpus} CPUs that the hosts share"
        if use.foreign is not None and use.foreign > limit:
            text = (
                f"processes outside of this run used {use.foreign:.0f} % of one CPU, of the {where} (busy "
                f"{use.busy:.0f} %: hosts {use.hosts:.0f} %, soft interrupts {use.softirq:.0f} %, "
                f"Leadline's controller {use.controller:.0f} %)"
            )
            yield Verdict.DISTURBED, Reason(DISTURBED, text)
        if use.stolen > limit:
            text = f"the hypervisor gave {use.stolen:.0f} % of one CPU to others, of the {where}"
            yield Verdict.DISTURBED, Reason(STOLEN, text)


def use_of(data: TestData, hosts: Sequence[str], window: Window) -> Use | None:
    """What the machine of these hosts did inside the window; None where it was not sampled."""
    machine = machine_samples(data, hosts[0])
    shares = cpu_percent(machine, window)
    busy, cpus = busy_percent(shares, machine), machine[-1].cpus if machine else None
    if busy is None or not cpus:
        return None
    of_hosts = [cgroup_percent(data.samples.get(host, ()), window) for host in hosts] if data.in_lab else [None]
    known = [percent for percent in of_hosts if percent is not None]
    return Use(
        cpus=cpus,
        busy=busy,
        hosts=sum(known) if len(known) == len(of_hosts) else None,
        softirq=shares["softirq"] + shares["irq"],
        controller=_controller_percent(data, hosts),
        stolen=shares["steal"],
    )


def _controller_percent(data: TestData, hosts: Sequence[str]) -> float:
    """What the controller used while the test ran, if it is on the machine of these hosts."""
    boot_ids = {data.facts.get(host, {}).get("boot_id") for host in hosts}
    if len(data.controller_cpu) < 2 or data.controller_boot_id not in boot_ids:
        return 0.0
    (first_ns, first_s), (last_ns, last_s) = data.controller_cpu[0], data.controller_cpu[-1]
    return 100.0 * (last_s - first_s) / ((last_ns - first_ns) / 1e9) if last_ns > first_ns else 0.0
