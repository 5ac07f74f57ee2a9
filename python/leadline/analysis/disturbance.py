"""Whether something else held the machine of a test back: CPU time that neither its hosts, nor the network stack, nor
Leadline used, time that a hypervisor took, a CPU quota from above, and CPUs that were slowed down since they were hot.

What the machine's CPUs were busy beyond the run itself (`own_cpu`), soft interrupts and the controller belongs to
processes outside of the run. Soft interrupts are counted by timer ticks on most kernels, and the task that they
interrupt may be charged for them too: what is found is therefore rather too little than too much. Ticks miss interrupts
of idle CPUs, though, which a network card has many of: on given hosts, other work is therefore at most what the ticks
found in user mode and in the kernel's work for processes. The limit of a host's own group is part of what is measured,
and no disturbance.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from leadline.analysis.host_metrics import busy_percent, cpu_percent, machine_samples, neighbours
from leadline.analysis.model import Reason, Verdict, Window
from leadline.analysis.own_cpu import own_percent
from leadline.analysis.test_data import HostSample, QuotaUse, TestData
from leadline.quantities import rounded_share

DISTURBED = "other-work"
STOLEN = "cpu-stolen"
HEAT = "heat-throttled"
QUOTA = "quota-held-back"
CLOCK = "clock-changed"
SLOW_CLOCK = "clock-below-base"
LIMIT_SHARE = 0.05
"""Of the machine's CPUs: what other work, or a hypervisor, may take before a trial counts as disturbed."""
LIMIT_BESIDE_WAITS = 50.0
"""Percent of one CPU: what other work may take, however many CPUs there are, while load threads wait for a CPU."""
QUOTA_SHARE = 0.05
"""Of the time: how long a CPU quota from above may hold threads back."""
HEAT_EVENTS = 1
"""Times that the hardware slowed a core or a package down, from where on heat disturbed a test: each is one that the
kernel counted at an interrupt of the CPU, so a hot CPU that keeps its clock has none. A temperature decides nothing."""
WAITED = 0.05
"""Of a thread's time, from where on its wait for a CPU is stated beside other work and `LIMIT_BESIDE_WAITS` holds."""
CLOCK_SPREAD = 0.10
"""Of the mean clock speed: its highest less its lowest value, from where on a note says so."""
SLOW_SHARE = 0.10
"""Of the base clock: how far below it busy CPUs may run before a note says so."""
BUSY_SHARE = 0.5
"""Of the time between two readings, from where on a CPU's clock counts: an idle CPU's may be as low as it likes."""


@dataclass(frozen=True, slots=True)
class Use:
    """What a machine's CPUs did inside the window, in percent of one CPU."""

    cpus: int
    busy: float
    own: float | None
    """The run itself; None where a part of it is not known."""
    processes: float
    """User mode and the kernel's work for processes, as ticks found it."""
    softirq: float
    controller: float
    stolen: float
    in_lab: bool

    @property
    def foreign(self) -> float | None:
        """What is left: other work."""
        if self.own is None:
            return None
        left = self.busy - self.stolen - self.softirq
        return max(0.0, (left if self.in_lab else min(left, self.processes)) - self.own - self.controller)


def findings(data: TestData, window: Window | None) -> Iterator[tuple[Verdict, Reason]]:
    """Each machine on which other work, or a hypervisor, took more than `LIMIT_SHARE` of its CPUs, or other work more
    than `LIMIT_BESIDE_WAITS` while load threads waited for a CPU, or that heat or a quota slowed down."""
    if window is None or window.end_ns <= window.start_ns:
        return
    for hosts in machines(data):
        texts = [*_used_by_others(data, hosts, window), *_hot(data, hosts, window), *_held_back(data, hosts, window)]
        for code, text in texts:
            yield Verdict.DISTURBED, Reason(code, text)


def notes(data: TestData, window: Window | None) -> Iterator[Reason]:
    """Each machine whose clock speed, the mean of its CPUs, changed by more than `CLOCK_SPREAD` inside the window, or
    whose busy CPUs ran more than `SLOW_SHARE` below their base clock."""
    if window is None:
        return
    for hosts in machines(data):
        samples = machine_samples(data, hosts[0])
        inside = [one for one in samples if window.start_ns <= one.t_ns <= window.end_ns and one.clock_hz]
        if (text := _changed_clock(hosts, inside)) is not None:
            yield Reason(CLOCK, text)
        if (text := _slow_clock(data, hosts, inside)) is not None:
            yield Reason(SLOW_CLOCK, text)


