"""Repeats one measurement until its figures are known as well as `--width` asks, prints them with their intervals or
their document, and returns the exit code.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from rich.text import Text

from leadline import quantities
from leadline.analysis import judge, parse_targets
from leadline.analysis.cross_checks import of_command
from leadline.analysis.model import Summary, TargetResult, TestResult, Verdict
from leadline.analysis.precision import counts_as_repeat
from leadline.analysis.repeats import summarise
from leadline.analysis.test_data import DEFAULT_STABILITY_SPREAD
from leadline.cli.calibration import calibrated
from leadline.cli.output import (
    finish_folder,
    note_folder,
    print_all,
    print_error,
    print_json,
    print_note,
    result_document,
    targets_code,
)
from leadline.cli.progress import Progress, watched
from leadline.cli.run_single import print_cross_check, print_script_output, show_interval
from leadline.cli.single_args import OutputOptions
from leadline.dataset import Journal, RunFolder
from leadline.plan import BaseTest
from leadline.plan.limits import Limits
from leadline.plan.repeats import PrecisionGoal
from leadline.plan.targets import Target
from leadline.report import repeated_measurement, test_headline
from leadline.report.brief import deciding_reason, first_statement
from leadline.statistics import stopping_confidence
from leadline.trial import IntervalEnded, Single
from leadline.trial.repeated import Repeats, measure_repeats
from leadline.trial.workloads import LoadWorkload

_CASE = "c01"


def run(test: BaseTest, workload: LoadWorkload, output: OutputOptions, goal: PrecisionGoal) -> int:
    """Repeat, print, and return the exit code."""
    targets = parse_targets(output.targets, {test.name: test.kind})
    asked = tuple(target.metric for target in targets)
    single = Single(test, workload, ["leadline", *sys.argv[1:]], server_pid=output.server_pid, asked=asked)
    single = replace(single, precision=goal, interval_ms=output.interval_ms, second_tool=output.second_tool)
    shown = _Shown(goal, output.json)
    repeats, folder = asyncio.run(_measured(single, output, goal, shown, targets))
    summary = summarise(
        repeats.results,
        planned=len(repeats.results) + (repeats.error is not None),
        # A figure that is known as well as the user wants is not unstable.
        limit=max(goal.width, DEFAULT_STABILITY_SPREAD),
        case=_CASE,
        test=test.name,
        kind=test.kind,
        parameters={},
        named=asked,
        targets=targets,
        confidence=stopping_confidence(goal.confidence, goal.least, goal.most),
        histograms=repeats.histograms,
    )
    judged = [judge(target, _CASE, [summary]) for target in targets]
    checked = of_command(repeats.results, repeats.second_tool, Limits().margin)
    if output.json:
        whole = document(repeats, summary, goal, test.kind, output.target)
        print_json({**whole, "cross_check": checked, "targets": judged})
    else:
        print_cross_check(checked, output)
        print_all([repeated_measurement(summary, repeats.results, goal, asked, verbose=output.verbose)])
        for one in judged:
            print_note(f"target {one.target}: {one.outcome} ({one.reason})")
    if not repeats.is_precise and repeats.error is None:
        print_note(_not_reached(repeats, goal))
    return note_folder(folder, _code(repeats, judged))


def document(repeats: Repeats, summary: Summary, goal: PrecisionGoal, command: str, target: str) -> dict[str, Any]:
    """The document `leadline.result/1` of a repeated measurement: means with their intervals, and every repeat."""
    errors: Counter[str] = Counter()
    examples: dict[str, str] = {}
    for result in repeats.results:
        errors.update(result.errors)
        examples = {**result.error_examples, **examples}
    return {
        "schema": "leadline.result/1",
        "command": command,
        "target": target,
        "metrics": summary.metrics,
        "validity": summary.validity,
        "limit": summary.limit,
        "generator": None,
        "errors": dict(errors),
        "error_examples": examples,
        "fleet": None,
        "window": None,
        "intervals": [],
        "precision": {
            "confidence": goal.confidence,
            "width": goal.width,
            "reached": repeats.is_precise,
            "half_width_ratio": repeats.half_widths,
            "counted": sum(map(counts_as_repeat, repeats.results)),
            "disturbed": sum(result.validity.verdict is Verdict.DISTURBED for result in repeats.results),
        },
        "repeats": [_repeat(result, command, target) for result in repeats.results],
    }


def _repeat(result: TestResult, command: str, target: str) -> dict[str, Any]:
    """One repeat in the document: what a single measurement's document has."""
    whole = result_document(result, command, target)
    own = {key: value for key, value in whole.items() if key not in ("schema", "command", "target", "fleet")}
    return {"repeat": result.repeat, "status": result.status, "counted": counts_as_repeat(result), **own}


