"""What a WireGuard fleet says of the embedded gateway: exact counts, load inside, and each client's steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cli_runs as cli
import pytest

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(bool(cli.why_not()), reason=cli.why_not() or "-"),
]


def storm(tmp_path: Path, clients: int, test: str = "", sut: str = "") -> cli.Run:
    """One storm of this number of clients against the lab's WireGuard gateway."""
    plan = f"""
        name: wireguard-fleet
        sut: {{kind: wireguard{sut}}}
        clients: {{fleet: true, count: {clients}}}
        tests: [{{name: storm, kind: tunnel, attempt_timeout: 60s, first_data: 60s{test}}}]
        """
    tmp_path.mkdir(exist_ok=True)
    return cli.run(plan, tmp_path)


def outcome(run: cli.Run) -> dict[str, Any]:
    lines = map(json.loads, (run.folder / "journal.ndjson").read_text().splitlines())
    [found] = [found for line in lines if (found := (line.get("event") or {}).get("outcome"))]
    return dict(found)


@pytest.mark.takes(10)
def test_two_hundred_clients_are_counted_exactly_and_carry_load(tmp_path: Path) -> None:
    run = storm(tmp_path, 200, ", renegotiate_at: ['1s'], traffic: {kind: echo, rate: 20/s, duration: 250ms}")
    found = {name: value for name, value in run.figures("storm").items() if value is not None}
    assert [found[name] for name in ("clients", "configured", "partial", "failed")] == [200, 200, 0, 0]
    assert [found[name] for name in ("child_up", "traffic_both_ways")] == [200, 200]
    assert found["attempts"] == 200 and not {"ike_up", "ip_assigned"} & found.keys(), "other protocols' steps"
    # A client that was not up when its turn came skips it.
    asked = found["renegotiations_asked"]
    assert (asked + found["actions_skipped"], found["renegotiated"], found["renegotiations_failed"]) == (200, asked, 0)
    reported = outcome(run)
    assert found["sent"] == found["received"] == 1000 - reported["counts"]["unsent"]
    rows = reported["tunnel"]["clients"]
    assert len({row["addresses"][0] for row in rows}) == 200
    for row in rows:
        assert 0 <= row["sent_ns"] <= row["answered_ns"] <= row["child_up_ns"] <= row["configured_ns"]
        assert (row["pushed_ns"], row["tls_ns"], row["cipher"]) == (None, None, "CHACHA20-POLY1305")
    assert "PrivateKey" not in (run.folder / "journal.ndjson").read_text()


@pytest.mark.takes(3)
def test_clients_come_back_from_other_ports(tmp_path: Path) -> None:
    run = storm(tmp_path, 20, ", reconnect_at: ['1s'], expect: {pools: [10.83.0.0/16, 'fd83::/64']}", ", ip: 6")
    found = {name: value for name, value in run.figures("storm").items() if value is not None}
    assert [found[name] for name in ("configured", "tunnels_lost", "child_up")] == [20, 0, 20]
    begun = found["reconnects_begun"]
    assert (begun + found["actions_skipped"], found["returned"]) == (20, begun)
    attempts = outcome(run)["tunnel"]["attempts"]
    assert len({row["local"] for row in attempts}) == len(attempts) == 20 + begun


@pytest.mark.takes(4)
def test_streams_go_through_the_tunnels(tmp_path: Path) -> None:
    plan = """
        name: wireguard-load
        sut: {kind: wireguard}
        clients: {fleet: true, count: 4}
        tests: [{name: streams, kind: tcp, duration: 500ms}]
        """
    streams = cli.run(plan, tmp_path).figures("streams")
    assert (streams["throughput_bps"] or 0) > 0
