"""How much of a latency is the time in which idle CPUs wake up.

Each side of a request and its response sleeps until the other one has answered. On idle hosts, waking their CPUs up
may be most of a short latency, which is then shorter on busy ones: not the path is faster, the CPUs are awake.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from leadline.analysis.model import Reason
from leadline.analysis.own_cpu import answers_here
from leadline.analysis.test_data import TestData
from leadline.analysis.wake_up_times import WakeUp
from leadline.quantities import microseconds, rounded_share

CODE = "idle-wake-up"
NOTABLE_SHARE = 0.2
"""Of a latency: from this share on, the note tells of the wake-ups."""
NEGLIGIBLE_SHARE = 0.01
"""Of a latency: up to this share of it, CPUs that stay awake do not make it shorter."""
CLIENT, SERVER = "client", "server"
"""The two sides, as `Kind.woken` names them."""


def read_wake_up(found: Mapping[str, Any] | None) -> WakeUp | None:
    """An agent's measurement, from its plain record."""
    if not found:
        return None
    return WakeUp(**{name: found[name] for name in WakeUp.__dataclass_fields__})


def wake_ups(data: TestData) -> dict[str, WakeUp]:
    """The measurement of each host that has one."""
    known = {host: facts.get("wake_up") for host, facts in data.facts.items()}
    return {host: found for host, record in known.items() if (found := read_wake_up(record)) is not None}


def notes(data: TestData, woken: tuple[str, ...], name: str, latency_us: float | None) -> Iterator[Reason]:
    """A note if wake-ups of idle CPUs are a notable share of a latency. `woken` are the sides that wake up once per
    operation; those that were not measured count nothing."""
    if not latency_us:
        return
    found = wake_ups(data)
    hosts = Counter(host for side in woken for host in _hosts(data, side, found) if host in found)
    total_us = sum(sides * found[host].thread_p50_us for host, sides in hosts.items())
    if not hosts or total_us < NOTABLE_SHARE * latency_us:
        return
    both = ", where both ends are,"
    each = ", ".join(
        f"{microseconds(found[host].thread_p50_us)} on {host}{both if sides > 1 else ''}"
        for host, sides in hosts.items()
    )
    text = f"an idle CPU takes {each} to wake up (median before the test): {microseconds(total_us)} per operation"
    latency = f"the {name} of {microseconds(latency_us)}"
    if total_us >= latency_us:
        yield Reason(CODE, f"{text}, and {latency} is less, so other work kept the CPUs awake; idle hosts are slower")
    else:
        share = f"{rounded_share(total_us / latency_us)} of {latency}"
        yield Reason(CODE, f"{text}, if idle each time, are {share}; on busy hosts, which do not sleep, it is shorter")


def may_sleep(data: TestData, woken: Sequence[str], latency_us: float | None) -> bool:
    """Whether CPUs may sleep between the operations of a test for long enough that waking them up matters.

    They do not where the lab kept them awake, nor where the wake-ups of all `woken` sides are a negligible share of the
    latency: slow ones (p99), since other work before the test may have kept the CPUs awake then, too.
    """
    if data.facts and all((facts.get("idle_poll") or {}).get("held") for facts in data.facts.values()):
        return False
    found = wake_ups(data)
    hosts = [host for side in woken for host in _hosts(data, side, found)]
    if not hosts or not latency_us or not all(host in found for host in hosts):
        return True
    return sum(found[host].thread_p99_us for host in hosts) > NEGLIGIBLE_SHARE * latency_us


def times_us(data: TestData, woken: Sequence[str]) -> list[float]:
    """The median time of each side that wakes up once per operation, if it was measured."""
    found = wake_ups(data)
    return [found[host].thread_p50_us for side in woken for host in _hosts(data, side, found) if host in found]


def _hosts(data: TestData, side: str, found: Mapping[str, WakeUp]) -> tuple[str, ...]:
    """The host of a side; of several clients the first one. A server without an agent may be on the client's own."""
    if side == CLIENT or SERVER in found:
        return data.hosts[:1] if side == CLIENT else (SERVER,)
    return tuple(one.host for one in data.load_outcomes()[:1] if answers_here(one.outcome, if_unknown=False))
