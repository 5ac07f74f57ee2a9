"""The figures of a scenario's iterations; those of its requests are the ones of HTTP load. Pure."""

from __future__ import annotations

from dataclasses import replace

from leadline.analysis.histograms import Histogram
from leadline.analysis.intervals import share_metric
from leadline.analysis.metrics import CENSORED, Histograms, counter, times
from leadline.analysis.model import Metric
from leadline.analysis.scenario_model import ScenarioFindings
from leadline.analysis.test_data import TestData
from leadline.kinds.scenario.findings import check_counts, findings, iteration_sample, merged_sample, transaction_sample
from leadline.kinds.scenario.tagged import tagged_figures

_ITERATION = ("min", "mean", "p50", "p90", "p95", "p99", "max")


def scenario_figures(data: TestData, histograms: Histograms) -> dict[str, Metric]:
    """Iterations by what became of them, their times, users, and checks. While the load runs they are known if the
    agents report the figures so far."""
    found = findings(data)
    groups = () if found is None else found.groups

    def total(name: str) -> int | None:
        return sum(getattr(group, name) for group in groups) if groups else None

    ended = None if not groups else sum(group.completed + group.failed for group in groups)
    length_s = _length_s(data)
    passed, failed = check_counts(found)
    ratio = _error_ratio(data, found)
    return {
        # That of http, without a report of the requests.
        **({} if ratio is None else {"error_ratio": ratio}),
        "repeated": Metric(counter(data, "repeated") or 0 if groups else None, "count"),
        "iterations": Metric(ended, "count"),
        "iterations_per_s": Metric(ended / length_s if ended is not None and length_s else None, "1/s"),
        "iterations_due": Metric(total("due"), "count"),
        "iterations_late": Metric(total("late"), "count"),
        "iterations_dropped": Metric(total("dropped"), "count"),
        "iterations_failed": Metric(total("failed"), "count"),
        "users_most": Metric(total("users_most"), "count"),
        "checks_ratio": share_metric(passed, passed + failed),
        **times("iteration", histograms.sample("iteration"), _ITERATION),
        **times("transaction", histograms.sample("transaction"), _ITERATION),
        **times("start_late", histograms.sample("start_late"), ("p50", "p99", "max")),
        **tagged_figures(data),
    }


def _error_ratio(data: TestData, found: ScenarioFindings | None) -> Metric | None:
    """The share of the requests that failed: each once, whatever failed of it. A request whose check or extraction
    failed was answered too, so errors and answers do not add to the number of requests. None without a report."""
    labels = [] if found is None else [label for label in found.labels if not label.is_transaction]
    if not labels:
        return None
    ended, failed = sum(label.ended for label in labels), sum(label.failed for label in labels)
    whole = ended + (counter(data, "unanswered") or 0)
    return Metric((failed + (counter(data, "unanswered_over_1s") or 0)) / whole if whole else None, "ratio")


def with_scenario_histograms(data: TestData, histograms: Histograms) -> Histograms:
    """The histograms with those of iterations and transactions, which the reports of scenarios have. While the load
    runs those of its intervals are newer; agents that report no such intervals have the figures so far."""
    reports = data.scenario_reports()
    if not reports:
        return histograms
    is_over = bool(data.load_outcomes())
    samples = {name: iteration_sample(data, name) for name in ("iteration", "iteration_due", "start_late")}
    samples["transaction"] = transaction_sample(data)
    if not is_over:
        rows = [row for report in reports for row in report["labels"] if row["kind"] == "request"]
        for name in ("service", "first_byte"):
            samples[name] = merged_sample((report for row in rows for report in row["histograms"]), name)
    found: dict[str, Histogram] = {}
    damaged: dict[str, int] = dict(histograms.damaged)
    for name, sample in samples.items():
        if is_over or name not in histograms.by_name:
            found |= {name: sample.completed, f"{name}{CENSORED}": sample.ages}
            damaged |= {} if sample.is_known else {name: 1}
    return replace(histograms, by_name={**histograms.by_name, **found}, damaged=damaged)


def _length_s(data: TestData) -> float | None:
    """The time of the main groups."""
    rows = [row for report in data.scenario_reports() for row in report["populations"] if row["is_main"]]
    starts = [start for row in rows if (start := row.get("start_ns")) is not None]
    ends = [end for row in rows if (end := row.get("end_ns")) is not None]
    return (max(ends) - min(starts)) / 1e9 if starts and ends and max(ends) > min(starts) else None
