"""Whether the time that a server took to answer limited a load.

In a closed loop each connection sends its next request when the answer is there, so by Little's law the rate is the
number of connections by the mean time of a request. The same holds for a load with a rate, if more is due than all
connections bring. Where it does, the rate is limited by whatever a request waits for. It is the server, if the
generator had CPU to spare, and most of the time until the first byte of the answer, or the last one of a short answer,
was the server's own: the delay that it was asked for, or what remains beside the round trips of the path, which the
opening of a connection or the kernel shows, while neither a gateway nor the machine was busy. Links are asked before.

Of a responder, which reports its threads, the CPU time tells: with one request at a time per thread, the thread and
its client take turns, so that neither is busy all the time, and the one that takes most of it is the limit.
"""

from __future__ import annotations

from collections.abc import Iterator

from leadline import quantities
from leadline.analysis.host_metrics import busy_percent, cpu_percent, machine_samples, neighbours, processes_use
from leadline.analysis.metrics import busy_s, counter, mean_reported_us, received_units, sum_of_flows
from leadline.analysis.model import Limit, LimitedBy, Window
from leadline.analysis.rules import had_spare_time, primary_rate_per_s
from leadline.analysis.test_data import TestData
from leadline.analysis.validity import Evidence
from leadline.plan.gateway_metrics import GATEWAYS

LITTLE = 0.05
"""By how much of the connections their number may differ from the rate by the mean time of a request."""
DOMINATES = 0.8
"""Of a request's time, from where on one part of it explains the rate."""
WAITED = 0.05
"""Of the time, from where on a thread's waiting for a CPU is mentioned."""
IDLE_PERCENT = 50.0
"""Of one CPU, up to which a gateway counts as idle."""
ROOM = 0.9
"""Of a machine's CPUs, up to which a host hardly waits for one."""

FIRST_WINDOW_BYTES = 14_600
"""Ten segments (RFC 6928), which a server sends at once."""
SLOW_LINE_BPS = 10e6
"""What a path carries at least where its links do not say it."""
EXPLAINS = 0.05
"""Of the time until an answer, up to which waiting for a CPU explains none of it."""


def limits(evidence: Evidence) -> Iterator[Limit]:
    """The server as the limit of a load all of whose connections waited for it, by the time that it took to answer."""
    data, window = evidence.data, evidence.window
    spec, rate = data.spec, primary_rate_per_s(evidence)
    if window is None or not rate or not spec.counts_units or spec.connects_clients:
        return
    named = evidence.histograms.named
    # A request with a due time of its own waits before it is sent, too.
    whole_us = named("service").mean_us or (None if spec.paced else named("latency").mean_us)
    first_us = named("first_byte").mean_us
    if not first_us or not whole_us or not had_spare_time(data) or _in_tunnels(data):
        return
    connections = data.connections or len(evidence.flows)
    # The window's ends cut at most one request of each connection.
    cut = (named("service").max_us or named("latency").max_us or 0.0) * 1e3 / (window.end_ns - window.start_ns)
    if abs(rate * whole_us / 1e6 - connections) > (LITTLE + cut) * connections:
        return
    at_a_time = f"{connections} requests at a time" if connections > 1 else "one request at a time"
    law = f"{at_a_time}, of {whole_us / 1e3:.4g} ms each, are the rate of {rate:.4g}/s"
    law += ", and more were due" if spec.paced else ""
    until_us = first_us if first_us >= DOMINATES * whole_us else whole_us
    clause = f"the server is the limit: it takes {until_us / 1e3:.3g} ms to answer"
    asked_us = (spec.asked_delay_s or 0.0) * 1e6
    if until_us == first_us and DOMINATES * first_us <= asked_us <= first_us:
        text = f"{law}; the server waited {asked_us / 1e3:.4g} ms of each, as the request asked it to"
        yield Limit(LimitedBy.SERVER, text, clause)
        return
    found = _until_first_byte(evidence, first_us) if until_us == first_us else _until_last_byte(evidence, whole_us)
    if found is not None and until_us - found[0] >= DOMINATES * until_us and _quiet(evidence, window, until_us):
        yield Limit(LimitedBy.SERVER, f"{law}; {found[1]}: the rest is the server's", clause)


def _until_first_byte(evidence: Evidence, first_us: float) -> tuple[float, str] | None:
    """What the path takes of the time until an answer's first byte, us, and that as text; None if it is unknown."""
    trip_us = min(_round_trips_us(evidence), default=None)
    if trip_us is None:
        return None
    text = f"{first_us / 1e3:.4g} ms of each passed until the first byte, of which a round trip is"
    return trip_us, f"{text} {trip_us / 1e3:.3g} ms"


