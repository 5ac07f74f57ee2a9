"""`leadline export`: the figures of runs for CI servers and time series databases, to a file or a receiver."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from leadline.cli import results
from leadline.cli.output import check_writable, print_damage, print_note, write_option_bytes, write_option_file
from leadline.cli.run_args import Runs, open_runs
from leadline.errors import InputError
from leadline.quantities import counted

if TYPE_CHECKING:
    from leadline.analysis.model import RunAnalysis
    from leadline.dataset import RunFolder

NAME = "export"
EXAMPLE = "Example: leadline export runs/*-nightly-* --format junit -o results.xml"


class Format(StrEnum):
    """What is written."""

    CSV = "csv"
    JUNIT = "junit"
    OPENMETRICS = "openmetrics"
    INFLUX = "influx"
    REMOTE_WRITE = "prometheus-remote-write"


def command(
    runs: Runs,
    form: Annotated[Format, typer.Option("--format", help="The format.", show_default=False)],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="The file to write; standard output unless given.", show_default=False),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(help="prometheus-remote-write: send to this receiver.", metavar="URL", show_default=False),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(help="With --url: a file with the receiver's bearer token.", show_default=False),
    ] = None,
    retries: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=100,
            help="With --url: attempts to send a request again while the receiver fails (5xx), has too many (429) or "
            "cannot be reached; the pause doubles from 0.5 s to 8 s. Default: 5.",
            metavar="N",
            show_default=False,
        ),
    ] = None,
) -> int:
    """Write the figures of runs for other tools.

    csv: one row per figure of every trial and case, as `results --csv --metric all`. junit: each target and each result
    of one run as a test case; missed is a failure, undecided an error, a result that is not valid is skipped.
    openmetrics and influx: the figures over the repeats with bounds, verdict and parameters, at the time at which the
    run began. prometheus-remote-write: the figures of each trial, at the time at which its test began.
    """
    folders = open_runs(runs)
    _check_options(form, len(folders), output, url, token_file, retries)
    if form is Format.REMOTE_WRITE:
        _remote_write(folders, output, url, token_file, retries)
        return 0
    text = _text(form, folders)
    if output is None:
        sys.stdout.write(text)
    else:
        write_option_file("--output", output, text)
    return 0


def _check_options(
    form: Format, runs: int, output: Path | None, url: str | None, token_file: Path | None, retries: int | None
) -> None:
    """Raises InputError for options that do not go together, before any run is read."""
    if form is Format.JUNIT and runs > 1:
        raise InputError("--format junit: one run makes one document", hint="export each run by itself")
    if url is not None and form is not Format.REMOTE_WRITE:
        raise InputError(f"--url: format {form.value} is not sent", hint="choose --format prometheus-remote-write")
    if token_file is not None and url is None:
        raise InputError("--token-file: there is no --url to send it to")
    if retries is not None and url is None:
        raise InputError("--retries: there is no --url to send to")
    if url is not None and output is not None:
        raise InputError("--url and --output exclude each other")
    if form is Format.REMOTE_WRITE and url is None and output is None:
        raise InputError(f"--format {form.value}: it is binary", hint="give --url URL, or --output FILE")
    if output is not None:
        check_writable("--output", output)


def _text(form: Format, folders: Sequence[RunFolder]) -> str:
    if form is Format.CSV:
        found = [results.rows_of(folder) for folder in folders]
        for folder, (_, analysis) in zip(folders, found, strict=True):
            print_damage(folder.run_id, analysis)
        return results.csv_text([row for rows, _ in found for row in rows])
    from leadline.report import exports

    analyses = _analyses(folders)
    match form:
        case Format.JUNIT:
            return exports.junit(analyses[0])
        case Format.OPENMETRICS:
            return exports.openmetrics(analyses)
        case _:
            return exports.influx(analyses)


def _remote_write(
    folders: Sequence[RunFolder], output: Path | None, url: str | None, token_file: Path | None, retries: int | None
) -> None:
    """Send the figures, or write them as one request."""
    from leadline.cli import remote_write_client as client
    from leadline.report import remote_write

    if url is not None:
        client.check_url(url)
    token = client.read_token(token_file) if token_file is not None else None
    samples = remote_write.samples_of(_analyses(folders))
    if not samples:
        raise InputError("there is no figure with a time to write", hint="`leadline results` lists what a run has")
    if output is not None:
        write_option_bytes("--output", output, remote_write.request_of(samples))
    elif url is not None:
        bodies = remote_write.requests_of(samples)
        most = client.RETRIES if retries is None else retries
        requests = client.send(url, bodies, remote_write.HEADERS, token, retries=most, on_retry=print_note)
        print_note(f"{counted(len(samples), 'sample')} in {counted(requests, 'request')}: {url}")


def _analyses(folders: Sequence[RunFolder]) -> list[RunAnalysis]:
    from leadline.trial import read_findings

    analyses = [read_findings(folder) for folder in folders]
    for folder, analysis in zip(folders, analyses, strict=True):
        print_damage(folder.run_id, analysis)
    return analyses
