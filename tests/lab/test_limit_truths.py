"""What limited or disturbed a test, in real runs that were limited or disturbed on purpose: by the lab's link, the rate
that was asked, the generator, the server, and a spin loop. Each is named in every test of a run, whatever else the
machine does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cli_runs as cli
import polars as pl
import pytest
from busy_machine import limit_by
from foreign_work import spinners, taken_by_others

from in_process import leadline

needs_lab = pytest.mark.skipif(bool(cli.why_not()), reason=cli.why_not() or "-")

PLAN = """
    name: limits
    lab: {link: {rate: 20mbit}}
    sut: {kind: %s}
    repeat: %d
    tests:
      - {name: link, kind: tcp, duration: 1500ms, warmup: 300ms}
      - {name: offered, kind: udp, rate: 2mbit, packet: 1000, duration: 1s}
      - {name: flood, kind: udp, rate: 30mbit, packet: 1000, duration: 1500ms, warmup: 300ms}
"""


@needs_lab
@pytest.mark.lab
@pytest.mark.parametrize("repeats", [1, pytest.param(20, marks=pytest.mark.full_matrix)])
@pytest.mark.parametrize("system", ["route", pytest.param("wireguard", marks=pytest.mark.full_matrix)])
@pytest.mark.exclusive
def test_a_link_and_an_offered_rate_are_named(tmp_path: Path, repeats: int, system: str) -> None:
    run = cli.run(PLAN % (system, repeats), tmp_path)
    assert run.code == 0, run.err
    for trial in run.report()["trials"]:
        found = {test["test"]: test["limit"]["by"] for test in trial["tests"]}
        assert found == {"link": "link", "offered": offered_or_late(trial), "flood": "link"}, trial["tests"]
    dropped = run.samples.filter(pl.col("metric") == "queue_drops")["value"]
    assert max(dropped.to_list()) > 1000, "a third of the flood, by the queue in front of the link"


def offered_or_late(trial: dict[str, Any]) -> str:
    """What limits the offered rate: itself, or a sender that had to wait until the test took longer."""
    [offered] = [test for test in trial["tests"] if test["test"] == "offered"]
    late = any(reason["code"] == "ran-over" for reason in offered["validity"]["reasons"])
    assert not late or offered["window"]["end_ns"] - offered["window"]["start_ns"] > 1.02e9, offered
    return "generator" if late else "offered rate"


SIDES = """
    name: sides
    sut: {kind: route}
    repeat: %d
    tests:
      - {name: server, kind: http, path: "/?delay=50ms", connections: 2, duration: 1500ms, warmup: 300ms}
      - {name: generator, kind: http, script: busy.lua, connections: 32, duration: 1500ms, warmup: 300ms}
"""
# Each request costs its one thread more than its answer costs the server, so that the thread always has one to make.
BUSY_LUA = """
request = function()
  local sum = 0
  for number = 1, 200000 do sum = sum + number % 7 end
  return wrk.format("GET", "/?sum=" .. sum)
end
"""


@needs_lab
@pytest.mark.lab
@pytest.mark.parametrize("repeats", [1, pytest.param(20, marks=pytest.mark.full_matrix)])
@pytest.mark.exclusive
def test_a_generator_and_a_slow_server_are_named(tmp_path: Path, repeats: int) -> None:
    (tmp_path / "busy.lua").write_text(BUSY_LUA)
    run = cli.run(SIDES % repeats, tmp_path)
    assert run.code == 0, run.err
    for trial in run.report()["trials"]:
        found = {test["test"]: limit_by(test) for test in trial["tests"]}
        assert found == {"server": "server", "generator": "generator"}, [
            (test["limit"], test["validity"]) for test in trial["tests"]
        ]


SLOW_WORKER = Path(__file__).with_name("slow_worker_server.py")


@pytest.fixture(scope="module")
def slow_worker() -> Iterator[str]:
    """The address of a server with four workers, the last of which takes 40 ms for each request."""
    command = [sys.executable, str(SLOW_WORKER), "4", "0.04"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}/"
        process.kill()


@pytest.mark.lab
@pytest.mark.parametrize("runs", [1, pytest.param(20, marks=pytest.mark.full_matrix)])
@pytest.mark.exclusive
def test_a_server_with_one_slow_worker_is_named(slow_worker: str, runs: int) -> None:
    """Each connection waits for the slow worker once in four requests, and for hardly anything else."""
    for _ in range(runs):
        done = leadline("http", slow_worker, "-c", "4", "-d", "3s", "--json", "--no-calibrate")
        document = json.loads(done.stdout)
        assert limit_by(document) == "server", (document["limit"], document["validity"])
        # At most one request in 10 ms: four connections, and 40 ms of each four requests. Other work makes it less.
        assert 0 < document["metrics"]["requests_per_s"]["value"] <= 110


@pytest.mark.lab
@pytest.mark.exclusive
@pytest.mark.parametrize("runs", [1, pytest.param(20, marks=pytest.mark.full_matrix)])
def test_server_that_brings_less_than_is_due_is_named(slow_worker: str, runs: int) -> None:
    """Four times as many requests are due as the server answers; all connections wait for it."""
    for _ in range(runs):
        done = leadline("http", slow_worker, "-c", "4", "--rate", "400/s", "-d", "2s", "--json", "--no-calibrate")
        document = json.loads(done.stdout)
        assert limit_by(document) == "server", (document["limit"], document["validity"])
        assert 0 < document["metrics"]["requests_per_s"]["value"] <= 110


WINDOW_S = 1.5
STEADY = """
    name: steady
    sut: {kind: route}
    repeat: %d
    tests: [{name: tcp, kind: tcp, duration: 1800ms, warmup: 300ms}]
