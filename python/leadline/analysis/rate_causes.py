"""What may have moved a rate that is not known well enough: waiting for a CPU, CPUs that hosts share, idle ones that
have to wake up. Evidence to stand beside the verdict, no verdict of its own. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from leadline.analysis import host_metrics, wake_ups
from leadline.analysis.test_data import TestData
from leadline.analysis.validity import Evidence
from leadline.quantities import microseconds
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


def causes(evidence: Evidence) -> str:
    """Each cause with its figure, in one clause; empty if none is known."""
    found = [*_waiting(evidence.data), *_shared(evidence), *_waking(evidence)]
    return f"what may move it: {', '.join(found)}" if found else ""


def _waiting(data: TestData) -> Iterator[str]:
    """The generating or answering thread that waited longest for a CPU."""
    waits: list[tuple[float, str]] = []
    for found in data.load_outcomes():
        sides = (found.outcome["generator"], found.host), (found.outcome.get("receiver"), f"{found.host}'s server")
        for load, where in sides:
            for thread in load["threads"] if load is not None else ():
                if thread["wall_s"] > 0:
                    waits.append(((thread.get("runnable_wait_s") or 0.0) / thread["wall_s"], where))
    share, where = max(waits, default=(0.0, ""))
    if share >= WAITED:
        yield f"a thread of {where} waited for a CPU {share:.0%} of the time"


def _shared(evidence: Evidence) -> Iterator[str]:
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
    if busy is not None and cpus and busy >= 100 * cpus * BUSY:
        yield f"{len(together)} hosts share {cpus} CPUs, which were {busy / cpus:.0f}% busy"


def _waking(evidence: Evidence) -> Iterator[str]:
    """Idle CPUs of both sides, whose time to wake up changes with how long they slept."""
    data = evidence.data
    if any((facts.get("idle_poll") or {}).get("held") for facts in data.facts.values()):
        return  # they do not sleep
    kind: WokenKind = KINDS.find(data.spec.kind)
    latency_us = evidence.histograms.sample("latency").percentile(50).value_us
    times_us = wake_ups.times_us(data, kind.woken)
    if latency_us and sum(times_us) >= WAKING * latency_us:
        of_p50 = f"{min(1.0, sum(times_us) / latency_us):.0%} of the p50 of {microseconds(latency_us)}"
        yield f"idle CPUs take {microseconds(sum(times_us))} per operation to wake up, {of_p50}"
