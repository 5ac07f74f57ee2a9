"""What a fleet says of a real OpenVPN server that cannot take everyone: exact counts, each client by its cause."""

from __future__ import annotations

import json
from pathlib import Path

import cli_runs as cli
import pytest

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(bool(cli.why_not()), reason=cli.why_not() or "-"),
    pytest.mark.skipif(cli.OPENVPN is None, reason="openvpn is not installed"),
]


def storm(tmp_path: Path, sut: str, clients: int, test: str = "", attempt: str = "60s") -> cli.Run:
    """One storm of this number of clients against a gateway with these parameters."""
    plan = f"""
        name: truths
        sut: {{kind: openvpn, {sut}}}
        clients: {{fleet: true, count: {clients}}}
        tests: [{{name: storm, kind: tunnel, attempt_timeout: {attempt}, first_data: 60s{test}}}]
        """
    tmp_path.mkdir(exist_ok=True)
    return cli.run(plan, tmp_path)


def causes(run: cli.Run, state: str) -> dict[str, int]:
    [trial] = run.report()["trials"]
    return {one["cause"]: one["clients"] for one in trial["tests"][0]["fleet"][state]}


def test_a_pool_without_room_makes_partial_clients(tmp_path: Path) -> None:
    run = storm(tmp_path, "pool_size: 12", 20)
    found = run.figures("storm")
    assert [found[name] for name in ("clients", "configured", "partial", "failed")] == [20, 12, 8, 0]
    assert causes(run, "partial") == {"partial_no_address": 8}
    assert found["unconfigured_ratio"] == pytest.approx(0.4)


def test_a_server_that_takes_no_more_clients_leaves_the_others_failed(tmp_path: Path) -> None:
    # A client that it rejects waits for it as long as that.
    run = storm(tmp_path, "max_clients: 12", 20, attempt="8s")
    found = run.figures("storm")
    assert [found[name] for name in ("clients", "configured", "partial", "failed")] == [20, 12, 0, 8]
    assert sum(causes(run, "failed").values()) == 8
    assert "8 ×" in run.out


def test_a_route_that_is_not_pushed_makes_every_client_partial(tmp_path: Path) -> None:
    run = storm(tmp_path, "transport: udp", 5, ", expect: {routes: [10.99.0.0/16]}")
    found = run.figures("storm")
    assert [found[name] for name in ("clients", "configured", "partial", "failed")] == [5, 0, 5, 0]
    assert causes(run, "partial") == {"partial_route_missing": 5}
    pushed = storm(tmp_path / "again", "push_routes: [10.99.0.0/16]", 5, ", expect: {routes: [10.99.0.0/16]}")
    assert pushed.figures("storm")["configured"] == 5


@pytest.mark.parametrize(
    "sut", ["transport: tcp", "ip: 6", "control: tls-crypt-v2", "control: tls-auth, cipher: AES-128-GCM"]
)
def test_every_way_to_reach_the_gateway_connects(tmp_path: Path, sut: str) -> None:
    run = storm(tmp_path, sut, 4, ", traffic: {kind: echo, rate: 20/s, duration: 500ms}")
    found = run.figures("storm")
    assert [found[name] for name in ("configured", "partial", "failed")] == [4, 0, 0]
    [unsent] = [
        outcome["counts"]["unsent"]
        for line in (run.folder / "journal.ndjson").read_text().splitlines()
        if (outcome := (json.loads(line).get("event") or {}).get("outcome"))
    ]
    assert found["sent"] == found["received"] == 40 - unsent
    kept = json.loads((run.folder / "run.json").read_text())
    assert kept["cases"][0]["clients"] == {"fleet": True, "count": 4}
