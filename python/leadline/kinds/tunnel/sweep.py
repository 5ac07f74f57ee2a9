"""`leadline tunnel -n 50,100,200`: measures fleets of several sizes in turn, and how costs grow with the size."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from leadline.analysis import judge, parse_targets
from leadline.analysis.model import Metric, TargetResult, TestResult
from leadline.analysis.scaling import Point, of_kind
from leadline.analysis.scaling_model import Scaling
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
from leadline.cli.progress import watched
from leadline.cli.single_args import OutputOptions
from leadline.contract.models import TunnelWorkload
from leadline.dataset import Journal, RunFolder
from leadline.errors import LeadlineError
from leadline.kinds.tunnel.model import TunnelTest
from leadline.report import measurement, scaling_table
from leadline.trial import Single, measure
from leadline.trial.event_log import EntryList, EventLog
from leadline.trial.workloads import FORGOTTEN_S

Fleet = tuple[TunnelTest, TunnelWorkload]


@dataclass(frozen=True, slots=True)
class _Sized:
    """The result of one fleet, and the case under which it is stored."""

    case: str
    clients: int
    result: TestResult


def run(fleets: Sequence[Fleet], output: OutputOptions) -> int:
    """Measure each fleet, print, and return the exit code: the worst of them."""
    test = fleets[0][0]
    targets = parse_targets(output.targets, {test.name: test.kind})
    measured, folder, interrupted, broken, unwritten = asyncio.run(
        _measured(fleets, output, [one.metric for one in targets])
    )
    if broken is not None and not measured:
        raise broken
    judged = [judge(target, one.case, [one.result]) for target in targets for one in measured]
    scalings = of_kind("tunnel", [Point(one.clients, one.result.metrics, one.result.validity) for one in measured])
    error = broken or unwritten
    if output.json:
        print_json({**_document(measured, scalings, judged, output), "error": None if error is None else str(error)})
    else:
        print_all(
            [*(measurement(one.result, verbose=output.verbose) for one in measured), scaling_table(scalings, "clients")]
        )
        for one in judged:
            print_note(f"target {one.target} of {one.case}: {one.outcome} ({one.reason})")
    kept = note_folder(folder, 0)
    if broken is not None:
        number = fleets[len(measured)][1].clients
        return print_error(f"the fleet of {number} could not be measured: {broken}", broken.exit_code)
    if unwritten is not None:
        return print_error(str(unwritten), 1)
    return _code(measured, judged, interrupted) or kept


async def _measured(
    fleets: Sequence[Fleet], output: OutputOptions, asked: Sequence[str]
) -> tuple[list[_Sized], RunFolder | None, bool, LeadlineError | None, LeadlineError | None]:
    """Measure each fleet in turn until one fails: returns that error with the results so far, and the error that kept
    the end out of the journal."""
    measured: list[_Sized] = []
    folder: RunFolder | None = None
    broken: LeadlineError | None = None
    with ExitStack() as stack:
        progress, interrupt = stack.enter_context(watched(output.json))
        journal = None
        singles = [
            Single(
                test,
                workload,
                ["leadline", *sys.argv[1:]],
                case=f"c{number:02}",
                parameters={"clients": workload.clients},
                alone=False,
                server_pid=output.server_pid,
                asked=asked,
            )
            for number, (test, workload) in enumerate(fleets, 1)
        ]
        if output.out is not None:
            cases = [case for single in singles for case in single.manifest()["cases"]]
            folder = RunFolder.begin(
                output.out, fleets[0][0].name, lambda run_id: {**singles[0].manifest(run_id), "cases": cases}
            )
            journal = stack.enter_context(Journal(folder.journal_path))
        event_log = EventLog(journal if journal is not None else EntryList([]))
        for single in singles:
            if measured:
                await interrupt.pause(FORGOTTEN_S)
            if interrupt.asked.is_set():
                break
            entries: list[dict[str, Any]] = []
            try:
                result = await measure(single, entries, journal, interrupt, (progress,))
            except LeadlineError as error:
                broken = error
                break
            measured.append(_Sized(single.case, int(single.parameters["clients"]), result))
        ended = "failed" if broken else "interrupted" if interrupt.asked.is_set() else "done"
        unwritten = event_log.record_end("run-end", None, status=ended)
    if folder is not None:
        finish_folder(folder)
    return measured, folder, interrupt.asked.is_set(), broken, unwritten


def _document(
    measured: Sequence[_Sized], scalings: Sequence[Scaling], judged: Sequence[TargetResult], output: OutputOptions
) -> dict[str, Any]:
    """The last fleet as `leadline.result/1`, with the exponents beside its figures, and all fleets in `fleets`."""
    last = measured[-1].result
    exponents = {
        f"{scaling.metric}_exponent": Metric(scaling.exponent, "", scaling.low, scaling.high) for scaling in scalings
    }
    document = result_document(last, "tunnel", output.target)
    return {
        **document,
        "metrics": {**last.metrics, **exponents},
        "targets": judged,
        "scaling": scalings,
        "fleets": [
            {"clients": one.clients, **result_document(one.result, "tunnel", output.target)} for one in measured
        ],
    }


def _code(measured: Sequence[_Sized], judged: Sequence[TargetResult], interrupted: bool) -> int:
    if interrupted:
        return 130
    failed = next((one.result for one in measured if one.result.status == "failed"), None)
    if failed is not None:
        return print_error(failed.error or "the measurement failed", 1)
    return targets_code(judged)
