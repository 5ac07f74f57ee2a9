"""The rate of arriving VPN clients at which a server chokes: the load of a capacity search (`find_rate`).

A trial is a fleet of its own: as many clients as the rate brings in the trial's time, each of which leaves again at the
end. The search begins with all clients at once, whose best stretch tells about what the server can do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from leadline.analysis.capacity import Conditions, Trial, judge_fleet
from leadline.analysis.model import Reason, TestResult, Validity, Verdict
from leadline.contract.models import RateStage, TunnelWorkload
from leadline.errors import InputError
from leadline.plan import TunnelTest
from leadline.trial.capacity_search import Ending, Found
from leadline.trial.find_rate import verdict_of
from leadline.trial.single import Single

FINAL_S = 5.0
"""How long the arrivals of the trials that decide last, where nobody says."""
_LEAST_CLIENTS = 10
"""Fewer say nothing of a p99 or a share."""
# Shares of a storm's clients, by the percentile that tells when so many were up.
_STRETCHES = ((0.5, "connect_p50_ms"), (0.9, "connect_p90_ms"), (1.0, "connect_max_ms"))


@dataclass(frozen=True, slots=True)
class FleetQuestion:
    """Clients at a rate; without one all at once."""

    test: TunnelTest
    workload: TunnelWorkload
    """Without arrivals; its clients are the most that a trial has."""
    conditions: Conditions
    argv: Sequence[str]
    server_pid: int | None = None
    reference: str = "at_once_per_s"
    headroom: float = 10.0
    """Clients that come too fast queue: a few of them choke a server only at a multiple of what it can do."""

    def __post_init__(self) -> None:
        if self.workload.arrivals:
            raise InputError("--rate and --until-choke exclude each other", hint="--until-choke looks for the rate")
        if self.workload.settled or self.workload.actions or self.workload.traffic is not None:
            text = "--until-choke is about arrivals alone: no --settled, --reconnect-at, --renegotiate-at or --traffic"
            raise InputError(text, hint="measure those at the rate that is found")
        if self.workload.clients < _LEAST_CLIENTS:
            raise InputError(
                f"--until-choke with {self.workload.clients} clients", hint=f"give at least {_LEAST_CLIENTS} with -n"
            )

    @property
    def final_s(self) -> float:
        """How long the arrivals of the trials that decide last."""
        return self.test.duration_ms / 1000 if "duration_ms" in self.test.model_fields_set else FINAL_S

    def manifest(self, run_id: str) -> dict[str, Any]:
        """The search as a run whose cases are not known yet; its journal has them."""
        return {**Single(self.test, self.workload, self.argv).manifest(run_id), "cases": []}

    def single(self, case: str, rate_per_s: float | None, steady_s: float | None) -> Single:
        """One fleet: at a rate as many as come in the time, at most all; without a rate all at once."""
        clients = self.workload.clients
        arrivals: list[RateStage] = []
        if rate_per_s is not None and steady_s is not None:
            clients = min(clients, max(_LEAST_CLIENTS, math.ceil(rate_per_s * steady_s)))
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
        )

    def reached_per_s(self, result: TestResult) -> float | None:
        """The best stretch of the storm: half of its clients, nine tenths, or all, by when so many were up."""
        return storm_rate_per_s({name: metric.value for name, metric in result.metrics.items()})

    def at_first(self, result: TestResult) -> Found | None:
        """All of them at once is the highest rate there is: where that holds, no rate will choke the server."""
        reached = self.reached_per_s(result)
        if reached is None or not self.judge(result, reached, self.workload.clients / reached).holds:
            return None
        return Found(Ending.ALL_HELD, reached, None, self.workload.clients / reached)

    def judge(self, result: TestResult, rate_per_s: float, duration_s: float) -> Trial:
        """Whether the conditions held."""
        return judge_fleet(self.conditions, result, rate_per_s=rate_per_s, duration_s=duration_s)

    def validity(self, found: Found, trials: Sequence[Trial], error: str | None) -> Validity:
        """What its ending says; a rate that never failed wants more clients, not a higher rate."""
        if found.ending is Ending.ALL_HELD:
            text = f"{self.workload.clients} clients are too few to make it choke at any rate; give more with -n"
            return Validity(Verdict.UNDETERMINED, (Reason("too-few-clients", text),))
        return verdict_of(found, trials, error)


def storm_rate_per_s(figures: dict[str, float | None]) -> float | None:
    """Clients per second in the best stretch of a storm; None where nobody came up."""
    configured = figures.get("configured")
    rates = [
        share * configured / (time_ms / 1000)
        for share, name in _STRETCHES
        if configured and (time_ms := figures.get(name))
    ]
    return max(rates, default=None)


_LEAVING_MS = 2000
