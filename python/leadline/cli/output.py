"""Output that all subcommands share: errors, JSON, tables, and exit codes."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from leadline.errors import InputError
from leadline.masking import mask_text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from leadline.analysis.model import RunAnalysis, Summary, TargetResult, TestResult
    from leadline.dataset import RunFolder
    from leadline.trial import RunOutcome

MISSED, UNDECIDED = 3, 4
_NO_RENAME = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY, errno.ENAMETOOLONG})
"""Errors of a file whose folder takes no other file in its place: it may not be written, or the file is a mount point,
as in a container."""


def print_error(message: str, code: int) -> int:
    """Print an error as one line on stderr; returns the exit code."""
    print(f"leadline: {mask_text(' '.join(message.splitlines()))}", file=sys.stderr)
    return code


def print_note(message: str) -> None:
    """Print a note on stderr. The command goes on."""
    print(f"leadline: {mask_text(message)}", file=sys.stderr)


def print_all(renderables: Iterable[RenderableType], *, apart: bool = True) -> None:
    """Print tables on stdout in one write, separated by an empty line if `apart`. Uses colour only if stdout is a
    terminal and NO_COLOR is not set."""
    from leadline.cli.terminal import Terminal

    console = Terminal()
    for number, renderable in enumerate(renderables):
        if number and apart:
            console.print()
        console.print(renderable)
    sys.stdout.flush()


def print_json(document: Any) -> None:
    """Print one JSON document on stdout."""
    json.dump(document, sys.stdout, indent=2, default=plain, allow_nan=False)
    sys.stdout.write("\n")


def check_writable(option: str, path: Path) -> None:
    """Check that a file named by the user can be written, before a long measurement. Keeps the file's content, and
    leaves no file where none was.

    Raises:
        InputError: it cannot be written.
    """
    with naming(option, path):
        if path.is_fifo() or path.is_char_device() or _is_open(path):
            # Not opened: the reader of a pipe would read its end as soon as it is closed.
            if not os.access(path, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            return
        is_new = not path.exists()
        # A link may lead to a file that is not there yet: that one is made and removed, never the link.
        target = Path(os.path.realpath(path))
        with target.open("xb" if is_new else "ab"):
            pass
        if is_new:
            target.unlink()


def check_folder(option: str, path: Path | None) -> None:
    """Check that folders can be made in a folder named by the user, before a long measurement. Makes nothing.

    Raises:
        InputError: it is no folder, or may not be written to.
    """
    if path is None:
        return
    hint = "name a folder that can be made"
    try:
        path.exists()
    except PermissionError:
        pass  # a folder above it is named below
    except OSError as error:
        raise InputError(f"{option} {path}: {error.strerror or error}", hint=hint) from None
    # Unlike `Path.exists`, false for what may not be seen.
    there = next(one for one in (path, *path.absolute().parents) if os.path.exists(one))  # noqa: PTH110
    if not there.is_dir():
        raise InputError(f"{option} {path}: {there} is not a folder", hint=hint)
    if not os.access(there, os.W_OK | os.X_OK):
        raise InputError(f"{option} {path}: {there} may not be written to", hint=hint)


def write_option_file(option: str, path: Path, text: str) -> None:
    """Write the file that an option names.

    Raises:
        InputError: it cannot be written.
    """
    write_option_bytes(option, path, text.encode())


def write_option_bytes(option: str, path: Path, content: bytes) -> None:
    """Write the file that an option names, as `write_option_stream` does.

    Raises:
        InputError: it cannot be written.
    """
    write_option_stream(option, path, lambda file: file.write(content))


def write_option_stream(
    option: str, path: Path, write: Callable[[BinaryIO], object], *, is_private: bool = False
) -> None:
    """Let `write` write the file that an option names: at once, so that a reader never sees a part, and the old content
    stays if it fails. A link stays a link, and the file that it leads to keeps its owner and its mode; a private one
    may be read by its owner alone.

    Raises:
        InputError: it cannot be written.
    """
    from leadline.dataset.atomic import exchange

    def write_into(target: Path) -> None:
        fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600 if is_private else 0o666)
        with os.fdopen(fd, "wb") as file:
            if is_private and stat.S_ISREG(os.fstat(fd).st_mode):
                os.fchmod(fd, 0o600)
            write(file)

    with naming(option, path):
        if not _is_replaceable(path):
            write_into(path)
            return
        target = Path(os.path.realpath(path))
        old = target.stat() if target.exists() else None
        if old is not None and old.st_nlink > 1:
            write_into(target)  # under all of its names
            return

        def write_temporary(temporary: Path) -> None:
            temporary.touch(0o600 if is_private else 0o666)
            if old is not None:
                # Refused to those who may not give a file away: they write into the old one.
                os.chown(temporary, old.st_uid, old.st_gid)
                temporary.chmod(stat.S_IMODE(old.st_mode))
            write_into(temporary)

        try:
            exchange(target, write_temporary)
        except OSError as error:
            if error.errno not in _NO_RENAME:
                raise
            write_into(target)


def _is_replaceable(path: Path) -> bool:
    """Whether another file may take a path's place: pipes, devices, and what is open already are written to instead."""
    return not _is_open(path) and (path.is_file() or not path.exists())


def _is_open(path: Path) -> bool:
    """Whether a path names what is open already: /dev/stdout, /dev/fd/3. What it leads to may have no name."""
    return path.is_symlink() and path.absolute().parts[1] in ("dev", "proc")


