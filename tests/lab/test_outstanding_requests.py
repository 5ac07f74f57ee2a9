"""Requests that were under way when the time was over, against servers whose answers take a known time: none of them
makes a latency smaller, and what had no answer is a lower bound.

What is compared with are times that a server takes at least and the load's own length, which no busy machine changes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import cli_runs as cli
import http_servers as servers
import pytest

from waiting import until

pytestmark = pytest.mark.skipif(not cli.LEADLINE.exists(), reason="the leadline command is not installed")

FIGURES = ("min", "p1", "p50", "mean", "p99")


def answered(run: Callable[[], cli.Load]) -> cli.Load:
    """The first load that read answers to half of its requests and was cut off under way: one that stalls for most of
    its second reads none, one that stalls at its end sends nothing after the last."""

    def load() -> cli.Load | None:
        one = run()
        return one if one.count("latency_samples") >= one.count("unanswered") > 0 else None

    found: cli.Load = until(load)
    return found


@pytest.mark.parametrize("engine", cli.ENGINES)
@pytest.mark.decided_by("the server's delay, below which no latency is")
def test_a_slow_server_keeps_its_latency_in_a_short_load(tmp_path: Path, engine: str) -> None:
    with servers.counting(tmp_path) as server:
        url = server.url("ok/900")
        options = ("-c", "20", "-d", "1s", "--target", "latency_p1_us > 882ms")
        found = answered(lambda: cli.load("slow", url, *options, engine=engine))
    # Each connection's second request was cut off after a tenth of a second, or its first one after a second.
    assert found.count("latency_censored") == found.count("unanswered") <= 20
    length_us = max(1.0, found.document["generator"]["wall_s"]) * 1e6
    for name in FIGURES:
        value = found.value(f"latency_{name}_us")
        assert value is not None and 882_000 <= value <= 1.02 * length_us, name
    (judged,) = found.document["targets"]
    assert judged["outcome"] != "missed", judged


@pytest.mark.decided_by("nothing: no outcome is read")
def test_a_constant_latency_is_every_figures_least(tmp_path: Path) -> None:
    with servers.counting(tmp_path) as server:
        asked = ("--target", "latency_p1_us > 98ms", "--target", "latency_p25_us > 98ms")
        found = answered(lambda: cli.load("constant", server.url("ok/100"), "-c", "10", "-d", "1s", *asked))
    for name in (*FIGURES, "p25"):
        value = found.value(f"latency_{name}_us")
        assert value is not None and value >= 98_000, name


ANSWERED, DUE = 20, 200
"""Of the requests of a load of 2 s, the first ones that a server answers, and all of them."""


@pytest.mark.decided_by("the stall, which lasts to the end")
def test_a_stall_to_the_end_is_a_lower_bound_and_decides_what_it_can(tmp_path: Path) -> None:
    limits = ("latency_p99_us < 1s", "latency_p99_us > 1s", "latency_p99_us < 60s")
    targets = [part for limit in limits for part in ("--target", limit)]
    with servers.counting(tmp_path) as server:
        paced = ("--rate", "100", "-c", "400", "-t", "1", "-d", "2s")
        found = cli.load("stall", server.url(f"first/{ANSWERED}"), *paced, *targets)
    answered, unanswered = found.count("latency_samples"), found.count("latency_censored")
    assert 0 < answered <= ANSWERED and answered + unanswered == found.count("requests_due") == DUE
    p99 = found.document["metrics"]["latency_p99_us"]
    # Of those without an answer the third oldest fell due 220 ms after the start at the latest.
    assert p99["censored"] is True and p99["value"] >= 1_778_000
    assert found.document["metrics"]["requests_due"]["censored"] is False
    decided = {one["target"]: one["outcome"] for one in found.document["targets"]}
    assert decided == dict(zip(limits, ("missed", "met", "undecided"), strict=True))
    assert found.code == 3
