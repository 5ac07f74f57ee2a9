"""Reads what load tools print: the JSON of iperf3, k6 and Leadline, the text of wrk, ab and h2load, the CSV of JMeter.

`read_figure` reads the one figure that two tools are compared by, `read_figures` all that a known truth is compared by.
Pure.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from leadline.errors import LeadlineError


@dataclass(frozen=True, slots=True)
class ToolFigure:
    """What a tool measured: requests per second, or bits of payload per second."""

    per_s: float
    failed: int
    """Requests without a good answer, by the tool's own count; 0 of tools that count none."""
    seconds: float | None
    """How long it measured; None if it does not say."""


Bound = Literal["at most", "at least", "not known"] | None


@dataclass(frozen=True, slots=True)
class Reported:
    """A figure as a tool prints it."""

    value: float | str | None
    """None if the tool does not print it."""
    bound: Bound = None
    """That it prints the value as a bound of the true one, or as one that is not known."""


def read_figure(tool: str, output: str) -> ToolFigure:
    """The figure in the tool's output.

    Raises:

        LeadlineError: the tool reports an error, or there is no figure.
    """
    return _READERS[tool](output)


def read_figures(tool: str, output: str) -> Mapping[str, Reported]:
    """The figures in the tool's output by Leadline's names: times in µs, rates in bit/s and 1/s. `requests` are
    complete answers, `bad_statuses` those with a status of 4xx and 5xx, `failed` what had no complete answer.

    Raises:
        LeadlineError: the tool reports an error, or there is no figure.
    """
    return _ALL_READERS[tool](output)


def read_version(tool: str, output: str) -> str | None:
    """The version that the tool prints of itself; None if it is not recognised."""
    found = re.search(_VERSIONS[tool], output)
    return found[1] if found else None


def _wrk(output: str) -> ToolFigure:
    per_s = _number("wrk", r"Requests/sec:\s+([\d.]+)", output)
    bad = re.search(r"Non-2xx or 3xx responses: (\d+)", output)
    errors = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", output)
    failed = (int(bad[1]) if bad else 0) + (sum(map(int, errors.groups())) if errors else 0)
    length = re.search(r"requests in ([\d.]+)(us|ms|s|m|h),", output)
    return ToolFigure(per_s, failed, float(length[1]) * _SECONDS[length[2]] if length else None)


def _ab(output: str) -> ToolFigure:
    per_s = _number("ab", r"Requests per second:\s+([\d.]+)", output)
    bad = re.search(r"Non-2xx responses:\s+(\d+)", output)
    # ab counts answers of another length than the first one's as failed.
    failed = int(_number("ab", r"Failed requests:\s+(\d+)", output)) + (int(bad[1]) if bad else 0)
    return ToolFigure(per_s, failed, _number("ab", r"Time taken for tests:\s+([\d.]+) seconds", output))


def _h2load(output: str) -> ToolFigure:
    per_s = _number("h2load", r"finished in [^,]+, ([\d.]+) req/s", output)
    counts = re.search(r"(\d+) failed, (\d+) errored, (\d+) timeout", output)
    bad = re.search(r"(\d+) 4xx, (\d+) 5xx", output)
    # `failed` includes what is errored, timed out, or has a status of 4xx and 5xx.
    failed = max(int(counts[1]) if counts else 0, sum(map(int, bad.groups())) if bad else 0)
    length = re.search(r"finished in ([\d.]+)(us|ms|s|m|h),", output)
    return ToolFigure(per_s, failed, float(length[1]) * _SECONDS[length[2]] if length else None)


def _iperf3(output: str) -> ToolFigure:
    received = _iperf3_end(output).get("sum_received", {})
    if not isinstance(received.get("bits_per_second"), int | float):
        raise _no_figure("iperf3", output)
    return ToolFigure(float(received["bits_per_second"]), 0, received.get("seconds"))


def _iperf3_end(output: str) -> dict[str, Any]:
    document = _document("iperf3", output)
    if document.get("error"):
        raise LeadlineError(f"iperf3: {document['error']}")
    end: dict[str, Any] = document.get("end", {})
    return end


