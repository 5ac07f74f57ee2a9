"""Draws a fleet of VPN clients for a terminal of 80 columns: clients by outcome and cause, each step's times,
traffic.

Draws percentiles as far as the number of clients allows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table

from leadline import quantities
from leadline.analysis.fleet_model import FleetFindings, Misfortune
from leadline.analysis.model import Distribution, Metric, TestResult
from leadline.report.figures import percentile_cell, row_title, time_cell
from leadline.report.measurement import cut_example, error_rows

_STEPS = {
    "connect": "connect",
    "answer": "  first answer",
    "tls": "  TLS",
    "keys": "  keys",
    "push": "  pushed options",
    "ike_up": "  IKE SA",
    "ip_assigned": "  address",
    "child_up": "  data keys",
    "first_data": "  first data back",
    "reconnect": "reconnect",
    "recovered": "recovered",
    "renegotiate": "new keys",
    "ping_before": "ping before",
    "ping_during": "ping during",
    "ping_after": "ping after",
    "latency": "inside, latency",
}
_LIMITS = {
    "pool_exhausted": "an exhausted pool of addresses",
    "max_clients": "max-clients, or connect-freq",
    "connect_freq_initial": "connect-freq-initial, or full receive buffers",
}
_MOST_CAUSES = 8
_MOST_IGNORED = 3


def tunnel_rows(result: TestResult) -> list[tuple[str, str]]:
    """The outcome of the clients and their traffic, as pairs of a name and a line."""
    metrics, fleet = result.metrics, result.fleet
    rows = [("clients", _states(metrics))]
    if fleet is not None:
        rows += _misfortunes("failed", fleet.failed, result) + _misfortunes("partial", fleet.partial, result)
        rows += [("", f"looks like {_LIMITS[one.name]}: {one.seen}") for one in fleet.overload]
    rows += [*_tunnels(metrics), ("handshakes", _handshakes(metrics, fleet))]
    rows += _actions(metrics) + _pings(metrics) + _inside(metrics)
    if (memory := _value(metrics, "memory_bytes")) is not None:
        each = quantities.memory(_value(metrics, "memory_per_client_bytes"))
        rows.append(("memory", f"{quantities.memory(memory)} of the agent, {each} per client"))
    if (cpu_s := _value(metrics, "server_cpu_s")) is not None:
        each = quantities.metric(_value(metrics, "server_cpu_per_client_ms"), "ms")
        grown, own = (quantities.memory(_value(metrics, f"server_memory{name}_bytes")) for name in ("", "_per_client"))
        rows.append(
            ("server", f"{quantities.seconds(cpu_s)} of CPU, {each} per client; {grown} more memory, {own} per client")
        )
    if fleet is not None and fleet.ignored_options:
        shown, rest = fleet.ignored_options[:_MOST_IGNORED], fleet.ignored_options[_MOST_IGNORED:]
        rows.append(("ignored", "; ".join(shown) + (f"; and {len(rest)} more" if rest else "")))
    return rows


def tunnel_times(result: TestResult) -> list[RenderableType]:
    """The table of each step's times; none if no client completed a step."""
    found = {title: one for name, title in _STEPS.items() if (one := result.distribution(name)) is not None}
    if not found:
        return []
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("", style="dim", no_wrap=True)
    for title in ("count", "mean", "p50", "p90", "p99", "max"):
        table.add_column(title, justify="right", no_wrap=True)
    for title, one in found.items():
        table.add_row(row_title(title, one.metric, result.metrics), *_cells(one))
    return [Padding(table, (0, 0, 0, 2), expand=False)]


def step_rows(result: TestResult) -> list[tuple[str, tuple[str, ...]]]:
    """Each step that clients took, with its cells."""
    titles = ((name, row_title(title.strip(), name, result.metrics)) for name, title in _STEPS.items())
    named = ((title, result.distribution(name)) for name, title in titles)
    return [(title, _cells(one)) for title, one in named if one is not None]


def _cells(one: Distribution) -> tuple[str, ...]:
    """Count, mean, p50, p90 and p99 (if the count is large enough) and maximum, as text."""
    shares = [percentile_cell(one, percentile) for percentile in (50.0, 90.0, 99.0)]
    return f"{one.count:,}", time_cell(one, "mean"), *shares, time_cell(one, "max")


def _states(metrics: Mapping[str, Metric]) -> str:
    counts = [f"{quantities.count(_value(metrics, name))} {name}" for name in ("configured", "partial", "failed")]
    return f"{quantities.count(_value(metrics, 'clients'))}: {', '.join(counts)}"


