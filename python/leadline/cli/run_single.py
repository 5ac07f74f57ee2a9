"""Runs one measurement for a single-test command, prints it or its document, and returns the exit code."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Protocol

from leadline.analysis import judge, parse_targets
from leadline.analysis.advice import ADVICE
from leadline.analysis.cross_check_model import CrossCheck
from leadline.analysis.cross_checks import of_command
from leadline.analysis.iperf3_document import Iperf3Requested, iperf3_document, iperf3_error_document
from leadline.analysis.model import Interval, TargetResult, TestResult, Verdict
from leadline.analysis.outages import LINK_LOST, outage_in
from leadline.analysis.running_intervals import in_window
from leadline.analysis.validity import NOTHING_ANSWERED, NOTHING_REPLAYED
from leadline.cli.calibration import calibrated, known
from leadline.cli.output import (
    MISSED,
    check_writable,
    finish_folder,
    note_folder,
    print_all,
    print_error,
    print_json,
    print_note,
    result_document,
    targets_code,
    write_option_file,
)
from leadline.cli.progress import Progress, watched
from leadline.cli.sample_file import SampleFile
from leadline.cli.single_args import OutputOptions
from leadline.dataset import Journal, RunFolder
from leadline.errors import InputError, LeadlineError
from leadline.plan import BaseTest
from leadline.plan.limits import Limits
from leadline.registry import KINDS
from leadline.report import HttpRequested, ab_text, hdr_log, interval_line, measurement, wrk_text
from leadline.report.cross_checks import cross_check_line, cross_check_lines
from leadline.trial import (
    Interrupt,
    IntervalEnded,
    Notification,
    Observer,
    ScriptOutput,
    Single,
    TargetWatch,
    analysed,
    has_figures,
    measure,
)
from leadline.trial.workloads import LoadWorkload, Receiver


class PrintedKind(Protocol):
    """The attributes of a kind of test that this module uses."""

    @property
    def needs_answers(self) -> bool:
        """Whether a measurement of which nothing was answered has failed."""

    def advice(self, code: str) -> str | None:
        """What a user can do about a failure of this name; None if the message says it all."""

    def peer_request(self, workload: Any, target: str) -> HttpRequested | None:
        """The facts about a load that the layouts of other tools print; None if no layout supports the kind."""

    def iperf3_request(self, workload: Any) -> Iperf3Requested | None:
        """The facts about a load that iperf3's document has; None if the document has no place for the kind."""


def run(
    test: BaseTest,
    workload: LoadWorkload,
    output: OutputOptions,
    *,
    receivers: Sequence[Receiver] = (),
    within: Sequence[str] = (),
) -> int:
    """Measure, print, and return the exit code. `receivers` and `within`: see `Single`."""
    targets = parse_targets(output.targets, {test.name: test.kind})
    if output.stop_on_miss and not targets:
        raise InputError("--stop-on-miss needs a --target", hint="as in --target 'latency_p99_us < 2000'")
    watched = targets if output.stop_on_miss else [one for one in targets if one.text in output.aborting]
    watch = TargetWatch(watched, test.name, delays_ms=output.aborting) if watched else None
    if output.hdr is not None:
        check_writable("--hdr", output.hdr)
    if output.summary is not None:
        check_writable("--summary-export", output.summary.path)
    if output.samples is not None:
        check_writable(output.samples.option, output.samples.path)
    asked = tuple(target.metric for target in targets)
    single = Single(test, workload, ["leadline", *sys.argv[1:]], watch, server_pid=output.server_pid, asked=asked)
    single = replace(single, interval_ms=output.interval_ms, second_tool=output.second_tool)
    single = replace(single, receivers=receivers, within=within)
    started_at = datetime.now(UTC)
    problems: list[str] = []
    ended_intervals: list[IntervalEnded] = []
    entries: list[dict[str, Any]] = []
    with _documented(workload, output, entries):
        result, folder = asyncio.run(_measured(single, output, entries, ended_intervals, problems))
    checked = of_command([result], entries, Limits().margin)
    if output.interval_ms is not None:
        result = replace(result, intervals=tuple(_judged(one, result) for one in ended_intervals))
    missed = {} if watch is None else {one.target: one for one in watch.missed}
    judged = [missed.get(target.text) or judge(target, "c01", [result]) for target in targets]
    if output.summary is not None:
        document = output.summary.document(result, judged)
        with _noted(problems):
            write_option_file("--summary-export", output.summary.path, json.dumps(document, indent=2) + "\n")
    if output.json:
        print_json({**result_document(result, test.kind, output.target), "cross_check": checked, "targets": judged})
    elif output.format == "iperf3-json":
        _print_iperf3(result, workload, output, entries, started_at)
        print_cross_check(checked, output)
        for one in judged:
            print_note(f"target {one.target}: {one.outcome} ({one.reason})")
    else:
        print_cross_check(checked, output)
        _print(result, workload, output)
        for one in judged:
            print_note(f"target {one.target}: {one.outcome} ({one.reason})")
    code = note_folder(folder, MISSED if missed else _code(result, judged))
    for problem in problems:
        print_note(problem)
    return code or (1 if problems else 0)