def _document(tool: str, output: str) -> dict[str, Any]:
    """The first JSON object of an output."""
    begin = output.find("{")
    try:
        document, _ = json.JSONDecoder().raw_decode(output[max(0, begin) :])
    except ValueError:
        raise _no_figure(tool, output) from None
    found: dict[str, Any] = document
    return found


def _all_of_wrk(output: str) -> Mapping[str, Reported]:
    per_s = _number("wrk", r"Requests/sec:\s+([\d.]+)", output)
    bad = re.search(r"Non-2xx or 3xx responses: (\d+)", output)
    errors = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", output)
    longest = re.search(r"^ +Latency +\S+ +\S+ +([\d.]+)(us|ms|s|m|h) ", output, re.M)
    return {
        "requests": Reported(_number("wrk", r"(\d+) requests in", output)),
        "requests_per_s": Reported(per_s),
        "bad_statuses": Reported(float(bad[1]) if bad else 0.0),
        "failed": Reported(float(sum(map(int, errors.groups()))) if errors else 0.0),
        "latency_p50_us": Reported(_time_us(re.search(r"^ +50%\s+([\d.]+)(us|ms|s|m|h)$", output, re.M))),
        "latency_p99_us": Reported(_time_us(re.search(r"^ +99%\s+([\d.]+)(us|ms|s|m|h)$", output, re.M))),
        "latency_max_us": Reported(_time_us(longest)),
    }


def _all_of_ab(output: str) -> Mapping[str, Reported]:
    bad = re.search(r"Non-2xx responses:\s+(\d+)", output)

    def percentile(row: str) -> Reported:
        found = re.search(rf"^ +{row}%\s+(\d+)", output, re.M)
        return Reported(float(found[1]) * 1e3 if found else None)

    return {
        "requests": Reported(_number("ab", r"Complete requests:\s+(\d+)", output)),
        "requests_per_s": Reported(_number("ab", r"Requests per second:\s+([\d.]+)", output)),
        "bad_statuses": Reported(float(bad[1]) if bad else 0.0),
        "failed": Reported(_number("ab", r"Failed requests:\s+(\d+)", output)),
        "latency_p50_us": percentile("50"),
        "latency_p99_us": percentile("99"),
        "latency_max_us": percentile("100"),
    }


def _all_of_h2load(output: str) -> Mapping[str, Reported]:
    per_s = _number("h2load", r"finished in [^,]+, ([\d.]+) req/s", output)
    statuses = re.search(r"(\d+) 4xx, (\d+) 5xx", output)
    longest = re.search(r"time for request:\s+\S+\s+([\d.]+)(us|ms|s|m|h) ", output)
    return {
        "requests": Reported(_number("h2load", r"(\d+) done", output)),
        "requests_per_s": Reported(per_s),
        "bad_statuses": Reported(float(sum(map(int, statuses.groups()))) if statuses else None),
        "failed": Reported(_number("h2load", r"(\d+) errored", output)),
        "latency_max_us": Reported(_time_us(longest)),
    }


def _all_of_iperf3(output: str) -> Mapping[str, Reported]:
    end = _iperf3_end(output)
    received, total = end.get("sum_received", {}), end.get("sum", {})
    if "lost_packets" not in total:
        return {"throughput_bps": Reported(_iperf3(output).per_s)}
    out_of_order = [stream["udp"].get("out_of_order") for stream in end["streams"]]
    return {
        "throughput_bps": Reported(received.get("bits_per_second")),
        "sent": Reported(end["sum_sent"]["packets"]),
        "lost": Reported(total["lost_packets"]),
        "reordered": Reported(None if None in out_of_order else sum(out_of_order)),
    }


