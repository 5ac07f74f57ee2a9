"""`leadline trend`: the history of each figure over a folder of runs, and whether one of them became worse lately."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from leadline.cli import options as o
from leadline.cli.output import (
    MISSED,
    check_writable,
    plain,
    print_all,
    print_json,
    print_note,
    share,
    write_option_file,
)
from leadline.errors import DatasetError, InputError

if TYPE_CHECKING:
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
    regression, or nothing to judge; 2 invalid input; 3 a regression in the newest runs.
    """
    from leadline.analysis.trend import Shift, trend_of
    from leadline.report import trend_blocks

    least = share("--margin", margin)
    earliest = _earliest(since)
    if html is not None:
        check_writable("--html", html)
    runs = [run for run in _recorded(folder) if earliest is None or not run.started_at or run.started_at >= earliest]
    found = trend_of(runs, metrics=tuple(metric or ()), margin=least, newest=newest)
    if html is not None:
        from leadline.report import render_trend

        write_option_file("--html", html, render_trend(found))
        print_note(f"page: {html}")
    if json:
        print_json({"schema": "leadline.trend/1", **plain(found)})
    else:
        print_all(trend_blocks(found))
    return MISSED if found.of_shift(Shift.REGRESSION, is_new=True) else 0


def _recorded(folder: Path) -> Iterator[RecordedRun]:
    """The runs below a folder. One that cannot be read is named on stderr and left out."""
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
            yield recorded_run(run.run_id, read_findings(run), run.read_manifest())
        except (DatasetError, InputError) as error:
            print_note(f"left out: {error}")


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
    if since.endswith("d") and number.isdecimal() and len(number) <= 5:
        moment = datetime.now(UTC) - timedelta(days=int(number))
    else:
        try:
            moment = datetime.fromisoformat(since)
        except ValueError:
            raise InputError(f"--since {since}: not a time", hint="as in --since 2026-01-31, or 90d") from None
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return moment.astimezone(UTC).isoformat(timespec="seconds")
