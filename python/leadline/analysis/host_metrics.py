"""The hosts' figures during a test: CPU and memory of the gateway, of the system under test, and of the agents'
observers.

The kernel's counters are cumulative, so a rate between two instants needs only the readings around them; between
readings they are interpolated linearly. CPU is in percent of one CPU, so two busy CPUs are 200 %.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from leadline.analysis.model import Series, ServerStatistics, Window
from leadline.analysis.test_data import CPU_KINDS, HostSample, TestData
from leadline.plan.gateway_metrics import GATEWAYS

# A rate is valid for the window only if the samples cover this share of it.
COVERAGE = 0.5
# ... and at least this number of samples lies in it.
LEAST_SAMPLES = 2

# Time before and after a test that its plots show, s.
_MARGIN_S = 0.5

_IDLE_KINDS = ("iowait", "idle")
Floats = NDArray[np.float64]
Readings: TypeAlias = Sequence[tuple[int, Sequence[float]]]
"""Counters that were read together, with the instants, in order."""


@dataclass(frozen=True, slots=True)
class ProcessesUse:
    """What some processes used inside a window: percent of one CPU, mean memory in bytes, and threads."""

    user_percent: float
    system_percent: float
    memory_bytes: float | None
    threads: int | None


def gateway_of(data: TestData) -> str | None:
    """The host that runs the system under test, if it was observed."""
    return next((host for host in GATEWAYS if host in data.samples), None)


def neighbours(data: TestData, host: str | None) -> set[str]:
    """The hosts that share `host`'s kernel, itself included: equal boot ids mean one machine."""
    boot_id = data.facts.get(host or "", {}).get("boot_id")
    if boot_id is None:
        return {host} if host else set()
    return {name for name, facts in data.facts.items() if facts.get("boot_id") == boot_id}


def machine_samples(data: TestData, host: str | None) -> list[HostSample]:
    """Samples of the machine that `host` is on. Of hosts that share a machine, only one samples it."""
    together = neighbours(data, host) if host else set(data.samples)
    for name in ([host] if host else []) + sorted(together):
        samples = [sample for sample in data.samples.get(name, []) if sample.cpu_s is not None]
        if samples:
            return samples
    return []


def server_statistics(data: TestData, window: Window | None) -> ServerStatistics | None:
    """The server table of one test; None if no gateway was observed."""
    host = gateway_of(data)
    if host is None or window is None:
        return None
    machine = machine_samples(data, host)
    shares = cpu_percent(machine, window)
    sut = processes_use(data, host, window, data.sut_processes)
    # Processes that forward and used no time: the kernel does it for them, or it was less than its counters' steps.
    used = sut if sut is not None and sut.user_percent + sut.system_percent > 0 else None
    return ServerStatistics(
        real_length_s=(window.last_end_ns - window.first_start_ns) / 1e9,
        cpu_user_percent=shares.get("user"),
        cpu_system_percent=shares.get("system"),
        cpu_softirq_percent=shares.get("softirq"),
        cpu_total_percent=busy_percent(shares, machine),
        cpu_wait_percent=shares.get("iowait"),
        cpus=machine[-1].cpus if machine else None,
        shared=len(neighbours(data, host)) > 1,
        sut_user_percent=used.user_percent if used is not None else None,
        sut_system_percent=used.system_percent if used is not None else None,
        sut_memory_bytes=sut.memory_bytes if sut is not None else None,
    )


def cpu_percent(samples: Sequence[HostSample], window: Window) -> dict[str, float]:
    """Each kind's share in the window, summed over all CPUs, percent of one CPU; empty if samples are missing."""
    known = [(sample.t_ns, sample.cpu_s) for sample in samples if sample.cpu_s is not None]
    if not known or not covers([t_ns for t_ns, _ in known], window):
        return {}
    first, last, seconds = _ends(known, window)
    return {
        kind: 100.0 * (last_s - first_s) / seconds for kind, first_s, last_s in zip(CPU_KINDS, first, last, strict=True)
    }


def busy_percent(shares: Mapping[str, float], samples: Sequence[HostSample]) -> float | None:
    """The busy time of all CPUs, percent of one CPU; `shares` is the result of `cpu_percent` for `samples`.

    Computed from idle time, which the kernel measures. Most kernels sample the busy kinds at timer ticks
    (Documentation/admin-guide/cpu-load.rst), so load that timers pace runs between ticks and hardly shows.
    """
    if not shares or not samples or samples[-1].cpus is None:
        return None
    return max(0.0, 100.0 * samples[-1].cpus - sum(shares[kind] for kind in _IDLE_KINDS))


def cgroup_percent(samples: Sequence[HostSample], window: Window) -> float | None:
    """CPU time of a host's group inside the window, percent of one CPU; None if samples are missing."""
    known = [(sample.t_ns, sample.cgroup_s) for sample in samples if sample.cgroup_s is not None]
    if not covers([t_ns for t_ns, _ in known], window):
        return None
    return 100.0 * rate_inside(known, window)