def _until_last_byte(evidence: Evidence, whole_us: float) -> tuple[float, str] | None:
    """The same of the time until the last byte, of bodies that fit into a connection's first window: they need one more
    round trip at most, and hardly any time on the line."""
    trip_us, size_bytes = max(_round_trips_us(evidence), default=None), _mean_body_bytes(evidence.data)
    if trip_us is None or size_bytes is None or size_bytes > FIRST_WINDOW_BYTES:
        return None
    path_us = 2 * trip_us + 8e6 * size_bytes / SLOW_LINE_BPS
    text = f"{whole_us / 1e3:.4g} ms of each passed until the last byte, of which two round trips, and"
    return path_us, f"{text} {size_bytes:,.0f} bytes on a slow line, are {path_us / 1e3:.3g} ms"


def limits_of_turns(evidence: Evidence) -> Iterator[Limit]:
    """The responder as the limit of a closed loop whose flows are not more than its threads."""
    data = evidence.data
    if not data.spec.counts_units or data.spec.paced or data.spec.connects_clients or _in_tunnels(data):
        return
    for found in data.load_outcomes():
        far = found.outcome.get("receiver")
        threads = [thread for thread in (far["threads"] if far else ()) if thread["wall_s"] > 0]
        at_once = max(len(found.outcome["flows"]), data.spec_of(found.host).connections or 0)
        if not threads or at_once > len(threads):
            continue
        shares = [(busy_s(one) + (one.get("runnable_wait_s") or 0.0)) / one["wall_s"] for one in threads]
        most = max(shares)
        waited = (threads[shares.index(most)].get("runnable_wait_s") or 0.0) / threads[shares.index(most)]["wall_s"]
        if most >= DOMINATES:
            text = f"the server that {found.host} used took {quantities.rounded_share(most)} of the time of its flow"
            waiting = f"{quantities.rounded_share(waited)} of it waiting for a CPU"
            text += f", {waiting if waited >= WAITED else 'on a CPU'}"
            clause = f"the answering side is the limit: it takes {quantities.share(most)} of the time"
            yield Limit(LimitedBy.ANSWERING_SIDE, text, clause)


def _round_trips_us(evidence: Evidence) -> list[float]:
    """How long a round trip of the path takes at most, by each source: the mean time to connect, in which a client that
    waits for a CPU is late, and the kernel's mean, in which acknowledgements may be, and queues of the load."""
    means_us = (evidence.histograms.named("connect").mean_us, mean_reported_us(evidence.flows, "rtt_mean_us").value)
    return [mean_us for mean_us in means_us if mean_us]


def _mean_body_bytes(data: TestData) -> float | None:
    whole, answers = counter(data, "body_bytes"), counter(data, "responses")
    return whole / answers if whole is not None and answers else None


def _hardly_waited(evidence: Evidence, first_us: float) -> bool:
    """Whether generating threads waited for a CPU, for each answer, for a small part of the time until its first byte
    alone."""
    threads = [thread for found in evidence.data.load_outcomes() for thread in found.outcome["generator"]["threads"]]
    waits = [thread.get("runnable_wait_s") for thread in threads]
    known, answers = [wait for wait in waits if wait is not None], sum_of_flows(evidence.flows, received_units)
    if not threads or len(known) < len(waits) or not answers:
        return False
    return sum(known) / answers * 1e6 <= EXPLAINS * first_us


def _in_tunnels(data: TestData) -> bool:
    """Whether a fleet carried the load, whose clients share their hosts' connections."""
    return bool(data.fleet_reports())


def _quiet(evidence: Evidence, window: Window, first_us: float) -> bool:
    """Whether every machine had CPU to spare, and every gateway was idle: none of them made a request wait.

    A machine without CPU to spare made requests wait for as long as the generating threads waited on it for a CPU;
    where that is nothing beside the answer, it explains nothing.
    """
    data = evidence.data
    for host in data.samples:
        machine = machine_samples(data, host)
        busy = busy_percent(cpu_percent(machine, window), machine)
        if busy is None:
            return False
        is_full = busy > 100.0 * ROOM * (machine[-1].cpus or 1)
        if is_full and not (neighbours(data, host).issuperset(data.hosts) and _hardly_waited(evidence, first_us)):
            return False
    for gateway in (host for host in GATEWAYS if host in data.samples):
        own = processes_use(data, gateway, window, data.sut_processes)
        shares = cpu_percent(machine_samples(data, gateway), window)
        used = [own.user_percent + own.system_percent] if own is not None else []
        if max([*used, shares.get("softirq", 100.0) + shares.get("irq", 0.0)]) > IDLE_PERCENT:
            return False
    return bool(data.samples)