@contextmanager
def _noted(problems: list[str]) -> Iterator[None]:
    """Add a file that cannot be written to the problems: what was measured is worth more than the file."""
    try:
        yield
    except InputError as error:
        problems.append(str(error))


def _print(result: TestResult, load: LoadWorkload, output: OutputOptions) -> None:
    """Print the summary in the chosen layout. If the layout has no room for the verdict, print that on stderr."""
    kind: PrintedKind = KINDS.get(load.kind)
    asked = kind.peer_request(load, output.target)
    if output.format == "text" or asked is None:
        print_all([measurement(result, verbose=output.verbose)])
        return
    sys.stdout.write((wrk_text if output.format == "wrk" else ab_text)(result, asked))
    latency = result.distribution("latency")
    if latency is not None and latency.bounds:
        named = ", ".join(name if name.isalpha() else f"p{name}" for name in latency.bounds)
        print_note(f"{latency.censored:,} requests had no answer; lower bounds of the latency are: {named}")
    _note_verdict(result)


def _print_iperf3(
    result: TestResult, load: LoadWorkload, output: OutputOptions, entries: list[dict[str, Any]], started_at: datetime
) -> None:
    """Print iperf3's document. It has no room for the verdict."""
    if result.status == "failed":
        _print_iperf3_error(load, entries, result.error or "the measurement failed")
        return
    asked = _iperf3_request(load)
    if output.interval_ms is not None:
        asked = replace(asked, interval_s=output.interval_ms / 1000)
    print_json(iperf3_document(entries, asked, started_at))
    _note_verdict(result)


@contextmanager
def _documented(load: LoadWorkload, output: OutputOptions, entries: list[dict[str, Any]]) -> Iterator[None]:
    """An error before the test has a document too, if iperf3's is asked for."""
    try:
        yield
    except LeadlineError as error:
        if output.format == "iperf3-json":
            _print_iperf3_error(load, entries, str(error))
        raise


def _print_iperf3_error(load: LoadWorkload, entries: list[dict[str, Any]], error: str) -> None:
    print_json(iperf3_error_document(entries, _iperf3_request(load).version, error))


def _iperf3_request(load: LoadWorkload) -> Iperf3Requested:
    kind: PrintedKind = KINDS.get(load.kind)
    asked = kind.iperf3_request(load)
    assert asked is not None, "only kinds with such a document have the option"
    return asked


def _note_verdict(result: TestResult) -> None:
    """Print a verdict that the layout on stdout has no room for."""
    validity = result.validity
    if validity.verdict is not Verdict.VALID:
        print_note(f"{validity.verdict.value}: {'; '.join(reason.text for reason in validity.reasons)}")


def print_cross_check(checked: CrossCheck | None, output: OutputOptions) -> None:
    """Print whether the second tool agrees: above the summary, or on stderr if that has another tool's layout."""
    lines = cross_check_lines([] if checked is None else [checked])
    if checked is None or lines is None:
        return
    if output.format == "text":
        print_all([lines, ""], apart=False)
    else:
        print_note(cross_check_line(checked).plain)


