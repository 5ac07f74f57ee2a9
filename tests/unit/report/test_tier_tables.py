"""The tiers of a stack in tables: users first, unknown figures as unknown, Little's law, the slowest requests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rich.console import Console
from sample_runs import gateway_run
from test_report_html import Page

from leadline.analysis.model import Metric, RunAnalysis
from leadline.analysis.model import TestResult as Result
from leadline.analysis.tier_model import TierStatistics, TracedRequest
from leadline.report import render_html
from leadline.report.tiers import page_tables_of_tiers, tier_rows, tiers_table

TRACE = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"


def tier(name: str, **known: Any) -> TierStatistics:
    unknown = dict.fromkeys(
        ("cpu_percent", "cpu_unknown", "cpu_us_per_request", "memory_bytes", "time_mean_us", "time_p99_us")
    )
    more = dict.fromkeys(("own_mean_us", "time_unknown", "logged", "execution_us_per_request"))
    made: dict[str, Any] = {**unknown, **more, "kind": "haproxy", "host": "gateway", "processes": (name,), "cpus": ()}
    return TierStatistics(tier=name, **(made | known))


def stack(run: RunAnalysis) -> Result:
    first = run.trials[0].tests[0]
    metrics = {
        "requests_per_s": Metric(600.0, "1/s"),
        "latency_mean_us": Metric(20_000.0, "us"),
        "users_most": Metric(50.0, "count"),
    }
    known = {"cpu_percent": 54.6, "cpu_us_per_request": 598.0, "time_mean_us": 9810.0, "own_mean_us": 8050.0}
    return replace(
        first,
        metrics={**first.metrics, **metrics},
        tiers=(
            tier("router", **known, counters={"requests": 400, "opened": 100}),
            tier("web", cpu_unknown="web started further processes, whose CPU time no agent reads"),
        ),
        slowest_traced=(TracedRequest(TRACE, 200, {"router": 41_000.0}),),
    )


def made_run() -> RunAnalysis:
    run = gateway_run()
    return replace(run, trials=(replace(run.trials[0], tests=(stack(run),)),))


def text_of(run: RunAnalysis) -> str:
    console = Console(width=100)
    table = tiers_table(run)
    assert table is not None
    with console.capture() as captured:
        console.print(table)
    return captured.get()


def test_rows_are_users_then_tiers_and_unknown_is_no_number() -> None:
    rows = dict(tier_rows([stack(gateway_run())]))
    assert list(rows) == ["users", "router", "web"]
    # 20 ms of the users, of which 9.81 ms are in the router and behind it.
    assert rows["users"] == ("–", "–", "–", "20.0 ms", rows["users"][4], "10.2 ms", "–")
    assert rows["router"] == ("54.6 %", "598 µs", "–", "9.81 ms", "–", "8.05 ms", "0.25")
    assert set(rows["web"]) == {"–"}


def test_users_who_were_faster_than_the_logged_requests_have_no_time_of_their_own() -> None:
    result = stack(gateway_run())
    faster = replace(result, metrics={**result.metrics, "latency_mean_us": Metric(9000.0, "us")})
    users = dict(tier_rows([faster]))["users"]
    assert (users[3], users[5]) == ("9.00 ms", "–")


def test_notes_have_littles_law_and_why_figures_are_unknown() -> None:
    text = " ".join(text_of(made_run()).split())
    assert "600 /s x 20.0 ms = 12.0 of 50 users inside of a request at a time (Little's law)" in text
    assert "web: web started further processes, whose CPU time no agent reads." in text


def test_page_has_the_tiers_and_the_slowest_requests() -> None:
    run = made_run()
    tiers, slowest = page_tables_of_tiers(run.trials[0].tests[0])
    assert slowest.columns == ("traceparent", "router", "web", "status")
    assert slowest.rows == ((TRACE, "41.0 ms", "–", "200"),)
    assert [row[0] for row in tiers.rows] == ["users", "router", "web"]
    assert TRACE in Page(render_html(run)).text


def test_run_without_a_stack_has_no_table() -> None:
    assert tiers_table(gateway_run()) is None
    assert page_tables_of_tiers(gateway_run().trials[0].tests[0]) == []