def _changed_clock(hosts: Sequence[str], samples: Sequence[HostSample]) -> str | None:
    speeds = [one.clock_hz for one in samples if one.clock_hz]
    if len(speeds) < 2:
        return None
    lowest, highest, mean = min(speeds), max(speeds), sum(speeds) / len(speeds)
    spread = (highest - lowest) / mean
    if spread <= CLOCK_SPREAD:
        return None
    return (
        f"the clock of {_machine(hosts)} went from {lowest / 1e9:.3g} to {highest / 1e9:.3g} GHz, by "
        f"{rounded_share(spread)} of its mean: CPU time per byte or request is not that of one speed"
    )


def _slow_clock(data: TestData, hosts: Sequence[str], samples: Sequence[HostSample]) -> str | None:
    base_hz = next((known for host in hosts if (known := data.facts.get(host, {}).get("base_clock_hz"))), None)
    busy_hz = _busy_clock_hz(samples)
    if base_hz is None or busy_hz is None or busy_hz >= (1 - SLOW_SHARE) * base_hz:
        return None
    return (
        f"the busy CPUs of {_machine(hosts)} ran at {busy_hz / 1e9:.3g} GHz, {rounded_share(1 - busy_hz / base_hz)} "
        f"below their base clock of {base_hz / 1e9:.3g} GHz: heat, a limit of power or the governor slowed them down"
    )


def _busy_clock_hz(samples: Sequence[HostSample]) -> float | None:
    """The mean clock of CPUs that were busy for `BUSY_SHARE` of the time since the reading before, each with the weight
    of its busy time; None where there was no such CPU."""
    cycles = busy_s = 0.0
    for before, after in pairwise(samples):
        passed_s = (after.t_ns - before.t_ns) / 1e9
        for cpu, hz in after.clocks_hz.items():
            if cpu not in after.unused_s or cpu not in before.unused_s:
                continue
            used_s = passed_s - (after.unused_s[cpu] - before.unused_s[cpu])
            if used_s >= BUSY_SHARE * passed_s > 0:
                cycles, busy_s = cycles + hz * used_s, busy_s + used_s
    return cycles / busy_s if busy_s > 0 else None


def machines(data: TestData) -> Iterator[list[str]]:
    """The observed hosts, those of one machine together."""
    seen: set[str] = set()
    for host in data.samples:
        if host not in seen:
            together = sorted(neighbours(data, host) & data.samples.keys()) or [host]
            seen.update(together)
            yield [host, *(name for name in together if name != host)]


def _machine(hosts: Sequence[str]) -> str:
    return f"the machine that {hosts[0]} is on" if len(hosts) < 2 else "the machine that the hosts share"


def _used_by_others(data: TestData, hosts: Sequence[str], window: Window) -> Iterator[tuple[str, str]]:
    use = use_of(data, hosts, window)
    if use is None:
        return
    limit = 100.0 * use.cpus * LIMIT_SHARE
    where = f"{use.cpus} CPUs that {hosts[0]} is on" if len(hosts) < 2 else f"{use.cpus} CPUs that the hosts share"
    waited = _waited(data, hosts)
    beside_waits = min(limit, LIMIT_BESIDE_WAITS) if waited >= WAITED else limit
    if use.foreign is not None and use.foreign > beside_waits:
        own = "hosts" if use.in_lab else "agents and responder"
        text = (
            f"processes outside of this run used {use.foreign:.0f} % of one CPU, of the {where} (busy "
            f"{use.busy:.0f} %: {own} {use.own:.0f} %, soft interrupts {use.softirq:.0f} %, "
            f"Leadline's controller {use.controller:.0f} %)"
        )
        waiting = f"; a load thread waited for a CPU {rounded_share(waited)} of the time" if waited >= WAITED else ""
        yield DISTURBED, f"{text}{waiting}"
    if use.stolen > limit:
        yield STOLEN, f"the hypervisor gave {use.stolen:.0f} % of one CPU to others, of the {where}"