def _judged(ended: IntervalEnded, result: TestResult) -> Interval:
    """An interval that was reported while the load ran, judged by the window that is known now."""
    return replace(ended.interval, in_window=in_window(ended.interval, ended.start_ns, result.window))


async def _measured(
    single: Single,
    output: OutputOptions,
    entries: list[dict[str, Any]],
    ended_intervals: list[IntervalEnded],
    problems: list[str],
) -> tuple[TestResult, RunFolder | None]:
    with ExitStack() as stack:
        progress, interrupt = stack.enter_context(watched(output.json, has_intervals=output.has_interval_lines))
        if output.samples is not None:
            samples = stack.enter_context(SampleFile(output.samples, problems.append))
            single = replace(single, on_samples=samples.take)
        observers = (
            progress,
            partial(print_script_output, progress, output.json or output.format == "iperf3-json"),
            partial(show_interval, progress, output.json, ended_intervals),
        )
        find = partial(calibrated, single.workload, output.calibrate, interrupt, progress)
        if single.watch is not None:  # it judges while the load runs
            single = replace(single, ceiling=await find())
        else:
            ceiling = known(single.workload, output.calibrate, progress)
            single = replace(single, ceiling=ceiling, find_ceiling=find if ceiling is None else None)
        try:
            if output.out is None:
                return await _kept(single, entries, None, interrupt, observers), None
            folder = RunFolder.begin(output.out, single.test.name, single.manifest)
            single = replace(single, logs=folder.logs_path)
            with Journal(folder.journal_path) as journal:
                result = await _kept(single, entries, journal, interrupt, observers)
        finally:
            if output.hdr is not None:
                with _noted(problems):
                    write_option_file("--hdr", output.hdr, hdr_log(entries, time.time_ns() - time.monotonic_ns()))
    finish_folder(folder)
    return result, folder


async def _kept(
    single: Single,
    entries: list[dict[str, Any]],
    sink: Journal | None,
    interrupt: Interrupt,
    observers: tuple[Observer, ...],
) -> TestResult:
    """Measure; what a load measured before it failed, or before the disk was full, is its result.

    Raises:
        LeadlineError: the load failed before it had measured anything.
    """
    try:
        return await measure(single, entries, sink, interrupt, observers)
    except LeadlineError as error:
        if error.exit_code != 1 or not has_figures(entries):
            raise
        return replace(analysed(single, entries), status="failed", error=str(error))


def show_interval(
    progress: Progress, json: bool, ended_intervals: list[IntervalEnded], notification: Notification
) -> None:
    """Show an interval that has ended: as a line on stderr, or as a row of the document."""
    if isinstance(notification, IntervalEnded):
        ended_intervals.append(notification)
        if not json:
            progress.note(interval_line(notification.interval))


def print_script_output(progress: Progress, json: bool, notification: Notification) -> None:
    """Print a script's output on stdout, or on stderr if stdout has a document."""
    if isinstance(notification, ScriptOutput):
        if json:
            progress.note(notification.line)
        else:
            print(notification.line, flush=True)


def _code(result: TestResult, judged: list[TargetResult]) -> int:
    if result.status == "interrupted":
        return 130
    if result.status == "failed":
        return print_error(result.error or "the measurement failed", 1)
    outage = outage_in(result.validity.reasons)
    if outage is not None and outage.code == LINK_LOST:
        return print_error(f"{outage.text}; {ADVICE[LINK_LOST]}", 1)
    kind: PrintedKind = KINDS.get(result.kind)
    for reason in result.validity.reasons if kind.needs_answers else ():
        if reason.code in (NOTHING_ANSWERED, NOTHING_REPLAYED):
            advice = next(filter(None, map(kind.advice, result.errors)), None)
            return print_error(f"{reason.text}; {advice}" if advice else reason.text, 1)
    return targets_code(judged)
