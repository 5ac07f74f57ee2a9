"""Which figures a reason concerns, and on which side of them the true figure then lies.

A generator that had no CPU to spare says nothing about the datagrams that were lost, and sends that were late can only
have made a latency longer. A verdict therefore belongs to a figure: each reason names the figures that it concerns,
and where the error can go one way only, a figure still decides the targets that lie on the other side of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache

from leadline.analysis.model import Bound, Metric, Reason, Validity, Verdict
from leadline.plan import tier_metrics
from leadline.plan.gateway_metrics import is_cost, is_memory, of_gateway
from leadline.plan.tags import split_figure

ORDER = list(Verdict)
"""Verdicts, worst first."""
WHOLE = 0.99
"""From this share of what was due on, a rate counts as delivered."""
EXPLAINED = 0.02
"""Of a rate: what remains to the limit that explains it. A lack of CPU can have cost it no more than that."""


class Family(StrEnum):
    """Figures that the same reasons concern."""

    RATE = "rate"
    LATENCY = "latency"  # counted from when an operation was due, and jitter
    TIME = "time"  # counted from when an operation was sent
    LATENESS = "lateness"  # of the generator's own sends: evidence about this test, whatever else ran beside it
    LOSS = "loss"
    INVERSE = "inverse"  # one divided by a rate
    COUNT = "count"  # what was counted, whatever its pace
    USE = "use"  # CPU time of a gateway, which follows from the rate
    COST = "cost"  # CPU time of a gateway per byte and packet


EVERYTHING: Mapping[Family, Bound] = dict.fromkeys(Family, Bound.NONE)
_TIMES = (Family.LATENCY, Family.TIME)
# More load means more use of a gateway. A cost needs no certain rate; other work can only make it larger.
_RATES = (Family.RATE, Family.USE)
_OWN_CPU: Mapping[Family, Bound] = {**dict.fromkeys(_RATES, Bound.LEAST), **dict.fromkeys(_TIMES, Bound.MOST)}
_PACE: Mapping[Family, Bound] = dict.fromkeys((*_RATES, *_TIMES), Bound.NONE)
_OTHERS: Mapping[Family, Bound] = {
    **_OWN_CPU,
    Family.LOSS: Bound.MOST,
    Family.USE: Bound.NONE,
    Family.COST: Bound.MOST,
}
_NO_PACE: Mapping[Family, Bound] = dict.fromkeys(_RATES, Bound.NONE)
_KEEP_AWAKE = frozenset({"other-work", "cpu-stolen", "machine-saturated"})
"""Other work, and hosts that share CPUs, take CPU time, and keep CPUs awake that would otherwise sleep between two
operations."""
_OF_CODE: Mapping[str, Mapping[Family, Bound]] = {
    "other-work": _OTHERS,
    "cpu-stolen": _OTHERS,
    "heat-throttled": _OTHERS,
    "quota-held-back": _OTHERS,
    "thread-saturated": _OWN_CPU,
    "thread-starved": _OWN_CPU,
    "thread-waited": _OWN_CPU,
    "quota-used-up": _OWN_CPU,
    "near-ceiling": _OWN_CPU,
    "pushback": dict.fromkeys(_RATES, Bound.LEAST),
    # Fewer users than were asked for ask at once: what answers take under more is not known.
    "users-wait": {**dict.fromkeys(_RATES, Bound.LEAST), **dict.fromkeys(_TIMES, Bound.NONE)},
    "sends-late": {Family.LATENCY: Bound.MOST},
    "read-late": dict.fromkeys(_TIMES, Bound.MOST),
    "source-read-late": {Family.LATENCY: Bound.MOST},
    "ran-over": dict.fromkeys(_RATES, Bound.LEAST),
    # The load that was asked for was not there: under it more may be lost, and how long answers take is not known.
    # What was never sent would have been later than all that was.
    "unsent": {
        **dict.fromkeys((*_RATES, Family.LOSS, Family.LATENESS), Bound.LEAST),
        **dict.fromkeys(_TIMES, Bound.NONE),
    },
    "receiver-socket-drops": {Family.RATE: Bound.LEAST, Family.LOSS: Bound.MOST},
    "receiver-backlog-drops": {Family.RATE: Bound.LEAST, Family.LOSS: Bound.MOST},
    "sender-interface-drops": {Family.RATE: Bound.LEAST, Family.LOSS: Bound.MOST},
    # What was counted was counted; how fast, how late and how much was lost is that of the outage as well.
    "link-outage": {family: Bound.NONE for family in Family if family is not Family.COUNT},
    "nothing-answered": _PACE,
    "window-too-short": {**_NO_PACE, Family.COST: Bound.NONE},
    "no-steady-window": {**_NO_PACE, Family.COST: Bound.NONE},
    "intervals-disagree": _NO_PACE,
    "precision-unknown": _NO_PACE,
    "change-point": _PACE,
    # With CPUs of its own a host carries more. What queues up before the next one then, times do not tell.
    "machine-saturated": {
        **dict.fromkeys(_RATES, Bound.LEAST),
        **dict.fromkeys(_TIMES, Bound.NONE),
        Family.COST: Bound.MOST,
    },
    "no-generator-figures": _PACE,
    "no-receiver-figures": {**_PACE, Family.LOSS: Bound.NONE, Family.COST: Bound.NONE},
    # What was outstanding is late or lost.
    "still-arriving": {Family.LOSS: Bound.MOST},
    "sender-side-figure": {Family.RATE: Bound.NONE, Family.COST: Bound.NONE},
}
"""What a reason concerns, by its code; what is not here concerns every figure."""

PERCENTILE_UNCERTAIN = "percentile-uncertain"
OTHER_WORK = "other-work"
_OF_THREADS = frozenset({"thread-saturated", "thread-starved", "thread-waited", "quota-used-up"})
_OF_SIDES = frozenset({Verdict.GENERATOR_LIMITED, Verdict.RECEIVER_LIMITED})
_OF_CPU = _OF_THREADS | {"other-work", "cpu-stolen", "heat-throttled", "quota-held-back"}
_DROPS = frozenset({"receiver-socket-drops", "receiver-backlog-drops", "sender-interface-drops"})
NOT_OFFERED = frozenset({"unsent", "pushback", "ran-over"})
"""Reasons by which the load that was asked for was not there."""
LACKS = _OF_CPU | _DROPS | NOT_OFFERED | {"near-ceiling", "machine-saturated"}
"""Reasons by which a rate would be higher, if nothing but them limited it."""
LACKS_OF_SENDERS = _OF_THREADS | NOT_OFFERED | {"near-ceiling", "users-wait"}
"""Those by which more might have been sent."""

_RATE_ENDINGS = ("_per_s", "_bps")
_TIME_ENDINGS = ("_us", "_ms")
_PARTS_OF_RATES = "line_use_"
_INVERSES = "transfer_time_"
_OF_KERNEL = frozenset({"pacing_bps", "delivery_bps"})
"""Rates that a kernel reports of each connection: no steady window is needed for them."""
_SERVICE_DEMAND = "_cpu_ns_per_"
_FROM_DUE = ("latency_", "jitter_")
_OF_SENDS = ("late_", "sends_late_")
# A VPN client connects from when it was due; an http request's connecting begins when there is none to use.
_CLIENT_CONNECTS, _OF_CLIENTS = "connect_", "_ms"
_LOSSES = frozenset(
    {"lost", "lost_ratio", "outstanding", "duplicates", "reordered", "error_ratio", "unanswered", "unsent"}
    | {"failed_ratio", "unconfigured_ratio"}
    | {"loss_bursts", "loss_burst_mean", "loss_burst_max", "reorder_extent_mean", "reorder_extent_max"}
)


_OF_TIERS = {
    tier_metrics.CPU: Family.USE,
    tier_metrics.PER_REQUEST: Family.COST,
    tier_metrics.EXECUTION: Family.COST,
    tier_metrics.MEMORY: Family.COUNT,
    tier_metrics.IN_TIER_MEAN: Family.TIME,
    tier_metrics.IN_TIER_P99: Family.TIME,
}


@dataclass(frozen=True, slots=True)
class Judged:
    """A test's figures, each with its verdict, and the verdict on the test."""

    metrics: dict[str, Metric]
    validity: Validity


