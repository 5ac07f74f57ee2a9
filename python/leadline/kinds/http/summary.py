"""Draws one http test for a terminal of 80 columns: rates, requests by outcome, times by phase, errors.

Draws percentiles as far as the number of samples allows, and names those that it leaves out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from leadline import quantities
from leadline.analysis.durations import DISTRIBUTION_PERCENTILES
from leadline.analysis.model import Distribution, Metric, TestResult
from leadline.report import figures
from leadline.report.figures import interval_line, percentile_cell, row_title, time_cell

_PERCENTILES = (50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 99.99, 99.999)
_BRIEF_PERCENTILES = (50.0, 90.0, 99.0, 99.9)
_WHOLE = {"latency": "latency", "service": "service", "late": "late"}
_PHASES = {
    "dns": "DNS",
    "connect": "connect",
    "tls_full": "TLS, full",
    "tls_resumed": "TLS, resumed",
    "first_byte": "first byte",
    "transfer": "transfer",
    "kernel_wait": "kernel wait",
}


def http_rows(result: TestResult) -> list[tuple[str, str]]:
    """The outcome of the requests and the transferred bytes, as pairs of a name and a line."""
    metrics = result.metrics
    rows = [("requests", _fates(metrics))]
    seen = [digit for digit in range(1, 6) if _value(metrics, _status(digit))]
    statuses = [f"{digit}xx {_count(metrics, _status(digit))}" for digit in seen]
    if statuses:
        rows.append(("status", ", ".join(statuses)))
    if (ratio := _value(metrics, "error_ratio")) is not None:
        rows.append(("error ratio", f"{quantities.share(ratio)}{_unlisted_failures(result, ratio)}"))
    rows.append(("received", _transfer(metrics)))
    rows.append(("connections", _connections(result)))
    rates = result.distribution("thread_rate")
    if rates is not None and rates.mean is not None:
        spread = f"stdev {quantities.per_second(rates.stdev)}, max {quantities.per_second(rates.max)}"
        within = f"{quantities.share(rates.within_stdev)} within ±1 stdev"
        mean = quantities.per_second(rates.mean)
        rate = metrics.get("requests_per_s")
        rows.append(("per thread", f"{mean if rate is None else figures.bounded(mean, rate)}, {spread}, {within}"))
    return rows


def brief_rows(result: TestResult) -> list[tuple[str, str]]:
    """What became of the requests, with counts that are not 0, the bytes, and the percentiles that all tests have."""
    metrics = result.metrics
    failures = {"unanswered": "unanswered", "unsent": "unsent"}
    failures |= {_status(digit): f"{digit}xx" for digit in (1, 3, 4, 5)}
    counts = [f"{_count(metrics, name)} {word}" for name, word in failures.items() if _value(metrics, name)]
    rows = [("requests", ", ".join([f"{_count(metrics, 'requests')} answered", *counts]))]
    if ratio := _value(metrics, "error_ratio"):
        rows.append(("error ratio", f"{quantities.share(ratio)}{_unlisted_failures(result, ratio)}"))
    rows += [("received", _transfer(metrics)), ("connections", _connections(result))]
    whole = _named(result, _WHOLE)
    rows += [(title, _brief_times(found)) for title, found in whole.items()]
    if whole and (bounds := _censored(whole)):
        rows.append(("", bounds))
    return rows


def _brief_times(found: Distribution) -> str:
    """`mean 244 µs, p50 68.5 µs, p99 4.24 ms, max 14.1 ms`, with the percentiles that were asked for."""
    wanted = sorted({*_BRIEF_PERCENTILES, *(set(found.percentiles) - set(DISTRIBUTION_PERCENTILES))})
    cells = {f"p{percentile:g}": percentile_cell(found, percentile) for percentile in wanted}
    cells = {"mean": time_cell(found, "mean"), **cells, "max": time_cell(found, "max")}
    return ", ".join(f"{title} {cell}" for title, cell in cells.items() if cell)


def http_times(result: TestResult) -> list[RenderableType]:
    """The tables of times that have values: spread, percentiles, phases."""
    whole, phases = _named(result, _WHOLE), _named(result, _PHASES)
    tables: list[RenderableType] = []
    if whole:
        tables += [_spreads(whole), *_percentiles(whole)]
        interval = interval_line("latency", result.metrics)
        said = [line for line in (interval, _left_out(whole), _censored(whole)) if line]
        tables += [Padding(Text(line, style="dim"), (0, 0, 0, 2), expand=False) for line in said]
    if phases:
        tables += [Text(""), _phases(phases)]
    return tables


def _named(result: TestResult, titles: Mapping[str, str]) -> dict[str, Distribution]:
    """The distributions with values, by their titles in a table."""
    found = {name: one for name in titles if (one := result.distribution(name)) is not None}
    return {row_title(titles[name], name, result.metrics): one for name, one in found.items()}


def phase_cells(found: Distribution) -> tuple[str, ...]:
    """Count, mean, p50, p99 (if the count is large enough) and maximum, as text."""
    median = quantities.microseconds(found.percentiles.get(50.0))
    return (
        f"{found.count:,}",
        time_cell(found, "mean"),
        quantities.at_least(median, found.is_bound(50.0)),
        percentile_cell(found, 99.0),
        time_cell(found, "max"),
    )


def phase_rows(result: TestResult) -> list[tuple[str, tuple[str, ...]]]:
    """Each phase that occurred, with its cells."""
    named = _named(result, {**_WHOLE, **_PHASES})
    return [(title, phase_cells(found)) for title, found in named.items()]


def _fates(metrics: Mapping[str, Metric]) -> str:
    """Requests by outcome: due, answered, unanswered, unsent."""
    words = {"due": "requests_due", "sent": "requests_sent", "answered": "requests"}
    words |= {"unanswered": "unanswered", "unsent": "unsent"}
    words |= {"cut off": "cut_off"} if _value(metrics, "cut_off") else {}
    known = [f"{_count(metrics, name)} {word}" for word, name in words.items() if _value(metrics, name) is not None]
    return ", ".join(known) or quantities.UNKNOWN


def _unlisted_failures(result: TestResult, ratio: float) -> str:
    """The reason for an error ratio above zero if no error and no status 4xx or 5xx is listed; else empty."""
    listed = result.errors or _value(result.metrics, _status(4)) or _value(result.metrics, _status(5))
    if ratio <= 0 or listed:
        return ""
    classes = [_value(result.metrics, _status(kind)) for kind in range(1, 6)]
    known = sum(count or 0 for count in classes)
    if (_value(result.metrics, "requests") or 0) > known and all(count is not None for count in classes):
        return ": answers with a status of 600 or above"
    return ": unanswered for over 1 s, or unsent"


def _transfer(metrics: Mapping[str, Metric]) -> str:
    received, bodies, rate = (_value(metrics, name) for name in ("bytes_received", "body_bytes", "transfer_bps"))
    inside = f" ({quantities.transfer(bodies)} in bodies)" if bodies is not None else ""
    return f"{quantities.transfer(received)}{inside}, {quantities.bit_rate(rate)}"


def _connections(result: TestResult) -> str:
    metrics, connect = result.metrics, result.distribution("connect")
    opened = _value(metrics, "connections_opened")
    parts = [f"{_count(metrics, 'connections_opened')} opened"]
    # The distribution leaves out what was opened again in the warm-up.
    if result.status == "done" and opened is not None and connect is not None and opened > connect.count:
        parts.append(f"{opened - connect.count:,.0f} of them again in the warm-up")
    full, resumed = _value(metrics, "handshakes_full"), _value(metrics, "handshakes_resumed")
    if full or resumed:
        parts.append(f"TLS handshakes {full or 0:,.0f} full, {resumed or 0:,.0f} resumed")
    if _value(metrics, "redirects"):
        parts.append(f"{_count(metrics, 'redirects')} redirects followed")
    if _value(metrics, "repeated"):
        parts.append(f"{_count(metrics, 'repeated')} requests sent again")
    return ", ".join(parts)


def _spreads(found: Mapping[str, Distribution]) -> RenderableType:
    table = _table("", "min", "mean", "stdev", "±stdev", "max")
    for title, one in found.items():
        within = quantities.share(one.within_stdev)
        times = [time_cell(one, name) for name in ("min", "mean", "stdev")]
        table.add_row(title, *times, within, time_cell(one, "max"))
    return _indented(table)


def _percentiles(found: Mapping[str, Distribution]) -> list[RenderableType]:
    """The usual percentiles and the requested ones, in as many tables as needed."""
    asked = {percentile for one in found.values() for percentile in one.percentiles} - set(DISTRIBUTION_PERCENTILES)
    wanted = sorted({*_PERCENTILES, *asked})
    shown = [percentile for percentile in wanted if any(one.supports(percentile) for one in found.values())]
    parts = [shown[at : at + len(_PERCENTILES)] for at in range(0, len(shown), len(_PERCENTILES))]
    return [table for part in parts for table in (Text(""), _percentile_table(found, part))]


def _percentile_table(found: Mapping[str, Distribution], shown: Sequence[float]) -> RenderableType:
    table = _table("", *(f"p{percentile:g}" for percentile in shown), narrow=True)
    for title, one in found.items():
        # Eight columns leave no room for the blank.
        table.add_row(title, *(percentile_cell(one, percentile).replace("≥ ", "≥") for percentile in shown))
    return _indented(table)


def _left_out(found: Mapping[str, Distribution]) -> str:
    """Why the percentiles end early; empty if the first row has all."""
    first = next(iter(found.values()))
    missing = [percentile for percentile in _PERCENTILES if not first.supports(percentile)]
    if not missing:
        return ""
    return f"{first.count + first.censored:,} samples are too few for p{missing[0]:g}: none of them lies above it"


def _censored(found: Mapping[str, Distribution]) -> str:
    """The source of the lower bounds in the first row; empty if there are none."""
    first = next(iter(found.values()))
    if not first.bounds:
        return ""
    return f"≥: {first.censored:,} requests had no answer yet and took at least their age"


def _phases(found: Mapping[str, Distribution]) -> RenderableType:
    table = _table("phase", "count", "mean", "p50", "p99", "max")
    for title, one in found.items():
        table.add_row(title, *phase_cells(one))
    return _indented(table)


def _table(first: str, *titles: str, narrow: bool = False) -> Table:
    """A table. Eight percentiles fit into 80 columns only with narrow columns."""
    table = Table(box=None, padding=(0, 1 if narrow else 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column(first, style="dim", min_width=_NARROW_COLUMN if narrow else _FIRST_COLUMN, no_wrap=True)
    for title in titles:
        table.add_column(title, justify="right", no_wrap=True)
    return table


def _indented(table: Table) -> RenderableType:
    return Padding(table, (0, 0, 0, 2), expand=False)


def _status(digit: int) -> str:
    return f"status_{digit}xx"


def _count(metrics: Mapping[str, Metric], name: str) -> str:
    return quantities.count(_value(metrics, name))


def _value(metrics: Mapping[str, Metric], name: str) -> float | None:
    found = metrics.get(name)
    return found.value if found is not None else None


_FIRST_COLUMN, _NARROW_COLUMN = 11, 7
