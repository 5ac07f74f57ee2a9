"""Clients that start one after another over real links: the usual averages are wrong by the computed amount, and ours
are right."""

from __future__ import annotations

import json
from pathlib import Path

import cli_runs as cli
import pytest

pytestmark = [
    pytest.mark.lab,
    # A client that waits for its CPU makes up for what it owes later, and is above its own rate then.
    pytest.mark.exclusive,
    pytest.mark.skipif(bool(cli.why_not()), reason=cli.why_not() or "-"),
]

LINK_BPS = 100e6
GOODPUT_SHARE = (1514 - 66) / 1514
"""Of an Ethernet frame of 1514 bytes: less Ethernet 14, IPv4 20, TCP 20, timestamps 12."""


@pytest.mark.parametrize(
    ("clients", "spread_s", "length_s"), [(6, 1, 3), pytest.param(20, 10, 30, marks=pytest.mark.full_matrix)]
)
def test_spread_starts_mislead_the_usual_averages_by_the_computed_amount(
    tmp_path: Path, clients: int, spread_s: int, length_s: int
) -> None:
    own_bps = 60e6 / clients
    times = f"duration: {length_s}s, start_spread: {spread_s}s"
    plan = f"""
        name: spread
        lab: {{link: {{rate: {LINK_BPS:.0f}}}}}
        sut: {{kind: route}}
        clients: {clients}
        tests:
          - {{name: own, kind: tcp, rate: {own_bps:.0f}, {times}}}
          - {{name: shared, kind: tcp, {times}}}
    """
    run = cli.run(plan, tmp_path)
    assert run.code == 0, run.err
    (trial,) = json.loads((run.folder / "findings.json").read_text())["run"]["trials"]
    own, shared = ({**test, **test["naive"].get("throughput_bps", {})} for test in trial["tests"])
    # Client number n starts after n/N of the spread: so much of the whole time is each one there, on average.
    present = 1 - spread_s / length_s * (clients - 1) / (2 * clients)
    all_bps = clients * own_bps
    assert own["metrics"]["throughput_bps"]["value"] == pytest.approx(all_bps, rel=0.01)
    assert own["whole"] == pytest.approx(present * all_bps, rel=0.015)
    # They share one link: who is alone has all of it, so that averages over each one's own time add up to more.
    link_bps = GOODPUT_SHARE * LINK_BPS
    assert shared["metrics"]["throughput_bps"]["value"] == pytest.approx(link_bps, rel=0.01)
    assert shared["flows"] >= 1.04 * link_bps
    for test in (own, shared):
        window = test["window"]
        head_s = (window["start_ns"] - window["first_start_ns"]) / 1e9
        assert head_s == pytest.approx(spread_s * (clients - 1) / clients, abs=0.25 * spread_s)