def rate_inside(readings: Sequence[tuple[int, float]], window: Window) -> float:
    """A counter's growth per second in the part of the window that its readings, in order, cover."""
    (first,), (last,), seconds = _ends([(t_ns, (value,)) for t_ns, value in readings], window)
    return (last - first) / seconds


def _ends(readings: Readings, window: Window) -> tuple[list[float], list[float], float]:
    """Counters where the readings and the window begin together, and where they end; and the seconds between."""
    start, end = max(readings[0][0], window.start_ns), min(readings[-1][0], window.end_ns)
    return _read_at(start, readings), _read_at(end, readings), (end - start) / 1e9


def _read_at(at_ns: int, readings: Readings) -> list[float]:
    """Counters at an instant within the readings, on the lines between them: two of many are looked at."""
    after = min(bisect_right(readings, at_ns, key=itemgetter(0)), len(readings) - 1)
    (from_ns, first), (to_ns, last) = readings[max(0, after - 1)], readings[after]
    share = (at_ns - from_ns) / (to_ns - from_ns) if to_ns > from_ns else 1.0
    return [one + (other - one) * share for one, other in zip(first, last, strict=True)]


def observer_shares(samples: Iterable[tuple[str, Sequence[HostSample]]]) -> dict[str, float | None]:
    """The cost of observing on each host, as a share of one CPU. Each sequence is the life of one agent."""
    used: dict[str, tuple[float, float]] = {}
    hosts: dict[str, float | None] = {}
    for host, life in samples:
        hosts.setdefault(host, None)
        if len(life) > 1 and life[-1].t_ns > life[0].t_ns:
            cpu_s, wall_s = used.get(host, (0.0, 0.0))
            cpu_s += max(0.0, life[-1].observer_cpu_s - life[0].observer_cpu_s)
            used[host] = (cpu_s, wall_s + (life[-1].t_ns - life[0].t_ns) / 1e9)
    return {**hosts, **{host: cpu_s / wall_s for host, (cpu_s, wall_s) in used.items()}}


def observer_percent(samples: Sequence[HostSample], window: Window) -> float:
    """The cost of observing on a host inside the window, percent of one CPU; 0 where its samples do not cover it."""
    if not covers([sample.t_ns for sample in samples], window):
        return 0.0
    return 100.0 * max(0.0, rate_inside([(sample.t_ns, sample.observer_cpu_s) for sample in samples], window))


def series(data: TestData, window: Window | None) -> tuple[Series, ...]:
    """Lines for plots over time; t = 0 is the first flow's start. The test's intervals have the throughput over
    time."""
    if window is None:
        return ()
    host = gateway_of(data)
    machine = _around(machine_samples(data, host), window)
    shared = len(neighbours(data, host)) > 1
    name = "machine" if shared or host is None else host
    lines = [
        _rate_series(f"cpu {kind}", name, machine, window, partial(_cpu, index))
        for index, kind in enumerate(CPU_KINDS)
        if kind in ("user", "system", "softirq", "iowait")
    ]
    if machine:
        used = tuple(_optional(sample.memory_used_bytes) for sample in machine)
        lines.append(Series("memory in use", name, "bytes", _times(machine, window), used))
    if host is not None and data.sut_processes:
        lines += _sut_series(data, host, window)
    for other in ("server", *([host] if host else [])):
        own = [sample for sample in _around(data.samples.get(other, []), window) if sample.cgroup_s is not None]
        lines.append(_rate_series("all processes", other, own, window, lambda sample: sample.cgroup_s))
    lines.append(_clients_series(data, window))
    return tuple(line for line in lines if line.t_s)


def processes_use(data: TestData, host: str, window: Window, named: Iterable[str]) -> ProcessesUse | None:
    """What processes of these names used on a host inside the window, together; None if there are none, or if samples
    are missing."""
    names = set(named)
    samples = data.samples.get(host, [])
    if not names or not covers([sample.t_ns for sample in samples], window):
        return None
    spans: dict[int, list[tuple[int, float, float]]] = {}
    resident: list[float] = []
    threads = 0
    for sample in samples:
        own = [process for process in sample.processes if process.name in names]
        for process in own:
            spans.setdefault(process.pid, []).append((sample.t_ns, process.user_s, process.system_s))
        if own and window.start_ns <= sample.t_ns <= window.end_ns:
            resident.append(float(sum(process.resident_bytes for process in own)))
            threads = max(threads, sum(process.threads for process in own))
    if not spans:
        return None
    known_s = (min(window.end_ns, samples[-1].t_ns) - max(window.start_ns, samples[0].t_ns)) / 1e9
    grown = np.zeros(2)
    for rows in spans.values():
        table = np.array(rows, dtype=np.float64)
        for column in (0, 1):
            edges = np.interp([window.start_ns, window.end_ns], table[:, 0], table[:, column + 1])
            grown[column] += edges[1] - edges[0]
    user, system = (100.0 * float(seconds) / known_s for seconds in grown)
    return ProcessesUse(user, system, float(np.mean(resident)) if resident else None, threads or None)


