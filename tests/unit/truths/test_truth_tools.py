"""How tools are run for a load, and what `leadline truths` says of names that it does not know."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from unittest import mock
from xml.etree import ElementTree

import pytest

from in_process import leadline
from leadline.analysis.tool_output import read_figures
from leadline.analysis.truths import Figure
from leadline.truths.model import DatagramLoad, FloodLoad, HttpLoad, Load, RoundTripLoad, StreamLoad
from leadline.truths.suite import TOOLS, TRUTHS, allow_for_the_end
from leadline.truths.tools import Command

RATE = HttpLoad(connections=10, duration_s=2.5, rate_per_s=50)
NUMBER = HttpLoad(connections=4, duration_s=2, number=988)


@pytest.mark.parametrize(
    ("tool", "load", "words"),
    [
        ("leadline", RATE, "http http://h:80/ -c 10 -d 2.5s --rate 50 --json"),
        ("leadline", NUMBER, "http http://h:80/ -c 4 -n 988 -d 60s --json"),
        ("leadline", DatagramLoad(8_000_000, 1000, 200), "udp h -p 80 -n 200 -d 60s --rate 8000000 -l 1000 --json"),
        ("leadline", StreamLoad(3), "tcp h -p 80 -d 3s --json"),
        ("leadline", RoundTripLoad(3), "rr h -p 80 -d 3s --json"),
        ("wrk", RATE, "wrk -t1 -c10 -d3s --latency http://h:80/"),
        ("ab", RATE, "ab -q -k -r -c 10 -t 3 -n 100000000 http://h:80/"),
        ("ab", NUMBER, "ab -q -k -r -c 4 -n 988 http://h:80/"),
        ("h2load", RATE, "h2load --h1 -t1 -c 10 -D 3 --rps=5 http://h:80/"),
        ("leadline", FloodLoad(1000, 3), "udp h -p 80 -d 3s -l 1000 --json"),
        ("iperf3", FloodLoad(1000, 3), "iperf3 -J -c h -p 80 -u -b 0 -l 1000 -t 3"),
        ("iperf3", StreamLoad(3), "iperf3 -J -c h -p 80 -t 3"),
        ("iperf3", DatagramLoad(8_000_000, 1000, 200), "iperf3 -J -c h -p 80 -u -b 8000000 -l 1000 -k 200"),
    ],
)
def test_command_of_a_tool(tool: str, load: Load, words: str) -> None:
    assert " ".join(TOOLS[tool].command(load, "h", 80).argv).endswith(words)


@pytest.mark.parametrize(
    ("load", "scenario"),
    [
        (NUMBER, {"executor": "shared-iterations", "vus": 4, "iterations": 988, "maxDuration": "60s"}),
        (HttpLoad(4, 2), {"executor": "constant-vus", "vus": 4, "duration": "2000ms"}),
        (
            RATE,
            {
                "executor": "constant-arrival-rate",
                "rate": 50,
                "duration": "2500ms",
                "preAllocatedVUs": 10,
                "maxVUs": 10,
            },
        ),
    ],
)
def test_script_of_k6_has_the_load(load: HttpLoad, scenario: dict[str, object]) -> None:
    command = TOOLS["k6"].command(load, "h", 80)
    (script,) = command.files.values()
    found = re.search(r"load: (\{.*?\}) \}", script)
    assert found is not None
    assert json.loads(found[1]) == scenario
    assert 'http.get("http://h:80/")' in script
    assert command.result == "summary.json"


@pytest.mark.parametrize(
    ("load", "by_time", "loops", "per_minute"),
    [(NUMBER, "false", "247", None), (HttpLoad(4, 2), "true", "-1", None), (RATE, "true", "-1", "3000.000000")],
)
def test_plan_of_jmeter_has_the_load(load: HttpLoad, by_time: str, loops: str, per_minute: str | None) -> None:
    command = TOOLS["jmeter"].command(load, "h", 80)
    (plan,) = command.files.values()
    root = ElementTree.fromstring(plan)
    properties = {node.get("name"): node.text for node in root.iter() if node.get("name")}
    assert properties["ThreadGroup.num_threads"] == str(load.connections)
    assert (properties["ThreadGroup.scheduler"], properties["LoopController.loops"]) == (by_time, loops)
    assert (properties["HTTPSampler.domain"], properties["HTTPSampler.port"]) == ("h", "80")
    assert root.findtext(".//ConstantThroughputTimer/doubleProp/value") == per_minute


@pytest.mark.parametrize("tool", TOOLS)
def test_each_tool_has_a_truth_and_a_reader(tool: str) -> None:
    assert any(TOOLS[tool].has(truth.load) for truth in TRUTHS.values())
    with pytest.raises(Exception, match=f"{tool} printed no figure"):
        read_figures(tool, "nothing")


def test_each_truth_has_leadline_and_a_figure() -> None:
    assert all(TOOLS["leadline"].has(truth.load) and truth.figures for truth in TRUTHS.values())
    assert all(identifier == truth.id and len(identifier) <= 15 for identifier, truth in TRUTHS.items())


def test_counts_of_a_load_that_ends_by_time_allow_what_is_under_way() -> None:
    count, rate = Figure("requests", "count"), Figure("requests_per_s", "1/s")
    assert allow_for_the_end(count, NUMBER, Command(())).slack == 4
    assert allow_for_the_end(count, NUMBER, Command((), ends_by_number=True)).slack == 0
    assert allow_for_the_end(rate, NUMBER, Command(())).slack == 0
    assert allow_for_the_end(count, StreamLoad(3), Command(())).slack == 0


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("gatling",), "TOOL gatling: there is none of this name; one of leadline, wrk, "),
        (("--only", "http-lies"), "--only http-lies: there is none of this name; one of http-stall, "),
    ],
)
def test_unknown_name_is_refused_in_one_line(arguments: tuple[str, ...], line: str) -> None:
    ended = leadline("truths", *arguments)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith(f"leadline: {line}")
    assert ended.stderr.count("\n") == 1


def test_tool_that_is_not_installed_is_refused_in_one_line() -> None:
    with mock.patch.object(shutil, "which", return_value=None):
        ended = leadline("truths", "wrk")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == "leadline: wrk is not installed; install it, or leave TOOL out\n"


def test_truths_and_tools_are_listed() -> None:
    with mock.patch.object(shutil, "which", return_value=None):
        listed = leadline("truths", "--list")
        document = json.loads(leadline("truths", "--list", "--json", "--only", "udp-loss").stdout)
    assert listed.returncode == 0
    assert all(name in listed.stdout for name in (*TRUTHS, "wrk (not installed)"))
    assert [truth["id"] for truth in document["truths"]] == ["udp-loss"]
    assert document["installed"]["leadline"] is True
    assert document["installed"]["iperf3"] is False


def test_page_has_each_truth() -> None:
    page = (Path(__file__).parents[3] / "docs" / "truths.md").read_text(encoding="utf-8")
    described = re.findall(r"^\*\*`(\S+)`: (.*)\.\*\* ", page, re.MULTILINE)
    assert described == [(truth.id, truth.title) for truth in TRUTHS.values()], "stale: run `make truths`"
