"""`leadline trend`: the history of each figure over a folder of runs, and whether one of them became worse lately."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from leadline.cli import options as o
from leadline.cli.output import (
    MISSED,
    UNDECIDED,
    check_writable,
    plain,
    print_all,
    print_json,
    print_note,
    share,
    write_option_file,
)
from leadline.errors import DatasetError, InputError
from leadline.quantities import counted

if TYPE_CHECKING:
    from leadline.analysis.model import JournalDamage
    from leadline.analysis.trend import RecordedRun
    from leadline.dataset import RunFolder

NAME = "trend"
EXAMPLE = "Example: leadline trend runs --since 90d --html trend.html"


def command(
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="Folder with run folders, at any depth.", show_default=False),
    ],
    since: Annotated[
        str | None,
        typer.Option(help="Leave out runs before this: 2026-01-31, or 90d.", metavar="TIME", show_default=False),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(help="A figure to follow; repeatable. Default: the main figures.", metavar="METRIC"),
    ] = None,
    margin: Annotated[str, typer.Option(help="A shift by less than this is no regression.", metavar="SHARE")] = "2%",
    newest: Annotated[
        int, typer.Option(min=1, help="A regression that began in this many newest runs of a plan is new.")
    ] = 10,
    html: Annotated[
        Path | None, typer.Option(help="Write a page with a plot of each history.", show_default=False)
    ] = None,
    json: o.Json = False,
) -> int:
    """Find regressions and improvements over many runs.

    Each is named with the run at which the level of the figure shifts.

    A history has one plan, case, test, figure, hardware and kernel. Ten valid runs are the least. Exit code: 0 no new
    regression, or too few runs to judge; 2 invalid input; 3 a regression in the newest runs; 4 no regression is known,
    but a figure that was judged before has no value to judge in any of the newest runs.
    """
    from leadline.analysis.trend import Shift, trend_of
    from leadline.report import trend_blocks

    least = share("--margin", margin)
    earliest = _earliest(since)
    if html is not None:
        check_writable("--html", html)
    runs = list(_recorded(folder, earliest))
    missing = _missing(metric or (), runs)
    found = trend_of(runs, metrics=tuple(metric or ()), margin=least, newest=newest)
    if html is not None:
        from leadline.report import render_trend

        write_option_file("--html", html, render_trend(found))
        print_note(f"page: {html}")
    if json:
        print_json({"schema": "leadline.trend/1", **plain(found)})
    else:
        print_all(trend_blocks(found))
    if found.of_shift(Shift.REGRESSION, is_new=True):
        return MISSED
    for name in missing:
        print_note(f"--metric {name}: no run has a value of it")
    return UNDECIDED if found.silent or missing else 0


def _missing(names: Sequence[str], runs: Sequence[RecordedRun]) -> list[str]:
    """The figures that tests of the runs could have, and that no run has, as where all of them failed.

    Raises:
        InputError: one that no test of the runs has: a misspelled one would raise no alarm for ever.
    """
    from leadline.plan.target_words import suggestion
    from leadline.plan.targets import has_metric

    known = sorted({name for run in runs for summary in run.summaries for name in summary.metrics})
    kinds = {summary.kind for run in runs for summary in run.summaries}
    missing = [name for name in names if runs and name not in known]
    for name in missing:
        if not any(has_metric(kind, name) for kind in kinds):
            hint = suggestion(name, known) if known else "`leadline results` lists what a run has"
            raise InputError(f"--metric {name or repr(name)}: no run has such a figure", hint=hint)
    return missing


def _recorded(folder: Path, earliest: str | None) -> Iterator[RecordedRun]:
    """The runs below a folder, from a time on. One that cannot be read is named on stderr and left out; one whose
    journal is damaged is named."""
    from leadline.analysis.trend import recorded_run
    from leadline.trial import read_findings

    hint = "give the folder that holds the runs, as in `runs`"
    try:
        is_folder = folder.is_dir()
    except OSError as error:
        raise InputError(f"{folder} cannot be read: {error.strerror or error}", hint=hint) from None
    if not is_folder:
        raise InputError(f"{folder} is not a folder", hint=hint)
    for run in _run_folders(folder):
        try:
            analysis = read_findings(run)
            found = recorded_run(run.run_id, analysis, run.read_manifest())
        except (DatasetError, InputError) as error:
            print_note(f"left out: {error}")
            continue
        if earliest is None or not found.started_at or found.started_at >= earliest:
            if damage := _damage_text(analysis.journal):
                print_note(f"{run.run_id}: its journal is damaged: {damage}")
            yield found


def _damage_text(damage: JournalDamage) -> str:
    """What is lost of a journal; empty for a whole one."""
    lost = damage.garbled + damage.malformed
    parts = ([counted(lost, "unreadable line")] if lost else []) + (["the last line is torn"] if damage.torn else [])
    return ", ".join(parts)


def _run_folders(folder: Path) -> Iterator[RunFolder]:
    """Every folder that has a run's files; nothing inside of one is looked at."""
    from leadline.dataset import RunFolder

    for path, folders, files in os.walk(folder):
        folders.sort()
        if {"run.json", "findings.json", "journal.ndjson"} & set(files):
            folders.clear()
            yield RunFolder(Path(path))


def _earliest(since: str | None) -> str | None:
    """The earliest start that counts, as text that sorts by time."""
    if since is None:
        return None
    number = since.removesuffix("d")
    try:
        if since.endswith("d") and number.isdecimal() and len(number) <= 5:
            moment = datetime.now(UTC) - timedelta(days=int(number))
        else:
            moment = datetime.fromisoformat(since)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return moment.astimezone(UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError):  # the latter where UTC is in the year 0 or 10000
        raise InputError(f"--since {since}: not a time", hint="as in --since 2026-01-31, or 90d") from None
