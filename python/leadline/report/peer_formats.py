"""Prints an http test in the layout of wrk 4.1 with `--latency` or of ApacheBench 2.3 (httpd 2.4), for scripts that
parse these.

The figures are Leadline's: latencies are not corrected after the run, slow answers are not omitted, and rates are
those of the steady window. Only the layout is the other program's: wrk's units, where the next larger unit begins at
85 %, and ab's whole milliseconds. The connect time is as in ab: per request, 0 if a connection already existed.
Unknown fields (`Server Software`) stay empty. Errors are counted by the kinds of both programs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from leadline import __version__
from leadline.analysis.model import Distribution, TestResult

_WRK_PERCENTILES = (50.0, 75.0, 90.0, 99.0)
_US_PER_S = 1e6
_AB_PERCENTILES = (50.0, 66.0, 75.0, 80.0, 90.0, 95.0, 98.0, 99.0)
_PORTS = {"http": 80, "https": 443}
_NOTHING = Distribution("", 0, None, None, None, None, None, {})


@dataclass(frozen=True, slots=True)
class HttpRequested:
    """One http load, as given on the command line."""

    url: str
    connections: int
    threads: int
    duration_s: float
    keep_alive: bool
    has_body: bool
    paced: bool = False
    """Whether requests have their own rate, instead of following the answers."""

    @property
    def parts(self) -> SplitResult:
        """The URL, split."""
        return urlsplit(self.url)


@dataclass(frozen=True, slots=True)
class ErrorKinds:
    """Failures by the kinds of wrk and ab."""

    connect: int
    read: int
    write: int
    timeout: int


def wrk_text(result: TestResult, asked: HttpRequested) -> str:
    """The whole output of wrk; unknown values are 0, since this layout has no other notation."""
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
        *(f"{percentile:7.0f}%{_padded(_time(_at(latency, percentile)), 10)}" for percentile in _WRK_PERCENTILES),
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


def ab_text(result: TestResult, asked: HttpRequested) -> str:
    """The whole stdout output of ab; unknown values are 0, since this layout has no other notation."""
    host = asked.parts.hostname or ""
    lines = [
        f"This is ApacheBench, Version 2.3 <its layout only: measured by Leadline {__version__}>",
        "Times count from when a request was due; docs/output.md says where figures differ from ab's",
        "Rates are those of the steady window",
        "",
        f"Benchmarking {host} (be patient).....done",
        "",
        "",
        *_subject(result, asked, host),
        "",
        *_totals(result, asked),
        "",
        *_connection_times(result),
        *_percentages(result),
    ]
    return "\n".join(lines) + "\n"


def error_kinds(errors: Mapping[str, int]) -> ErrorKinds:
    """The kind of each failure, by its name: failures before the request is out, sends, waits, and others."""
    found = dict.fromkeys(("connect", "read", "write", "timeout"), 0)
    for name, count in errors.items():
        if name.startswith("status_"):
            continue
        found[_kind(name)] += count
    return ErrorKinds(**found)


def _spread(name: str, found: Distribution | None, write: Callable[[float], str]) -> str:
    mean, stdev, highest, within = (
        (found.mean or 0.0, found.stdev or 0.0, found.max or 0.0, found.within_stdev or 0.0)
        if found is not None
        else (0.0, 0.0, 0.0, 0.0)
    )
    cells = _padded(write(mean), 8) + _padded(write(stdev), 10) + _padded(write(highest), 9)
    return f"    {name:<10}{cells}{within * 100:8.2f}%"


def _padded(text: str, width: int) -> str:
    """Right-aligned, with the unit's letters outside of the column, so that numbers are aligned."""
    outside = 2 - sum(letter.isalpha() for letter in text[-2:])
    return text.rjust(width - outside) + " " * outside


def _at(found: Distribution | None, percentile: float) -> float:
    return found.percentiles.get(percentile, 0.0) if found is not None else 0.0


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


def _subject(result: TestResult, asked: HttpRequested, host: str) -> list[str]:
    parts = asked.parts
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    bodies, answers = _value(result, "body_bytes"), _value(result, "requests")
    length = "Variable" if answers and bodies % answers else f"{bodies / answers if answers else 0:.0f} bytes"
    return [
        _pair("Server Software:", ""),
        _pair("Server Hostname:", host),
        _pair("Server Port:", str(parts.port or _PORTS.get(parts.scheme, 0))),
        *([_pair("TLS Server Name:", host)] if parts.scheme == "https" else []),
        "",
        _pair("Document Path:", path),
        _pair("Document Length:", length),
    ]


