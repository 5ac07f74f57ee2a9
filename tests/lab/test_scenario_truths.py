"""Scenarios against a server that counts, resets connections, hangs and fails: what each side counts is the same, and
every iteration ends in exactly one state."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import cli_runs as cli
import pytest
from http_servers import counting

from in_process import leadline

pytestmark = [
    pytest.mark.skipif(not cli.LEADLINE.exists(), reason="the leadline command is not installed"),
    pytest.mark.agent,
    pytest.mark.takes(5),
]

# What the request in the middle of a visit asks for, and its cause of failure.
CAUSES = {
    "ok": None,
    "failed": "status_503",
    "reset": "reset",
    "reset_in_head": "reset",
    "reset_in_body": "reset",
    "reset_after": None,
    "truncated": "closed_early",
    "truncated_head": "closed_early",
    "early": "closed_early",
    "hang": "response_timeout",
}
EACH = 8
MIXED = f"""
name: mixed
base: http://127.0.0.1:${{param('port')}}
data: [{{name: kinds, columns: [kind], rows: [{", ".join(f"[{kind}]" for kind in CAUSES)}], advance: explicit}}]
groups:
  - name: visitors
    load: {{users: 5, iterations: {EACH * len(CAUSES) // 5}}}
    flow:
      - next: kinds
      - transaction: visit
        steps:
          - {{get: /ok/1, name: first}}
          - if: kind == 'hang'
            then: [{{get: /hang, name: middle, timeout: 100ms}}]
            else: [{{get: '/${{kind}}', name: middle}}]
          - {{get: /ok, name: last}}
  - name: stuck
    load: {{rate: 8/s, users: 2, most_users: 2, duration: 2500ms, grace: 0s}}
    flow: [{{transaction: wait, steps: [{{get: /hang, name: never}}]}}]
"""


def test_resets_timeouts_and_failures_are_counted_the_same_on_both_sides(tmp_path: Path) -> None:
    (tmp_path / "mixed.yaml").write_text(MIXED, encoding="utf-8")
    jtl = tmp_path / "mixed.jtl"
    with counting(tmp_path) as server:
        options = ("-J", f"port={server.port}", "-t", "2", "--jtl", str(jtl), "--json")
        done = leadline("scenario", str(tmp_path / "mixed.yaml"), *options)
        assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    labels = {one["name"]: one for one in found["scenario"]["labels"]}
    visits = EACH * len(CAUSES)
    failing = [cause for cause in CAUSES.values() if cause is not None]
    # A request that a kept connection's orderly end leaves without an answer is sent again, once.
    asked = dict.fromkeys(CAUSES, EACH) | {"early": 2 * EACH, "ok": EACH + 2 * visits, "hang": EACH + 2}
    assert server.account.requests == asked
    assert (labels["first"]["ended"], labels["middle"]["ended"], labels["last"]["ended"]) == (visits, visits, visits)
    assert (labels["first"]["failed"], labels["last"]["failed"]) == (0, 0)
    assert labels["middle"]["errors"] == {cause: EACH * failing.count(cause) for cause in failing}
    assert (labels["visit"]["ended"], labels["visit"]["failed"]) == (visits, EACH * len(failing))
    assert (labels["never"]["ended"], labels["never"]["interrupted"], labels["wait"]["interrupted"]) == (0, 2, 2)
    check_iterations(found, visits, EACH * len(failing))
    check_requests(found, sum(asked.values()), visits)
    check_rows(jtl, visits)


def check_iterations(found: dict[str, Any], visits: int, failed: int) -> None:
    """Each that was due is in one state."""
    visitors, stuck = found["scenario"]["groups"]
    assert (visitors["due"], visitors["completed"], visitors["failed"]) == (visits, visits - failed, failed)
    assert (stuck["due"], stuck["interrupted"], stuck["dropped"]) == (20, 2, 18)
    for group in (visitors, stuck):
        ended = group["completed"] + group["failed"] + group["interrupted"]
        assert group["begun"] == ended
        assert group["due"] == ended + group["dropped"] + group["not_begun"]


def check_requests(found: dict[str, Any], received: int, visits: int) -> None:
    """Each that was due has one fate; of those that hung the latency is at least their age."""
    value = {name: metric["value"] for name, metric in found["metrics"].items()}
    assert value["requests_due"] == 3 * visits + 2
    assert (value["requests_sent"], value["repeated"]) == (received, EACH)
    assert (value["unanswered"], value["unsent"]) == (2, 0)
    without_answer = sum(count for cause, count in found["errors"].items() if not cause.startswith("status_"))
    assert value["requests"] + without_answer + value["unanswered"] == value["requests_due"]
    assert value["latency_censored"] == EACH + 2
    middle, never = (one for one in found["scenario"]["labels"] if one["name"] in ("middle", "never"))
    assert (middle["latency_censored"], never["latency_censored"]) == (EACH, 2)
    assert middle["latency_max_us"] >= 100_000 and "latency_max_us" in middle["censored"]
    assert "latency_p50_us" in never["censored"]


def check_rows(jtl: Path, visits: int) -> None:
    """JMeter's results have a row for each request and transaction that ended."""
    with jtl.open(encoding="utf-8", newline="") as opened:
        rows = list(csv.DictReader(opened))
    assert len(rows) == 4 * visits
    timed_out = [row for row in rows if row["responseCode"] == "Non HTTP response code: response_timeout"]
    assert len(timed_out) == EACH and all(int(row["elapsed"]) >= 100 for row in timed_out)
