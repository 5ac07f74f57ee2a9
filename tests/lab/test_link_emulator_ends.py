"""How a run with Leadline's own link emulator ends: in order, by Ctrl-C, and because the emulator's agent is killed in
the middle. It leaves nothing on the machine, and its failure has its name.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab_scripts import network_names
from real_runs import (
    LONG,
    ROUTE,
    SHORT,
    CliSandbox,
    Run,
    await_end,
    figures,
    open_sandbox,
    progress_of,
    records,
    report,
    write_plan,
)

pytestmark = [pytest.mark.lab, pytest.mark.apart, pytest.mark.takes(10)]
EMULATED = {"emulator": "own", "link": {"rate": "100mbit", "delay": "1ms"}}
END_OF_LINK = b" near:"
"""An interface that only the emulator's host has, in /proc/net/dev."""


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[CliSandbox]:
    with open_sandbox(tmp_path) as opened:
        yield opened


def emulating(sandbox: CliSandbox, **more: object) -> Run:
    """A run over an emulated link whose second test is under way."""
    run = sandbox.run(write_plan(sandbox.folder, [ROUTE], [SHORT, LONG], lab=EMULATED, **more), "--json")
    run.wait_for(progress_of("long"))
    return run


def emulator_of(sandbox: CliSandbox) -> int:
    """The pid, out here, of the emulator's agent."""
    [found] = [pid for pid in sandbox.processes() if is_emulator(Path(f"/proc/{pid}"))]
    return found


def is_emulator(process: Path) -> bool:
    program = process.joinpath("cmdline").read_bytes().split(b"\0")[0]
    return program.endswith(b"leadline-agent") and END_OF_LINK in process.joinpath("net/dev").read_bytes()


def test_emulator_that_is_killed_fails_its_trial_by_name(sandbox: CliSandbox) -> None:
    names = network_names()
    run = emulating(sandbox)
    everyone = sandbox.processes()
    os.kill(emulator_of(sandbox), signal.SIGKILL)
    ended = run.finish()
    assert ended.code == 1
    said = "the agent on emulator is lost: its process was ended by SIGKILL"
    assert said in ended.err and "Traceback" not in ended.err
    [folder] = sandbox.folders()
    [end] = records(run.journal(), "trial-end")
    assert (end["status"], end["error"]["message"]) == ("failed", said)
    assert [test["status"] for test in records(run.journal(), "test-end")] == ["done", "failed"]
    # What was measured before is kept.
    assert figures(folder)["c01/1", "short", "transactions"] > 0
    assert said in report(folder)[1]
    await_end(everyone)
    assert (sandbox.left_behind(), network_names()) == ([], names)


def test_interrupted_emulator_tells_its_counters_and_leaves_nothing(sandbox: CliSandbox) -> None:
    names = network_names()
    run = emulating(sandbox)
    everyone = sandbox.processes()
    run.process.send_signal(signal.SIGINT)
    ended = run.finish()
    assert ended.code == 130 and "Traceback" not in ended.err, ended.err
    events = [entry["event"] for entry in run.journal() if "event" in entry]
    [last] = [event for event in events if event["type"] == "emulated" and event["ended"]]
    assert last["a_to_b"]["all"]["forwarded"] > 100
    await_end(everyone)
    assert (sandbox.left_behind(), network_names()) == ([], names)


def test_finished_emulator_leaves_nothing(sandbox: CliSandbox) -> None:
    names = network_names()
    ended = sandbox.run(write_plan(sandbox.folder, [ROUTE], [SHORT], lab=EMULATED), "--json").finish()
    assert ended.code == 0, ended.err
    assert (sandbox.left_behind(), network_names()) == ([], names)
