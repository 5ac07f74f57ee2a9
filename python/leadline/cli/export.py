"""`leadline export`: the figures of runs in the formats of CI servers and of time series databases."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from leadline.cli import results
from leadline.cli.output import check_writable, print_damage, write_option_file
from leadline.cli.run_args import Runs, open_runs
from leadline.errors import InputError

NAME = "export"
EXAMPLE = "Example: leadline export runs/*-nightly-* --format junit -o results.xml"


class Format(StrEnum):
    """What is written."""

    CSV = "csv"
    JUNIT = "junit"
    OPENMETRICS = "openmetrics"
    INFLUX = "influx"


def command(
    runs: Runs,
    form: Annotated[Format, typer.Option("--format", help="The format.", show_default=False)],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="The file to write; standard output unless given.", show_default=False),
    ] = None,
) -> int:
    """Write the figures of runs for other tools.

    csv: one row per figure of every trial and case, as `results --csv`. junit: each target and each result of one run
    as a test case; missed is a failure, undecided an error, a result that is not valid is skipped. openmetrics and
    influx: the figures over the repeats with bounds, verdict and parameters, at the time at which the run began.
    """
    folders = open_runs(runs)
    if form is Format.JUNIT and len(folders) > 1:
        raise InputError("--format junit: one run makes one document", hint="export each run by itself")
    if output is not None:
        check_writable("--output", output)
    if form is Format.CSV:
        text = results.csv_text([row for folder in folders for row in results.rows_of(folder)[0]])
    else:
        from leadline.report import exports
        from leadline.trial import read_findings

        analyses = [read_findings(folder) for folder in folders]
        for folder, analysis in zip(folders, analyses, strict=True):
            print_damage(folder.run_id, analysis)
        match form:
            case Format.JUNIT:
                text = exports.junit(analyses[0])
            case Format.OPENMETRICS:
                text = exports.openmetrics(analyses)
            case _:
                text = exports.influx(analyses)
    if output is None:
        sys.stdout.write(text)
    else:
        write_option_file("--output", output, text)
    return 0
