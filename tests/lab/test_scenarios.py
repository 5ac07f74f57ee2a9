"""Scenarios against a small shop that counts, behind nginx: all sides agree, in our format and in JMeter's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import cli_runs as cli
import pytest
from http_servers import certificates, front_nginx
from shop_server import Shop

from in_process import leadline
from waiting import until

pytestmark = [
    pytest.mark.skipif(not cli.LEADLINE.exists(), reason="the leadline command is not installed"),
    pytest.mark.agent,
    pytest.mark.takes(12),
]


@pytest.fixture
def shop() -> Iterator[Shop]:
    with Shop() as running:
        thread = Thread(target=running.serve_forever)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def ran(port: int, file: Path, *options: str) -> dict[str, Any]:
    """The document of a scenario that met its targets."""
    done = leadline("scenario", str(file), "-J", f"port={port}", "--json", *options)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


# Of twelve visits, four of which buy something.
ANSWERS = {"POST /login 200": 12, "GET /item 200": 120, "POST /cart 200": 4}


def test_shop_nginx_before_it_and_users_count_the_same(shop: Shop, tmp_path: Path) -> None:
    """Both examples, and the native one's flow over TLS with an unknown certificate."""
    secret = tmp_path / "secret.yaml"
    text = (cli.ROOT / "examples" / "shop.yaml").read_text(encoding="utf-8").replace("base: http:", "base: https:")
    secret.write_text(text.replace("{follow: true}", "{follow: true, verify: false}"), encoding="utf-8")
    (tmp_path / "shop-users.csv").write_bytes((cli.ROOT / "examples" / "shop-users.csv").read_bytes())
    with front_nginx(tmp_path, shop.port, certificates(tmp_path)) as front:
        for file in (cli.ROOT / "examples" / "shop.yaml", cli.ROOT / "examples" / "shop.jmx", secret):
            port = front.tls if file == secret else front.port
            found = ran(port, file, "-J", "threads=3", "-J", "loops=4")
            check_visits(shop, found)
            until(lambda: front.answers() == ANSWERS, front.answers)
            front.log.write_text("")
            shop.counts.clear()
            opened = found["metrics"]["connections_opened"]["value"]
            handshakes = [found["metrics"][f"handshakes_{kind}"]["value"] for kind in ("full", "resumed")]
            # Each user keeps its connection.
            assert opened == 3
            assert sum(count or 0 for count in handshakes) == (3 if file == secret else 0)


def check_visits(shop: Shop, found: dict[str, Any]) -> None:
    """Twelve visits, four of which bought something."""
    labels = {one["name"]: one for one in found["scenario"]["labels"]}
    assert shop.counts["login 200"] == labels["login"]["ended"] == 12
    assert shop.counts["item 200"] == labels["item"]["ended"] == 120
    # One in three of twelve passes, spread evenly.
    assert shop.counts["buy 200"] == labels["buy"]["ended"] == 4
    assert sum(shop.counts.values()) == 136
    assert sum(one["failed"] for one in found["scenario"]["labels"]) == 0
    (group,) = found["scenario"]["groups"]
    assert (group["due"], group["completed"], group["users_most"]) == (12, 12, 3)


@pytest.mark.decided_by("an exact count")
def test_a_rate_begins_its_iterations_and_a_missed_threshold_has_its_code(shop: Shop, tmp_path: Path) -> None:
    file = tmp_path / "rate.yaml"
    file.write_text(
        f"get: http://127.0.0.1:{shop.port}/none\nload: {{rate: 20/s, duration: 2500ms}}\n"
        "thresholds: {http_reqs: count<50, http_req_failed: rate<0.5}\n",
        encoding="utf-8",
    )
    done = leadline("scenario", str(file), "--json")
    # The count decides: of a share of failures other work leaves an upper bound.
    assert done.returncode == 3, done.stderr
    found = json.loads(done.stdout)
    outcomes = {one["target"]: one["outcome"] for one in found["targets"]}
    assert outcomes["requests < 50"] == "missed" and outcomes["error_ratio < 0.5"] != "met"
    assert found["metrics"]["error_ratio"]["value"] == 1
    assert found["scenario"]["groups"][0]["due"] == 50
    assert shop.counts["other 404"] == 50
    assert found["scenario"]["labels"][0]["errors"] == {"status_404": 50}


