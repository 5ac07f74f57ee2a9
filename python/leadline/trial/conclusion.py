"""Makes everything else in a run's folder from its journal, in one pass: findings.json, tables, flame graphs, page.
Tables only where the library for them is installed.

A finished run, a killed run and a report that is made again all go through `conclude`. It needs no lab and no system
under test. If only findings.json is left of a run, it draws the page from that.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from leadline import __version__
from leadline.analysis import analyse, result_rows
from leadline.analysis.findings_json import FindingsDocument, decode_findings, encode_findings_in_parts
from leadline.analysis.machine_rules import is_judged_alike
from leadline.analysis.model import RunAnalysis
from leadline.dataset import (
    JournalReader,
    NoTables,
    RunFolder,
    TableParts,
    note_missing_tables,
    read_journal,
    table_writer,
    write_results_table,
)
from leadline.dataset.atomic import replace, with_report_hint
from leadline.errors import DatasetError
from leadline.report import render_html
from leadline.trial.analysis_processes import analysis_processes
from leadline.trial.flame_graphs import draw_flame_graph, drawn_flame_graphs
from leadline.trial.journal_stretches import JournalCutter
from leadline.trial.unforeseen import unforeseen

if TYPE_CHECKING:
    from leadline.dataset import TableWriter

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """The result of a run: its folder, its findings, the problems of writing them, and what was left out on purpose."""

    folder: RunFolder
    analysis: RunAnalysis
    problems: tuple[str, ...]
    left_out: tuple[str, ...]


def conclude(folder: RunFolder) -> RunOutcome:
    """Analyse a run, finished or not, from its journal; writes the tables and the report beside it.

    A full disk or a defect prevents writing, but not the analysis: such problems are in the result.

    Raises:
        DatasetError: the journal cannot be read, or it is missing and findings.json is not of this version.
    """
    attempts = _Attempts(folder)
    with _collector_paused():
        analysis = _conclude(folder, attempts)
    left_out = note_missing_tables(folder)
    return RunOutcome(folder, analysis, tuple(dict.fromkeys(attempts.problems)), (left_out,) if left_out else ())


def _conclude(folder: RunFolder, attempts: _Attempts) -> RunAnalysis:
    if folder.journal_path.exists() or not folder.findings_path.exists():
        return _conclude_journal(folder, attempts)
    analysis = _read_document(folder).run
    _write_results_and_report(folder, analysis, attempts)
    return analysis


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Pause the garbage collector: entries and results have no cycles, and each collection walks through all
    results."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def read_findings(folder: RunFolder) -> RunAnalysis:
    """A run's findings: from findings.json if this version wrote it for the current journal, else from the journal.

    Raises:
        DatasetError: the journal cannot be read, or it is missing and findings.json is not of this version.
    """
    if not folder.journal_path.exists() and folder.findings_path.exists():
        return _read_document(folder).run
    with suppress(DatasetError):
        document = _read_document(folder)
        is_current = (document.analysed_by, document.journal_bytes) == (__version__, _journal_bytes(folder))
        if is_current and is_judged_alike(document.run):
            return document.run
    return analyse(folder.read_manifest(), read_journal(folder.journal_path))


class _Attempts:
    """Runs work whose failure does not affect the rest, and collects the errors."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._log = folder.logs_path / "report-traceback.log"
        self._is_full = False
        self.problems: list[str] = []

    def run(self, work: Callable[[], object]) -> None:
        """Do the work; a failure becomes a problem."""
        try:
            work()
        except Exception as error:
            self.note(error)

    def note(self, error: Exception) -> None:
        """Store the message of a failure; of a full disk only the first: it has no room for any of the files."""
        if isinstance(error, DatasetError) and error.is_full:
            if self._is_full:
                return
            self._is_full, error = True, with_report_hint(error, self._folder.path)
        shown = error if isinstance(error, DatasetError) else unforeseen(error, self._log)
        self.problems.append(str(shown))


class _Taker(Generic[_T]):
    """Passes on entries of the journal, or their rows, until one fails."""

    def __init__(self, take: Callable[[_T], None], attempts: _Attempts) -> None:
        self._take = take
        self._attempts = attempts
        self.is_failed = False

    def __call__(self, entry: _T) -> None:
        if self.is_failed:
            return
        try:
            self._take(entry)
        except Exception as error:
            self.is_failed = True
            self._attempts.note(error)


def _conclude_journal(folder: RunFolder, attempts: _Attempts) -> RunAnalysis:
    """The analysis, and in the same pass over the journal the tables and the flame graphs; then the page."""
    journal_bytes = _journal_bytes(folder)
    with (
        table_writer(folder.path) as tables,
        ThreadPoolExecutor(1, "tables") as background,
        analysis_processes(journal_bytes) as read,
    ):
        into_pictures = _Taker(partial(draw_flame_graph, folder), attempts)
        if read is None:
            into_tables: _Taker[Any] = _Taker(tables.take, attempts)
            reader = JournalReader(folder.journal_path, takers=(into_tables, into_pictures))
            analysis = analyse(folder.read_manifest(), reader)
        else:
            into_tables = _Taker(partial(_add_rows, tables), attempts)
            cutter = JournalCutter(folder.journal_path, read, (into_pictures,), into_tables)
            analysis = analyse(folder.read_manifest(), cutter.entries(), cutter.begin)
        if tables.malformed > analysis.journal.malformed:
            said = f"{tables.malformed} events of the journal have no rows: they lack required fields"
            attempts.problems.append(said)
        if not into_tables.is_failed:
            background.submit(attempts.run, tables.write)
        attempts.run(lambda: _complete_manifest(folder, analysis))
        attempts.run(lambda: _write_findings(folder, analysis, journal_bytes))
        _write_results_and_report(folder, analysis, attempts)
    return analysis


def _add_rows(tables: TableWriter | NoTables, rows: TableParts | Exception) -> None:
    if isinstance(rows, Exception):
        raise rows
    tables.add(rows)


def _write_results_and_report(folder: RunFolder, analysis: RunAnalysis, attempts: _Attempts) -> None:
    attempts.run(lambda: write_results_table(folder, result_rows(analysis)))
    attempts.run(lambda: _write_report(folder, analysis))


def _complete_manifest(folder: RunFolder, analysis: RunAnalysis) -> None:
    """Add the hosts' fingerprints, which only the agents know."""
    manifest = folder.read_manifest()
    if manifest and analysis.hosts and manifest.get("hosts") != analysis.hosts:
        folder.write_manifest({**manifest, "hosts": analysis.hosts})


def _write_findings(folder: RunFolder, analysis: RunAnalysis, journal_bytes: int | None) -> None:
    def write(path: Path) -> None:
        with path.open("wb") as file:
            file.writelines(encode_findings_in_parts(analysis, __version__, journal_bytes))

    replace(folder.findings_path, write)


def _read_document(folder: RunFolder) -> FindingsDocument:
    try:
        content = folder.findings_path.read_bytes()
    except OSError as error:
        raise DatasetError(f"cannot read {folder.findings_path}: {error.strerror or error}") from error
    return decode_findings(content, str(folder.findings_path))


def _journal_bytes(folder: RunFolder) -> int | None:
    try:
        return folder.journal_path.stat().st_size
    except OSError:
        return None


def _write_report(folder: RunFolder, analysis: RunAnalysis) -> None:
    page = render_html(analysis, drawn_flame_graphs(folder, analysis))
    replace(folder.report_path, lambda path: path.write_text(page, encoding="utf-8"))