def _totals(result: TestResult, asked: HttpRequested) -> list[str]:
    kinds = error_kinds(result.errors)
    failed = kinds.connect + kinds.read + kinds.timeout
    answers, received, sent = (_value(result, name) for name in ("requests", "bytes_received", "bytes_sent"))
    succeeded = result.value("status_2xx")
    other = 0.0 if succeeded is None else answers - succeeded
    reopened = max(0.0, _value(result, "connections_opened") - asked.connections)
    window = result.window
    length_s = (window.last_end_ns - window.first_start_ns) / 1e9 if window is not None else 0.0
    rate = _value(result, "requests_per_s")
    kilobytes_per_s = _value(result, "transfer_bps") / 8 / 1024
    sent_per_s = kilobytes_per_s * sent / received if received else 0.0
    lines = [
        _pair("Concurrency Level:", str(asked.connections)),
        _pair("Time taken for tests:", f"{length_s:.3f} seconds"),
        _pair("Complete requests:", f"{answers:.0f}"),
        _pair("Failed requests:", f"{failed}"),
    ]
    if failed:
        lines.append(f"   (Connect: {kinds.connect}, Receive: {kinds.read}, Length: 0, Exceptions: {kinds.timeout})")
    if kinds.write:
        lines.append(_pair("Write errors:", f"{kinds.write}"))
    if other > 0:
        lines.append(_pair("Non-2xx responses:", f"{other:.0f}"))
    if asked.keep_alive:
        lines.append(_pair("Keep-Alive requests:", f"{max(0.0, answers - reopened):.0f}"))
    lines.append(_pair("Total transferred:", f"{received:.0f} bytes"))
    if asked.has_body:
        lines.append(_pair("Total body sent:", f"{sent:.0f}"))
    lines.append(_pair("HTML transferred:", f"{_value(result, 'body_bytes'):.0f} bytes"))
    if length_s > 0:
        each_ms = 1e3 / rate if rate else 0.0
        # Little's law applies only if every connection always has a request in flight; with a rate that is not certain.
        waited_ms = _value(result, "latency_mean_us") / 1e3 if asked.paced else each_ms * asked.connections
        lines += [
            _pair("Requests per second:", f"{rate:.2f} [#/sec] (mean)"),
            _pair("Time per request:", f"{waited_ms:.3f} [ms] (mean)"),
            _pair("Time per request:", f"{each_ms:.3f} [ms] (mean, across all concurrent requests)"),
            _pair("Transfer rate:", f"{kilobytes_per_s:.2f} [Kbytes/sec] received"),
        ]
        if asked.has_body:
            lines.append(_pair("", f"{sent_per_s:.2f} kb/s sent"))
            lines.append(_pair("", f"{sent_per_s + kilobytes_per_s:.2f} kb/s total"))
    return lines


def _connection_times(result: TestResult) -> list[str]:
    if not _value(result, "requests"):
        return []
    service = result.distribution("service") or result.distribution("latency") or _NOTHING
    rows = {
        "Connect:": _connecting(result),
        "Processing:": service,
        "Waiting:": result.distribution("first_byte") or _NOTHING,
        "Total:": result.distribution("latency") or service,
    }
    return [
        "Connection Times (ms)",
        "              min  mean[+/-sd] median   max",
        *(f"{title:<12}{_row(found)}" for title, found in rows.items()),
    ]


def _connecting(result: TestResult) -> Distribution:
    """Connect times over all requests: 0 for those with an existing connection."""
    connect = result.distribution("connect") or _NOTHING
    requests = max(int(_value(result, "requests")), connect.count)
    if not requests or connect.mean is None or connect.stdev is None:
        return _NOTHING
    share = connect.count / requests
    mean = connect.mean * share
    stdev = math.sqrt(max(0.0, share * (connect.stdev**2 + connect.mean**2) - mean**2))
    every = share == 1.0
    percentiles = {50.0: connect.percentiles.get(50.0, 0.0) if every else 0.0}
    least = connect.min if every else 0.0
    return Distribution("connect", requests, least, mean, stdev, None, connect.max, percentiles)


def _row(found: Distribution) -> str:
    median = found.percentiles.get(50.0)
    stdev_ms = (found.stdev or 0.0) / 1e3
    return f"{_ms(found.min):5d} {_ms(found.mean):4d} {stdev_ms:5.1f} {_ms(median):6d} {_ms(found.max):7d}"


def _percentages(result: TestResult) -> list[str]:
    latency = result.distribution("latency")
    if latency is None or latency.count < 2:
        return []
    return [
        "",
        "Percentage of the requests served within a certain time (ms)",
        *(f"  {percentile:.0f}%  {_ms(latency.percentiles.get(percentile)):5d}" for percentile in _AB_PERCENTILES),
        f" 100%  {_ms(latency.max):5d} (longest request)",
    ]


def _pair(name: str, value: str) -> str:
    return f"{name:<24}{value}"


def _ms(us: float | None) -> int:
    """Whole milliseconds, rounded half up."""
    return int(((us or 0.0) + 500) // 1000)


def _value(result: TestResult, metric: str) -> float:
    """The figure as the layouts have it, which know no unknown ones."""
    return result.value(metric) or 0.0


def _kind(name: str) -> str:
    if "timeout" in name:
        return "timeout"
    if name.startswith(_CONNECTING) or name.endswith("_unreachable"):
        return "connect"
    return "write" if name in _SENDING else "read"


_CONNECTING = (
    "connect_",
    "connection_refused",
    "dns",
    "tls",
    "proxy",
    "address_",
    "network_",
    "refused",
    "too_many_open",
)
_SENDING = frozenset({"broken_pipe", "no_buffer_space", "message_too_long", "write"})