# A run has thousands of tests with the same figures.
@lru_cache(maxsize=4096)
def family_of(metric: str) -> Family:
    """The family of a figure, by its name; the same whatever part of the test it is of."""
    metric, _ = split_figure(metric)
    if of_gateway(metric):
        return Family.COST if is_cost(metric) else Family.COUNT if is_memory(metric) else Family.USE
    if metric in _OF_TIERS or _SERVICE_DEMAND in metric:
        return _OF_TIERS.get(metric, Family.COST)
    if metric.startswith(_PARTS_OF_RATES) or (metric.endswith(_RATE_ENDINGS) and metric not in _OF_KERNEL):
        return Family.RATE
    if metric.endswith(_TIME_ENDINGS):
        if metric.startswith(_OF_SENDS):
            return Family.LATENESS
        of_client = metric.startswith(_CLIENT_CONNECTS) and metric.endswith(_OF_CLIENTS)
        return Family.LATENCY if of_client or metric.startswith(_FROM_DUE) else Family.TIME
    return Family.INVERSE if metric.startswith(_INVERSES) else Family.LOSS if metric in _LOSSES else Family.COUNT


def follows_from_rate(metric: str) -> bool:
    """Whether a figure says the same as a rate that stands beside it: its share of the line, or the inverse."""
    return metric.startswith((_PARTS_OF_RATES, _INVERSES))


