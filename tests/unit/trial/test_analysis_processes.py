"""Trials that other processes analyse have the results that this process would have found, whatever befalls those."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from leadline.analysis.trial_tests import Begin, analyse_at_once
from leadline.dataset import Journal, RunFolder
from leadline.registry import KINDS
from leadline.trial import analysis_processes, conclude
from waiting import until

sys.path[:0] = [str(Path(__file__).parents[1] / "analysis")]

from made_journals import EPOCH_NS, MadeRun, S  # noqa: E402

LONG = 1 << 40
HOLDER = Path(__file__).with_name("process_holder.py")


@pytest.fixture(autouse=True)
def two_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """A run of more trials than wait for a process at a time."""
    made = MadeRun()
    made.begin()
    for number in range(1, 7):
        made.begin_trial(f"c01/{number}", clients=1)
        made.test(f"c01/{number}", number * 1.0e6, begin_ns=EPOCH_NS + number * 60 * S)
        made.end_trial(f"c01/{number}")
    made.end()
    run = RunFolder.create(tmp_path, "made")
    run.write_manifest({"name": "made", "run_id": run.run_id})
    with Journal(run.journal_path) as journal:
        for entry in made.entries:
            journal.append(entry)
    return run


@pytest.fixture
def expected(folder: RunFolder) -> Iterator[bytes]:
    """The findings that this process finds alone."""
    conclude(folder)
    yield folder.findings_path.read_bytes()


def children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def test_findings_of_other_processes_are_the_same(
    folder: RunFolder, expected: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(analysis_processes, "_LEAST_JOURNAL_BYTES", 0)
    assert conclude(folder).problems == ()
    assert folder.findings_path.read_bytes() == expected


@pytest.mark.parametrize("program", [("-c", ""), ("--version",)], ids=["says nothing", "says something else"])
def test_work_of_processes_that_die_is_done_here(
    folder: RunFolder, expected: bytes, monkeypatch: pytest.MonkeyPatch, program: tuple[str, ...]
) -> None:
    monkeypatch.setattr(analysis_processes, "_LEAST_JOURNAL_BYTES", 0)
    monkeypatch.setattr(analysis_processes, "_PROGRAM", program)
    assert conclude(folder).problems == ()
    assert folder.findings_path.read_bytes() == expected


def test_short_journal_is_analysed_here() -> None:
    with analysis_processes.analysis_processes(1000) as begin:
        assert begin is analyse_at_once


def test_kind_of_test_that_other_processes_do_not_know_is_analysed_here() -> None:
    def used() -> Begin:
        with analysis_processes.analysis_processes(LONG) as begin:
            return begin

    with KINDS.added("own", object()):
        assert used() is analyse_at_once
    # What another test registered and removed does not count.
    assert used() is not analyse_at_once


def test_processes_end_with_one_that_is_killed() -> None:
    with subprocess.Popen([sys.executable, str(HOLDER)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "started\n"
        started = children(holder.pid)
        assert started
        holder.send_signal(signal.SIGKILL)
    until(lambda: not any(Path(f"/proc/{pid}/cmdline").exists() for pid in started))
