"""Loads that seven clients share: what reaches the server is the total, to the last request, datagram and row."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import cli_runs as cli
import polars as pl
import pytest
from counting_server import Account
from separate_hosts import INSIDE

from waiting import WITHIN_S

HERE = Path(__file__).resolve().parent

pytestmark = [
    pytest.mark.lab,
    pytest.mark.apart,
    pytest.mark.takes(20),
    pytest.mark.skipif(bool(cli.why_not()), reason=cli.why_not() or "-"),
]

PLAN = """
name: split
clients: 7
lab: {link: {rate: 1gbit}}
sut: {kind: route}
tests:
  - {name: number, kind: http, number: 1000, connections: 20, split: true, duration: 60s}
  - {name: rate, kind: http, rate: 1000, connections: 100, timeout: 60s, split: true, duration: 2s}
  - {name: datagrams, kind: udp, rate: 8mbit, packet: 1000, number: 1003, flows: 10, split: true, duration: 60s}
  - {name: paced, kind: udp, rate: 8mbit, packet: 1000, split: true, duration: 2s}
  - {name: transactions, kind: rr, number: 1001, flows: 9, split: true, duration: 60s, timeout: 60s}
  - {name: few, kind: rr, number: 3, split: true, duration: 60s, timeout: 60s}
  - {name: bytes, kind: tcp, bytes: 1000003, rate: 50mbit, split: true, duration: 60s}
  - {name: each, kind: rr, number: 100, duration: 60s, timeout: 60s}
"""


@pytest.mark.decided_by("nothing: only the notes on how the load was dealt are read")
def test_counts_of_seven_clients_add_up_to_the_total(tmp_path: Path) -> None:
    run = cli.run(PLAN, tmp_path)
    assert run.code == 0, run.err
    assert run.figures("number")["requests"] == 1000
    assert run.figures("rate")["requests_due"] == 2000
    assert (run.figures("datagrams")["sent"], run.figures("datagrams")["received"]) == (1003, 1003)
    assert run.figures("paced")["sent"] == 2000
    assert run.figures("transactions")["transactions"] == 1001
    assert run.figures("few")["transactions"] == 3
    assert run.figures("bytes")["received_bytes"] == 1_000_003
    assert run.figures("each")["transactions"] == 700, "without split each client has the number"
    [trial] = run.report()["trials"]
    found = {test["test"]: test for test in trial["tests"]}
    assert found["number"]["dealt"] == {"clients": 7, "hosts": 7, "is_split": True}
    assert found["few"]["dealt"] == {"clients": 3, "hosts": 3, "is_split": True}
    assert found["each"]["dealt"] is None
    [left_out] = [note for note in found["few"]["validity"]["notes"] if note["code"] == "clients-left-out"]
    assert left_out["text"].startswith("4 of 7 client hosts took no part (client4, client5, client6 and 1 more)")
    [in_all] = [note["text"] for note in found["rate"]["validity"]["notes"] if note["code"] == "load-in-all"]
    assert in_all == "shared by 7 clients: in all connections 100, rate 1.00 k/s"
    began = {begin["label"]: begin for begin in journal(run.folder) if begin.get("record") == "test-begin"}
    shares = began["c01/1/number"]["shares"].values()
    assert [share["number"] for share in shares] == [143] * 6 + [142]
    assert sum(share["connections"] for share in shares) == 20
    flows = pl.read_parquet(run.folder / "flows.parquet")
    of_datagrams = flows.filter(pl.col("trial") == "c01/1/datagrams")
    assert sorted(of_datagrams["sent_units"]) == [71, *[72] * 5, *[143] * 4], "ten flows on seven hosts"


def journal(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "journal.ndjson").read_text().splitlines()]


SCENARIO = """
name: visits
data: [{file: people.csv, name: people, at_end: stop-user}]
load: {users: 10, iterations: 4}
base: "http://127.0.0.1:${param('counted')}"
flow:
  - get: /visit?name=${name}&user=${user()}&iteration=${population_iteration()}&number=${counter('n')}
"""
VISITS = """
name: visits
hosts: {gateway: local, server: local, clients: [local, local, local, local, local, local, local]}
sut: {kind: given, label: loopback of this machine}
tests: [{name: visits, kind: scenario, file: visits.yaml, params: {counted: PORT}, split: true}]
"""
# The server counts until the run has ended.
BESIDE_A_SERVER = """
"$PYTHON" "$SERVER" "$FOLDER/account.json" --keep >"$FOLDER/port" & server=$!
until [ -s "$FOLDER/port" ]; do :; done
sed -i "s/PORT/$(cat "$FOLDER/port")/" "$FOLDER/plan.yaml"
code=0; "$@" || code=$?
kill $server; wait $server
exit $code
"""


def test_rows_and_users_of_seven_clients_reach_the_server_once(tmp_path: Path) -> None:
    (tmp_path / "visits.yaml").write_text(SCENARIO)
    (tmp_path / "people.csv").write_text("name\n" + "".join(f"p{number}\n" for number in range(40)))
    (tmp_path / "plan.yaml").write_text(VISITS)
    named = {"PYTHON": sys.executable, "SERVER": str(HERE / "counting_server.py"), "FOLDER": str(tmp_path)}
    words: list[str | Path] = [cli.LEADLINE, "run", tmp_path / "plan.yaml", "--json", "--out", tmp_path / "runs"]
    done = subprocess.run(
        [*INSIDE, "sh", "-ec", BESIDE_A_SERVER, "sh", *words],
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
        env=cli.environment(named),
    )
    assert done.returncode == 0, done.stderr
    account = Account(**json.loads((tmp_path / "account.json").read_text()))
    asked = [parse_qs(urlsplit(str(line).split()[1]).query) for _, line, *_ in account.kept]
    values = {name: [query[name][0] for query in asked] for name in ("name", "user", "iteration", "number")}
    assert sorted(values["name"]) == sorted(f"p{number}" for number in range(40)), "each row once"
    assert sorted(map(int, values["user"])) == sorted([*range(1, 11)] * 4), "ten users, four times each"
    assert len(set(values["iteration"])) == len(set(values["number"])) == 40, "no number is used on two hosts"
    of_user = {(user, name) for user, name in zip(values["user"], values["name"], strict=True)}
    assert len(of_user) == 40
    [trial] = json.loads(done.stdout)["trials"]
    assert trial["tests"][0]["metrics"]["iterations"]["value"] == 40
