"""What a fleet of IKEv2 clients says of strongSwan in a plan: exact counts, each client's steps, load inside."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import cli_runs as cli
import pytest

_PATH = f"{os.environ['PATH']}:/usr/local/sbin:/usr/sbin:/sbin"
pytestmark = [
    pytest.mark.lab,
    pytest.mark.apart,
    pytest.mark.skipif(bool(cli.why_not()), reason=cli.why_not() or "-"),
    pytest.mark.skipif(shutil.which("charon-systemd", path=_PATH) is None, reason="charon-systemd is not installed"),
]
CLIENTS = 20


@pytest.mark.takes(6)
@pytest.mark.parametrize("auth", ["psk", "eap-mschapv2"])
def test_clients_are_counted_exactly_and_renew_their_keys(auth: str, tmp_path: Path) -> None:
    plan = f"""
        name: ipsec-fleet
        sut: {{kind: strongswan, method: {auth}, data_plane: libipsec, dos_protection: false, ikesa_table_size: 64}}
        clients: {{fleet: true, count: {CLIENTS}}}
        tests:
          - {{name: storm, kind: tunnel, attempt_timeout: 60s, first_data: 60s, renegotiate_at: [1s]}}
        """
    run = cli.run(plan, tmp_path)
    assert run.code == 0, run.err
    found = {name: value for name, value in run.figures("storm").items() if value is not None}
    assert [found[name] for name in ("clients", "configured", "partial", "failed")] == [CLIENTS, CLIENTS, 0, 0]
    steps = ("ike_up", "ip_assigned", "child_up", "traffic_both_ways")
    assert [found[name] for name in steps] == [CLIENTS] * len(steps)
    asked = found["renegotiations_asked"]
    assert (asked + found["actions_skipped"], found["renegotiated"]) == (CLIENTS, asked)
    journal = (run.folder / "journal.ndjson").read_text()
    assert "secret =" not in journal
    lines = map(json.loads, journal.splitlines())
    [outcome] = [one for line in lines if (one := (line.get("event") or {}).get("outcome"))]
    rows = outcome["tunnel"]["clients"]
    assert len({address for row in rows for address in row["addresses"]}) >= CLIENTS
    for row in rows:
        assert (
            0 <= row["sent_ns"] <= row["answered_ns"] <= row["ike_up_ns"] <= row["child_up_ns"] <= row["configured_ns"]
        )


@pytest.mark.takes(4)
def test_datagrams_go_through_the_tunnels(tmp_path: Path) -> None:
    plan = """
        name: ipsec-load
        sut: {kind: strongswan, data_plane: libipsec, dos_protection: false}
        clients: {fleet: true, count: 4}
        tests: [{name: datagrams, kind: udp, rate: 1mbit, packet: 1000, duration: 500ms}]
        """
    run = cli.run(plan, tmp_path)
    assert run.code == 0, run.err
    assert (run.figures("datagrams")["throughput_bps"] or 0) > 0