def busiest_thread_share(samples: Sequence[HostSample], pid: int) -> float:
    """The CPU time of a process's busiest thread by the time over which it was read; 0 if no thread was read over half
    of the samples' time. A load that moves from thread to thread fills none."""
    at_least_ns = (samples[-1].t_ns - samples[0].t_ns) / 2
    read: dict[int, list[tuple[int, float]]] = {}
    for sample in samples:
        for thread in sample.busiest_threads:
            if thread.pid == pid:
                read.setdefault(thread.tid, []).append((sample.t_ns, thread.cpu_s))
    ends = [(times[0], times[-1]) for times in read.values() if times[-1][0] - times[0][0] >= max(at_least_ns, 1)]
    return max(
        (1e9 * (last - first) / (last_ns - first_ns) for (first_ns, first), (last_ns, last) in ends), default=0.0
    )


def _sut_series(data: TestData, host: str, window: Window) -> list[Series]:
    names = set(data.sut_processes)
    samples = _around(data.samples.get(host, []), window)

    def cpu_s(sample: HostSample) -> float | None:
        own = [process.user_s + process.system_s for process in sample.processes if process.name in names]
        return sum(own) if own else None

    resident = tuple(
        _optional(sum(process.resident_bytes for process in sample.processes if process.name in names) or None)
        for sample in samples
    )
    return [
        _rate_series("system under test", host, samples, window, cpu_s),
        Series("system under test", host, "bytes", _times(samples, window), resident),
    ]


def _clients_series(data: TestData, window: Window) -> Series:
    """CPU of all generating hosts together, at the instants of the first one."""
    lives = [
        [sample for sample in _around(data.samples.get(host, []), window) if sample.cgroup_s is not None]
        for host in data.hosts
    ]
    lives = [life for life in lives if len(life) > 1]
    if not lives:
        return Series("all processes", "clients", "percent", (), ())
    t_ns = np.array([sample.t_ns for sample in lives[0]], dtype=np.float64)
    spent_s = np.zeros(len(t_ns))
    for life in lives:
        own_t = [float(sample.t_ns) for sample in life]
        spent_s += np.interp(t_ns, own_t, [sample.cgroup_s or 0.0 for sample in life])
    return _rates("all processes", "clients", t_ns, spent_s, window)


def _rate_series(
    label: str, host: str, samples: Sequence[HostSample], window: Window, read: Callable[[HostSample], float | None]
) -> Series:
    """CPU seconds per second between neighbouring samples, in percent, at the middle between them."""
    t_ns = np.array([sample.t_ns for sample in samples], dtype=np.float64)
    # What is None becomes NaN.
    spent_s = np.array([read(sample) for sample in samples], dtype=np.float64)
    return _rates(label, host, t_ns, spent_s, window)


def _rates(label: str, host: str, t_ns: Floats, spent_s: Floats, window: Window) -> Series:
    seconds = np.diff(t_ns) / 1e9
    kept = seconds > 0
    # A counter decreases if its process was replaced: its rate is unknown.
    grown = np.diff(spent_s)
    grown[grown < 0] = np.nan
    rates = 100.0 * grown[kept] / seconds[kept]
    middles = ((t_ns[1:] + t_ns[:-1]) / 2)[kept]
    times = tuple(((middles - window.first_start_ns) / 1e9).tolist())
    known = tuple([None if math.isnan(rate) else rate for rate in rates.tolist()])
    return Series(label, host, "percent", times, known)


def _around(samples: Sequence[HostSample], window: Window) -> list[HostSample]:
    margin_ns = _MARGIN_S * 1e9
    first, last = window.first_start_ns - margin_ns, window.last_end_ns + margin_ns
    return [sample for sample in samples if first <= sample.t_ns <= last]


def covers(t_ns: Sequence[int], window: Window | None) -> bool:
    """Whether samples at these instants, in order, cover enough of the window for a rate in it."""
    if window is None or not t_ns or window.end_ns <= window.start_ns:
        return False
    # With a window shorter than two samples, the figure would describe the time around the window.
    if bisect_right(t_ns, window.end_ns) - bisect_left(t_ns, window.start_ns) < LEAST_SAMPLES:
        return False
    covered = min(t_ns[-1], window.end_ns) - max(t_ns[0], window.start_ns)
    return covered >= COVERAGE * (window.end_ns - window.start_ns)


def _times(samples: Sequence[HostSample], window: Window) -> tuple[float, ...]:
    return tuple((sample.t_ns - window.first_start_ns) / 1e9 for sample in samples)


def _cpu(index: int, sample: HostSample) -> float | None:
    return sample.cpu_s[index] if sample.cpu_s is not None else None


def _optional(value: float | None) -> float | None:
    return float(value) if value is not None else None
