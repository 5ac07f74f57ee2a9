"""`leadline results`: prints the figures of one or several runs as rows."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from json import dumps
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leadline import csv_rows
from leadline.cli import options as o
from leadline.cli.output import print_all, print_damage, print_json
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
) -> int:
    """Print the figures of runs, finished or not.

    One row per run, case, trial, test and metric.
    """
    if as_csv and json:
        raise InputError("--csv and --json exclude each other")
    found = [(folder.run_id, *rows_of(folder)) for folder in open_runs(runs)]
    rows = [(run_id, rows_of_run) for run_id, rows_of_run, _ in found]
    for run_id, _, analysis in found:
        print_damage(run_id, analysis)
    everything = [row for _, rows_of_run in rows for row in rows_of_run]
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
    return 0


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

    from leadline.report.figures import signed

    title = Text(f"Run {run_id}", style="bold") if run_id is not None else None
    table = Table(box=None, pad_edge=False, header_style="bold", title=title, title_justify="left")
    for name in ("trial", "test", "metric", "value", "unit", "validity"):
        table.add_column(name, justify="right" if name == "value" else "left", overflow="fold")
    for row in rows:
        if row["trial"] is not None:
            value = "–" if row["value"] is None else signed(f"{row['value']:.6g}", row["bound"])
            cells = (row["trial"], row["test"], row["metric"], value, row["unit"], row["validity"])
            table.add_row(*(Text(cell) for cell in cells))
    return table


def _cell(value: object) -> object:
    if isinstance(value, dict | list):
        return dumps(value, default=str)
    return "" if value is None else value
