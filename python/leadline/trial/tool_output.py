"""Reads the figure of a second tool from what it printed: iperf3's JSON; the text of wrk, ab and h2load. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from leadline.errors import LeadlineError


@dataclass(frozen=True, slots=True)
class ToolFigure:
    """What a tool measured: requests per second, or bits of payload per second."""

    per_s: float
    failed: int
    """Requests without a good answer, by the tool's own count; 0 of tools that count none."""
    seconds: float | None
    """How long it measured; None if it does not say."""


def read_figure(tool: str, output: str) -> ToolFigure:
    """The figure in the tool's output.

    Raises:

        LeadlineError: the tool reports an error, or there is no figure.
    """
    return _READERS[tool](output)


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
    begin = output.find("{")
    try:
        document, _ = json.JSONDecoder().raw_decode(output[max(0, begin) :])
    except ValueError:
        raise _no_figure("iperf3", output) from None
    if document.get("error"):
        raise LeadlineError(f"iperf3: {document['error']}")
    received = document.get("end", {}).get("sum_received", {})
    if not isinstance(received.get("bits_per_second"), int | float):
        raise _no_figure("iperf3", output)
    return ToolFigure(float(received["bits_per_second"]), 0, received.get("seconds"))


def _number(tool: str, pattern: str, output: str) -> float:
    found = re.search(pattern, output)
    if found is None:
        raise _no_figure(tool, output)
    return float(found[1])


def _no_figure(tool: str, output: str) -> LeadlineError:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return LeadlineError(f"{tool} printed no figure; its last line: {lines[-1] if lines else 'none'}")


_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_READERS: Mapping[str, Callable[[str], ToolFigure]] = {"wrk": _wrk, "ab": _ab, "h2load": _h2load, "iperf3": _iperf3}
_VERSIONS = {
    "wrk": r"^wrk (?:debian/)?(\S+)",
    "ab": r"ApacheBench, Version (\S+)",
    "h2load": r"nghttp2/(\S+)",
    "iperf3": r"^iperf (\S+)",
}
