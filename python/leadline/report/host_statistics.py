"""Rows of the client, server and bring-up tables: one per case and test, over the repeats.

Means are over the repeats with known values. Percentiles are never averaged: if repeats differ, the range of their
percentiles is shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean

from leadline import quantities
from leadline.analysis.gateways import SHARED, UNSEEN
from leadline.analysis.model import (
    Bound,
    ClientBringUp,
    ClientStatistics,
    Metric,
    RunAnalysis,
    ServerStatistics,
    TestResult,
    TrialResult,
)
from leadline.plan import gateway_metrics
from leadline.plan.kinds import metrics_of
from leadline.report import figures


@dataclass(frozen=True, slots=True)
class ClientRow:
    """The transfer of one test's clients: 10^6 bytes, 10^6 bits per second, 10^6 bytes per second."""

    case: str
    test: str
    clients: float | None
    transfer_mb: float | None
    total_mbps: float | None
    total_mb_per_s: float | None
    average_mbps: float | None


@dataclass(frozen=True, slots=True)
class ServerRow:
    """The use of the gateway's CPUs in one test: user, system, softirq, total and wait in percent of one CPU."""

    case: str
    test: str
    real_length_s: float | None
    cpu_percents: tuple[float | None, ...]
    sut_percent: float | None
    sut_memory_bytes: float | None
    cpus: int | None
    shared: bool


@dataclass(frozen=True, slots=True)
class GatewayRow:
    """What one gateway cost in one test, as texts: CPU, CPU per Gbit/s, per packet and per client, memory and memory
    per client."""

    case: str
    test: str
    host: str
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BringUpRow:
    """The bring-up of a case's clients, over its repeats."""

    case: str
    system: str
    connected: int
    partial: int
    failed: int
    time_p50: str
    time_max_s: float | None
    causes: dict[str, int]


def client_rows(analysis: RunAnalysis) -> list[ClientRow]:
    """One row per case and test whose clients transferred payload."""
    return [
        client_row(case, test, [result.clients for result in results if result.clients is not None])
        for (case, test), results in _by_test(analysis).items()
        if any(result.clients is not None for result in results)
    ]


def client_row(case: str, test: str, repeats: list[ClientStatistics]) -> ClientRow:
    """The mean of some repeats."""
    transfer = _mean(repeat.transfer_bytes for repeat in repeats)
    total = _mean(repeat.total_bps for repeat in repeats)
    average = _mean(repeat.average_bps for repeat in repeats)
    return ClientRow(
        case=case,
        test=test,
        clients=_mean(repeat.clients for repeat in repeats),
        transfer_mb=_scaled(transfer, 1e6),
        total_mbps=_scaled(total, 1e6),
        total_mb_per_s=_scaled(total, 8e6),
        average_mbps=_scaled(average, 1e6),
    )


@dataclass(frozen=True, slots=True)
class FleetRow:
    """The outcome of a fleet's clients in one test; counts are means over the repeats."""

    case: str
    test: str
    counts: tuple[float | None, ...]
    """Clients, configured, partial, failed."""
    server_cpu_per_client_ms: float | None
    server_memory_bytes: float | None
    causes: dict[str, int]
    """The causes of all repeats together."""


def fleet_rows(analysis: RunAnalysis) -> list[FleetRow]:
    """One row per case and test of a fleet's clients."""
    rows = []
    for (case, test), results in _by_test(analysis).items():
        if not any("configured" in metrics_of(result.kind) for result in results):
            continue
        causes: Counter[str] = Counter()
        for result in results:
            for one in (*result.fleet.failed, *result.fleet.partial) if result.fleet is not None else ():
                causes[one.cause] += one.clients
        means = {
            name: _mean(result.metrics[name].value for result in results if name in result.metrics)
            for name in (*_STATES, "server_cpu_per_client_ms", "server_memory_bytes")
        }
        rows.append(
            FleetRow(
                case,
                test,
                tuple(means[name] for name in _STATES),
                means["server_cpu_per_client_ms"],
                means["server_memory_bytes"],
                dict(causes.most_common()),
            )
        )
    return rows


