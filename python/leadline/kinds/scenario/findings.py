"""The findings of a scenario from its agents' reports: groups of users, requests and transactions by name. Pure.

Reports of several hosts are added: counts by sum, distributions by their merged histograms.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from leadline.analysis.durations import Sample
from leadline.analysis.histograms import EMPTY, merge_readable
from leadline.analysis.metrics import CENSORED
from leadline.analysis.scenario_model import (
    CheckFindings,
    GroupFindings,
    LabelFindings,
    ScenarioFindings,
    SlowRequestFindings,
)
from leadline.analysis.test_data import TestData
from leadline.contract import records

MOST_SLOW = 10


def findings(data: TestData) -> ScenarioFindings | None:
    """What the scenario did; None for other tests."""
    reports = data.scenario_reports()
    if not reports:
        return None
    memory = [report.get("users_memory_bytes") for report in reports]
    slow = [
        SlowRequestFindings(
            report["labels"][one["label"]]["name"],
            one["latency_us"],
            one["before_sent_us"],
            one.get("first_byte_us"),
            one.get("status"),
            one.get("error"),
            one.get("dns_us"),
            one.get("connect_us"),
            one.get("tls_us"),
        )
        for report in reports
        for one in report["slowest"]
    ]
    return ScenarioFindings(
        groups=tuple(_group(rows) for rows in _by_key(reports, "populations")),
        labels=tuple(_label(rows, reports[0]) for rows in _labels(reports)),
        slowest=tuple(sorted(slow, key=lambda one: -one.latency_us)[:MOST_SLOW]),
        users_memory_bytes=sum(one or 0 for one in memory) if any(one is not None for one in memory) else None,
        left_out=sum(data.left_out_samples.values()),
    )


def iteration_sample(data: TestData, metric: str) -> Sample:
    """The durations of all groups' iterations, of one of their distributions."""
    rows = [row for report in data.scenario_reports() for row in report["populations"] if row["is_main"]]
    return merged_sample((report for row in rows for report in row["histograms"]), metric)


def transaction_sample(data: TestData) -> Sample:
    """The durations of all transactions."""
    rows = [row for report in data.scenario_reports() for row in report["labels"] if row["kind"] == "transaction"]
    return merged_sample((report for row in rows for report in row["histograms"]), "latency")


def check_counts(found: ScenarioFindings | None) -> tuple[int, int]:
    """Checks that passed, and checks that failed."""
    checks = [check for label in (found.labels if found is not None else ()) for check in label.checks]
    return sum(check.passed for check in checks), sum(check.failed for check in checks)


def _by_key(reports: Sequence[records.ScenarioReport], key: str) -> list[list[records.PopulationReport]]:
    rows: dict[str, list[records.PopulationReport]] = {}
    for report in reports:
        for row in report["populations"]:
            rows.setdefault(row["name"], []).append(row)
    return list(rows.values())


def _labels(reports: Sequence[records.ScenarioReport]) -> list[list[records.LabelReport]]:
    rows: dict[tuple[object, ...], list[records.LabelReport]] = {}
    for report in reports:
        for row in report["labels"]:
            tags = tuple(sorted((row.get("tags") or {}).items()))
            rows.setdefault((row["name"], row["kind"], row["population"], tags), []).append(row)
    return list(rows.values())


def _group(rows: Sequence[records.PopulationReport]) -> GroupFindings:
    counts: Counter[str] = Counter()
    for row in rows:
        counts.update({name: count for name, count in row["iterations"].items() if isinstance(count, int)})
    histograms = [report for row in rows for report in row["histograms"]]
    whole, late = merged_sample(histograms, "iteration"), merged_sample(histograms, "start_late")
    return GroupFindings(
        name=rows[0]["name"],
        due=counts["due"],
        begun=counts["begun"],
        late=counts["late"],
        dropped=counts["dropped"],
        not_begun=counts["not_begun"],
        completed=counts["completed"],
        failed=counts["failed"],
        interrupted=counts["interrupted"],
        users_most=sum(row["users_most"] for row in rows),
        iteration_p50_us=whole.percentile(50.0).value_us,
        iteration_p95_us=whole.percentile(95.0).value_us,
        start_late_p99_us=late.percentile(99.0).value_us,
    )


def _label(rows: Sequence[records.LabelReport], report: records.ScenarioReport) -> LabelFindings:
    first = rows[0]
    population = report["populations"][first["population"]]
    histograms = [one for row in rows for one in row["histograms"]]
    latency, service = merged_sample(histograms, "latency"), merged_sample(histograms, "service")
    ended = sum(row["ended"] for row in rows)
    start_ns, end_ns = population.get("start_ns"), population.get("end_ns")
    length_s = (end_ns - start_ns) / 1e9 if start_ns is not None and end_ns is not None and end_ns > start_ns else None
    times = {"latency_mean_us": latency.mean, "latency_max_us": latency.max}
    times |= {f"latency_p{share}_us": latency.percentile(float(share)) for share in (50, 90, 95, 99)}
    times |= {f"service_p{share}_us": service.percentile(float(share)) for share in (50, 95, 99)}
    return LabelFindings(
        name=first["name"],
        is_transaction=first["kind"] == "transaction",
        group=population["name"],
        ended=ended,
        failed=sum(row["failed"] for row in rows),
        interrupted=sum(row["interrupted"] for row in rows),
        per_s=None if length_s is None else ended / length_s,
        **{name: figure.value_us for name, figure in times.items()},
        sent_bytes=sum(row["sent_bytes"] for row in rows),
        received_bytes=sum(row["received_bytes"] for row in rows),
        errors=_added(row["errors"] for row in rows),
        error_examples={name: text for row in reversed(rows) for name, text in row["error_examples"].items()},
        checks=_checks(rows),
        misses=_added(row["misses"] for row in rows),
        tags=dict(first.get("tags") or {}),
        cached=sum(row["cached"] for row in rows),
        resources=sum(row.get("resources", 0) for row in rows),
        redirects=sum(row["redirects"] for row in rows),
        latency_censored=latency.censored,
        censored=tuple(name for name, figure in times.items() if figure.is_bound),
    )


def _checks(rows: Sequence[records.LabelReport]) -> tuple[CheckFindings, ...]:
    passed, failed = Counter[str](), Counter[str]()
    for row in rows:
        for check in row["checks"]:
            passed[check["name"]] += check["passed"]
            failed[check["name"]] += check["failed"]
    return tuple(CheckFindings(name, passed[name], failed[name]) for name in passed)


def _added(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    whole: Counter[str] = Counter()
    for one in counts:
        whole.update(one)
    return dict(whole.most_common())


def merged_sample(reports: Iterable[records.HistogramReport], metric: str) -> Sample:
    """The merged distribution of that name with its ages; those of the warm-up have another one."""
    found: dict[str, list[records.HistogramReport]] = {metric: [], f"{metric}{CENSORED}": []}
    for report in reports:
        if report["metric"] in found:
            found[report["metric"]].append(report)
    (known, unreadable), (ages, unreadable_ages) = map(merge_readable, found.values())
    return Sample(EMPTY, is_known=False) if unreadable or unreadable_ages else Sample(known, ages)