def _tunnels(metrics: Mapping[str, Metric]) -> list[tuple[str, str]]:
    """How far the tunnels were at the end, for protocols with these steps."""
    titles = {
        "ike_up": "IKE SA up",
        "ip_assigned": "address assigned",
        "child_up": "data keys",
        "traffic_both_ways": "traffic both ways",
    }
    found = {title: value for name, title in titles.items() if (value := _value(metrics, name)) is not None}
    return (
        [("tunnels", ", ".join(f"{quantities.count(value)} {title}" for title, value in found.items()))]
        if found
        else []
    )


def _misfortunes(state: str, causes: Sequence[Misfortune], result: TestResult) -> list[tuple[str, str]]:
    """One line per cause, with the message of its first failure; only the most frequent causes if there are many."""
    rows = []
    for row, one in enumerate(causes[:_MOST_CAUSES]):
        more = ", ..." if one.clients > len(one.examples) else ""
        which = ", ".join(str(number) for number in one.examples)
        name = one.cause.removeprefix(f"{state}_").replace("_", " ")
        plural = "client" if one.clients == 1 else "clients"
        said = result.error_examples.get(one.cause, "")
        rows.append(
            (
                state if row == 0 else "",
                f"{one.clients:,} × {name} ({plural} {which}{more}){f': {cut_example(said)}' if said else ''}",
            )
        )
    if len(causes) > _MOST_CAUSES:
        rest = sum(one.clients for one in causes[_MOST_CAUSES:])
        rows.append(("", f"{rest:,} × other causes"))
    return rows


def other_errors(result: TestResult) -> list[tuple[str, str]]:
    """Errors that the clients' causes do not already show: those of repeated attempts, and of traffic. Without any
    error, a row says so."""
    fleet = result.fleet
    by_cause = {one.cause: one.clients for one in (*fleet.failed, *fleet.partial)} if fleet is not None else {}
    left = {name: count for name, count in result.errors.items() if by_cause.get(name) != count}
    return error_rows(replace(result, errors=left)) if left or not result.errors else []


def _handshakes(metrics: Mapping[str, Metric], fleet: FleetFindings | None) -> str:
    said = f"{quantities.count(_value(metrics, 'attempts'))} attempts"
    if (again := _value(metrics, "retransmits")) is not None:
        said += f", {quantities.count(again)} control packets retransmitted"
    if cookies := _value(metrics, "cookies_received"):
        said += f", the gateway was under load and asked for {quantities.count(cookies)} cookies"
    if fleet is not None and fleet.recovered:
        said += f", {fleet.recovered:,} clients connected after a failure"
    if partly := _value(metrics, "recovered_partial"):
        said += f", {partly:,.0f} partial after a failure"
    if fleet is not None and fleet.ciphers:
        said += f"; {', '.join(fleet.ciphers)}"
    return said


def _actions(metrics: Mapping[str, Metric]) -> list[tuple[str, str]]:
    """Later actions of the clients, planned or not, and their outcome."""
    parts = []
    if begun := _value(metrics, "reconnects_begun"):
        parts.append(
            f"{begun:,.0f} reconnects, {quantities.count(_value(metrics, 'returned'))} back at the first attempt"
        )
    asked, renewed = (_value(metrics, name) or 0.0 for name in ("renegotiations_asked", "renegotiated"))
    if asked or renewed:
        parts.append(f"{asked:,.0f} renegotiations; keys renewed {renewed:,.0f} times by either side")
    if skipped := _value(metrics, "actions_skipped"):
        parts.append(f"{skipped:,.0f} skipped: the client was not connected")
    return [("later", "; ".join(parts))] if parts else []


def _pings(metrics: Mapping[str, Metric]) -> list[tuple[str, str]]:
    sent = _value(metrics, "pings_sent")
    if not sent:
        return []
    parts = [
        f"{lost:,.0f} {when}"
        for when in ("before", "during", "after")
        if (lost := _value(metrics, f"pings_lost_{when}")) is not None
    ]
    whole = quantities.count(_value(metrics, "pings_lost"))
    said = f"{sent:,.0f} sent, {whole} lost" + (f" ({', '.join(parts)})" if parts else "")
    if unsent := _value(metrics, "pings_unsent"):
        said += f"; {unsent:,.0f} due and not sent"
    return [("pings", said)]


def _inside(metrics: Mapping[str, Metric]) -> list[tuple[str, str]]:
    if "throughput_bps" not in metrics:
        return []
    parts = [quantities.bit_rate(_value(metrics, "throughput_bps"))]
    if (packets := _value(metrics, "packets_per_s")) is not None:
        parts.append(quantities.per_second(packets))
    if (lost := _value(metrics, "lost_ratio")) is not None:
        parts.append(f"{quantities.share(lost)} lost")
    if (late := _value(metrics, "sends_late_p99_us")) is not None:
        parts.append(f"sends late by p99 {quantities.microseconds(late)}")
    return [("inside", ", ".join(parts))]


def _value(metrics: Mapping[str, Metric], name: str) -> float | None:
    found = metrics.get(name)
    return found.value if found is not None else None
