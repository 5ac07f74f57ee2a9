"""Writes a measurement's interval histograms as an HdrHistogram log, format 1.3, from its journal's entries.

Each interval and metric is one line: latency without a tag, the others tagged with their names (`warmup_*` too).
Histograms are copied as the agent encoded them. Values that are only in the final figures form one last interval, so
that the lines of a metric add up to its total.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np
from hdrh.histogram import HdrHistogram

from leadline import __version__
from leadline.analysis.histograms import EMPTY, DamagedHistogram, Histogram, decode, deflated, merge, remainder
from leadline.analysis.metrics import CENSORED
from leadline.quantities import counted

UNTAGGED = "latency"

_LEGEND = '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"'
# HdrHistogram's own unit of the column: values are ns, their maxima are written in ms.
_NS_PER_MS = 1e6
# As the agent records: 1 ns to an hour, three digits.
_HIGHEST_NS = 3_600_000_000_000
_DIGITS = 3


@dataclass(slots=True)
class _Metric:
    """The lines of one metric of one host so far."""

    end_ns: int
    written: Histogram = EMPTY
    lines: list[tuple[float, str]] = field(default_factory=list)


def hdr_log(entries: Iterable[Mapping[str, Any]], epoch_ns: int) -> str:
    """The text of the log. `epoch_ns` is added to an instant of the controller's clock to get Unix time."""
    start_ns, metrics, unreadable = _intervals(entries)
    lines = sorted((line for metric in metrics for line in metric.lines), key=lambda line: line[0])
    start_s = (start_ns + epoch_ns) / 1e9
    date = datetime.fromtimestamp(start_s, UTC).strftime("%a %b %d %H:%M:%S UTC %Y")
    head = [
        f"#[Logged with leadline {__version__}]",
        "#[Histogram log format version 1.3]",
        f"#[StartTime: {start_s:.3f} (seconds since epoch), {date}]",
        f"#[BaseTime: {start_s:.3f} (seconds since epoch)]",
        f"#[Lines without a tag: latency of answered requests; Tag={UNTAGGED}{CENSORED}: ages of unanswered ones]",
        *([f"#[{counted(unreadable, 'histogram')} could not be read: values are missing]"] if unreadable else []),
        _LEGEND,
    ]
    return "\n".join([*head, *(text for _, text in lines)]) + "\n"


def _intervals(entries: Iterable[Mapping[str, Any]]) -> tuple[int, Iterable[_Metric], int]:
    """The start of the load, each metric's lines, and how many histograms could not be read."""
    start_ns = unreadable = 0
    offsets_ns: dict[str, int] = {}
    metrics: dict[tuple[str, str], _Metric] = {}
    for entry in entries:
        match entry.get("record"):
            case "clock":
                offsets_ns[entry["host"]] = entry["offset_ns"]
            case "test-begin":
                start_ns = entry.get("start_at_ns") or 0
        event = entry.get("event") or {}
        if event.get("type") not in ("progress", "finished"):
            continue
        host, final = entry["host"], event["type"] == "finished"
        end_ns = event["t_ns"] - offsets_ns.get(host, 0)
        for report in event["outcome"]["histograms"] if final else event["histograms"]:
            metric = metrics.setdefault((host, report["metric"]), _Metric(start_ns))
            try:
                read = decode(report)
            except DamagedHistogram:
                unreadable += 1
                continue
            for since_ns, histogram, encoded in _new(metric, read, report, end_ns, final):
                start_s, length_s = (since_ns - start_ns) / 1e9, (end_ns - since_ns) / 1e9
                metric.lines.append((start_s, _line(report["metric"], start_s, length_s, histogram, encoded)))
    return start_ns, metrics.values(), unreadable


def _new(
    metric: _Metric, histogram: Histogram, report: Mapping[str, Any], end_ns: int, final: bool
) -> Iterator[tuple[int, Histogram, str]]:
    """The new values of a report, their start, and their encoding; none if it has no new values."""
    encoded = deflated(report["hdr_v2"])
    if final:
        histogram = remainder(histogram, metric.written)
        if not histogram.count:
            return
        encoded = _encoded(histogram)
    since_ns, metric.end_ns = min(metric.end_ns, end_ns), end_ns
    metric.written = merge((metric.written, histogram))
    yield since_ns, histogram, encoded


def _line(metric: str, start_s: float, length_s: float, histogram: Histogram, encoded: str) -> str:
    tag = "" if metric == UNTAGGED else f"Tag={metric},"
    highest_ms = float(histogram.highs_ns[-1]) / _NS_PER_MS if histogram.count else 0.0
    return f"{tag}{start_s:.3f},{length_s:.3f},{highest_ms:.3f},{encoded}"


def _encoded(histogram: Histogram) -> str:
    """The histogram, encoded again bucket by bucket."""
    made = HdrHistogram(1, _HIGHEST_NS, _DIGITS)
    for low, count in zip(np.minimum(histogram.lows_ns, _HIGHEST_NS), histogram.counts, strict=True):
        made.record_value(int(low), int(count))
    return str(made.encode().decode("ascii"))