def server_rows(analysis: RunAnalysis) -> list[ServerRow]:
    """One row per case and test with an observed gateway."""
    return [
        server_row(case, test, [result.server for result in results if result.server is not None])
        for (case, test), results in _by_test(analysis).items()
        if any(result.server is not None for result in results)
    ]


def server_row(case: str, test: str, repeats: list[ServerStatistics]) -> ServerRow:
    """The mean of some repeats; memory is their maximum."""
    return ServerRow(
        case=case,
        test=test,
        real_length_s=_mean(repeat.real_length_s for repeat in repeats),
        cpu_percents=(
            _mean(repeat.cpu_user_percent for repeat in repeats),
            _mean(repeat.cpu_system_percent for repeat in repeats),
            _mean(repeat.cpu_softirq_percent for repeat in repeats),
            _mean(repeat.cpu_total_percent for repeat in repeats),
            _mean(repeat.cpu_wait_percent for repeat in repeats),
        ),
        sut_percent=_mean(_sum(repeat.sut_user_percent, repeat.sut_system_percent) for repeat in repeats),
        sut_memory_bytes=max((r.sut_memory_bytes for r in repeats if r.sut_memory_bytes is not None), default=None),
        cpus=max((repeat.cpus for repeat in repeats if repeat.cpus is not None), default=None),
        shared=any(repeat.shared for repeat in repeats),
    )


def sharing_note(rows: Iterable[ServerRow]) -> str | None:
    """A note if CPU figures are of the whole machine; None if the gateway has its own CPUs."""
    shared = [row for row in rows if row.shared]
    if not shared:
        return None
    cpus = max((row.cpus for row in shared if row.cpus is not None), default=None)
    machine = f"{cpus} CPUs, so {cpus * 100} % at most" if cpus is not None else "number of CPUs unknown"
    return (
        f"All hosts share one machine ({machine}): usr to wait are of the whole machine, "
        "SUT is the CPU time of the gateway's own processes. Total is measured; usr, sys and softirq are sampled by "
        "the kernel's timer tick and may add up to more or less."
    )


def gateway_rows(analysis: RunAnalysis) -> list[GatewayRow]:
    """One row per case, test and gateway that is known to have cost something."""
    rows = []
    for summary in analysis.summaries:
        for host in gateway_metrics.GATEWAYS:
            found = {figure: summary.metrics.get(gateway_metrics.metric_of(host, figure)) for figure in GATEWAY_FIGURES}
            if any(metric is not None for metric in found.values()):
                cpu, per_gbps = (_value(found[name]) for name in (gateway_metrics.CPU, gateway_metrics.PER_GBPS))
                if not gateway_metrics.says_per_gbps(cpu, per_gbps):
                    found[gateway_metrics.PER_GBPS] = None
                cells = tuple(_gateway_cell(metric) for metric in found.values())
                rows.append(GatewayRow(summary.case, summary.test, host, cells))
    order = {case: number for number, case in enumerate(figures.case_parameters(analysis))}
    return sorted(rows, key=lambda row: order.get(row.case, 0))


def gateway_notes(analysis: RunAnalysis) -> list[str]:
    """Whose CPU time counts, by case and gateway, and why figures are not known."""
    found: dict[str, dict[str, None]] = {}
    order = {case: number for number, case in enumerate(figures.case_parameters(analysis))}
    for trial in sorted(analysis.trials, key=lambda trial: order.get(trial.case, 0)):
        for gateway in (one for test in trial.tests for one in test.gateways):
            where = found.setdefault(f"{trial.case} {gateway.host}", {})
            what = "≤ CPU time, an upper bound" if gateway.at_most else "CPU time"
            where[f"{what}: {gateway.basis}" if gateway.cpu_unknown is None else gateway.cpu_unknown] = None
            if gateway.memory_unknown is not None:
                where[gateway.memory_unknown] = None
    by_text: dict[str, list[str]] = {}
    for name, texts in found.items():
        by_text.setdefault("; ".join(texts), []).append(name)
    return [f"{', '.join(names)}: {text}" for text, names in by_text.items()]


def _value(metric: Metric | None) -> float | None:
    return None if metric is None else metric.value