def _all_of_k6(output: str) -> Mapping[str, Reported]:
    """The document of `handleSummary`; `bad_statuses` and `failed` are counters of the script, absent while 0."""
    metrics = _document("k6", output).get("metrics", {})
    if "http_reqs" not in metrics:
        raise _no_figure("k6", output)

    def count(name: str) -> float:
        return float(metrics[name]["values"]["count"]) if name in metrics else 0.0

    times_ms = metrics["http_req_duration"]["values"]
    return {
        "requests": Reported(count("http_reqs") - count("failed")),
        "requests_per_s": Reported(metrics["http_reqs"]["values"]["rate"]),
        "bad_statuses": Reported(count("bad_statuses")),
        "failed": Reported(count("failed")),
        "latency_p50_us": Reported(times_ms["med"] * 1e3),
        "latency_p99_us": Reported(times_ms["p(99)"] * 1e3),
        "latency_max_us": Reported(times_ms["max"] * 1e3),
    }


def _all_of_jmeter(output: str) -> Mapping[str, Reported]:
    """A results file (JTL) as CSV, one row for each request; times are whole milliseconds."""
    rows = [row for row in csv.DictReader(output.splitlines()) if (row.get("elapsed") or "").isdigit()]
    if not rows:
        raise _no_figure("jmeter", output)
    codes = [row["responseCode"] for row in rows]
    answered = [row for row, code in zip(rows, codes, strict=True) if code.isdigit()]
    times_ms = sorted(int(row["elapsed"]) for row in answered)
    begins_ms = [int(row["timeStamp"]) for row in rows]
    end_ms = max(begin + int(row["elapsed"]) for begin, row in zip(begins_ms, rows, strict=True))

    def at(share: float) -> Reported:
        return Reported(times_ms[max(0, math.ceil(share * len(times_ms)) - 1)] * 1e3 if times_ms else None)

    return {
        "requests": Reported(float(len(answered))),
        "requests_per_s": Reported(len(rows) / (end_ms - min(begins_ms)) * 1e3),
        "bad_statuses": Reported(float(sum(code.isdigit() and int(code) >= _BAD_STATUS for code in codes))),
        "failed": Reported(float(len(rows) - len(answered))),
        "latency_p50_us": at(0.5),
        "latency_p99_us": at(0.99),
        "latency_max_us": at(1.0),
    }


def _all_of_leadline(output: str) -> Mapping[str, Reported]:
    document = _document("leadline", output)
    if "error" in document and "metrics" not in document:
        raise LeadlineError(f"leadline: {document['error']['message']}")
    found = {name: Reported(metric["value"], metric["bound"]) for name, metric in document.get("metrics", {}).items()}
    if "status_5xx" in found:
        statuses = [found[name].value for name in ("status_4xx", "status_5xx")]
        found["bad_statuses"] = Reported(sum(value for value in statuses if isinstance(value, int | float)))
        found["failed"] = Reported(float(sum(document["errors"].values())))
    found["limited_by"] = Reported((document.get("limit") or {}).get("by"))
    return found


def _time_us(found: re.Match[str] | None) -> float | None:
    """The time in the first two groups of a match: a number and its unit."""
    return float(found[1]) * _SECONDS[found[2]] * 1e6 if found else None


def _number(tool: str, pattern: str, output: str) -> float:
    found = re.search(pattern, output)
    if found is None:
        raise _no_figure(tool, output)
    return float(found[1])


def _no_figure(tool: str, output: str) -> LeadlineError:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return LeadlineError(f"{tool} printed no figure; its last line: {lines[-1] if lines else 'none'}")


_BAD_STATUS = 400
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_READERS: Mapping[str, Callable[[str], ToolFigure]] = {"wrk": _wrk, "ab": _ab, "h2load": _h2load, "iperf3": _iperf3}
_ALL_READERS: Mapping[str, Callable[[str], Mapping[str, Reported]]] = {
    "leadline": _all_of_leadline,
    "wrk": _all_of_wrk,
    "ab": _all_of_ab,
    "h2load": _all_of_h2load,
    "iperf3": _all_of_iperf3,
    "k6": _all_of_k6,
    "jmeter": _all_of_jmeter,
}
_VERSIONS = {
    "wrk": r"^wrk (?:debian/)?(\S+)",
    "ab": r"ApacheBench, Version (\S+)",
    "h2load": r"nghttp2/(\S+)",
    "iperf3": r"^iperf (\S+)",
    "k6": r"^k6 v?(\S+)",
    "jmeter": r"\\ (\d+\.\d[\d.]*)\s",
}
