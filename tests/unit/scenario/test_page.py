"""A scenario's tables on the page of a run."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

from rich.console import Console

from leadline.analysis.model import TestResult, Validity, Verdict
from leadline.analysis.scenario_model import CheckFindings, LabelFindings, ScenarioFindings, SlowRequestFindings
from leadline.cli.terminal import Terminal
from leadline.kinds.scenario.page import page_tables
from leadline.kinds.scenario.summary import label_tables


def label(name: str, *, is_transaction: bool = False, group: str = "users", **rest: object) -> LabelFindings:
    times = (1000.0, 900.0, 1500.0, 1600.0, 2000.0, 3000.0, 1500.0)
    return LabelFindings(name, is_transaction, group, 1200, 3, 0, 60.0, *times, 100_000, 2_000_000, **rest)  # type: ignore[arg-type]


def result(*labels: LabelFindings) -> TestResult:
    slowest = (SlowRequestFindings("b", 3000.0, 100.0, None, None, "timeout", None, 60.0, 30.0),)
    return TestResult(
        case="c01", repeat=1, test="s", kind="scenario", parameters={}, status="done", error=None, metrics={},
        validity=Validity(Verdict.VALID, ()), window=None, generator=None, errors={},
        scenario=ScenarioFindings((), labels, slowest, None),
    )  # fmt: skip


def test_names_failures_and_slow_requests_have_tables() -> None:
    failing = label(
        "b", errors={"timeout": 3}, error_examples={"timeout": "http://a/b"}, checks=(CheckFindings("status", 9, 2),)
    )
    tables = {table.title: table for table in page_tables(result(label("t", is_transaction=True), failing))}
    assert list(tables) == ["Transactions", "Requests", "Failures", "Slowest requests"]
    assert tables["Transactions"].rows[0][:4] == ("t", "1,200", "60.0", "3")
    assert len(tables["Requests"].columns) == len(tables["Requests"].rows[0])
    assert tables["Failures"].rows == (("b", "timeout", "3", "http://a/b"), ("b", "check 'status'", "2", ""))
    slowest = dict(zip(tables["Slowest requests"].columns, tables["Slowest requests"].rows[0], strict=True))
    assert [slowest[name] for name in ("name lookup", "connect", "TLS")] == ["", "60.0 µs", "30.0 µs"]
    assert slowest["status"] == "timeout"


def test_lower_bounds_are_marked_and_times_from_sent_follow() -> None:
    bounded = label("a", censored=("latency_p99_us", "service_p99_us"), service_p50_us=800.0, service_p99_us=1900.0)
    (table, *_) = page_tables(result(bounded))
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert (row["p95"], row["p99"]) == ("1.60 ms", "≥ 2.00 ms")
    assert (row["p50 from sent"], row["p99 from sent"]) == ("800 µs", "≥ 1.90 ms")


def test_what_is_beside_the_requests_has_columns_where_there_is_some() -> None:
    found = result(label("page", cached=3, resources=4_000, tags={"team": "a"}), label("page", tags={"team": "b"}))
    (table, *_) = page_tables(found)
    assert table.columns[-2:] == ("cached", "resources")
    assert [(row[0], *row[-2:]) for row in table.rows] == [("page {team:a}", "3", "4,000"), ("page {team:b}", "0", "0")]
    console = Console(width=80, file=StringIO())
    console.print(*label_tables(found))
    assert "page: beside its requests 3 from caches, 4,000 resources fetched" in console.file.getvalue()  # type: ignore[attr-defined]


def test_groups_are_named_where_there_are_several() -> None:
    (table, *_) = page_tables(result(label("a"), label("a", group="others")))
    assert [row[:2] for row in table.rows] == [("a", "users"), ("a", "others")]


def test_a_refused_certificate_has_its_options() -> None:
    failing = label("b", errors={"tls_certificate_unknown_issuer": 3})
    console = Console(width=200, file=StringIO())
    console.print(*label_tables(result(failing, failing)))
    assert console.file.getvalue().count("tls_certificate_unknown_issuer: trust its authority with --ca FILE") == 1  # type: ignore[attr-defined]


def test_names_in_brackets_are_no_markup() -> None:
    found = result(label("[/checkout]"), label("[login] open"), label("[red]pay :smile:", is_transaction=True))
    slowest = (SlowRequestFindings("[/checkout]", 3000.0, 100.0, None, None, "[red]", None, 60.0, 30.0),)
    assert found.scenario is not None
    console = Terminal(width=80, file=StringIO())
    console.print(*label_tables(replace(found, scenario=replace(found.scenario, slowest=slowest))))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert text.count("[/checkout] ") == 2 and text.count("[red]") == 2
    assert "[login] open" in text and "[red]pay :smile:" in text
