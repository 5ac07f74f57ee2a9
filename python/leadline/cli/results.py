"""`leadline results`: a run's figures as rows."""

from __future__ import annotations

import csv
import sys
from json import dumps
from pathlib import Path
from typing import Annotated

import typer

from leadline.cli import options as o
from leadline.cli.output import print_all, print_json

NAME = "results"
EXAMPLE = "Example: leadline results runs/20260102T030405Z-gateway-3f2a9c --csv > figures.csv"

COLUMNS = (
    "case",
    "trial",
    "test",
    "kind",
    "metric",
    "value",
    "unit",
    "low",
    "high",
    "validity",
    "parameters",
    "reasons",
)


def command(
    run: Annotated[Path, typer.Argument(help="A run's folder.", show_default=False)],
    as_csv: Annotated[bool, typer.Option("--csv", help="Comma-separated values.")] = False,
    json: o.Json = False,
) -> int:
    """Print the figures of a run, finished or not: one row per case, trial, test and metric."""
    from leadline.analysis import analyse, result_rows
    from leadline.dataset import RunFolder, read_journal

    folder = RunFolder.open(run)
    journal = read_journal(folder.journal_path)
    rows = list(result_rows(analyse(folder.read_manifest(), journal)))
    if json:
        print_json({"schema": "leadline.results/1", "run": folder.run_id, "rows": rows})
    elif as_csv:
        writer = csv.writer(sys.stdout)
        writer.writerow(COLUMNS)
        writer.writerows([[_cell(row[name]) for name in COLUMNS] for row in rows])
    else:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in ("trial", "test", "metric", "value", "unit", "validity"):
            table.add_column(name, justify="right" if name == "value" else "left")
        for row in rows:
            if row["trial"] is not None:
                value = "–" if row["value"] is None else f"{row['value']:.6g}"
                cells = (row["trial"], row["test"], row["metric"], value, row["unit"], row["validity"])
                table.add_row(*(Text(cell) for cell in cells))
        print_all([table])
    return 0


def _cell(value: object) -> object:
    if isinstance(value, dict | list):
        return dumps(value, default=str)
    return "" if value is None else value
