"""The figures of a fleet of VPN clients: clients by outcome, the time of each step, and the effect on other clients.

Counts are of the clients' final states. Times are of the agents' histograms, in ms, and only of attempts that
completed the step: a p99 of connecting says nothing about clients that never connected, which `failed_ratio` and
`unconfigured_ratio` count. Traffic in the tunnels has the same names and units as without tunnels. Judges nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from leadline.analysis import host_metrics
from leadline.analysis.durations import distribution
from leadline.analysis.fleet_model import FleetFindings, Misfortune
from leadline.analysis.flows import Flow
from leadline.analysis.metrics import LATENCY_PERCENTILES, Histograms, counter, received_units, sum_of_flows, times
from leadline.analysis.model import Distribution, Metric, Series, Window
from leadline.analysis.overload import overload
from leadline.analysis.test_data import ProcessUse, TestData
from leadline.analysis.window import byte_curves, rate_per_s, unit_curves
from leadline.contract import records

STEPS = ("connect", "answer", "tls", "keys", "push", "ike_up", "ip_assigned", "child_up", "first_data")
"""The whole connect, and its steps in order."""
LATER = ("reconnect", "recovered", "renegotiate")
"""Times of clients that had connected, or had failed, before."""
PINGS = ("ping_before", "ping_during", "ping_after")
_STATES: tuple[records.CountName, ...] = ("configured", "partial", "failed", "waiting", "connecting")
_PING_COUNTS: Mapping[str, tuple[records.CountName, records.CountName]] = {
    "before": ("pings_sent_before", "pings_answered_before"),
    "during": ("pings_sent_during", "pings_answered_during"),
    "after": ("pings_sent_after", "pings_answered_after"),
}
"""Pings sent and answered before, during and after the arrivals."""
_RARE: tuple[records.CountName, ...] = (
    "recovered_partial",
    "reconnects_begun",
    "renegotiations_asked",
    "renegotiations_unfinished",
    "renegotiations_failed",
    "actions_skipped",
    "pings_unsent",
    "cookies_received",
)
"""Counts that an agent omits if they are 0."""
_REACHED: tuple[records.CountName, ...] = ("ike_up", "ip_assigned", "child_up", "traffic_both_ways")
"""Clients by the steps that their tunnels had completed at the end; absent if the protocol does not have the step."""
_SPREAD = ("min", "mean", "p50", "p90", "p99", "max")
_LATE = ("p50", "p99", "max")
_OTHERS = ("late", "latency", "service", "traffic_late", "ping_late")
_EXAMPLES = 3
_NS_PER_S = 1e9
# Points of a line over a whole storm: more than the columns of a screen.
_POINTS = 400
# A send that is later than this affects the measurement. OpenVPN's shortest timer is 1000 times as long.
_LATE_SEND_US = 1000.0


def tunnel_figures(
    data: TestData, flows: Sequence[Flow], window: Window | None, histograms: Histograms
) -> dict[str, Metric]:
    """Every metric of a tunnel test; unknown ones are None."""
    steps = (times(step, histograms.sample(step), _SPREAD) for step in (*STEPS, *LATER))
    rows = list(client_rows(data))
    states = _states(data, rows)
    clients = sum(states.values()) if states is not None else None
    bad = None if states is None else states["failed"] + states["partial"]
    memory = [memory for report in data.fleet_reports() if (memory := report.get("memory_bytes")) is not None]
    memory_bytes = float(sum(memory)) if memory else None
    return {
        "clients": Metric(clients, "count"),
        **{
            name: Metric(None if states is None else states[name], "count")
            for name in ("configured", "partial", "failed")
        },
        "failed_ratio": Metric(_ratio(None if states is None else states["failed"], clients), "ratio"),
        "unconfigured_ratio": Metric(_ratio(bad, clients), "ratio"),
        "handshakes_per_s": Metric(handshakes_per_s(data, rows), "1/s"),
        **{name: one for step in steps for name, one in in_ms(step)},
        "attempts": Metric(sum(row["attempts"] for row in rows) if rows else None, "count"),
        "retransmits": Metric(sum(row["retransmits"] for row in rows) if rows else None, "count"),
        "recovered": Metric(_reported_count(data, "recovered", _came_back(rows) if rows else None), "count"),
        "tunnels_lost": Metric(_reported_count(data, "lost", 0 if rows else None), "count"),
        **{name: Metric(_reported_count(data, name, 0 if rows else None), "count") for name in _RARE},
        **{name: Metric(_reported_count(data, name, None), "count") for name in _REACHED},
        "returned": Metric(histograms.named("reconnect").count if rows else None, "count"),
        "renegotiated": Metric(_reported_count(data, "renegotiated", 0 if rows else None), "count"),
        **{f"pings_lost_{when}": Metric(_pings_lost(data, when), "count") for when in _PING_COUNTS},
        **times("late", histograms.sample("late"), _LATE),
        **{name: one for ping in PINGS for name, one in in_ms(times(ping, histograms.sample(ping), _SPREAD))},
        "pings_sent": Metric(_inside(rows, "pings_sent"), "count"),
        "pings_lost": Metric(_lost_pings(rows), "count"),
        "memory_bytes": Metric(memory_bytes, "bytes"),
        "memory_per_client_bytes": Metric(_ratio(memory_bytes, clients), "bytes"),
        **_server(data, states),
        **_traffic(data, flows, window, histograms),
    }


def findings(data: TestData) -> FleetFindings | None:
    """Why clients are not configured, with the first clients of each cause; None if no client was reported."""
    rows = list(client_rows(data))
    if not rows:
        return None
    ignored = dict.fromkeys(line for report in data.fleet_reports() for line in report.get("ignored_options") or ())
    return FleetFindings(
        failed=_misfortunes(rows, "failed"),
        partial=_misfortunes(rows, "partial"),
        waiting=sum(row["state"] == "waiting" for row in rows),
        recovered=_reported_count(data, "recovered", _came_back(rows)) or 0,
        ciphers=dict(Counter(str(row["cipher"]) for row in rows if row.get("cipher")).most_common()),
        ignored_options=tuple(ignored),
        overload=overload(rows),
    )


def distributions(histograms: Histograms) -> tuple[Distribution, ...]:
    """Every histogram with values, in the order of a client's life."""
    samples = {name: histograms.sample(name) for name in (*STEPS, *LATER, *PINGS, *_OTHERS)}
    return tuple(distribution(name, sample) for name, sample in samples.items() if sample.count or sample.censored)