def _gateway_cell(metric: Metric | None) -> str:
    if metric is None or metric.value is None:
        return quantities.UNKNOWN
    if metric.unit == "bytes":
        text = quantities.memory(metric.value)
    elif metric.unit == "ns":
        text = quantities.microseconds(metric.value / 1e3)
    else:
        text = quantities.metric(metric.value, metric.unit)
    if metric.side is Bound.NONE and {SHARED, UNSEEN} & set(metric.reasons):
        return quantities.UNKNOWN  # an upper bound, beside something that leaves none
    # Beside a bound, a figure that is known from neither side would read as if it was exact.
    return f"≈ {text}" if metric.side is Bound.NONE else figures.bounded(text, metric)


def bring_up_rows(analysis: RunAnalysis) -> list[BringUpRow]:
    """One row per case whose system under test has clients to bring up."""
    rows = []
    for case in figures.case_parameters(analysis):
        trials = [trial for trial in analysis.trials if trial.case == case and trial.bring_up is not None]
        repeats = [trial.bring_up for trial in trials if trial.bring_up is not None]
        if repeats and any(repeat.connected + repeat.partial + repeat.failed for repeat in repeats):
            rows.append(_bring_up_row(case, system_of(trials), repeats))
    return rows


def versions_alone(analysis: RunAnalysis) -> list[tuple[str, str]]:
    """Case and system of the cases without bring-up rows (those of fleets), if the version is known."""
    listed = {row.case for row in bring_up_rows(analysis)}
    by_case: dict[str, list[TrialResult]] = {}
    for trial in analysis.trials:
        if trial.case not in listed and trial.sut_version and not trial.on_given_hosts:
            by_case.setdefault(trial.case, []).append(trial)
    return [(case, system_of(trials)) for case, trials in by_case.items()]


def system_of(trials: Iterable[TrialResult]) -> str:
    """The system under test with its version; all versions if trials differ."""
    return ", ".join(dict.fromkeys(f"{trial.sut} {trial.sut_version or ''}".strip() for trial in trials))


def _bring_up_row(case: str, system: str, repeats: list[ClientBringUp]) -> BringUpRow:
    causes: Counter[str] = Counter()
    for repeat in repeats:
        causes.update(repeat.causes)
    return BringUpRow(
        case=case,
        system=system,
        connected=sum(repeat.connected for repeat in repeats),
        partial=sum(repeat.partial for repeat in repeats),
        failed=sum(repeat.failed for repeat in repeats),
        time_p50=_range(repeat.time_p50_s for repeat in repeats),
        time_max_s=max((repeat.time_max_s for repeat in repeats if repeat.time_max_s is not None), default=None),
        causes=dict(causes.most_common()),
    )


GATEWAY_FIGURES = (
    gateway_metrics.CPU,
    gateway_metrics.PER_GBPS,
    gateway_metrics.PER_PACKET,
    gateway_metrics.PER_CLIENT,
    gateway_metrics.MEMORY,
    gateway_metrics.MEMORY_PER_CLIENT,
)
GATEWAY_TITLES = ("CPU", "per Gbit/s", "a packet", "per client", "memory", "per client")
"""The titles of a gateway row's cells."""
_STATES = ("clients", "configured", "partial", "failed")


def _by_test(analysis: RunAnalysis) -> dict[tuple[str, str], list[TestResult]]:
    """The repeats of every test, in the order of cases and tests."""
    grouped: dict[tuple[str, str], list[TestResult]] = {}
    for case in figures.case_parameters(analysis):
        for trial in analysis.trials:
            if trial.case == case:
                for test in trial.tests:
                    grouped.setdefault((case, test.test), []).append(test)
    # As in the figures: an incomplete repeat counts only if no repeat completed.
    ended = {key: [test for test in tests if test.status == "done"] for key, tests in grouped.items()}
    return {key: ended[key] or tests for key, tests in grouped.items()}


def _range(values: Iterable[float | None]) -> str:
    """`422 ms`, or `422 to 442 ms` if repeats differ."""
    known = [value for value in values if value is not None]
    if not known:
        return quantities.UNKNOWN
    low, high = quantities.seconds(min(known)), quantities.seconds(max(known))
    if low == high:
        return low
    number, _, unit = low.partition(" ")
    return f"{number} to {high}" if high.endswith(f" {unit}") else f"{low} to {high}"


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _sum(*values: float | None) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _scaled(value: float | None, unit: float) -> float | None:
    return value / unit if value is not None else None