@dataclass(slots=True)
class _Shown:
    """Prints a line on stderr for each repeat that ends."""

    goal: PrecisionGoal
    json: bool
    progress: Progress | None = None
    ended_intervals: list[IntervalEnded] = field(default_factory=list)

    def repeat(self, results: Sequence[TestResult], widths: dict[str, float | None]) -> None:
        """The last repeat's headline, and how well the mean is known now."""
        last = results[-1]
        known = ", ".join(f"{name} ±{quantities.share(half)}" for name, half in widths.items() if half is not None)
        parts: list[str | Text] = [f"repeat {last.repeat}: ", test_headline(last)]
        if known:
            parts.append(f"  known: {known}")
        if last.status == "done" and not counts_as_repeat(last):
            reason = deciding_reason(last.validity)
            why = last.validity.verdict.value if reason is None else first_statement(reason.text)
            parts.append(f"; runs again: {why}")
        if self.progress is not None and not self.progress.quiet:
            self.progress.note(Text.assemble(*parts))


async def _measured(
    single: Single, output: OutputOptions, goal: PrecisionGoal, shown: _Shown, targets: Sequence[Target]
) -> tuple[Repeats, RunFolder | None]:
    with watched(output.json, has_intervals=output.has_interval_lines) as (progress, interrupt):
        shown.progress = progress
        observers = (
            progress,
            partial(print_script_output, progress, output.json),
            partial(show_interval, progress, output.json, shown.ended_intervals),
        )
        single = replace(single, ceiling=await calibrated(single.workload, output.calibrate, interrupt, progress))
        measuring = partial(measure_repeats, observers=observers, targets=targets, on_repeat=shown.repeat)
        if output.out is None:
            return await measuring(single, goal, None, interrupt), None
        folder = RunFolder.begin(output.out, single.test.name, single.manifest)
        single = replace(single, logs=folder.logs_path)
        with Journal(folder.journal_path) as journal:
            repeats = await measuring(single, goal, journal, interrupt)
    finish_folder(folder)
    return repeats, folder


def _not_reached(repeats: Repeats, goal: PrecisionGoal) -> str:
    """Why the figures are not known as well as they should be."""
    counted = sum(map(counts_as_repeat, repeats.results))
    if counted < goal.least:
        return f"only {counted} of {len(repeats.results)} repeats count, and {goal.least} are the least"
    wide = {name: half for name, half in repeats.half_widths.items() if half is None or half > goal.width}
    said = ", ".join(f"{name} ±{quantities.share(half)}" for name, half in wide.items())
    return f"after {len(repeats.results)} repeats not within ±{quantities.share(goal.width)} of the mean: {said}"


def _code(repeats: Repeats, judged: list[TargetResult]) -> int:
    error = repeats.error or repeats.unwritten
    if error is not None:
        return print_error(str(error), 1)
    last = repeats.results[-1]
    if last.status == "interrupted":
        return 130
    if last.status == "failed":
        return print_error(last.error or "the measurement failed", 1)
    return targets_code(judged)