def client_rows(data: TestData) -> Iterator[records.TunnelClientReport]:
    """One row per client, `due_ns` and `first_due_ns` on the controller's clock."""
    for found in data.load_outcomes():
        for row in found.fleet["clients"] if found.fleet else ():
            due_ns, first_due_ns = row["due_ns"] - found.offset_ns, row["first_due_ns"] - found.offset_ns
            yield {**row, "due_ns": due_ns, "first_due_ns": first_due_ns}


def handshakes_per_s(data: TestData, rows: Sequence[records.TunnelClientReport]) -> float | None:
    """Connected clients per second, from the first due time to the last connect, without settled ones.

    With fewer than two clients there is no rate. The slowest client counts: if it took 5 s, the time is 5 s.
    """
    arrived = _arrived(data, rows)
    if len(arrived) < 2:
        return None
    first_ns, last_ns = _storm(arrived)
    return len(arrived) * _NS_PER_S / (last_ns - first_ns) if last_ns > first_ns else None


def storm_window(data: TestData) -> Window | None:
    """The window of a fleet without traffic: from the first due time to the last connect, without settled clients."""
    arrived = _arrived(data, client_rows(data))
    if not arrived:
        return None
    first_ns, last_ns = _storm(arrived)
    return Window(first_ns, first_ns, last_ns, last_ns)


