"""Help calls values by what they are, and `-t` knows the habits of iperf3's users."""

from __future__ import annotations

import os
import re
from typing import Any

import pytest
import typer

from in_process import built, leadline
from leadline.cli.app import app
from leadline.cli.thread_count import threads

TOP: dict[str, Any] = built(app).commands  # type: ignore[attr-defined]
COMMANDS = sorted(TOP)
BELOW = [f"{name} {word}" for name, one in TOP.items() for word in getattr(one, "commands", {})]


@pytest.mark.parametrize("command", [*COMMANDS, *BELOW])
def test_help_names_values_without_types_of_python(command: str) -> None:
    ended = leadline(*command.split(), "--help", variables={"COLUMNS": "80"})
    assert ended.returncode == 0
    types = re.findall(
        r"<[^<>]*(?:str|int|float|path|list|range|bool)[^<>]*>|\{\w+\}|<=x|x>=", ended.stdout, re.IGNORECASE
    )
    assert types == []
    assert max(map(len, ended.stdout.partition("Example")[0].splitlines())) <= 80


def test_overview_has_the_whole_summary_of_each_command_in_80_columns() -> None:
    lines = leadline("--help", variables={"COLUMNS": "80"}).stdout.partition("Commands:\n")[2].splitlines()
    assert sorted(line.split()[0] for line in lines) == COMMANDS
    assert [line for line in lines if not line.endswith(".") or line.endswith("..")] == []


@pytest.mark.parametrize("text", ["10s", "500ms", "1m30s"])
def test_a_time_for_threads_names_the_option_that_is_meant(text: str) -> None:
    with pytest.raises(typer.BadParameter, match=f"{text} is a time; -t is threads; -d/--duration is the time"):
        threads(256)(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("many", "'many' is not a number of threads; write 1 to 256"),
        ("-1", "'-1' is not a number of threads; write 1 to 256"),
        ("0", "0 is not possible; 1 to 256 threads"),
        ("257", "257 is not possible; 1 to 256 threads"),
        ("9" * 5000, "is not a number of threads"),
    ],
)
def test_impossible_numbers_of_threads_are_refused(text: str, said: str) -> None:
    with pytest.raises(typer.BadParameter, match=said):
        threads(256)(text)


def test_more_threads_than_cpus_are_taken_with_a_note(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1})
    assert threads(256)("2") == 2
    assert capsys.readouterr().err == ""
    assert threads(256)("10") == 10
    assert capsys.readouterr().err == "leadline: -t 10 means 10 threads, on 2 CPUs; -d/--duration is the time\n"
