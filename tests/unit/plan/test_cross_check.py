"""`cross_check` of a plan's test: what it takes, what it needs, and mistakes with their place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from leadline.plan import Plan, needs, trial_seconds
from leadline.registry import KINDS
from leadline.trial.workloads import Server

PLAN = """\
name: small
sut: {kind: route}
tests:
  - {name: h, kind: http, connections: 4, threads: 2, size: 1000, duration: 2s, cross_check: wrk}
  - {name: t, kind: tcp, direction: down, flows: 2, duration: 2s, cross_check: iperf3}
  - {name: u, kind: udp, rate: 10mbit, flows: 2, packet: 500, duration: 2s, cross_check: iperf3}
"""


def test_tools_are_needed_and_take_their_time(load: Callable[..., Plan]) -> None:
    (case,) = load(PLAN).cases
    assert {need.name for need in needs([case])} >= {"wrk", "iperf3"}
    without = load(PLAN.replace(", cross_check: wrk", "").replace(", cross_check: iperf3", "")).cases[0]
    assert not {need.name for need in needs([without])} & {"wrk", "iperf3"}
    assert trial_seconds(case) == pytest.approx(trial_seconds(without) + 6)
    assert trial_seconds(replace(case, tests=case.tests[:1])) < trial_seconds(case)


@pytest.mark.parametrize(
    ("hosts", "here"),
    [
        ("{gateway: local, server: ssh://s, clients: [ssh://c]}", set()),
        ("{gateway: ssh://g, server: {ssh: local, address: 192.0.2.1}, clients: [ssh://c]}", {"iperf3"}),
        ("{gateway: ssh://g, server: ssh://s, clients: [ssh://c, local]}", {"iperf3", "wrk"}),
    ],
)
def test_tools_on_given_hosts_are_needed_where_they_run(load: Callable[..., Plan], hosts: str, here: set[str]) -> None:
    given = PLAN.replace("sut: {kind: route}", f"sut: {{kind: given, label: far}}\nhosts: {hosts}")
    assert {need.name for need in needs(load(given).cases)} & {"wrk", "iperf3"} == here


def test_tools_get_the_same_load(load: Callable[..., Plan]) -> None:
    (case,) = load(PLAN).cases
    http, tcp, udp = (KINDS.get(test.kind).second_tool_run(test, Server("10.0.0.1"), 5302) for test in case.tests)
    assert http.argv == (
        *["wrk", "-t", "2", "-c", "4", "-d", "2s", "--timeout", "5s", "http://10.0.0.1:8080/?size=1000"],
    )
    assert http.server_argv == ()
    assert " ".join(tcp.argv).startswith("iperf3 -J -c 10.0.0.1 -p 5302 -t 2 -P 2 -l 131072 -R")
    assert " ".join(udp.argv).startswith("iperf3 -J -c 10.0.0.1 -p 5302 -t 2 -P 2 -u -l 500 -b 5000000")
    assert udp.server_argv == ("iperf3", "-s", "-1", "--forceflush", "-p", "5302")


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ("ab", "ab -q -k -t 2 -n 1000000 -c 4 -s 5 -H Accept: text/html http://[fd00::1]:8080/"),
        ("h2load", "h2load --h1 -t 1 -c 4 -D 2 -H Accept: text/html http://[fd00::1]:8080/"),
    ],
)
def test_tools_of_http_get_the_same_load(load: Callable[..., Plan], tool: str, words: str) -> None:
    headers = "headers: [{name: Accept, value: text/html}]"
    text = PLAN.replace("threads: 2, size: 1000", headers).replace("cross_check: wrk", f"cross_check: {tool}")
    (test, *_) = load(text).cases[0].tests
    assert " ".join(KINDS.get("http").second_tool_run(test, Server("fd00::1"), 5301).argv) == words


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("wrk", "iperf3", "plan.yaml:4: tests.h.cross_check: 'iperf3' is not possible"),
        ("wrk", "ab", "tests.h.cross_check: ab cannot repeat it: ab has one thread, the test 2"),
        ("size: 1000", "rate: 100", "tests.h.cross_check: wrk cannot repeat it: the test has rate"),
        ("size: 1000", "method: POST", "wrk cannot repeat it: the test has method"),
        ("size: 1000", "keep_alive: false", "wrk cannot repeat it: the test has keep alive"),
        ("size: 1000", "scheme: https, tls: {verify: false, resume: false}", "the test has TLS options"),
        ("direction: down", "direction: both", "tests.t.cross_check: iperf3 cannot repeat it: its figure has one"),
        ("rate: 10mbit, ", "", "tests.u.cross_check: without a rate the two tools do not offer the same load"),
        (
            "rate: 10mbit",
            "number: 5, rate: 10mbit",
            "tests.u.cross_check: iperf3 cannot repeat it: the test has number",
        ),
        ("rate: 10mbit", 'search: {until: "lost_ratio < 1%"}', "iperf3 cannot repeat it: the test has search"),
        ("kind: tcp, direction: down, flows: 2", "kind: rr", "unknown key 'cross_check'"),
    ],
)
def test_mistakes_have_their_place(error_text: Callable[..., str], old: str, new: str, words: str) -> None:
    assert words in error_text(PLAN.replace(old, new))
