"""A fleet on the report's page: what became of its clients and why, as the terminal says it, and pictures beside it."""

from __future__ import annotations

from dataclasses import replace

from sample_runs import gateway_run
from test_report_html import HOSTILE, Page
from test_tunnel_summary import fleet

from leadline.analysis.fleet_model import Overload
from leadline.analysis.model import RunAnalysis
from leadline.analysis.model import TestResult as Result
from leadline.report import render_html


def run_of(test: Result) -> RunAnalysis:
    run = gateway_run()
    return replace(run, trials=(replace(run.trials[0], tests=(test,)),))


def with_a_limit() -> Result:
    made = fleet()
    assert made.fleet is not None
    said = "40 clients connected without an address while 60 had one"
    return replace(made, fleet=replace(made.fleet, overload=(Overload("pool_exhausted", 40, said),)))


def test_a_fleets_states_causes_and_limits_are_on_its_page() -> None:
    text = Page(render_html(run_of(with_a_limit()))).text
    assert "60 configured, 40 partial, 3 failed" in text
    assert "40 × no address (clients 60, 61, 62, ...)" in text
    assert "3 × reset unanswered (clients 100, 101, 102): no answer in 60 s" in text
    assert "looks like an exhausted pool of addresses: 40 clients connected without an address while 60 had one" in text
    assert "pushed options" in text, "each step has its times"
    assert text.count("no answer in 60 s") == 1, "a cause is said once"


def test_what_a_server_says_stays_text() -> None:
    test = with_a_limit()
    hostile = replace(test, error_examples={"reset_unanswered": HOSTILE})
    page = Page(render_html(run_of(hostile)))
    assert "alert(2)" in page.text and not any(name == "img" for name, _ in page.elements)


def test_flame_graphs_are_linked_where_they_were_drawn() -> None:
    run = gateway_run()
    trial = run.trials[0]
    label = f"{trial.trial}/{trial.tests[0].test}"
    page = Page(render_html(run, {label: [("gateway", "profiles/c01-1-a b-gateway.svg")]}))
    links = [dict(attributes)["href"] for name, attributes in page.elements if name == "a"]
    assert [link for link in links if link and link.startswith("profiles")] == ["profiles/c01-1-a%20b-gateway.svg"]
    assert "Flame graph of gateway" in page.text
    assert "Flame graph" not in Page(render_html(run)).text
