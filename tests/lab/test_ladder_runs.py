"""Ladders on real hosts: against `leadline serve`, layers that are not offered, and a lab with and without a tunnel."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cli_runs as cli
import pytest

from in_process import leadline
from leadline.agents import Agent
from leadline.contract.models import Progress
from leadline.trial import Interrupt, load
from leadline.trial.event_log import EventLog
from waiting import free_port

pytestmark = [
    pytest.mark.lab,
    pytest.mark.apart,
    pytest.mark.takes(14),
    pytest.mark.skipif(bool(cli.why_not()), reason=cli.why_not() or "-"),
]

LAYERS = [
    "UDP",
    "TCP",
    "HTTP bodies",
    "HTTPS bodies",
    "UDP requests",
    "TCP requests",
    "HTTP requests",
    "HTTPS requests",
]
FEW = ("--layers", "tcp,https")
SHORT = ("-d", "1500ms")
"""Long enough that no process stalls for all of it."""


def measured(ladder: dict[str, Any]) -> dict[str, float | None]:
    return {layer["title"]: layer["figure"]["value"] for layer in ladder["layers"]}


def ports(server: cli.Server) -> tuple[str, ...]:
    return ("--port", str(server.port), "--http-port", str(server.http_port))


def test_all_layers_of_a_server(tmp_path: Path) -> None:
    https = str(free_port())
    with cli.serve("--https-port", https) as server:
        where = ("127.0.0.1", *ports(server), "--https-port", https)
        done = cli.call("ladder", *where, *SHORT, "--json", "--out", str(tmp_path))
        shown = cli.call("ladder", *where, *SHORT, "--layers", "rr,udp", variables={"COLUMNS": "80"})
    assert done.returncode == 0, done.stderr
    (ladder,) = json.loads(done.stdout)["ladders"]
    figures = measured(ladder)
    assert list(figures) == LAYERS and all(value is not None and value > 0 for value in figures.values())
    tcp = ladder["layers"][1]
    assert tcp["below"] == "UDP" and tcp["share"]["value"] > 0 and tcp["share"]["reason"]
    assert {cost["host"] for cost in tcp["costs"]} >= {"this host", "answering side", "machine"}
    assert ladder["baseline"] is None and ladder["why_alone"] and ladder["look_first"]
    (folder,) = tmp_path.iterdir()
    assert ladder["look_first"] in (folder / "report.html").read_text().replace("&#39;", "'")
    assert shown.returncode == 0 and max(map(len, shown.stdout.splitlines())) <= 80
    assert "UDP requests" in shown.stdout and "HTTP" not in shown.stdout


def test_layer_that_is_not_offered_is_named_and_the_others_go_on() -> None:
    with cli.serve() as server:
        done = cli.call("ladder", "127.0.0.1", *ports(server), "--https-port", str(free_port()), *FEW, *SHORT, "--json")
    assert done.returncode == 0, done.stderr
    (ladder,) = json.loads(done.stdout)["ladders"]
    figures = measured(ladder)
    missing = [title for title, value in figures.items() if value is None]
    assert missing == ["HTTPS bodies", "HTTPS requests"]
    for layer in ladder["layers"]:
        assert bool(layer["error"]) == (layer["title"] in missing)


def test_lost_agent_leaves_the_layers_before_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The agent is killed as soon as it tells how the second layer goes on."""
    run = load.run

    async def run_and_kill(
        wanted: load.Load, agents: Mapping[str, Agent], clocks: Any, event_log: EventLog, interrupt: Interrupt
    ) -> None:
        [agent] = agents.values()
        if wanted.test["name"] == "ladder-tcp":
            event_log.listen(lambda _, event: agent._channel.kill() if isinstance(event, Progress) else None)
        await run(wanted, agents, clocks, event_log, interrupt)

    monkeypatch.setattr(load, "run", run_and_kill)
    with cli.serve() as server:
        options = ("--layers", "udp,tcp", *SHORT, "--json", "--out", str(tmp_path))
        done = leadline("ladder", "127.0.0.1", *ports(server), *options)
    assert done.returncode == 1, done.stderr
    document = json.loads(done.stdout)
    (ladder,) = document["ladders"]
    udp, tcp = ladder["layers"]
    assert (document["status"], udp["error"]) == ("failed", None)
    assert udp["figure"]["value"] > 0
    assert "the agent on this host is lost" in tcp["error"]
    assert "the agent on this host is lost" in done.stderr.splitlines()[-1]
    (folder,) = tmp_path.iterdir()
    assert (folder / "report.html").exists()
    last = [json.loads(line) for line in (folder / "journal.ndjson").read_text().splitlines()][-3:]
    ends = [(entry["record"], entry["status"]) for entry in last]
    assert ends == [("test-end", "failed"), ("trial-end", "failed"), ("run-end", "failed")]


