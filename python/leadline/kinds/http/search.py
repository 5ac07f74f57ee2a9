"""The search for the highest rate of requests that a server sustains: the load of `trial.find_rate`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from leadline.analysis.capacity import Conditions, judge_trial
from leadline.analysis.model import Ceiling, Reason, TestResult, Validity
from leadline.analysis.search_findings import Trial
from leadline.analysis.validity import CONNECTIONS_BUSY
from leadline.contract.models import HttpWorkload, RateStage
from leadline.errors import InputError
from leadline.kinds.http.model import HttpTest
from leadline.trial.capacity_search import Limits, SearchResult
from leadline.trial.find_rate import verdict_of
from leadline.trial.single import Single

_CLOSED_LOOP_MS = 1000


@dataclass(frozen=True, slots=True)
class HttpSearchTarget:
    """Requests at a rate, or, without one, a closed loop over the same connections."""

    test: HttpTest
    workload: HttpWorkload
    """The load without a rate; `duration_ms` is the length of the deciding trials."""
    conditions: Conditions
    argv: Sequence[str]
    ceiling: Ceiling | None = None
    reference: str = "closed_loop_per_s"

    def __post_init__(self) -> None:
        if self.workload.rate:
            raise InputError("--rate and --find-rate exclude each other", hint="--find-rate searches for the rate")
        if self.workload.number is not None:
            raise InputError("--number and --find-rate exclude each other", hint="-d is the length of a trial")

    def with_ceiling(self, ceiling: Ceiling | None) -> HttpSearchTarget:
        """Return a search whose trials are judged by this ceiling."""
        return replace(self, ceiling=ceiling)

    def limits(self, reached_per_s: float) -> Limits:
        """The limits of the search. `duration_ms` is the length of the deciding trials without warm-up."""
        final_s = (self.workload.duration_ms - self.workload.warmup_ms) / 1000
        return Limits.around(reached_per_s, final_s, samples=self.conditions.samples)

    def single(self, case: str, rate_per_s: float | None, steady_s: float | None) -> Single:
        """One measurement at a rate, or as a closed loop."""
        steady_ms = _CLOSED_LOOP_MS if steady_s is None else round(steady_s * 1000)
        duration_ms = self.workload.warmup_ms + max(1, steady_ms)
        stages = [] if rate_per_s is None else [_stage(rate_per_s, duration_ms)]
        return Single(
            test=self.test.model_copy(update={"duration_ms": duration_ms, "rate_per_s": rate_per_s}),
            workload=self.workload.model_copy(update={"duration_ms": duration_ms, "rate": stages}),
            argv=self.argv,
            ceiling=self.ceiling,
            case=case,
            parameters={"rate_per_s": rate_per_s, "duration_ms": duration_ms},
            alone=False,
            asked=self.conditions.metrics,
        )

    def reached_per_s(self, result: TestResult) -> float | None:
        """The rate of the closed loop."""
        return result.metrics["requests_per_s"].value

    def rest_s(self, result: TestResult) -> float:
        """No pause: closed connections do not affect the next trial."""
        return 0.0

    def failure_message(self, result: TestResult) -> str:
        """The message if no request was answered."""
        named = ", ".join(f"{count} x {name}" for name, count in result.errors.items()) or "no errors were counted"
        return f"the closed loop at the start of the search got no answers ({named})"

    def initial_result(self, result: TestResult) -> SearchResult | None:
        """None: the latency of a closed loop is not that of any rate."""
        return None

    @property
    def allowed_losses(self) -> Sequence[float]:
        """None: one rate is searched."""
        return ()

    def judge(self, result: TestResult, rate_per_s: float, duration_s: float) -> Trial:
        """Whether the conditions held."""
        return judge_trial(
            self.conditions,
            result,
            rate_per_s=rate_per_s,
            duration_s=duration_s,
            connections=self.workload.connections,
        )

    def validity(self, found: SearchResult, trials: Sequence[Trial], error: str | None) -> Validity:
        """The verdict, with a note if the connections were the limit."""
        return search_validity(found, trials, self.workload.connections, error)


def search_validity(found: SearchResult, trials: Sequence[Trial], connections: int, error: str | None) -> Validity:
    """The verdict on a search, with a note if the connections were the limit. `error` is set if a trial was
    aborted."""
    return replace(verdict_of(found, trials, error), notes=tuple(_notes(found, trials, connections)))


def _notes(found: SearchResult, trials: Sequence[Trial], connections: int) -> Iterator[Reason]:
    """Notes on the trials at the upper bound, or on all failed trials if there is no bound."""
    failed = [trial for trial in trials if not trial.holds and found.high_per_s in (None, trial.rate_per_s)]
    if any(trial.connections_busy for trial in failed):
        text = f"the rate is for {connections} connections, which were all busy above it; more may reach a higher rate"
        yield Reason(CONNECTIONS_BUSY, text)


def _stage(rate_per_s: float, duration_ms: int) -> RateStage:
    return RateStage(from_per_s=rate_per_s, to_per_s=rate_per_s, duration_ms=duration_ms)
