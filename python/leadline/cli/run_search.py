"""Runs a capacity search and prints its table or document: `leadline http --find-rate` and `leadline tunnel
--until-choke`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from leadline.analysis.search_findings import Trial
from leadline.cli.calibration import calibrated, is_calibrated
from leadline.cli.output import (
    MISSED,
    UNDECIDED,
    check_folder,
    finish_folder,
    note_folder,
    print_all,
    print_error,
    print_json,
    print_note,
)
from leadline.cli.progress import Progress
from leadline.cli.single_args import OutputOptions
from leadline.dataset import Journal, RunFolder
from leadline.errors import InputError
from leadline.report import search_report
from leadline.trial import Interrupt, Observer
from leadline.trial.capacity_search import Ending, SearchResult
from leadline.trial.find_rate import Answer, Search, SearchTarget, search_manifest


def finish(search_target: SearchTarget, output: OutputOptions) -> int:
    """Search, print, and return the exit code: 0 with a rate, 3 if none holds, 4 undecided, 1 failed, 130
    interrupted."""
    answer, folder = asyncio.run(_searched(search_target, output))
    text = search_target.conditions.text
    if output.json:
        print_json(document(answer, text, search_target.test.kind, output.target))
    else:
        reference = (answer.reference_name.removesuffix("_per_s").replace("_", " "), answer.reference)
        rate = answer.metrics["found_rate_per_s"]
        blocks = [search_report.found_rate(rate, reference, text, answer.validity, verbose=output.verbose)]
        for one in answer.further:
            blocks += [
                "",
                search_report.found_rate(one.rate, None, one.conditions, one.validity, verbose=output.verbose),
            ]
        print_all(["", *blocks], apart=False)
    code = note_folder(folder, exit_code(answer.found, answer.error))
    if answer.unwritten is not None and answer.error is None:
        return print_error(str(answer.unwritten), 1)
    return code


def check(output: OutputOptions, option: str) -> None:
    """Check that the other options are valid together with this search. Raises InputError."""
    check_folder("--out", output.out)
    if output.targets:
        raise InputError(f"--target and {option} exclude each other", hint=f"{option} already has conditions")
    if output.hdr is not None or output.format != "text":
        raise InputError(f"{option} runs many trials: --hdr and other formats are not possible")


def document(answer: Answer, conditions: str, command: str, target: str) -> dict[str, Any]:
    """The document `leadline.result/1` of a search: its figures, and every trial."""
    return {
        "schema": "leadline.result/1",
        "command": command,
        "target": target,
        "metrics": answer.metrics,
        "validity": answer.validity,
        "generator": answer.first.generator,
        "errors": answer.first.errors,
        "window": None,
        "intervals": [],
        "conditions": conditions,
        "ending": answer.found.ending,
        "deciding_trials_s": answer.found.decided_s,
        "trials": answer.trials,
        **({"further": answer.further} if answer.further else {}),
    }


async def _searched(search_target: SearchTarget, output: OutputOptions) -> tuple[Answer, RunFolder | None]:
    quiet = output.json and not sys.stderr.isatty()
    shown: list[Progress] = []

    @contextmanager
    def watching() -> Iterator[tuple[Observer, ...]]:
        with Progress(quiet=quiet) as progress:
            shown.append(progress)
            try:
                yield (progress,)
            finally:
                shown.clear()

    def on_trial(trial: Trial) -> None:
        """Show each trial once: as a row of the result, or on stderr if stdout has a document."""
        taken.append(trial)
        if not output.json:
            print_all(
                [
                    *([search_report.trials_head()] if len(taken) == 1 else []),
                    search_report.trial_row(trial, verbose=output.verbose),
                ],
                apart=False,
            )
        elif not quiet:
            print_note(search_report.trial_line(len(taken), trial))

    def stop_showing() -> None:
        for progress in shown:
            progress.stop()

    taken: list[Trial] = []
    interrupt = Interrupt(lambda: print_note("stopping; press Ctrl-C again to stop at once"), stop_showing)
    with ExitStack() as stack:
        stack.enter_context(interrupt.signals_caught())
        folder, journal = None, None
        if output.out is not None:
            folder = RunFolder.begin(output.out, search_target.test.name, partial(search_manifest, search_target))
            journal = stack.enter_context(Journal(folder.journal_path))
        if is_calibrated(search_target.workload):
            with Progress(quiet=quiet) as progress:
                ceiling = await calibrated(search_target.workload, output.calibrate, interrupt, progress)
            search_target = search_target.with_ceiling(ceiling)
        logs = folder.logs_path if folder is not None else None
        answer = await Search(search_target, interrupt, journal, logs, on_trial, watching).run()
    if folder is not None:
        finish_folder(folder)
    return answer, folder


def exit_code(found_rate: SearchResult, error: str | None) -> int:
    """0 with a rate, even if it is only a lower bound; else 3 if no rate holds, 4 if that is unknown."""
    match found_rate.ending:
        case Ending.INTERRUPTED:
            return 130
        case Ending.FAILED:
            return print_error(error or "a trial failed", 1)
        case Ending.NONE_HELD:
            return MISSED
        case _:
            return UNDECIDED if found_rate.low_per_s is None else 0