def test_both_addresses_of_a_server_stand_side_by_side() -> None:
    with cli.serve("--bind", "127.0.0.1", "--bind", "127.0.0.2") as server:
        options = ("--outside", "127.0.0.2", "--layers", "tcp", "--repeat", "2", *SHORT, "--json")
        done = cli.call("ladder", "127.0.0.1", *ports(server), *options)
    assert done.returncode == 0, done.stderr
    first, outside = json.loads(done.stdout)["ladders"]
    (tcp,) = first["layers"]
    assert first["baseline"] == outside["case"] and tcp["below"] == "the plain route"
    share = tcp["share_of_baseline"]
    assert share["value"] > 0 and ((share["low"] or 0) < share["value"] or share["reason"])


def test_nothing_there_fails_in_one_line() -> None:
    nowhere = str(free_port())
    where = ("--port", nowhere, "--http-port", nowhere, "--https-port", nowhere)
    done = cli.call("ladder", "127.0.0.1", *where, *SHORT)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.splitlines()[-1].startswith("leadline: no layer of 127.0.0.1 could be measured: ")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--layers", "udp,tpc"), "--layers: there is no layer 'tpc' (did you mean 'tcp'?)"),
        (("-d", "soon"), "--duration:"),
        (("-d", "400ms", "--warmup", "500ms"), "--warmup: 500 ms of warm-up leave no time of 400 ms"),
        (("--rate", "fast"), "--rate:"),
        (("--outside", "127.0.0.1"), "--outside 127.0.0.1: this is HOST itself"),
        (("-4", "-6"), "--ipv4 and --ipv6 exclude each other"),
        (("--key-file", "/nonexistent"), "--key-file /nonexistent:"),
    ],
)
def test_wrong_input_is_one_line(options: tuple[str, ...], said: str) -> None:
    done = leadline("ladder", "127.0.0.1", *options)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert said.partition(" (")[0] in done.stderr


def test_tunnels_of_the_example_stand_beside_their_plain_route(tmp_path: Path) -> None:
    run = cli.run(cli.ROOT / "examples" / "ladder.yaml", tmp_path, "--set", "ladder={duration: 1100ms, warmup: 100ms}")
    assert run.code == 0, run.err
    *tunnels, route = run.report()["ladders"]
    systems = ["wireguard", *(["openvpn"] if cli.OPENVPN else [])]
    assert [tunnel["sut"] for tunnel in tunnels] == systems and route["baseline"] is None
    assert {tunnel["baseline"] for tunnel in tunnels} == {route["case"]}
    for ladder in (*tunnels, route):
        assert list(measured(ladder)) == LAYERS
        assert all(value is not None and value > 0 for value in measured(ladder).values()), ladder["case"]
    assert route["layers"][0]["below"] == "the link" and route["layers"][0]["share"]["value"] < 1
    page = (run.folder / "report.html").read_text()
    assert 'id="ladder"' in page
    for tunnel, system in zip(tunnels, systems, strict=True):
        udp = tunnel["layers"][0]
        assert udp["below"] == "the plain route" and 0.03 < udp["headers"] < 0.06
        costs = {cost["host"]: cost for cost in udp["costs"]}
        assert costs["gateway"]["ns_per_byte"] > 0 and costs["gateway"]["ns_per_packet"] > 0
        levels = [bar["label"] for bar in tunnel["waterfalls"][0]["bars"] if bar["kind"] == "level"]
        assert levels[:3] == ["link", "UDP, plain route", f"UDP, {system}"]
        assert tunnel["look_first"] in " ".join(run.out.split())
        assert tunnel["look_first"] in page.replace("&#39;", "'")


def test_scenario_of_a_plan_stands_on_http(tmp_path: Path) -> None:
    base = "http://${param('server')}:${param('port')}"
    user = f"base: {base}\nload: {{users: 1, duration: 1500ms}}\nflow: [{{get: '/?size=12'}}]\n"
    (tmp_path / "user.yaml").write_text(user)
    plan = """
        name: users
        sut: {kind: route}
        ladder: {layers: [http], duration: 1500ms}
        tests: [{name: ladder-scenario, kind: scenario, file: user.yaml}]
    """
    run = cli.run(plan, tmp_path)
    assert run.code == 0, run.err
    (ladder,) = run.report()["ladders"]
    figures = measured(ladder)
    assert list(figures) == ["HTTP bodies", "HTTP requests", "Scenario"] and figures["Scenario"]
    layer = ladder["layers"][2]
    assert layer["below"] == "HTTP requests" and layer["share"]["value"] > 0
    assert not any("users at once" in note for note in ladder["notes"])


@pytest.mark.full_matrix
def test_search_finds_the_rate_of_the_lowest_layer(tmp_path: Path) -> None:
    with cli.serve() as server:
        asked = ("--layers", "udp,tcp", "--rate", "search", "--repeat", "2", *SHORT, "--json", "--out", str(tmp_path))
        done = cli.call("ladder", "127.0.0.1", *ports(server), *asked)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    (ladder,) = document["ladders"]
    assert [layer["title"] for layer in ladder["layers"]] == ["UDP", "TCP"]
    (found,) = (one for one in document["summaries"] if one["test"] == "ladder-udp")
    assert (
        found["repeats"] == 2 and found["metrics"]["found_rate_bps"]["value"] == ladder["layers"][0]["figure"]["value"]
    )
    assert ladder["layers"][0]["figure"]["value"] > 1e6