TAGGED = """
base: http://127.0.0.1:${param('port')}
load: {users: 2, iterations: 5}
thresholds:
  http_req_failed{name:item}: rate==1
  http_req_failed{team:front}: rate==0
  http_req_duration{group:::shop,method:POST}: p(95)<60000
  http_reqs{team:back}: count==10
  checks{check:is ok}: rate==1
  group_duration{group:::shop}: max<60000
  iterations{scenario:tagged}: count==10
  http_reqs{scenario:tagged}: count==21
name: tagged
flow:
  - transaction: shop
    tags: {team: front}
    steps:
      - post: /login
        form: {user: ada, password: analytical}
        check: [{status: 200, name: is ok}]
      - get: /item/1
        name: item
        tags: {team: back}
"""


@pytest.mark.decided_by("exact counts, and bounds of a minute")
def test_thresholds_with_tags_are_of_those_requests(shop: Shop, tmp_path: Path) -> None:
    file = tmp_path / "tagged.yaml"
    file.write_text(TAGGED, encoding="utf-8")
    done = leadline("scenario", str(file), "-J", f"port={shop.port}", "--json")
    assert done.returncode == 3, done.stderr
    found = json.loads(done.stdout)
    outcomes = {one["target"]: one["outcome"] for one in found["targets"]}
    assert {target: outcome for target, outcome in outcomes.items() if outcome != "met"} == {
        "requests{scenario:tagged} == 21": "missed",
        # 10 requests are too few for an interval of their 95th percentile.
        "service_p95_us{group:::shop,method:POST} < 60000000": "undecided",
    }
    assert found["metrics"]["requests{scenario:tagged}"]["value"] == 20
    tags = {one["name"]: one["tags"]["team"] for one in found["scenario"]["labels"]}
    assert tags == {"shop": "front", "POST /login": "front", "item": "back"}


def test_the_table_names_transactions_and_requests_and_k6_has_its_summary(shop: Shop, tmp_path: Path) -> None:
    summary = tmp_path / "k6.json"
    example = str(cli.ROOT / "examples" / "shop.yaml")
    done = leadline("scenario", example, "-J", f"port={shop.port}", "--summary-export", str(summary))
    assert done.returncode == 0, done.stderr
    metrics = json.loads(summary.read_text(encoding="utf-8"))["metrics"]
    assert metrics["iterations"]["count"] == 10
    assert metrics["http_reqs"]["count"] == sum(shop.counts.values())
    assert 0 < metrics["http_req_duration"]["med"] <= metrics["http_req_duration"]["p(95)"]
    assert metrics["checks"]["fails"] == 0
    for words in ("10 due, 10 completed", "log in", "look around", "item"):
        assert words in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 80


LOADS = {"users": "{users: 3, iterations: 4}", "rate": "{rate: 8/s, duration: 1500ms}"}


@pytest.mark.parametrize("load", LOADS)
def test_the_ceiling_follows_from_what_the_threads_of_a_real_run_report(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, load: str
) -> None:
    """Twelve iterations of one request each, so both ceilings are the same, however busy this machine is."""
    for least in ("LEAST_BUSY", "LEAST_BUSY_S", "LEAST_ANSWERS"):
        monkeypatch.setattr(f"leadline.kinds.scenario.own_ceiling.{least}", 0)
    file = tmp_path / "one.yaml"
    text = f"get: \"http://127.0.0.1:${{param('port')}}/item/1\"\nload: {LOADS[load]}\n"
    file.write_text(text, encoding="utf-8")
    found = ran(shop.port, file)
    generator = found["generator"]
    assert shop.counts["item 403"] == sum(shop.counts.values()) == 12
    assert generator["ceiling_basis"] == "this run"
    # An iteration ends with its answer, so that at each reading both counts are the same.
    assert generator["ceiling_per_s"] > 0
    assert generator["ceiling_iterations_per_s"] == pytest.approx(generator["ceiling_per_s"])
    assert load == "users" or generator["ceiling_users"] is None