"""
LIMIT_SHARE = 0.05
"""Of the machine's CPUs: docs/figures.md, Verdicts."""


def disturbances(run: cli.Run) -> list[tuple[str, set[str]]]:
    """The verdict of each repeat, and the reasons for which it is disturbed."""

    def codes(test: dict[str, Any]) -> set[str]:
        return {reason["code"] for reason in test["validity"]["reasons"] if reason["verdict"] == "disturbed"}

    tests = [test for trial in run.report()["trials"] for test in trial["tests"]]
    return [(test["validity"]["verdict"], codes(test)) for test in tests]


@needs_lab
@pytest.mark.lab
@pytest.mark.parametrize("repeats", [1, pytest.param(20, marks=pytest.mark.full_matrix)])
@pytest.mark.machine_rules
def test_a_spin_loop_of_others_disturbs_every_repeat(tmp_path: Path, repeats: int) -> None:
    with spinners():
        run = cli.run(STEADY % repeats, tmp_path)
    assert run.code == 0, run.err
    found = disturbances(run)
    assert len(found) == repeats
    for verdict, reasons in found:
        assert (verdict, "other-work" in reasons) == ("disturbed", True), found


@needs_lab
@pytest.mark.lab
@pytest.mark.exclusive
@pytest.mark.parametrize("runs", [1, pytest.param(20, marks=pytest.mark.full_matrix)])
def test_a_run_on_a_quiet_machine_is_not_disturbed(tmp_path: Path, runs: int) -> None:
    """Where others took more of the CPUs than the limit allows, by the kernel's own account, the truth is that it was
    disturbed; anything less over the whole run cannot be more than the limit within its window."""
    allowed_s = LIMIT_SHARE * WINDOW_S * (os.cpu_count() or 1)
    for number in range(runs):
        (folder := tmp_path / str(number)).mkdir()
        with taken_by_others() as taken:
            run = cli.run(STEADY % 1, folder)
        assert run.code == 0, run.err
        [(verdict, reasons)] = disturbances(run)
        excused = {"other-work"} if taken.foreign_s > allowed_s else set()
        excused |= {"cpu-stolen"} if taken.stolen_s > allowed_s else set()
        assert reasons <= excused, (verdict, taken, run.out)


ON_LOOPBACK = {"tcp": ("-P", "4"), "rr": ()}
"""Both ends of each are on this machine, and none of them has a control group of its own."""


def on_given_hosts(kind: str, port: int) -> tuple[str, set[str]]:
    """The verdict of one command, and the reasons for which it is disturbed."""
    done = leadline(kind, "127.0.0.1", "-p", str(port), *ON_LOOPBACK[kind], "-d", "1500ms", "--json")
    validity = json.loads(done.stdout)["validity"]
    codes = {reason["code"] for reason in validity["reasons"] if reason["verdict"] == "disturbed"}
    return validity["verdict"], codes


@pytest.mark.lab
@pytest.mark.parametrize("runs", [1, pytest.param(20, marks=pytest.mark.full_matrix)])
@pytest.mark.parametrize("kind", ON_LOOPBACK)
@pytest.mark.machine_rules
def test_a_spin_loop_beside_given_hosts_disturbs_every_run(kind: str, runs: int) -> None:
    with cli.serve("--no-http") as server, spinners():
        found = [on_given_hosts(kind, server.port) for _ in range(runs)]
    assert len(found) == runs
    for verdict, reasons in found:
        assert (verdict, "other-work" in reasons) == ("disturbed", True), found


@pytest.mark.lab
@pytest.mark.exclusive
@pytest.mark.parametrize("runs", [1, pytest.param(20, marks=pytest.mark.full_matrix)])
@pytest.mark.parametrize("kind", ON_LOOPBACK)
def test_two_ends_on_a_quiet_machine_disturb_nothing(kind: str, runs: int) -> None:
    """By the kernel's own account, as in a lab; the server's processes end inside of it."""
    allowed_s = LIMIT_SHARE * WINDOW_S * (os.cpu_count() or 1)
    for _ in range(runs):
        with taken_by_others() as taken, cli.serve("--no-http") as server:
            verdict, reasons = on_given_hosts(kind, server.port)
        excused = {"other-work"} if taken.foreign_s > allowed_s else set()
        excused |= {"cpu-stolen"} if taken.stolen_s > allowed_s else set()
        assert reasons <= excused, (verdict, taken)