def share(option: str, text: str) -> float:
    """A share that the user wrote: `5%`, or `0.05`.

    Raises:
        InputError: it is none from 0 to below 1.
    """
    from leadline.plan.units import fraction

    try:
        found = fraction(text) if "%" in text else float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found < 1:
        raise InputError(f"{option} {text}: not a share from 0 to 1", hint=f"as in {option} 5%, or 0.05")
    return found


@contextmanager
def naming(option: str, path: Path) -> Iterator[None]:
    """Turn an error of the system in the block into one that names the option and its file."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{option} {path}: {error.strerror or error}", hint="name a file that can be written"
        ) from None


def plain(value: Any) -> Any:
    """Convert a value that json cannot serialise."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple | set):
        return list(value)
    return str(value)


def result_document(result: TestResult, command: str, target: str) -> dict[str, Any]:
    """The document `leadline.result/1` of a single measurement."""
    return {
        "schema": "leadline.result/1",
        "command": command,
        "target": target,
        "metrics": result.metrics,
        "validity": result.validity,
        "limit": result.limit,
        "generator": result.generator,
        "errors": result.errors,
        "error_examples": result.error_examples,
        "fleet": result.fleet,
        "window": None
        if result.window is None
        else {
            "length_s": result.window.length_s,
            "cut_share": result.window.cut_share,
            "warm_up_s": result.window.warm_up_ns / 1e9,
            "unsettled": result.window.unsettled,
        },
        "naive": result.naive,
        "intervals": result.intervals,
        "wake_ups": result.wake_ups,
        "scenario": result.scenario,
        **({"packets": result.packets} if result.packets is not None else {}),
        "build_profiles": result.build_profiles,
    }


def print_run(
    outcome: RunOutcome, folder: RunFolder, json: bool, problems: Sequence[str], *, verbose: bool = True
) -> None:
    """Print a whole run: its document, all its tables or its summary on stdout; problems and the path of its page on
    stderr."""
    from leadline.report import run_renderables, run_summary

    if json:
        print_json(run_document(outcome.analysis, str(folder.path), problems))
    else:
        print_all((run_renderables if verbose else run_summary)(outcome.analysis))
    print_problems(folder, (*problems, *outcome.left_out))


def print_problems(folder: RunFolder, problems: Iterable[str]) -> None:
    """Print a run's problems and the path of its page on stderr."""
    for problem in problems:
        print_note(problem)
    if folder.report_path.exists():
        print_note(f"report: {folder.report_path}")


def finish_folder(folder: RunFolder) -> None:
    """Make a run folder's tables and page from its journal, and print the problems."""
    # Imported here: a measurement that is not kept does not need the libraries for tables.
    from leadline.trial import conclude

    outcome = conclude(folder)
    for said in (*outcome.problems, *outcome.left_out):
        print_note(said)


def note_folder(folder: RunFolder | None, code: int) -> int:
    """Print where a measurement was kept. Returns its exit code: 1 in place of 0 if its page could not be written."""
    if folder is None:
        return code
    if folder.report_path.exists():
        print_note(f"samples and report in {folder.path}")
        return code
    print_note(f"samples in {folder.path}, without a report")
    return code or 1


def run_document(analysis: RunAnalysis, folder: str, problems: Iterable[str]) -> dict[str, Any]:
    """The document `leadline.run-result/1` of a run. The series for plots stay in the run's tables."""
    trials = [
        {
            **plain(trial),
            "tests": [
                {**plain(test), "series": None, "percentiles": None, "distributions": None} for test in trial.tests
            ],
        }
        for trial in analysis.trials
    ]
    return {
        "schema": "leadline.run-result/1",
        "folder": folder,
        "run_id": analysis.run_id,
        "name": analysis.name,
        "status": analysis.status,
        "validity": analysis.validity,
        "summaries": analysis.summaries,
        "targets": analysis.targets,
        "scaling": analysis.scaling,
        "ladders": analysis.ladders,
        "cross_checks": analysis.cross_checks,
        "trials": trials,
        "notes": analysis.notes,
        "observer_cpu_share": analysis.observer_cpu_share,
        "journal": analysis.journal,
        "problems": list(problems),
    }


def print_damage(run_id: str, analysis: RunAnalysis) -> None:
    """Print on stderr which parts of a journal are unreadable: the tables do not show rows that are missing."""
    for reason in (*analysis.validity.reasons, *analysis.notes):
        if reason.code in ("journal-damaged", "journal-torn"):
            print_note(f"{run_id}: {reason.text}")


def targets_code(targets: Iterable[TargetResult]) -> int:
    """The exit code of the targets: 3 if one is missed, 4 if one cannot be decided, else 0."""
    outcomes = {target.outcome for target in targets}
    if "missed" in outcomes:
        return MISSED
    return UNDECIDED if "undecided" in outcomes else 0


def run_code(analysis: RunAnalysis, problems: Iterable[str]) -> int:
    """The exit code of a whole run. A path that was out when its test ended is a failure."""
    if analysis.status == "interrupted":
        return 130
    if any(problems) or analysis.status != "done" or any(map(_has_lost_link, analysis.summaries)):
        return 1
    return targets_code(analysis.targets)


def _has_lost_link(summary: Summary) -> bool:
    from leadline.analysis.outages import LINK_LOST

    return any(reason.code == LINK_LOST for reason in summary.validity.reasons)
