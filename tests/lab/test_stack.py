"""Stacks of real daemons: HAProxy, Node.js and Redis answer a load, each request passes each tier once, and nothing
outlives them."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import cli_runs as cli
import pytest
from sut_runs import lab_is_possible, run

__all__ = ["lab_is_possible"]

_PATH = f"{os.environ['PATH']}:/usr/local/sbin:/usr/sbin:/sbin"
MISSING = [name for name in ("haproxy", "node", "redis-server", "nginx") if shutil.which(name, path=_PATH) is None]
pytestmark = [
    pytest.mark.lab,
    pytest.mark.apart,
    pytest.mark.takes(6),
    pytest.mark.usefixtures("lab_is_possible"),
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}"),
]
REQUESTS = 300

BANK = """
name: bank
sut:
  kind: stack
  tiers:
    - {name: router, kind: haproxy, tls: 1.2-1.3, cpus: 1, log_every: 3}
    - {name: app, kind: node, workers: 2, accounts: 10}
    - {name: store, kind: redis}
axes:
  sut.tiers.router.keep_alive: [http-keep-alive, httpclose]
tests:
  - name: load
    kind: http
    scheme: https
    tls: {verify: false}
    connections: 4
    number: 300
    warmup: 0s
    duration: 60s
"""

COMMANDS = """
name: any
sut:
  kind: stack
  check: /welcome
  tiers:
    - {name: front, kind: haproxy}
    - name: web
      kind: command
      argv: [nginx, -p, "{{folder}}", -c, "{{folder}}/nginx.conf"]
      files:
        nginx.conf: |
          daemon off; master_process off; pid {{folder}}/nginx.pid; error_log stderr;
          events { }
          http {
            access_log off;
            server { listen {{address}}:{{port}}; location /welcome { return 200 "hello"; } }
          }
tests:
  - {name: load, kind: http, path: /welcome, number: 50, connections: 2, warmup: 0s, duration: 60s}
"""


def entries(made: cli.Run, record: str) -> list[dict[str, Any]]:
    lines = (made.folder / "journal.ndjson").read_text().splitlines()
    return [entry for line in lines if (entry := json.loads(line)).get("record") == record]


def test_each_request_passes_each_tier_once(tmp_path: Path) -> None:
    made = cli.run(BANK, tmp_path)
    assert made.code == 0, made.err
    assert [made.figures("load", case)["requests"] for case in ("c01", "c02")] == [REQUESTS, REQUESTS]
    for counted in entries(made, "system-counters"):
        before, after, is_kept = counted["before"], counted["after"], counted["label"] == "c01/1/load"
        grown = {
            (tier, name): value - before[tier][name]
            for tier, values in after.items()
            for name, value in values.items()
            if isinstance(value, int) and name in before[tier]
        }
        assert grown["router", "requests"] == REQUESTS
        assert grown["store", "commands"] == REQUESTS, "a PING for each"
        assert grown["router", "opened"] + grown["router", "reused"] == REQUESTS
        assert (grown["router", "opened"] == REQUESTS) is not is_kept
        rows = after["router"]["rows"]
        assert after["router"]["logged"] >= REQUESTS // 3 - 1
        assert all(0 < row[1]["redis"] <= row[1]["app"] for row in rows)


def test_any_daemon_is_a_tier_by_its_command(tmp_path: Path) -> None:
    made = cli.run(COMMANDS, tmp_path)
    assert made.code == 0, made.err
    assert made.figures("load", "c01")["requests"] == 50
    [up] = entries(made, "bring-up")
    assert up["version"].startswith("HAProxy ") and up["version"].endswith(", nginx")
    assert [(tier["name"], tier["host"]) for tier in up["tiers"]] == [("front", "gateway"), ("web", "server")]


def test_killed_tier_is_named_and_the_others_end(tmp_path: Path) -> None:
    tiers = [
        {"name": "router", "kind": "haproxy"},
        {"name": "app", "kind": "node", "accounts": 10},
        {"name": "store", "kind": "redis"},
    ]
    said = run(
        tmp_path,
        topology="remote-access",
        clients=1,
        kind="stack",
        parameters={"tiers": tiers},
        kill=["server", "store"],
    )
    assert said["failure"].startswith(("store on server was ended by signal 9", "app on server exited with 1")), said


def test_stack_that_does_not_answer_is_refused_with_its_status(tmp_path: Path) -> None:
    tiers = [{"name": "app", "kind": "node", "accounts": 10}, {"name": "store", "kind": "redis", "host": "server"}]
    parameters = {"tiers": tiers, "check": "/missing"}
    said = run(tmp_path, topology="remote-access", clients=1, kind="stack", parameters=parameters)
    assert "the stack does not answer client1's request for http://" in said["error"]["message"], said
    assert "the answer has a status of 4xx" in said["error"]["message"]
