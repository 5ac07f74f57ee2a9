"""The rate of arriving VPN clients that overloads a server: the load of a capacity search (`find_rate`).

A trial is a fleet of its own: as many clients as the rate brings in the trial's time, each of which leaves again at the
end. A rate for which there are too few clients is not tried: a short crowd may queue and still be served in time. The
search begins with all clients at once, whose best stretch tells about what the server can do.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from leadline.analysis.capacity import Conditions, Trial, judge_fleet
from leadline.analysis.model import Ceiling, Reason, TestResult, Validity, Verdict
from leadline.contract.models import RateStage, TunnelWorkload
from leadline.errors import InputError
from leadline.kinds.tunnel.model import TunnelTest
from leadline.kinds.tunnel.workload import GIVEN_UP_S
from leadline.trial.capacity_search import Ending, Limits, SearchResult
from leadline.trial.find_rate import verdict_of
from leadline.trial.single import Single
from leadline.trial.workloads import FORGOTTEN_S

FINAL_S = 5.0
"""How long the arrivals of the trials that decide last, where no duration is given and there are enough clients."""
SHORTEST_FINAL_S = 2.0
"""How long they last at least: in less, what is no queue yet cannot be told from one."""
HEADROOM = 10.0
"""The highest rate that is tried, in terms of what all at once came to: clients that come too fast queue, so a few of
them overload a server only at a multiple of what it can do."""
ROOM = 1.5
"""The same where clients are few: trials are no shorter than leaves room for this."""
_LEAST_CLIENTS = 10
"""Fewer say nothing of a p99 or a share."""
# Shares of a storm's clients, by the percentile that tells when that share was up.
_STRETCHES = ((0.5, "connect_p50_ms"), (0.9, "connect_p90_ms"), (1.0, "connect_max_ms"))


@dataclass(frozen=True, slots=True)
class FleetSearchTarget:
    """Clients at a rate; without one all at once."""

    test: TunnelTest
    workload: TunnelWorkload
    """Without arrivals; its clients are the most that a trial has."""
    conditions: Conditions
    argv: Sequence[str]
    server_pid: int | None = None
    reference: str = "at_once_per_s"

    def __post_init__(self) -> None:
        if self.workload.arrivals:
            raise InputError("--rate and --until-choke exclude each other", hint="--until-choke looks for the rate")
        if self.workload.settled or self.workload.actions or self.workload.traffic is not None:
            text = "--until-choke is about arrivals alone: no --settled, --reconnect-at, --renegotiate-at or --traffic"
            raise InputError(text, hint="measure those at the rate that is found")
        if self.workload.retries:
            text = "--retries and --until-choke exclude each other: who comes up at a later attempt hides a choke"
            raise InputError(text, hint="leave out --retries")
        if self.workload.ping_ms is not None:
            text = "--ping and --until-choke exclude each other: pings are load of another kind"
            raise InputError(text, hint="measure them at the rate that is found")
        if self.workload.clients < _LEAST_CLIENTS:
            raise InputError(
                f"--until-choke with {self.workload.clients} clients", hint=f"give at least {_LEAST_CLIENTS} with -n"
            )

    def with_ceiling(self, ceiling: Ceiling | None) -> FleetSearchTarget:
        """The same: what a generator of fleets can do at most is not measured."""
        return self

    def limits(self, reached_per_s: float) -> Limits:
        """Up to the highest rate for which there are clients, as long as the trials last that decide."""
        clients = self.workload.clients
        if "duration_ms" in self.test.model_fields_set:
            final_s = self.test.duration_ms / 1000
        else:
            final_s = min(FINAL_S, max(SHORTEST_FINAL_S, clients / (ROOM * reached_per_s)))
        return Limits.around(reached_per_s, final_s, min(HEADROOM, clients / final_s / reached_per_s))

    def manifest(self, run_id: str) -> dict[str, Any]:
        """The search as a run whose cases are not known yet; its journal has them."""
        single = Single(self.test, self.workload, self.argv, asked=self.conditions.metrics)
        return {**single.manifest(run_id), "cases": []}

    def single(self, case: str, rate_per_s: float | None, steady_s: float | None) -> Single:
        """One fleet: at a rate as many as come in the time, at most all; without a rate all at once."""
        clients = self.workload.clients
        arrivals: list[RateStage] = []
        if rate_per_s is not None and steady_s is not None:
            clients = self._clients(rate_per_s, steady_s)
            lasting_ms = math.ceil(1000 * clients / rate_per_s) + 1000
            arrivals = [RateStage(from_per_s=rate_per_s, to_per_s=rate_per_s, duration_ms=lasting_ms)]
        coming_ms = sum(stage.duration_ms for stage in arrivals)
        stay_ms = coming_ms + self.test.way_up_ms + _LEAVING_MS
        update = {"number": clients, "rate_per_s": rate_per_s, "duration_ms": stay_ms}
        return Single(
            test=self.test.model_copy(update=update),
            workload=self.workload.model_copy(
                update={"clients": clients, "arrivals": arrivals, "duration_ms": stay_ms}
            ),
            argv=self.argv,
            case=case,
            parameters={"rate_per_s": rate_per_s, "clients": clients},
            alone=False,
            server_pid=self.server_pid,
            asked=self.conditions.metrics,
        )

    def reached_per_s(self, result: TestResult) -> float | None:
        """The best stretch of the storm: half of its clients, nine tenths, or all, by when that share was up."""
        return storm_rate_per_s({name: metric.value for name, metric in result.metrics.items()})

    def initial_result(self, result: TestResult) -> SearchResult | None:
        """All of them at once is the highest rate there is: where that holds, no rate will overload the server."""
        reached = self.reached_per_s(result)
        if reached is None:
            return None
        lasting_s = self.workload.clients / reached
        storm = judge_fleet(self.conditions, result, rate_per_s=reached, duration_s=lasting_s, queues=True)
        return SearchResult(Ending.ALL_HELD, reached, None, lasting_s) if storm.holds else None

    def judge(self, result: TestResult, rate_per_s: float, duration_s: float) -> Trial:
        """Whether the conditions held, and the server kept up, for as long as its clients really took to come."""
        lasting_s = self._clients(rate_per_s, duration_s) / rate_per_s
        return judge_fleet(self.conditions, result, rate_per_s=rate_per_s, duration_s=lasting_s)

    def validity(self, found: SearchResult, trials: Sequence[Trial], error: str | None) -> Validity:
        """What its ending says; a rate that never failed wants more clients, not a higher rate."""
        if found.ending is not Ending.ALL_HELD:
            return verdict_of(found, trials, error)
        clients = self.workload.clients
        if not trials:
            text = f"{clients} clients are too few to make it choke, even all at once; give more with -n"
            return Validity(Verdict.UNDETERMINED, (Reason("too-few-clients", text),))
        highest = max(trials, key=lambda trial: (trial.rate_per_s, trial.duration_s))
        if highest.rate_per_s * highest.duration_s > 0.9 * clients:
            text = (
                f"the highest rate that was tried holds: {clients} clients come at {highest.rate_per_s:.4g}/s for "
                f"{highest.duration_s:.3g} s and not faster; give more with -n"
            )
            return Validity(Verdict.UNDETERMINED, (Reason("too-few-clients", text),))
        text = f"the highest rate that was tried holds, {HEADROOM:g} times what all of them at once came to"
        return Validity(Verdict.UNDETERMINED, (Reason("highest-rate-held", text),))

    def rest_s(self, result: TestResult) -> float:
        """Until the server has forgotten these clients; of a few that broke off it hardly meets a port again."""
        failed = result.metrics.get("failed_ratio")
        if failed is None or failed.value is None or failed.value <= _FEW:
            return FORGOTTEN_S
        windows = _HAND_WINDOW.findall(self.workload.profile)
        return max(FORGOTTEN_S, float(windows[-1]) if windows else GIVEN_UP_S)

    def failure_message(self, result: TestResult) -> str:
        """Nobody came up."""
        causes = ", ".join(f"{count} x {name}" for name, count in result.errors.items()) or "no error was counted"
        return f"of the {self.workload.clients} clients at once that the search begins with, none came up ({causes})"

    def _clients(self, rate_per_s: float, steady_s: float) -> int:
        """How many come in the time, at most all."""
        return min(self.workload.clients, max(_LEAST_CLIENTS, math.ceil(rate_per_s * steady_s)))


def storm_rate_per_s(figures: dict[str, float | None]) -> float | None:
    """Clients per second in the best stretch of a storm; None where none came up."""
    configured = figures.get("configured")
    rates = [
        share * configured / (time_ms / 1000)
        for share, name in _STRETCHES
        if configured and (time_ms := figures.get(name))
    ]
    return max(rates, default=None)


_LEAVING_MS = 2000
# Both ends of a tunnel are given the same one, or the server's own is not known here.
_HAND_WINDOW = re.compile(r"^\s*hand-window\s+(\d{1,6})\s*$", re.MULTILINE)
_FEW = 0.05
