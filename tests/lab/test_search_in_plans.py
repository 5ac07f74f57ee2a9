"""Searches in plans: the highest rate through a gateway, where the kernel itself limits the link (tbf)."""

from __future__ import annotations

from pathlib import Path

import cli_runs as cli
import pytest

pytestmark = [
    pytest.mark.lab,
    pytest.mark.exclusive,
    pytest.mark.takes(40),
    pytest.mark.skipif(bool(cli.why_not()), reason=cli.why_not() or "-"),
]

LINK_BPS = 20e6
HEADERS_BYTES = 42
# The bucket of a link lets more through in a short trial than its rate allows.
BURST_SHARE = 0.12


@pytest.mark.parametrize("packet", [pytest.param(300, marks=pytest.mark.full_matrix), 1400])
def test_highest_rate_through_a_limited_link_is_what_its_headers_leave(tmp_path: Path, packet: int) -> None:
    plan = (
        "{name: ndr, lab: {link: {rate: 20mbit}}, sut: {kind: route}, tests: [{name: ndr, kind: udp, "
        f'packet: {packet}, duration: 1500ms, search: {{metric: rate, until: "lost_ratio < 0.001", width: 10%}}}}]}}'
    )
    run = cli.run(plan, tmp_path)
    assert run.code == 0, run.err
    (result,) = run.report()["trials"][0]["tests"]
    search = result["search"]
    truth_per_s = LINK_BPS / 8 / (packet + HEADERS_BYTES)
    assert search["trials"], search
    for trial in search["trials"]:
        if trial["holds"]:
            assert trial["rate_per_s"] <= (1 + BURST_SHARE) * truth_per_s, trial
    if search["ending"] == "generator-limited":
        pytest.skip("this machine was too busy for a whole search")
    assert search["ending"] == "found"
    rate = result["metrics"]["found_rate_per_s"]
    assert 0.85 * truth_per_s <= rate["value"] == rate["low"] < rate["high"] <= 1.12 * rate["low"]
    tried = {(trial["rate_per_s"], trial["holds"]) for trial in search["trials"]}
    assert {(rate["low"], True), (rate["high"], False)} <= tried
