"""The search for the arrival rate of VPN clients that overloads a server: the load of `find_rate`.

Each trial is a fleet of its own, with as many clients as arrive at the rate during the trial; they disconnect at its
end. A rate for which there are too few clients is not tried: a short burst may queue and still be served in time. The
search begins with all clients at once; the fastest part of that storm estimates what the server can do.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from leadline.analysis.capacity import Conditions, judge_fleet
from leadline.analysis.model import Ceiling, Reason, TestResult, Validity, Verdict
from leadline.analysis.search_findings import Trial
from leadline.contract.models import RateStage, TunnelWorkload, WireguardFiles
from leadline.errors import InputError
from leadline.kinds.tunnel.model import TunnelTest
from leadline.kinds.tunnel.workload import GIVEN_UP_S
from leadline.trial.capacity_search import Ending, Limits, SearchResult
from leadline.trial.find_rate import verdict_of
from leadline.trial.single import Single
from leadline.trial.workloads import FORGOTTEN_S

FINAL_S = 5.0
"""Length of the arrivals in the deciding trials, if no duration is given and there are enough clients."""
SHORTEST_FINAL_S = 2.0
"""Minimum length of the arrivals in the deciding trials: in a shorter time a queue does not show."""
HEADROOM = 10.0
"""The highest rate to try, as a multiple of the storm's rate. Clients that arrive too fast queue, so a small number
of clients overloads a server only at a multiple of its capacity."""
ROOM = 1.5
"""The same multiple if there are few clients: trials are long enough to allow at least this."""
_LEAST_CLIENTS = 10
"""With fewer clients, a p99 or a share means nothing."""
# Shares of a storm's clients, and the percentile at which that share was connected.
_STRETCHES = ((0.5, "connect_p50_ms"), (0.9, "connect_p90_ms"), (1.0, "connect_max_ms"))


@dataclass(frozen=True, slots=True)
class FleetSearchTarget:
    """Clients at a rate, or, without one, all at once."""

    test: TunnelTest
    workload: TunnelWorkload
    """The load without arrivals; its clients are the maximum per trial."""
    conditions: Conditions
    argv: Sequence[str]
    server_pid: int | None = None
    reference: str = "at_once_per_s"

    def __post_init__(self) -> None:
        if self.workload.arrivals:
            raise InputError("--rate and --until-choke exclude each other", hint="--until-choke searches for the rate")
        if self.workload.settled or self.workload.actions or self.workload.traffic is not None:
            text = "--until-choke measures only arrivals: no --settled, --reconnect-at, --renegotiate-at or --traffic"
            raise InputError(text, hint="measure those in a second run, at the rate found")
        if self.workload.retries:
            text = "--retries and --until-choke exclude each other: retries would hide an overloaded server"
            raise InputError(text, hint="leave out --retries")
        if self.workload.ping_ms is not None:
            text = "--ping and --until-choke exclude each other: pings are additional load"
            raise InputError(text, hint="measure them in a second run, at the rate found")
        if self.workload.clients < _LEAST_CLIENTS:
            raise InputError(
                f"--until-choke with {self.workload.clients} clients", hint=f"give at least {_LEAST_CLIENTS} with -n"
            )

    def with_ceiling(self, ceiling: Ceiling | None) -> FleetSearchTarget:
        """Return this search: the ceiling of a fleet's generator is not measured."""
        return self

    def limits(self, reached_per_s: float) -> Limits:
        """The limits of the search: up to the highest rate for which there are clients in a deciding trial."""
        clients = self.workload.clients
        if "duration_ms" in self.test.model_fields_set:
            final_s = self.test.duration_ms / 1000
        else:
            final_s = min(FINAL_S, max(SHORTEST_FINAL_S, clients / (ROOM * reached_per_s)))
        return Limits.around(reached_per_s, final_s, min(HEADROOM, clients / final_s / reached_per_s))

    def single(self, case: str, rate_per_s: float | None, steady_s: float | None) -> Single:
        """One fleet: at a rate, the clients that arrive in the trial's time (at most all); without a rate, all at
        once."""
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
        """The fastest part of the storm: half, nine tenths or all of its clients, by the time until they were
        connected."""
        return storm_rate_per_s({name: metric.value for name, metric in result.metrics.items()})

    def initial_result(self, result: TestResult) -> SearchResult | None:
        """The verdict on all clients at once, the highest possible rate: if the conditions hold there, no rate
        overloads the server."""
        reached = self.reached_per_s(result)
        if reached is None:
            return None
        lasting_s = self.workload.clients / reached
        storm = judge_fleet(self.conditions, result, rate_per_s=reached, duration_s=lasting_s, queues=True)
        return SearchResult(Ending.ALL_HELD, reached, None, lasting_s) if storm.holds else None

    @property
    def allowed_losses(self) -> Sequence[float]:
        """None: one rate is searched."""
        return ()

    def judge(self, result: TestResult, rate_per_s: float, duration_s: float) -> Trial:
        """Whether the conditions held, and the server kept up with the real arrival rate."""
        lasting_s = self._clients(rate_per_s, duration_s) / rate_per_s
        return judge_fleet(self.conditions, result, rate_per_s=rate_per_s, duration_s=lasting_s)

    def validity(self, found: SearchResult, trials: Sequence[Trial], error: str | None) -> Validity:
        """The verdict of the search. If no rate failed, it needs more clients, not a higher rate."""
        if found.ending is not Ending.ALL_HELD:
            return verdict_of(found, trials, error)
        clients = self.workload.clients
        if not trials:
            text = f"{clients} clients are too few to overload the server, even all at once; give more with -n"
            return Validity(Verdict.UNDETERMINED, (Reason("too-few-clients", text),))
        highest = max(trials, key=lambda trial: (trial.rate_per_s, trial.duration_s))
        if highest.rate_per_s * highest.duration_s > 0.9 * clients:
            text = (
                f"the highest rate tried holds: {clients} clients arrive at {highest.rate_per_s:.4g}/s for "
                f"{highest.duration_s:.3g} s and not faster; give more with -n"
            )
            return Validity(Verdict.UNDETERMINED, (Reason("too-few-clients", text),))
        text = f"the highest rate tried holds: {HEADROOM:g} times the rate of all clients at once"
        return Validity(Verdict.UNDETERMINED, (Reason("highest-rate-held", text),))

    def rest_s(self, result: TestResult) -> float:
        """Pause until the server has forgotten these clients. After only a few aborted handshakes a reused source
        port is unlikely, so the pause is short."""
        failed = result.value("failed_ratio")
        if failed is None or failed <= _FEW:
            return FORGOTTEN_S
        if isinstance(self.workload.identities, WireguardFiles):
            # A WireGuard gateway keeps nothing of a handshake that did not end.
            return FORGOTTEN_S
        windows = _HAND_WINDOW.findall(self.workload.profile)
        return max(FORGOTTEN_S, float(windows[-1]) if windows else GIVEN_UP_S)

    def failure_message(self, result: TestResult) -> str:
        """The message if no client connected."""
        causes = ", ".join(f"{count} x {name}" for name, count in result.errors.items()) or "no errors were counted"
        return f"of the {self.workload.clients} clients at the start of the search, none connected ({causes})"

    def _clients(self, rate_per_s: float, steady_s: float) -> int:
        """The clients that arrive in the time, at most all."""
        return min(self.workload.clients, max(_LEAST_CLIENTS, math.ceil(rate_per_s * steady_s)))


def storm_rate_per_s(figures: dict[str, float | None]) -> float | None:
    """Clients per second in the fastest part of a storm; None if no client connected."""
    configured = figures.get("configured")
    rates = [
        share * configured / (time_ms / 1000)
        for share, name in _STRETCHES
        if configured and (time_ms := figures.get(name))
    ]
    return max(rates, default=None)


_LEAVING_MS = 2000
# Both ends of a tunnel usually have the same value; the server's own is not known here.
_HAND_WINDOW = re.compile(r"^\s*hand-window\s+(\d{1,6})\s*$", re.MULTILINE)
_FEW = 0.05
