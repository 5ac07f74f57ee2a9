"""The tables of a scenario on the page of a run: transactions and requests by name, failures, the slowest requests.

`summary` has the same for a terminal of 80 columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from leadline import quantities
from leadline.analysis.model import TestResult
from leadline.analysis.scenario_model import LabelFindings, ScenarioFindings, SlowRequestFindings, shown_names
from leadline.report.page_tables import PageTable

MOST_ROWS = 200
_TIMES = ("mean", "p50", "p90", "p95", "p99", "max")


def page_tables(result: TestResult) -> list[PageTable]:
    """The tables; empty without a scenario."""
    found = result.scenario
    if found is None:
        return []
    tables = []
    for title, is_transaction in (("Transactions", True), ("Requests", False)):
        labels = [label for label in found.labels if label.is_transaction == is_transaction]
        if labels:
            tables.append(_labels(title, labels))
    failures = _failures(found)
    if failures:
        tables.append(_table("Failures", ("name", "what failed", "times", "example"), failures))
    if found.slowest:
        columns = ("name", "latency", "until sent", "name lookup", "connect", "TLS", "first byte", "status")
        tables.append(_table("Slowest requests", columns, [_slow(one) for one in found.slowest]))
    return tables


def _labels(title: str, labels: Sequence[LabelFindings]) -> PageTable:
    several = len({label.group for label in labels}) > 1
    # Bytes are those of requests, and a transaction is not sent.
    sizes = () if labels[0].is_transaction else ("sent", "received")
    sent = () if labels[0].is_transaction else ("p50", "p95", "p99")
    beside = tuple(name for name in ("cached", "resources", "redirects") if any(getattr(one, name) for one in labels))
    head = (
        "name",
        *(("group",) if several else ()),
        "count",
        "1/s",
        "failed",
        *_TIMES,
        *(f"{name} from sent" for name in sent),
        *sizes,
        *beside,
    )
    rows = []
    for label, name in zip(labels, shown_names(labels), strict=True):
        times = [*(f"latency_{one}_us" for one in _TIMES), *(f"service_{one}_us" for one in sent)]
        rows.append((
            name,
            *((label.group,) if several else ()),
            f"{label.ended:,}",
            "" if label.per_s is None else f"{label.per_s:,.1f}",
            f"{label.failed:,}",
            *(
                quantities.at_least(quantities.microseconds(getattr(label, key)), key in label.censored)
                for key in times
            ),
            *(quantities.transfer(size) for size in (label.sent_bytes, label.received_bytes)[: len(sizes)]),
            *(f"{getattr(label, one):,}" for one in beside),
        ))  # fmt: skip
    return _table(title, head, rows)


def _failures(found: ScenarioFindings) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for label in found.labels:
        if label.is_transaction:
            continue
        for cause, count in label.errors.items():
            rows.append((label.name, cause, f"{count:,}", label.error_examples.get(cause, "")))
        if label.interrupted:
            rows.append((label.name, "interrupted", f"{label.interrupted:,}", "outstanding when the iteration ended"))
        rows += [(label.name, f"check '{one.name}'", f"{one.failed:,}", "") for one in label.checks if one.failed]
        rows += [(label.name, f"{name} was not found", f"{count:,}", "") for name, count in label.misses.items()]
    if found.left_out:
        rows.append(("single requests", "were not kept, as they ended too fast", f"{found.left_out:,}", ""))
    return rows


def _slow(one: SlowRequestFindings) -> tuple[str, ...]:
    shown: Callable[[float | None], str] = quantities.microseconds
    status = one.error or ("" if one.status is None else str(one.status))
    opening = ("" if time is None else shown(time) for time in (one.dns_us, one.connect_us, one.tls_us))
    return one.name, shown(one.latency_us), shown(one.before_sent_us), *opening, shown(one.first_byte_us), status


def _table(title: str, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> PageTable:
    return PageTable(title, columns, tuple(rows[:MOST_ROWS]), max(0, len(rows) - MOST_ROWS))
