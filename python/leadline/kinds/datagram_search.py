"""The search of `leadline udp --find-rate` and of `leadline packets --find-rate`: datagrams or frames at the rates that
`trial.find_rate` chooses."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from leadline.analysis.capacity import Conditions
from leadline.analysis.model import Ceiling, TestResult, Validity
from leadline.analysis.search_findings import Trial
from leadline.errors import InputError
from leadline.trial.capacity_search import Limits, SearchResult
from leadline.trial.find_rate import verdict_of
from leadline.trial.single import Single
from leadline.trial.workloads import LoadWorkload

_UNPACED_MS = 1000


@dataclass(frozen=True, slots=True)
class DatagramSearchTarget:
    """Datagrams at a rate, or, without one, as fast as possible."""

    kind: Any
    """The kind of test, which imports this module."""
    test: Any
    measurement: Callable[[Any], Single]
    """The measurement of a test at one rate."""
    conditions: Conditions
    argv: Sequence[str]
    reference: str = "unpaced_per_s"

    @property
    def workload(self) -> LoadWorkload:
        """The load without a rate."""
        return self.measurement(self.kind.at_rate(self.test, None, _UNPACED_MS)).workload

    def with_ceiling(self, ceiling: Ceiling | None) -> DatagramSearchTarget:
        """Return this search: the generator of datagrams has no ceiling."""
        return self

    def limits(self, reached_per_s: float) -> Limits:
        """Up to a multiple of what was sent without a rate."""
        final_s = (self.test.duration_ms - self.test.warmup_ms) / 1000
        return Limits.around(
            reached_per_s,
            final_s,
            self.kind.search_headroom,
            samples=self.conditions.samples,
            goals=1 + len(self.conditions.further),
        )

    def single(self, case: str, rate_per_s: float | None, steady_s: float | None) -> Single:
        """One measurement at a rate, or without one."""
        steady_ms = _UNPACED_MS if steady_s is None else round(steady_s * 1000)
        test = self.kind.at_rate(self.test, rate_per_s, self.test.warmup_ms + max(1, steady_ms))
        return replace(
            self.measurement(test),
            argv=self.argv,
            case=case,
            parameters={"rate_per_s": rate_per_s, "duration_ms": test.duration_ms},
            alone=False,
            asked=self.conditions.metrics,
        )

    def reached_per_s(self, result: TestResult) -> float | None:
        """What was sent without a rate."""
        reached: float | None = self.kind.reached_per_s(self.test, result)
        return reached

    def rest_s(self, result: TestResult) -> float:
        """No pause: datagrams leave nothing behind."""
        return 0.0

    def failure_message(self, result: TestResult) -> str:
        """The message if nothing arrived."""
        return "the load without a rate at the start of the search: no datagram arrived"

    def initial_result(self, result: TestResult) -> SearchResult | None:
        """None: a load without a rate decides nothing."""
        return None

    @property
    def allowed_losses(self) -> Sequence[float]:
        """The shares that the further conditions allow."""
        return self.conditions.allowed_losses

    def judge(self, result: TestResult, rate_per_s: float, duration_s: float) -> Trial:
        """Whether the conditions held."""
        trial: Trial = self.kind.judge_rate(self.conditions, self.test, result, rate_per_s, duration_s)
        return trial

    def validity(self, found: SearchResult, trials: Sequence[Trial], error: str | None) -> Validity:
        """The verdict of the search."""
        return verdict_of(found, trials, error)


def find_rate(kind: Any, values: Mapping[str, Any]) -> int:
    """Run the search that the options describe.

    Raises:
        InputError: an option that has no meaning beside `--find-rate`, or a wrong condition.
    """
    from leadline.cli import run_search, session_args, single_args

    def no_interval() -> None:
        if values["interval"] is not None:
            raise InputError("--find-rate and --interval exclude each other", hint="a search prints its trials")

    def conditions() -> Conditions:
        return Conditions.read_all(values["find_rate"], kind.name, kind.name)

    read = session_args.read(kind.name, kind.command, values, no_interval, conditions, check_test=_check_load)
    output = single_args.OutputOptions(
        "",
        values["json"],
        values["out"],
        values["target"] or [],
        find_rate=conditions().text,
        format=values["output_format"],
        precision=read.precision,
        verbose=values["verbose"],
    )
    single_args.refuse_with_precision(output)
    run_search.check(output, "--find-rate")
    with read.serving(is_document=output.is_document) as server:
        argv = ["leadline", *sys.argv[1:]]
        target = DatagramSearchTarget(
            kind, read.test, lambda test: Single(test, kind.workload(test, server), argv), conditions(), argv
        )
        return run_search.finish(target, replace(output, target=server.host))


def _check_load(test: Any) -> None:
    """Check that nothing but the search chooses the load. Raises InputError."""
    if test.rate_bps is not None or test.number is not None:
        option = "--rate" if test.rate_bps is not None else "--number"
        raise InputError(f"{option} and --find-rate exclude each other", hint="--find-rate searches for the rate")
    if test.direction == "both":
        raise InputError("--bidir and --find-rate exclude each other", hint="search each direction by itself")
