"""Prints an http test in the layout of wrk 4.1 with `--latency`, for scripts that parse that.

The figures are Leadline's: latencies are not made up after the run, no answer is left out for being slow, and rates are
those of the steady window. Only the layout is wrk's, down to its units: the next larger from 85 % of it on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from leadline.analysis.model import Distribution, TestResult
from leadline.report.request import HttpRequested, error_kinds

_LISTED = (50.0, 75.0, 90.0, 99.0)
_US_PER_S = 1e6


def wrk_text(result: TestResult, asked: HttpRequested) -> str:
    """Everything that wrk prints; what is not known is 0, as this layout has no other word."""
    latency, rates = result.distribution("latency"), result.distribution("thread_rate")
    length_s = (result.window.last_end_ns - result.window.first_start_ns) / 1e9 if result.window is not None else 0.0
    bits_per_s = _value(result, "transfer_bps")
    lines = [
        f"Running {_seconds(asked.duration_s, 0)} test @ {asked.url}",
        f"  {asked.threads} threads and {asked.connections} connections",
        "  Thread Stats   Avg      Stdev     Max   +/- Stdev",
        _spread("Latency", latency, _time),
        _spread("Req/Sec", rates, _metric),
        "  Latency Distribution",
        *(f"{percentile:7.0f}%{_padded(_time(_at(latency, percentile)), 10)}" for percentile in _LISTED),
        f"  {_value(result, 'requests'):.0f} requests in {_time(length_s * _US_PER_S)}, "
        f"{_binary(_value(result, 'bytes_received'))}B read",
    ]
    kinds = error_kinds(result.errors)
    if kinds.connect or kinds.read or kinds.write or kinds.timeout:
        lines.append(
            f"  Socket errors: connect {kinds.connect}, read {kinds.read}, write {kinds.write}, timeout {kinds.timeout}"
        )
    refused = _value(result, "status_4xx") + _value(result, "status_5xx")
    if refused:
        lines.append(f"  Non-2xx or 3xx responses: {refused:.0f}")
    lines.append(f"Requests/sec: {_value(result, 'requests_per_s'):9.2f}")
    lines.append(f"Transfer/sec: {_binary(bits_per_s / 8):>10}B")
    return "\n".join(lines) + "\n"


def _spread(name: str, found: Distribution | None, write: Callable[[float], str]) -> str:
    mean, stdev, highest, within = (
        (found.mean or 0.0, found.stdev or 0.0, found.max or 0.0, found.within_stdev or 0.0)
        if found is not None
        else (0.0, 0.0, 0.0, 0.0)
    )
    cells = _padded(write(mean), 8) + _padded(write(stdev), 10) + _padded(write(highest), 9)
    return f"    {name:<10}{cells}{within * 100:8.2f}%"


def _padded(text: str, width: int) -> str:
    """To the right, the letters of a unit outside of the column: numbers stand below one another."""
    outside = 2 - sum(letter.isalpha() for letter in text[-2:])
    return text.rjust(width - outside) + " " * outside


def _at(found: Distribution | None, percentile: float) -> float:
    return found.percentiles.get(percentile, 0.0) if found is not None else 0.0


def _value(result: TestResult, metric: str) -> float:
    found = result.metrics.get(metric)
    return found.value or 0.0 if found is not None else 0.0


def _time(us: float) -> str:
    return _seconds(us / _US_PER_S, 2) if us >= _US_PER_S else _scaled(us, 1000.0, ("us", "ms"), 2)


def _seconds(seconds: float, digits: int) -> str:
    return _scaled(seconds, 60.0, ("s", "m"), digits)


def _metric(value: float) -> str:
    return _scaled(value, 1000.0, ("", "k", "M", "G", "T"), 2)


def _binary(octets: float) -> str:
    return _scaled(octets, 1024.0, ("", "K", "M", "G", "T"), 2)


def _scaled(value: float, step: float, units: Sequence[str], digits: int) -> str:
    unit = 0
    while unit + 1 < len(units) and value >= step * 0.85:
        value, unit = value / step, unit + 1
    return f"{value:.{digits}f}{units[unit]}"
