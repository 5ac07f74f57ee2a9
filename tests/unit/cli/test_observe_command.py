"""`leadline observe` with a real agent: its lines, its document, the cost of a command, and how bad input ends."""

from __future__ import annotations

import json
from subprocess import CompletedProcess
from typing import Any

import pytest

from in_process import leadline
from leadline.cli.observe import has_line

pytestmark = pytest.mark.agent


def observe(*arguments: str) -> CompletedProcess[str]:
    return leadline("observe", *arguments)


def test_document_has_every_interval_and_the_total() -> None:
    ended = observe("-d", "2s", "--interval", "200ms", "--soak", "--process", "leadline-agent", "--json")
    assert ended.returncode == 0, ended.stderr
    document: dict[str, Any] = json.loads(ended.stdout)
    assert document["schema"] == "leadline.observation/1"
    assert document["interval_ms"] == 200
    assert len(document["intervals"]) >= 2
    total = document["total"]
    assert total["end_s"] == document["intervals"][-1]["end_s"]
    assert total["context_switches_per_s"] > 0
    assert "lo" in {one["name"] for one in total["interfaces"]}
    assert all(one["user"] >= 0 for one in total["cpus"])
    assert set(total["pressure"]) == {"cpu", "memory", "io", "irq"}
    assert document["soaker"]["name"] == "soaker"
    assert document["command"] is None


def test_program_without_a_process_is_noted() -> None:
    ended = observe("-d", "200ms", "-i", "100ms", "--process", "nosuch", "--process", "python3", "--json")
    assert ended.returncode == 0, ended.stderr
    assert "leadline: --process nosuch: no such process was seen" in ended.stderr.splitlines()


def test_lines_and_tables_fit_80_columns() -> None:
    ended = observe("-d", "300ms", "--interval", "100ms", "--soak")
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].split()[:6] == ["s", "usr", "sys", "sirq", "stl", "wai"]
    assert {"CPUs", "left"} <= set(ended.stdout.split())


def test_exit_code_and_cost_of_a_command_are_passed_on() -> None:
    ended = observe("--json", "--", "sh", "-c", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; exit 7")
    assert ended.returncode == 7, ended.stderr
    cost = json.loads(ended.stdout)["command"]
    assert (cost["code"], cost["signal"]) == (7, None)
    assert cost["user_s"] > 0
    assert cost["elapsed_s"] >= cost["user_s"] / 2
    assert cost["machine"]["user_s"] >= 0


def test_signal_that_ended_a_command_is_its_exit_code() -> None:
    ended = observe("--", "sh", "-c", "kill -TERM $$")
    assert ended.returncode == 128 + 15
    assert "signal 15" in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere",), "'nowhere' is not a host"),
        (("--interval", "5ms"), "--interval"),
        (("-d", "soon"), "--duration"),
        (("-d", "0"), "--duration: a duration must be above 0"),
        (("-d", "1s", "--", "true"), "the command's end is the end"),
        (("--",), "no command after --"),
        # Numbers of processes are below this one.
        (("-d", "1s", "--pid", "4194304"), "--pid 4194304: this host has no such process"),
        (("--", "/no/such/program"), "it cannot be started"),
    ],
)
def test_bad_input_is_refused_in_one_line(arguments: tuple[str, ...], message: str) -> None:
    ended = observe(*arguments)
    assert ended.returncode == 2
    assert message in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_a_moment_after_the_last_interval_has_no_line_of_rates() -> None:
    assert not has_line(0.0002, 1000)
    assert has_line(0.1, 1000) and has_line(0.95, 1000)
