"""Five hundred clients on fifty hosts that a plan gives, each a network namespace that `nsenter` reaches."""

from __future__ import annotations

import json
from pathlib import Path

import cli_runs as cli
import pytest
from many_hosts import run_on_many_hosts

pytestmark = [
    pytest.mark.lab,
    pytest.mark.apart,
    pytest.mark.takes(25),
    pytest.mark.skipif(bool(cli.why_not()), reason=cli.why_not() or "-"),
]

# Small loads that end by their numbers, however long that takes.
SMALL = {
    "streams.rate": "50kbit",
    "streams.number": "20",
    "transactions.number": "3",
    "transactions.timeout": "60s",
    "pages.rate": "1k",
    "pages.number": "1001",
    "pages.timeout": "60s",
}


def test_five_hundred_clients_on_fifty_hosts(tmp_path: Path) -> None:
    settings = {f"tests.{name}": value for name, value in SMALL.items()}
    for test in ("streams", "transactions", "pages"):
        settings |= {f"tests.{test}.duration": "60s", f"tests.{test}.warmup": "0s"}
    arguments = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    plan = cli.ROOT / "examples" / "fifty-hosts.yaml"
    run = run_on_many_hosts(plan, tmp_path, *arguments, "--set", "targets=[]", clients=50)
    assert run.code == 0, run.err
    assert run.figures("streams")["sent"] == 500 * 20
    assert run.figures("transactions")["transactions"] == 500 * 3
    assert run.figures("pages")["requests"] == 1001
    [trial] = run.report()["trials"]
    dealt = {test["test"]: test["dealt"] for test in trial["tests"]}
    on_hosts = {"clients": 500, "hosts": 50}
    assert dealt["streams"] == dealt["transactions"] == {**on_hosts, "is_split": False}
    assert dealt["pages"] == {**on_hosts, "is_split": True}
    [streams] = [test for test in trial["tests"] if test["test"] == "streams"]
    assert streams["clients"]["clients"] == 500, "figures by client are of the clients, not of the hosts"
    assert "500 clients on 50 hosts" in run.err
    records = [json.loads(line) for line in (run.folder / "journal.ndjson").read_text().splitlines()]
    starts = {(entry["host"], entry["event"]["task"]) for entry in records if _is_start(entry, "c01/1/streams")}
    assert starts == {(f"client{number}", "load") for number in range(1, 51)}, "one task on each host"
    shares = {entry["label"]: entry["shares"] for entry in records if entry.get("record") == "test-begin"}
    assert {share["flows"] for share in shares["c01/1/streams"].values()} == {10}
    assert sum(share["number"] for share in shares["c01/1/pages"].values()) == 1001


def _is_start(entry: dict[str, object], trial: str) -> bool:
    event = entry.get("event")
    return isinstance(event, dict) and (event["type"], event.get("trial")) == ("started", trial)
