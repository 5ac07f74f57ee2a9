"""`leadline results`: prints the figures of one or several runs as rows."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from json import dumps
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leadline import csv_rows
from leadline.cli import options as o
from leadline.cli.output import print_all, print_damage, print_json, print_note
from leadline.cli.run_args import Runs, open_runs
from leadline.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from leadline.analysis.model import RunAnalysis
    from leadline.dataset import RunFolder

NAME = "results"
EXAMPLE = "Example: leadline results runs/*-gateway-* --csv > figures.csv"

COLUMNS = (
    "run",
    "case",
    "trial",
    "test",
    "kind",
    "metric",
    "value",
    "unit",
    "low",
    "high",
    "censored",
    "validity",
    "parameters",
    "reasons",
    "baseline",
    "ratio",
    "ratio_low",
    "ratio_high",
    "comparison",
    "bound",
)


def command(
    runs: Runs,
    as_csv: Annotated[bool, typer.Option("--csv", help="Comma-separated values.")] = False,
    json: o.Json = False,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            "--metric",
            help="Print this figure, or all of them: all; may be repeated. "
            "Default: the main figures of each test; with --json all of them.",
            metavar="METRIC|all",
        ),
    ] = None,
) -> int:
    """Print the figures of runs, finished or not.

    One row per run, case, trial, test and metric.
    """
    if as_csv and json:
        raise InputError("--csv and --json exclude each other")
    found = [(folder.run_id, *rows_of(folder)) for folder in open_runs(runs)]
    for run_id, _, analysis in found:
        print_damage(run_id, analysis)
    asked = metric or (["all"] if json else [])
    _check_metrics(asked, [row for _, rows_of_run, _ in found for row in rows_of_run])
    rows = [(run_id, chosen_rows(rows_of_run, asked)) for run_id, rows_of_run, _ in found]
    everything = [row for _, rows_of_run in rows for row in rows_of_run]
    left_out = sum(len(rows_of_run) for _, rows_of_run, _ in found) - len(everything)
    if json:
        run_ids = [run_id for run_id, _ in rows]
        document = {
            "run": run_ids[0] if len(run_ids) == 1 else None,
            "runs": run_ids,
            "journals": {run_id: analysis.journal for run_id, _, analysis in found},
            "rows": everything,
        }
        print_json({"schema": "leadline.results/1", **document})
    elif as_csv:
        sys.stdout.write(csv_text(everything))
    else:
        print_all([_table(run_id if len(rows) > 1 else None, rows_of_run) for run_id, rows_of_run in rows])
    if left_out and not asked:
        print_note(
            f"{left_out:,} rows of other figures are left out: --metric all prints them, --metric NAME one figure"
        )
    return 0


def chosen_rows(rows: Sequence[dict[str, Any]], asked: Sequence[str]) -> list[dict[str, Any]]:
    """The rows of these metrics, or of all; by default of the figures that a line of each kind shows, and of all where
    a test has none of those."""
    from leadline.analysis.main_figures import line_figures

    if "all" in asked:
        return list(rows)
    if asked:
        return [row for row in rows if row["metric"] in asked]
    main = {kind: set(line_figures(kind)) for kind in {row["kind"] for row in rows}}
    known = {(row["case"], row["trial"], row["test"]) for row in rows if row["metric"] in main[row["kind"]]}
    return [
        row
        for row in rows
        if row["metric"] in main[row["kind"]] or (row["case"], row["trial"], row["test"]) not in known
    ]


def _check_metrics(asked: Sequence[str], rows: Sequence[dict[str, Any]]) -> None:
    """Check that some test has each of these metrics. Raises InputError."""
    from difflib import get_close_matches

    names = list(dict.fromkeys(row["metric"] for row in rows))
    for name in asked:
        if name != "all" and name not in names and names:
            close = get_close_matches(name, names) or names
            raise InputError(f"--metric {name}: no test of these runs has it", hint=f"as in --metric {close[0]}")


def csv_text(rows: Sequence[dict[str, Any]]) -> str:
    """Rows as comma-separated values, with a head."""
    return csv_rows.csv_text([COLUMNS, *([_cell(row[name]) for name in COLUMNS] for row in rows)])


def rows_of(folder: RunFolder) -> tuple[list[dict[str, Any]], RunAnalysis]:
    """The rows of a run, and the findings that they are made of."""
    from leadline.analysis import result_rows
    from leadline.trial import read_findings

    analysis = read_findings(folder)
    return [{"run": folder.run_id, **row} for row in result_rows(analysis)], analysis


def _table(run_id: str | None, rows: Sequence[dict[str, Any]]) -> Table:
    """The rows of one run's trials, under the run's name if there are several runs."""
    from rich.table import Table
    from rich.text import Text

    from leadline import quantities
    from leadline.report.figures import signed

    title = Text(f"Run {run_id}", style="bold") if run_id is not None else None
    table = Table(box=None, pad_edge=False, header_style="bold", title=title, title_justify="left")
    for name in ("trial", "test", "metric", "value", "validity"):
        table.add_column(name, justify="right" if name == "value" else "left", overflow="fold")
    for row in rows:
        if row["trial"] is not None:
            value = signed(quantities.metric(row["value"], row["unit"]), row["bound"])
            cells = (row["trial"], row["test"], row["metric"], value, row["validity"])
            table.add_row(*(Text(cell) for cell in cells))
    return table


def _cell(value: object) -> object:
    if isinstance(value, dict | list):
        return dumps(value, default=str)
    return "" if value is None else value
