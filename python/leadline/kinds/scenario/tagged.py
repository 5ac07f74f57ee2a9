"""Figures of the requests that have some tags, as thresholds ask for them: `error_ratio{name:login}`. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache

from leadline.analysis.histograms import EMPTY, DamagedHistogram, Histogram, decode, merge
from leadline.analysis.intervals import MOST_OF_A_NAME, PART_NS, share_metric, with_interval
from leadline.analysis.metrics import times
from leadline.analysis.model import Metric
from leadline.analysis.test_data import TestData
from leadline.contract import records
from leadline.kinds.scenario.findings import merged_sample
from leadline.plan.percentiles import histogram_of
from leadline.plan.tags import split_figure


def tagged_figures(data: TestData) -> dict[str, Metric]:
    """The figures that are asked for with tags, by their names with the tags; of a time also its other statistics."""
    found: dict[str, Metric] = {}
    for name in dict.fromkeys((*data.spec.asked, *data.asked)):
        figure, tags = split_figure(name)
        if tags:
            found |= {own + name.removeprefix(figure): one for own, one in _figures(data, figure, tags).items()}
    return found


def _figures(data: TestData, figure: str, tags: Mapping[str, str]) -> dict[str, Metric]:
    reports = data.scenario_reports()
    if figure.startswith("iteration"):
        rows = [row for report in reports for row in report["populations"] if row["name"] == tags.get("scenario")]
        return _of_groups(rows, figure, _Seconds(data, lambda point: _iterations(point, tags.get("scenario"))))
    kind = "transaction" if figure.startswith("transaction") else "request"
    labels = [
        (row, report["populations"][row["population"]])
        for report in reports
        for row in report["labels"]
        if row["kind"] == kind and _has(row, tags)
    ]
    seconds = _Seconds(
        data, lambda point: _of_rows(row for row in point["labels"] if row["kind"] == kind and _has(row, tags))
    )
    return _of_labels(labels, figure, tags, seconds)


_Part = Mapping[str, Sequence[records.HistogramReport]]
"""The histograms of one interval by name."""


class _Seconds:
    """What each second has of some requests, transactions or iterations. `part_of` selects them from an interval; None
    where the interval has them and not their histograms."""

    def __init__(self, data: TestData, part_of: Callable[[records.ScenarioProgress], _Part | None]) -> None:
        self._data, self._part_of = data, part_of
        self.is_running = data.is_running

    def of(self, name: str) -> list[Histogram]:
        """The histograms of a name, of all hosts; none if they are not known of each second, or too many to read."""
        seconds: dict[int, list[records.HistogramReport]] = {}
        for point in self._data.scenario_points:
            part = self._part_of(point.progress)
            if part is None:
                return []
            if name in part:
                seconds.setdefault(point.t_ns // PART_NS, []).extend(part[name])
        if sum(map(len, seconds.values())) > MOST_OF_A_NAME:
            return []
        return [merge(_decoded(one["hdr_v2"], one["count"]) for one in seconds[at]) for at in sorted(seconds)]


def _iterations(point: records.ScenarioProgress, name: str | None) -> _Part | None:
    rows = [row for row in point["populations"] if row["name"] == name]
    return _by_name(report for row in rows for report in row.get("histograms") or ())


def _of_rows(rows: Iterable[records.LabelProgress]) -> _Part | None:
    found: list[records.HistogramReport] = []
    for row in rows:
        histograms = row.get("histograms")
        if histograms is None:
            return None
        found += histograms
    return _by_name(found)


def _by_name(reports: Iterable[records.HistogramReport]) -> _Part:
    found: dict[str, list[records.HistogramReport]] = {}
    for report in reports:
        found.setdefault(report["metric"], []).append(report)
    return found


@lru_cache(maxsize=MOST_OF_A_NAME)
def _decoded(hdr_v2: str, count: int) -> Histogram:
    # A running load is looked at each second, with all seconds before.
    try:
        return decode({"hdr_v2": hdr_v2, "count": count})
    except DamagedHistogram:
        return EMPTY  # counted where the whole test's histograms are read


def _has(row: records.LabelReport | records.LabelProgress, tags: Mapping[str, str]) -> bool:
    return has_tags(row["name"], row.get("tags") or {}, tags)


def has_tags(name: str, own: Mapping[str, str], tags: Mapping[str, str]) -> bool:
    """Whether requests of a name with their own tags have all of these; a group's path may lack the colons in front."""
    known = {**own, "name": name}
    wanted = ((name, value) for name, value in tags.items() if name != "check")
    return all(known.get(name) in (value, f"::{value}") for name, value in wanted)


def _of_labels(
    labels: list[tuple[records.LabelReport, records.PopulationReport]],
    figure: str,
    tags: Mapping[str, str],
    seconds: _Seconds,
) -> dict[str, Metric]:
    rows = [row for row, _ in labels]
    ended, failed = sum(row["ended"] for row in rows), sum(row["failed"] for row in rows)
    length_s = max((_length_s(population) for _, population in labels), default=0.0)
    checks = [one for row in rows for one in row["checks"] if tags.get("check") in (None, one["name"])]
    passed = sum(one["passed"] for one in checks)
    shares = {
        "error_ratio": (failed, ended),
        "checks_ratio": (passed, passed + sum(one["failed"] for one in checks)),
    }
    if figure in shares:
        return {figure: share_metric(*shares[figure])}
    counted = {
        "requests": (ended, "count"),
        "requests_per_s": (_share(ended, length_s), "1/s"),
        "bytes_sent": (sum(row["sent_bytes"] for row in rows), "bytes"),
        "bytes_received": (sum(row["received_bytes"] for row in rows), "bytes"),
    }
    if figure not in counted:
        return _times(figure, [one for row in rows for one in row["histograms"]], seconds)
    value, unit = counted[figure]
    return {figure: Metric(value if rows else None, unit)}


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _of_groups(rows: list[records.PopulationReport], figure: str, seconds: _Seconds) -> dict[str, Metric]:
    counts = {"iterations": ("completed", "failed"), "iterations_dropped": ("dropped",)}.get(figure)
    if counts is None:
        return _times(figure, [one for row in rows for one in row["histograms"]], seconds)
    found = [value for row in rows for name, value in row["iterations"].items() if name in counts]
    return {figure: Metric(sum(one for one in found if isinstance(one, int)) if rows else None, "count")}


def _times(figure: str, reports: Iterable[records.HistogramReport], seconds: _Seconds) -> dict[str, Metric]:
    match = _TIME.fullmatch(figure)
    if match is None:
        return {figure: Metric(None, "us")}
    histogram = {"transaction": "latency"}.get(match[1], match[1])
    sample = merged_sample(reports, histogram)
    found = times(match[1], sample, dict.fromkeys((match[2], *STATISTICS)))
    parts = seconds.of(histogram)
    bounded = {
        name: with_interval(metric, sample, asked.percentile / 100, parts, seconds.is_running)
        for name, metric in found.items()
        if (asked := histogram_of(name)) is not None
    }
    return found | bounded


def _length_s(population: records.PopulationReport) -> float:
    start_ns, end_ns = population.get("start_ns"), population.get("end_ns")
    return (end_ns - start_ns) / 1e9 if start_ns is not None and end_ns is not None else 0.0


STATISTICS = ("min", "mean", "p50", "p90", "p95", "p99", "max")
"""Statistics of times."""
_TIME = re.compile(r"([a-z_]+)_(min|mean|max|p\d+)_us")