def arrivals(data: TestData) -> tuple[Series, ...]:
    """The number of clients due and connected over time, without settled ones; t = 0 is the start of
    `storm_window`."""
    rows = [row for row in client_rows(data) if row["client"] >= data.spec.settled and row["state"] != "waiting"]
    arrived = _arrived(data, rows)
    if not arrived:
        return ()
    begin_ns, _ = _storm(arrived)
    # Whole ns since then: as floats, instants of the clock would have an error of hundreds of ns.
    due_ns = np.sort([row["first_due_ns"] - begin_ns for row in rows])
    up_ns = np.sort([connected_at_ns(row) - begin_ns for row in arrived])
    t_ns = np.linspace(due_ns[0], max(due_ns[-1], up_ns[-1]), _POINTS)
    t_s = tuple(float(t) for t in t_ns / _NS_PER_S)
    return tuple(
        Series(
            label, "", "clients", t_s, tuple(float(count) for count in np.searchsorted(instants, t_ns, side="right"))
        )
        for label, instants in (("due", due_ns), ("configured", up_ns))
    )


def _arrived(data: TestData, rows: Iterable[records.TunnelClientReport]) -> list[records.TunnelClientReport]:
    """The clients that connected, without the settled ones."""
    return [row for row in rows if row["client"] >= data.spec.settled and row.get("configured_ns") is not None]


def _storm(arrived: Sequence[records.TunnelClientReport]) -> tuple[int, int]:
    """The first due time, and the last connect, ns."""
    first_ns = min(row["first_due_ns"] for row in arrived)
    return first_ns, max(connected_at_ns(row) for row in arrived)


def connected_at_ns(row: records.TunnelClientReport) -> int:
    """When a client was configured or partial, ns."""
    return row["due_ns"] + (row.get("configured_ns") or 0)


def in_ms(metrics: Mapping[str, Metric]) -> Iterator[tuple[str, Metric]]:
    """The same times, with names and units of milliseconds."""
    for name, metric in metrics.items():
        value = None if metric.value is None else metric.value / 1e3
        yield f"{name.removesuffix('_us')}_ms", replace(metric, value=value, unit="ms")


def _states(data: TestData, rows: Sequence[records.TunnelClientReport]) -> Counter[str] | None:
    """Clients by final state; in an interrupted test, by the last reported state."""
    if rows:
        return Counter(str(row["state"]) for row in rows)
    standing = {name: counter(data, name) for name in _STATES}
    if all(count is None for count in standing.values()):
        return None
    return Counter({name: count for name, count in standing.items() if count})


def _misfortunes(rows: Iterable[records.TunnelClientReport], state: str) -> tuple[Misfortune, ...]:
    """Causes of one state, the most frequent first."""
    by_cause: dict[str, list[int]] = {}
    for row in rows:
        if row["state"] == state:
            by_cause.setdefault(str(row.get("cause") or "unknown"), []).append(int(row["client"]))
    ranked = sorted(by_cause.items(), key=lambda item: (-len(item[1]), item[0]))
    return tuple(Misfortune(cause, len(numbers), tuple(sorted(numbers)[:_EXAMPLES])) for cause, numbers in ranked)


def _came_back(rows: Sequence[records.TunnelClientReport]) -> int:
    """Clients that are configured after a failed attempt."""
    return sum(row["state"] == "configured" and row["attempts"] > 1 for row in rows)


def _reported_count(data: TestData, name: records.CountName, otherwise: int | None) -> int | None:
    """A count from the agent, else from its rows; agents omit rare counts that are 0."""
    count = counter(data, name)
    return otherwise if count is None else count


def _pings_lost(data: TestData, when: str) -> int | None:
    """Lost pings of those sent before, during or after the arrivals; None if none was sent."""
    sent, answered = (counter(data, name) for name in _PING_COUNTS[when])
    return None if not sent else max(0, sent - (answered or 0))


def _inside(rows: Sequence[records.TunnelClientReport], name: str) -> int | None:
    """The sum of a count over the clients' tunnels; None if no client counts it."""
    counts = [row["inside"][name] for row in rows if name in row["inside"]]
    return sum(counts) if counts else None


def _lost_pings(rows: Sequence[records.TunnelClientReport]) -> int | None:
    sent, answered = _inside(rows, "pings_sent"), _inside(rows, "pings_answered")
    return None if sent is None else max(0, sent - (answered or 0))


@dataclass(frozen=True, slots=True)
class ServerReading:
    """The cost of the server's processes at one instant, all of them together."""

    t_ns: int
    cpu_s: float
    resident_bytes: int