def _waited(data: TestData, hosts: Sequence[str]) -> float:
    """The largest share of its time that a thread of the load on this machine waited for a CPU."""
    threads = [
        thread
        for found in data.load_outcomes()
        if found.host in hosts
        for thread in found.outcome["generator"]["threads"]
        if thread["wall_s"] > 0
    ]
    return max(((one.get("runnable_wait_s") or 0.0) / one["wall_s"] for one in threads), default=0.0)


def _hot(data: TestData, hosts: Sequence[str], window: Window) -> Iterator[tuple[str, str]]:
    """Thermal throttling between the readings around the window; one sample in a second has the counts."""
    samples = machine_samples(data, hosts[0])
    known = [(one.t_ns, one.heat_throttles) for one in samples if one.heat_throttles is not None]
    if len(known) < 2:
        return
    before = [counts for t_ns, counts in known if t_ns <= window.start_ns]
    after = [counts for t_ns, counts in known if t_ns >= window.end_ns]
    first, last = before[-1] if before else known[0][1], after[0] if after else known[-1][1]
    cores, packages = last[0] - first[0], last[1] - first[1]
    if max(cores, packages) >= HEAT_EVENTS:
        text = f"the CPUs of {_machine(hosts)} were slowed down because they were hot: cores {max(cores, 0)} times"
        yield HEAT, f"{text}, packages {max(packages, 0)} times"


def _held_back(data: TestData, hosts: Sequence[str], window: Window) -> Iterator[tuple[str, str]]:
    """Quotas of groups above the hosts, each once."""
    seen: set[str] = set()
    for host in hosts:
        found = held_back_by(data.samples[host], window)
        if found is None or found[0].group in seen:
            continue
        quota, share = found
        seen.add(quota.group)
        if share > QUOTA_SHARE:
            text = (
                f"a quota of {quota.cpus:g} CPUs from above, of the control group {quota.group}, kept threads of "
                f"{_machine(hosts)} waiting for {100 * share:.0f} % of the time of one CPU"
            )
            yield QUOTA, text


def held_back_by(samples: Sequence[HostSample], window: Window) -> tuple[QuotaUse, float] | None:
    """The quota from above that holds for a host, and for how much of the time of one CPU it held threads back inside
    the window; None if there is none, or if it was not read there."""
    known = [(one.t_ns, one.quota) for one in samples if one.quota is not None]
    if len(known) < 2:
        return None
    start_ns, end_ns = max(window.start_ns, known[0][0]), min(window.end_ns, known[-1][0])
    if end_ns <= start_ns:
        return None
    held_s = np.interp([start_ns, end_ns], [t_ns for t_ns, _ in known], [one.throttled_s for _, one in known])
    return known[-1][1], float(held_s[1] - held_s[0]) / ((end_ns - start_ns) / 1e9)


def use_of(data: TestData, hosts: Sequence[str], window: Window) -> Use | None:
    """What the machine of these hosts did inside the window; None where it was not sampled."""
    machine = machine_samples(data, hosts[0])
    shares = cpu_percent(machine, window)
    busy, cpus = busy_percent(shares, machine), machine[-1].cpus if machine else None
    if busy is None or not cpus:
        return None
    return Use(
        cpus=cpus,
        busy=busy,
        own=own_percent(data, hosts, window),
        processes=shares["user"] + shares["system"],
        softirq=shares["softirq"] + shares["irq"],
        controller=controller_percent(data, hosts),
        stolen=shares["steal"],
        in_lab=data.in_lab,
    )


def controller_percent(data: TestData, hosts: Sequence[str]) -> float:
    """What the controller used while the test ran, if it is on the machine of these hosts."""
    boot_ids = {data.facts.get(host, {}).get("boot_id") for host in hosts}
    if len(data.controller_cpu) < 2 or data.controller_boot_id not in boot_ids:
        return 0.0
    (first_ns, first_s), (last_ns, last_s) = data.controller_cpu[0], data.controller_cpu[-1]
    return 100.0 * (last_s - first_s) / ((last_ns - first_ns) / 1e9) if last_ns > first_ns else 0.0
