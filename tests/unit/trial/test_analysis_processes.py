"""Trials that other processes analyse have the results that this process would have found, whatever befalls those."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pytest

from leadline.analysis.frequent_events import FrequentEvents
from leadline.analysis.trial_tests import analyse_tests
from leadline.dataset import Journal, RunFolder, TableParts
from leadline.registry import KINDS
from leadline.trial import analysis_processes, conclude, conclusion
from leadline.trial.journal_stretches import JournalCutter, Read, ReadStretch, Stretch, read_stretch
from waiting import until

sys.path[:0] = [str(Path(__file__).parents[1] / "analysis")]

from made_journals import EPOCH_NS, MadeRun, S  # noqa: E402

pytestmark = pytest.mark.processes
LONG = 1 << 40
HOLDER = Path(__file__).with_name("process_holder.py")


@pytest.fixture(autouse=True)
def two_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """A run of more trials than wait for a process at a time."""
    journal_of = MadeRun()
    journal_of.begin()
    for number in range(1, 7):
        journal_of.begin_trial(f"c01/{number}", clients=1)
        journal_of.test(f"c01/{number}", number * 1.0e6, begin_ns=EPOCH_NS + number * 60 * S)
        journal_of.end_trial(f"c01/{number}")
    journal_of.end()
    run = RunFolder.create(tmp_path, "made")
    run.write_manifest({"name": "made", "run_id": run.run_id})
    with Journal(run.journal_path) as journal:
        for entry in journal_of.entries:
            journal.append(entry)
    return run


def damage(folder: RunFolder) -> None:
    """Lines of each sort that cannot be read, trials without an end, and a journal that ends in the middle of one."""
    lines = folder.journal_path.read_bytes().splitlines()
    frequent = [number for number, line in enumerate(lines) if b'"event":{"type":"observation"' in line]
    ends = [number for number, line in enumerate(lines) if line.startswith(b'{"record":"trial-end"')]
    begins = [number for number, line in enumerate(lines) if line.startswith(b'{"record":"trial-begin"')]
    lines[frequent[0]] = lines[frequent[0]][:-9]
    lines[frequent[1]] = b'{"host":"client1","at_ns":5,"event":{"type":"observation"}}'
    lines[frequent[2]] = lines[frequent[2]][:-1] + b',"later":\0 1}'
    lines[ends[1]] = b""
    lines[ends[2]] = b'{"record":"trial-end"'
    lines[begins[4]] += (
        b'\n{"host":"client1"}\n[]\n{"event":{"type":"observation","t_ns":7},"host":"gateway","at_ns":5}'
    )
    torn = (frequent[-1] + begins[-1]) // 2
    folder.journal_path.write_bytes(b"\n".join(lines[:torn]) + b"\n" + lines[torn][:40])


def made(folder: RunFolder) -> dict[str, object]:
    """Findings, and the rows of each table."""
    tables = {path.name: pl.read_parquet(path).rows() for path in sorted(folder.path.glob("*.parquet"))}
    return {"findings": folder.findings_path.read_bytes(), **tables}


@pytest.fixture
def expected(folder: RunFolder) -> dict[str, object]:
    """What this process makes alone."""
    conclude(folder)
    return made(folder)


def children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def test_findings_and_tables_of_other_processes_are_the_same(
    folder: RunFolder, expected: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(analysis_processes, "_LEAST_JOURNAL_BYTES", 0)
    assert conclude(folder).problems == ()
    assert made(folder) == expected


def test_stretches_are_read_without_the_library_for_tables(
    folder: RunFolder, expected: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    for table in folder.path.glob("*.parquet"):
        table.unlink()
    monkeypatch.setitem(sys.modules, "polars", None)

    @contextmanager
    def read_here(_: int | None) -> Iterator[Read]:
        def read(stretch: Stretch) -> Future[ReadStretch]:
            found: Future[ReadStretch] = Future()
            found.set_result(read_stretch(stretch))
            return found

        yield read

    monkeypatch.setattr(conclusion, "analysis_processes", read_here)
    assert conclude(folder).problems == ()
    assert made(folder) == {"findings": expected["findings"]}


@pytest.mark.usefixtures("damaged_journals")
def test_damaged_journal_is_counted_by_other_processes_as_by_this_one(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage(folder)
    alone = conclude(folder)
    expected = made(folder)
    damaged = alone.analysis.journal
    assert (damaged.garbled, damaged.torn) == (4, True)
    assert damaged.malformed >= 3
    monkeypatch.setattr(analysis_processes, "_LEAST_JOURNAL_BYTES", 0)
    assert conclude(folder).problems == alone.problems
    assert made(folder) == expected


@pytest.mark.parametrize("program", [("-c", ""), ("--version",)], ids=["says nothing", "says something else"])
def test_work_of_processes_that_die_is_done_here(
    folder: RunFolder, expected: dict[str, object], monkeypatch: pytest.MonkeyPatch, program: tuple[str, ...]
) -> None:
    monkeypatch.setattr(analysis_processes, "_LEAST_JOURNAL_BYTES", 0)
    monkeypatch.setattr(analysis_processes, "_PROGRAM", program)
    assert conclude(folder).problems == ()
    assert made(folder) == expected


def test_short_journal_is_analysed_here() -> None:
    with analysis_processes.analysis_processes(1000) as read:
        assert read is None


def test_kind_of_test_that_other_processes_do_not_know_is_analysed_here() -> None:
    def used() -> Read | None:
        with analysis_processes.analysis_processes(LONG) as read:
            return read

    with KINDS.added("own", object()):
        assert used() is None
    # What another test registered and removed does not count.
    assert used() is not None


def test_processes_end_with_one_that_is_killed() -> None:
    with subprocess.Popen([sys.executable, str(HOLDER)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "started\n"
        started = children(holder.pid)
        assert started
        holder.send_signal(signal.SIGKILL)
    until(lambda: not any(Path(f"/proc/{pid}/cmdline").exists() for pid in started))


def test_rows_of_a_stretch_are_passed_on_before_later_stretches_are_cut(folder: RunFolder) -> None:
    """At the end of the journal, all rows of a run would be in memory."""
    done: list[str] = []

    def read(stretch: Stretch) -> Future[ReadStretch]:
        done.append(f"cut {stretch.begin_byte}")
        found: Future[ReadStretch] = Future()
        found.set_result(ReadStretch(analyse_tests({}, FrequentEvents()), TableParts({}, stretch.begin_byte)))
        return found

    def into_tables(tables: TableParts | Exception) -> None:
        assert isinstance(tables, TableParts)
        done.append(f"rows {tables.malformed}")

    cutter = JournalCutter(folder.journal_path, read, (), into_tables)
    pending = []
    for entry in cutter.entries():
        if entry.get("record") == "trial-end":
            pending.append(cutter.begin({}, FrequentEvents()))
    assert len(pending) == 6
    begins = [line.split()[1] for line in done[::2]]
    assert done == [line for begin in begins for line in (f"cut {begin}", f"rows {begin}")]
    for wait in pending:
        wait()
    assert len(done) == 12, "rows were passed on twice"