def server_readings(data: TestData) -> list[ServerReading]:
    """The cost of the server's processes over time, as the agent on its host observed them: the process that the user
    named, or those of the system under test."""
    samples = _server_samples(data)
    # The two clocks differ by up to some hundredths of a second: one of them for all readings.
    is_exact = all(process.scheduled_s is not None for _, own in samples for process in own)
    return [
        ServerReading(
            t_ns, sum(_cpu_s(process, is_exact) for process in own), sum(process.resident_bytes for process in own)
        )
        for t_ns, own in samples
    ]


def _server_samples(data: TestData) -> list[tuple[int, list[ProcessUse]]]:
    """The server's processes at each instant at which some of them were observed."""
    if data.server_pid is not None:
        host, pid = next(iter(data.samples), ""), data.server_pid
        found = [(one.t_ns, [process for process in one.processes if process.pid == pid]) for one in data.samples[host]]
    else:
        host, names = host_metrics.gateway_of(data) or "", set(data.sut_processes)
        found = [
            (one.t_ns, [process for process in one.processes if process.name in names])
            for one in data.samples.get(host, ())
        ]
    return [(t_ns, own) for t_ns, own in found if own]


def _cpu_s(process: ProcessUse, is_exact: bool) -> float:
    if is_exact and process.scheduled_s is not None:
        return process.scheduled_s
    return process.user_s + process.system_s


def _server(data: TestData, states: Counter[str] | None) -> dict[str, Metric]:
    """The CPU time of the server during the test, and the largest growth of its memory."""
    begun_ns = [*data.started_ns.values(), *([data.start_at_ns] if data.start_at_ns is not None else [])]
    first_ns, last_ns = min(begun_ns, default=0), max((found.t_ns for found in data.load_outcomes()), default=None)
    readings = server_readings(data)
    before = [reading for reading in readings if reading.t_ns <= first_ns][-1:] or readings[:1]
    # The first reading after the end is the first one that includes everything.
    after = [reading for reading in readings if last_ns is None or reading.t_ns >= last_ns][:1] or readings[-1:]
    cpu_s = memory_bytes = None
    if before and after and after[0].t_ns > before[0].t_ns:
        cpu_s = max(0.0, after[0].cpu_s - before[0].cpu_s)
        most = max(one.resident_bytes for one in readings if before[0].t_ns <= one.t_ns <= after[0].t_ns)
        memory_bytes = float(max(0, most - before[0].resident_bytes))
    up = states["configured"] + states["partial"] if states is not None else None
    each_s = _ratio(cpu_s, up)
    return {
        "server_cpu_s": Metric(cpu_s, "s"),
        "server_cpu_per_client_ms": Metric(None if each_s is None else 1e3 * each_s, "ms"),
        "server_memory_bytes": Metric(memory_bytes, "bytes"),
        "server_memory_per_client_bytes": Metric(_ratio(memory_bytes, up), "bytes"),
    }


def _traffic(data: TestData, flows: Sequence[Flow], window: Window | None, histograms: Histograms) -> dict[str, Metric]:
    """The traffic in the tunnels, summed over the steady window; empty without traffic."""
    if not flows and not data.spec.carries:
        return {}
    bytes_per_s = rate_per_s(byte_curves(flows), window)
    sent, lost = sum_of_flows(flows, lambda flow: flow.sent_units), sum_of_flows(flows, _lost)
    late = histograms.named("traffic_late")
    return {
        "throughput_bps": Metric(None if bytes_per_s is None else 8.0 * bytes_per_s, "bit/s"),
        "packets_per_s": Metric(rate_per_s(unit_curves(flows), window), "1/s"),
        "sent": Metric(sent, "count"),
        "received": Metric(sum_of_flows(flows, received_units), "count"),
        "lost": Metric(lost, "count"),
        "lost_ratio": Metric(_ratio(lost, sent), "ratio"),
        **times("latency", histograms.sample("latency"), ("min", "mean", *LATENCY_PERCENTILES, "max")),
        "sends_late_p99_us": Metric(late.percentile_us(99.0), "us"),
        "sends_late_ratio": Metric(late.share_above_us(_LATE_SEND_US), "ratio"),
    }


def _lost(flow: Flow) -> float | None:
    return flow.report.get("lost") if flow.report else None


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None
