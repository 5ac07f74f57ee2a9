"""What may have moved a rate that is not known well enough: waiting for a CPU, CPUs that hosts share, idle ones that
have to wake up. Evidence to stand beside the verdict, no verdict of its own. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from leadline.analysis import disturbance, host_metrics, wake_ups
from leadline.analysis.test_data import TestData
from leadline.analysis.validity import Evidence
from leadline.quantities import microseconds, rounded_share
from leadline.registry import KINDS

WAITED = 0.05
"""Of the time, from where on a thread's waiting for a CPU may move a rate."""
BUSY = 0.8
"""Of the CPUs that several hosts share, from where on one host takes them from another."""
WAKING = 0.2
"""Of the median latency, from where on waking idle CPUs up may move a rate."""


class WokenKind(Protocol):
    """The attributes of a kind of test that this module uses."""

    @property
    def woken(self) -> tuple[str, ...]:
        """The sides that wake up once per operation."""


@dataclass(frozen=True, slots=True)
class _Look:
    """One possible cause that was looked at: its words with its figure, and whether that is enough to move a rate."""

    is_cause: bool
    text: str


def causes(evidence: Evidence) -> str:
    """Each cause with its figure, in one clause; if there is none, what was looked at and is too small."""
    looks = [*_waiting(evidence.data), *_other_work(evidence), *_shared(evidence), *_waking(evidence)]
    found = [look.text for look in looks if look.is_cause]
    if found:
        return f"what may move it: {', '.join(found)}"
    small = ", ".join(look.text for look in looks)
    return f"too small to move it: {small}" if small else "nothing was observed that shows what moves it"


def longest_wait(data: TestData) -> tuple[float, str] | None:
    """The share of its time that a generating or answering thread waited for a CPU, and its host; of the one that
    waited longest. None where none was measured."""
    waits: list[tuple[float, str]] = []
    for found in data.load_outcomes():
        sides = (found.outcome["generator"], found.host), (found.outcome.get("receiver"), f"{found.host}'s server")
        for load, where in sides:
            for thread in load["threads"] if load is not None else ():
                waited_s = thread.get("runnable_wait_s")
                if thread["wall_s"] > 0 and waited_s is not None:
                    waits.append((waited_s / thread["wall_s"], where))
    return max(waits, key=lambda one: one[0], default=None)


def _waiting(data: TestData) -> Iterator[_Look]:
    """The generating or answering thread that waited longest for a CPU."""
    longest = longest_wait(data)
    if longest is not None:
        share, where = longest
        yield _Look(share >= WAITED, f"a thread of {where} waited for a CPU {rounded_share(share)} of the time")


def _other_work(evidence: Evidence) -> Iterator[_Look]:
    """What other work used, where that is known and too little for a disturbance, which has a reason of its own."""
    window = evidence.window
    for hosts in disturbance.machines(evidence.data) if window is not None else ():
        use = disturbance.use_of(evidence.data, hosts, window) if window is not None else None
        if use is not None and use.foreign is not None and use.foreign <= 100 * use.cpus * disturbance.LIMIT_SHARE:
            used = rounded_share(use.foreign / use.cpus / 100)
            yield _Look(False, f"other work used {used} of the CPUs of {hosts[0]}")


def _shared(evidence: Evidence) -> Iterator[_Look]:
    """A machine that several hosts share, without much room."""
    data, window = evidence.data, evidence.window
    host = host_metrics.gateway_of(data) or next(iter(data.hosts), None)
    together = host_metrics.neighbours(data, host)
    if window is None or len(together) < 2:
        return
    samples = host_metrics.machine_samples(data, host)
    busy, cpus = (
        host_metrics.busy_percent(host_metrics.cpu_percent(samples, window), samples),
        samples[-1].cpus if samples else None,
    )
    if busy is not None and cpus:
        text = f"{len(together)} hosts share {cpus} CPUs, which were {rounded_share(busy / cpus / 100)} busy"
        yield _Look(busy >= 100 * cpus * BUSY, text)


def _waking(evidence: Evidence) -> Iterator[_Look]:
    """Idle CPUs of both sides, whose time to wake up changes with how long they slept."""
    data = evidence.data
    if any((facts.get("idle_poll") or {}).get("held") for facts in data.facts.values()):
        return  # they do not sleep
    kind: WokenKind = KINDS.find(data.spec.kind)
    latency_us = evidence.histograms.sample("latency").percentile(50).value_us
    times_us = wake_ups.times_us(data, kind.woken)
    if latency_us and times_us:
        of_p50 = f"{rounded_share(min(1.0, sum(times_us) / latency_us))} of the p50 of {microseconds(latency_us)}"
        text = f"idle CPUs take {microseconds(sum(times_us))} per operation to wake up, {of_p50}"
        yield _Look(sum(times_us) >= WAKING * latency_us, text)