def judge_figures(
    metrics: Mapping[str, Metric],
    findings: Iterable[tuple[Verdict, Reason]],
    notes: Sequence[Reason],
    *,
    primary: str,
    decisive: Iterable[str],
    delivered: float | None,
    cpus_sleep: bool = False,
    spared: Collection[str] = (),
    unmoved: Collection[str] = (),
) -> Judged:
    """Each figure with the worst verdict of the reasons that concern it. The test's verdict is the worst of its primary
    figure and of the `decisive` ones that are known; a reason that concerns none of the figures is a note. A finding
    that names its figures concerns those, any other the families of its code.

    `delivered` is the share of what was due that arrived, where operations had times of their own, and None where they
    had not. What was sent whole in spite of a lack of CPU was not limited by it, and what was delivered whole was not
    limited at all.

    `cpus_sleep` says that operations wait for answers with CPUs that may sleep: beside other work they may be faster.
    Of the `spared` reasons the rate is no lower, because something else sets it; with it goes the use of a gateway,
    unless other work had a part in that. `unmoved` are figures that other processes cannot have changed by taking CPU
    time, as the waits of the load's threads show.
    """
    ranked = sorted(findings, key=lambda finding: ORDER.index(finding[0]))
    offered = delivered is not None and not any(reason.code in NOT_OFFERED for _, reason in ranked)
    whole = offered and delivered is not None and delivered >= WHOLE
    judged, reasons, more = dict(metrics), [], list[Reason]()
    for verdict, reason in ranked:
        effect = _effect(verdict, reason.code, offered=offered, whole=whole)
        if cpus_sleep and reason.code in _KEEP_AWAKE:
            effect = _either_way(effect, has_pace=delivered is not None)
        if reason.code in spared:
            effect = _without(effect, _RATES if verdict in _OF_SIDES else (Family.RATE,))
        elif reason.code in LACKS and (whole or (offered and _is_nearly_whole(verdict, delivered))):
            effect = _without(effect, (Family.RATE,))
        unchanged = unmoved if reason.code == OTHER_WORK and not cpus_sleep else ()
        named = tuple(
            name
            for name, metric in metrics.items()
            if (name in reason.metrics if reason.metrics else name not in unchanged and _concerns(effect, name, metric))
        )
        if not named and metrics:
            more.append(reason)
            continue
        known = tuple(name for name in named if metrics[name].value is not None) or named
        reasons.append(replace(reason, verdict=verdict, metrics=() if len(named) == len(metrics) else known))
        for name in named:
            bound = _bound(effect, name) or Bound.NONE
            if reason.code == PERCENTILE_UNCERTAIN and judged[name].bound is not None:
                bound = judged[name].bound or bound  # its interval says how far beyond the figure it may lie
            judged[name] = judged[name].doubted(verdict, reason.code, bound)
    leading = [judged[name] for name in decisive if name in judged and judged[name].value is not None]
    leading += [judged[primary]] if primary in judged else []
    verdicts = [figure.verdict for figure in leading] if leading else [verdict for verdict, _ in ranked]
    worst = min(verdicts, key=ORDER.index, default=Verdict.VALID)
    return Judged(judged, Validity(worst, tuple(reasons), (*more, *notes)))


def _is_nearly_whole(verdict: Verdict, delivered: float | None) -> bool:
    """Whether what was offered explains a rate that something else may have lowered."""
    return verdict is Verdict.DISTURBED and delivered is not None and delivered >= 1 - EXPLAINED


def _concerns(effect: Mapping[Family, Bound], name: str, metric: Metric) -> bool:
    """Whether a figure is doubted; one that is 0, and can only be less, is not."""
    bound = _bound(effect, name)
    return bound is not None and not (bound is Bound.MOST and metric.value == 0)


def _bound(effect: Mapping[Family, Bound], name: str) -> Bound | None:
    """The side of a figure on which the true one lies; None if the effect does not concern it."""
    family = family_of(name)
    if family is not Family.INVERSE:
        return effect.get(family)
    of_rate = effect.get(Family.RATE)
    return None if of_rate is None else of_rate.inverted


def _effect(verdict: Verdict, code: str, *, offered: bool, whole: bool) -> Mapping[Family, Bound]:
    effect = _OF_CODE.get(code, EVERYTHING)
    if code in _DROPS and whole:
        return _without(effect, _RATES)
    if code not in _OF_CPU:
        return effect
    if verdict is Verdict.GENERATOR_LIMITED:
        kept_its_rate = offered
    else:
        # What arrives at a side that has no CPU left may be lost there.
        effect = {**effect, Family.LOSS: Bound.MOST}
        kept_its_rate = whole
    return _without(effect, _RATES) if kept_its_rate else effect


def _without(effect: Mapping[Family, Bound], families: Collection[Family]) -> Mapping[Family, Bound]:
    return {family: bound for family, bound in effect.items() if family not in families}


def _either_way(effect: Mapping[Family, Bound], *, has_pace: bool) -> Mapping[Family, Bound]:
    """The same where CPUs that others keep awake answer sooner: times may also be shorter than on an idle machine, and
    a rate that follows from them higher."""
    open_sides = _TIMES if has_pace else (*_RATES, *_TIMES)
    return {family: Bound.NONE if family in open_sides else bound for family, bound in effect.items()}
