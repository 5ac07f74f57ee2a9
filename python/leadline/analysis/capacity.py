"""Judges one trial of a capacity search: whether the conditions held at its rate, and what the limit was if not.

Owns the conditions (`METRIC < VALUE and ...`) and the judgement of one trial. `trial.capacity_search` chooses the
next rate. Read docs/search.md first. Pure.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import dropwhile, pairwise

import numpy as np

from leadline.analysis.datagram_figures import STILL_ARRIVING
from leadline.analysis.model import LimitedBy, Metric, TestResult, Validity, Verdict
from leadline.analysis.read_waits import READ_LATE
from leadline.analysis.search_findings import Trial
from leadline.analysis.targets import parse_targets
from leadline.analysis.validity import (
    CONNECTIONS_BUSY,
    GENERATOR_REASONS,
    NOT_STARTED,
    SHORT_WINDOWS,
    UNEVEN,
    leftover,
)
from leadline.errors import InputError
from leadline.plan.percentiles import histogram_of
from leadline.plan.rate_search import MAX_CONDITIONS, is_weaker, strictness
from leadline.plan.targets import Target
from leadline.statistics.monotone import MIN_VALUES, slope_at_end

QUEUE_SHARE = 0.05
"""If a server serves this share less than what arrives, its clients count as queueing."""
QUEUE_LEAST_MS = 50.0
"""The delay that a busy host alone may add to connecting."""

SAMPLES_BEYOND = 7
"""Values beyond a percentile that a trial needs, expected ones: with fewer, a single odd value decides. 700 for p99."""
MIN_GROWTH = 1e-4
"""Of the time: what latency grows by less is no queue that grows, whatever the order of its values."""
MIN_GROWTH_SHARE = 0.1
"""Of the latency at the beginning, that it grows by in the whole trial at least."""
QUEUE_PARTS = 10
"""Parts of a trial in which the operations that wait are counted."""
MIN_QUEUED = 3
"""Operations by which a queue grows in a trial, at least: one or two more may be in flight at the end by chance."""
MIN_QUEUED_SHARE = 1e-3
"""Of what was offered, likewise: two clocks drift apart by a tenth of that."""
LOST_SHARE = 0.01
"""Of the datagrams: from there on a queue was full and grows no longer."""

UNSENT_SHARE = 0.01
"""A sender that leaves out more than this share of what was due did not offer the rate."""

_OTHERS = frozenset({Verdict.GENERATOR_LIMITED, Verdict.UNDETERMINED})
_AND = re.compile(r"(?:^|\s)\s*and(?=\s|$)", re.IGNORECASE)
_ERRORS = "error_ratio"
# Figures of the clients of a fleet that are not configured.
_OF_CLIENTS = frozenset({"configured", "partial", "failed", "failed_ratio", "unconfigured_ratio"})
# Reasons that do not make a trial incomplete: a short window, uneven or few parts, and limits of the generator.
_WHOLE = frozenset({*SHORT_WINDOWS, *UNEVEN, *GENERATOR_REASONS, READ_LATE})


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditions of a search. All must hold at a rate."""

    text: str
    targets: tuple[Target, ...]
    further: tuple[Conditions, ...] = ()
    """Weaker conditions whose rates are found by the same trials, each weaker than the one before."""

    @classmethod
    def read_all(cls, texts: Sequence[str], test: str, kind: str, option: str = "--find-rate") -> Conditions:
        """Parse the conditions of one search for several rates at once, such as NDR and PDR; the strictest comes first
        in the result.

        Raises:
            InputError: a part is not a target, or the conditions are not of the same figures, ever weaker.
        """
        read = [cls.read(text, test, kind, option) for text in texts]
        read.sort(key=lambda one: [strictness(target) for target in one.targets])
        for one, weaker in pairwise(read):
            if not is_weaker(weaker.targets, one.targets):
                raise InputError(
                    f"{option} {weaker.text!r} beside {one.text!r}: one search finds rates for the same figures only",
                    hint="as in 'lost_ratio <= 0' and 'lost_ratio <= 0.5%'; search others by themselves",
                )
        if len(read) > MAX_CONDITIONS:
            raise InputError(f"{option}: one search finds at most {MAX_CONDITIONS} rates, not {len(read)}")
        return replace(read[0], further=tuple(read[1:]))

    @property
    def allowed_losses(self) -> tuple[float, ...]:
        """The shares of loss that the further conditions allow; made ones in their order if they are of other
        figures."""
        losses = [next((t.value for t in one.targets if t.metric == "lost_ratio"), 0.0) for one in self.further]
        is_ascending = all(low < high for low, high in pairwise([0.0, *losses]))
        return tuple(losses) if is_ascending else tuple((number + 1) / 10 for number in range(len(losses)))

    @classmethod
    def read(cls, text: str, test: str, kind: str, option: str = "--find-rate") -> Conditions:
        """Parse `METRIC < VALUE and ...` for a test of this name and kind. `option` is named in errors.

        Raises:

            InputError: a part is not a target, or names an unknown figure.
        """
        parts = [part.strip() for part in _AND.split(text.strip())]
        if not all(parts):
            raise InputError(
                f"{option} {text!r}: not of the form 'METRIC < VALUE and ...'",
                hint="as in 'latency_p99_us < 5000 and error_ratio < 0.1%'",
            )
        return cls(text.strip(), tuple(parse_targets(parts, {test: kind}, option)))

    @property
    def metrics(self) -> tuple[str, ...]:
        """The figures in the conditions, each once."""
        return tuple(dict.fromkeys(target.metric for target in self.targets))

    @property
    def samples(self) -> int:
        """How many operations a trial needs for its percentiles; 0 without one."""
        return max((samples_of(target.metric) for target in self.targets), default=0)


def samples_of(metric: str) -> int:
    """How many values a percentile needs in a trial; 0 for other figures."""
    asked = histogram_of(metric)
    if asked is None:
        return 0
    return math.ceil(SAMPLES_BEYOND * 100 / min(asked.percentile, 100 - asked.percentile) - 1e-6)


def judge_trial(
    conditions: Conditions, result: TestResult, *, rate_per_s: float, duration_s: float, connections: int
) -> Trial:
    """Judge the result of one trial of requests.

    Requests that were due and not sent are a backlog. At most one request per connection may be left at the end; a
    longer backlog has been growing, and so has one that made latency grow until the end. Failed requests make the
    trial fail if no condition is about them.
    """
    figures = {name: metric.value for name, metric in result.metrics.items()}
    due = rate_per_s * duration_s
    unmet = _unmet(conditions, result.metrics)
    others = [
        *_undone(conditions, figures, connections),
        *_growth(result, rate_per_s, duration_s),
        *_doubts(result.validity, is_sparse=due < connections),
    ]
    against = [*unmet.values(), *others]
    limits = {reason.code: reason.text for reason in result.validity.reasons if reason.code in GENERATOR_REASONS}
    answered = (figures.get("requests_per_s") or 0.0) * duration_s
    few = not others and _has_few_samples(conditions, unmet, result.metrics, due)
    if against:
        whose = [text for code, text in limits.items() if code != "unsent"]
        why = "; ".join([*against, *whose])
    else:
        why = "; ".join(f"{target.metric} {_said(figures[target.metric])}" for target in conditions.targets)
    return Trial(
        rate_per_s=rate_per_s,
        duration_s=duration_s,
        holds=not against,
        generator_limited=bool(limits) or _is_doubted(conditions, result),
        answered_share=min(1.0, answered / due) if due > 0 else 0.0,
        why=f"{why}; {_few_said(conditions, due)}" if few else why,
        metrics={name: figures.get(name) for name in ("requests_per_s", *conditions.metrics)},
        connections_busy=any(note.code == CONNECTIONS_BUSY for note in result.validity.notes),
        disturbed=_is_disturbed(result),
        few_samples=few,
    )


def judge_packets(conditions: Conditions, result: TestResult, *, rate_per_s: float, duration_s: float) -> Trial:
    """Judge the result of one trial of datagrams, by further conditions too: see `_judge_packets`."""
    judged = [
        _judge_packets(one, result, rate_per_s=rate_per_s, duration_s=duration_s)
        for one in (conditions, *conditions.further)
    ]
    return replace(judged[0], further=tuple(judged[1:]))


def _judge_packets(conditions: Conditions, result: TestResult, *, rate_per_s: float, duration_s: float) -> Trial:
    """Judge the result of one trial of datagrams: `rate_per_s` of all clients and flows.

    A trial whose sender left out more than `UNSENT_SHARE` of what was due does not hold, and says nothing of the path,
    unless a link was full: a sender that is blocked by its own link has found the path's limit. A queue that grows
    holds for a while, and not later.
    """
    figures = {name: metric.value for name, metric in result.metrics.items()}
    due, sent = rate_per_s * duration_s, figures.get("sent") or 0.0
    short = sent < (1 - UNSENT_SHARE) * due
    link_full = result.limit is not None and result.limit.by is LimitedBy.LINK
    # A queue that is still full long after the end has been growing, wherever it is.
    link_full |= any(reason.code == STILL_ARRIVING for reason in result.validity.reasons)
    unmet = _unmet(conditions, result.metrics)
    others = [*_doubts(result.validity, is_sparse=False)]
    others += [] if short else _queued_datagrams(figures, result, duration_s)
    if short:
        others.append(f"{sent:.0f} of {due:.0f} datagrams that were due were sent")
    against = [*unmet.values(), *others]
    limits = {reason.code: reason.text for reason in result.validity.reasons if reason.code in GENERATOR_REASONS}
    arrived = figures.get("received") or 0.0
    few = not others and _has_few_samples(conditions, unmet, result.metrics, due)
    if against:
        why = "; ".join([*against, *limits.values()])
    else:
        why = "; ".join(f"{target.metric} {_said(figures[target.metric])}" for target in conditions.targets)
    return Trial(
        rate_per_s=rate_per_s,
        duration_s=duration_s,
        holds=not against,
        generator_limited=not link_full and (short or bool(limits) or _is_doubted(conditions, result)),
        answered_share=min(1.0, arrived / due) if due > 0 else 0.0,
        why=f"{why}; {_few_said(conditions, due)}" if few else why,
        metrics={name: figures.get(name) for name in ("packets_per_s", *conditions.metrics)},
        disturbed=_is_disturbed(result),
        few_samples=few,
    )


def _is_doubted(conditions: Conditions, result: TestResult) -> bool:
    """Whether the generator, or what cannot be known of it, may have made the conditions fail. What something else on
    the machine did counts against the rate: the rate found is then a lower bound."""
    named = [result.metrics[name] for name in conditions.metrics if name in result.metrics]
    return _is_undetermined(result.validity) or any(
        metric.verdict in _OTHERS and not UNEVEN.issuperset(metric.reasons) for metric in named
    )


def _is_disturbed(result: TestResult) -> bool:
    return result.validity.verdict is Verdict.DISTURBED


def judge_fleet(
    conditions: Conditions, result: TestResult, *, rate_per_s: float, duration_s: float, queues: bool = False
) -> Trial:
    """Judge the result of one trial of arriving VPN clients. `duration_s` is the length of the arrivals.

    Clients that are not configured make the trial fail if no condition is about them. If a server does not keep up,
    clients wait longer the later they arrive; in a short trial the conditions may not show that, so a queue makes the
    trial fail too. Clients that arrive all at once always queue, so `queues` exempts them.
    """
    figures = {name: metric.value for name, metric in result.metrics.items()}
    queue = [] if queues else list(_queue(figures, duration_s))
    against = [*_unmet(conditions, result.metrics).values(), *queue, *_doubts(result.validity, is_sparse=False)]
    bad = figures.get("unconfigured_ratio")
    if not against and bad and not _OF_CLIENTS & set(conditions.metrics):
        against.append(f"unconfigured_ratio is {_said(bad)}")
    limits = {reason.code: reason.text for reason in result.validity.reasons if reason.code in GENERATOR_REASONS}
    if against:
        why = "; ".join([*against, *limits.values()])
    else:
        why = "; ".join(f"{target.metric} {_said(figures[target.metric])}" for target in conditions.targets)
    served = min(1.0, (figures.get("handshakes_per_s") or rate_per_s) / rate_per_s) if queue else 1.0
    return Trial(
        rate_per_s=rate_per_s,
        duration_s=duration_s,
        holds=not against,
        generator_limited=bool(limits) or _is_doubted(conditions, result),
        answered_share=served * (1.0 - bad) if bad is not None else 0.0,
        why=why,
        metrics={name: figures.get(name) for name in ("clients", "handshakes_per_s", *conditions.metrics)},
        disturbed=_is_disturbed(result),
    )


def _queue(figures: dict[str, float | None], duration_s: float) -> Iterator[str]:
    """Whether a queue grew by more than `QUEUE_SHARE` of the time. Its length near the end is the connect time of the
    slowest tenth minus that of the fastest. A few clients whose packets were lost do not count as a queue."""
    slow_ms, quick_ms = figures.get("connect_p90_ms"), figures.get("connect_min_ms")
    if slow_ms is None or quick_ms is None:
        return
    grown_ms, allowed_ms = slow_ms - quick_ms, max(QUEUE_LEAST_MS, QUEUE_SHARE * 900 * duration_s)
    if grown_ms > allowed_ms:
        yield (
            f"clients queued: connecting took {_said(slow_ms)} ms at p90 and {_said(quick_ms)} ms at best, in "
            f"{duration_s:.3g} s of arrivals"
        )


def _unmet(conditions: Conditions, metrics: Mapping[str, Metric]) -> dict[Target, str]:
    """Conditions that do not hold or may not hold, and why: of a lower bound, only 'not below' is known."""
    found = {target: _miss(target, metrics.get(target.metric)) for target in conditions.targets}
    return {target: text for target, text in found.items() if text is not None}


def _miss(target: Target, metric: Metric | None) -> str | None:
    value = metric.value if metric is not None else None
    if metric is None or value is None:
        return f"{target.metric} has no samples"
    if metric.censored and not (target.op in (">", ">=") and target.met_by(value)):
        return f"{target.metric} is at least {_said(value)}, and may not be {target.op} {_said(target.value)}"
    if not target.met_by(value):
        return f"{target.metric} {_said(value)} is not {target.op} {_said(target.value)}"
    return None


def _has_few_samples(
    conditions: Conditions, unmet: Mapping[Target, str], metrics: Mapping[str, Metric], due: float
) -> bool:
    """Whether percentiles of too few values decide: a trial that holds has one in its conditions; of one that does not,
    all conditions that are unmet are about such, and their intervals do not miss them."""
    few = {target for target in conditions.targets if round(due) < samples_of(target.metric)}
    if not unmet:
        return bool(few)
    return few.issuperset(unmet) and not any(_is_missed_for_sure(one, metrics.get(one.metric)) for one in unmet)


def _few_said(conditions: Conditions, due: float) -> str:
    return f"{due:.0f} samples are too few, {conditions.samples} are needed"


def _is_missed_for_sure(target: Target, metric: Metric | None) -> bool:
    """Whether even the better end of the figure's interval misses the target."""
    end = None if metric is None else metric.high if target.op in (">", ">=") else metric.low
    return end is not None and not target.met_by(end)


def _growth(result: TestResult, rate_per_s: float, duration_s: float) -> Iterator[str]:
    """Whether latency still grew at the end: then a queue grows, and what holds now will not hold later. Agents report
    latencies once a second: in a trial of fewer seconds the requests that were due and not answered show it."""
    known = [
        ((one.start_s + one.end_s) / 2, latency_us / 1e6)
        for one in result.intervals
        if one.in_window and (latency_us := one.values.get("latency_p50_us")) is not None
    ]
    if len(known) < MIN_VALUES:
        median_us = next((us for name in ("latency_p50_us", "latency_mean_us") if (us := _value(result, name))), 0.0)
        least_s = MIN_GROWTH_SHARE * median_us / 1e6
        grown_per_s = _queued_per_s(result, "requests_per_s", rate_per_s, duration_s, least_s)
        if grown_per_s is not None:
            yield f"requests without an answer still grew at the end, by {grown_per_s:.3g} in each second"
        return
    times_s, latencies_s = zip(*known, strict=True)
    step_s = (times_s[-1] - times_s[0]) / (len(known) - 1)
    slope_s = slope_at_end(latencies_s)
    if slope_s is None or slope_s < MIN_GROWTH * step_s:
        return
    if slope_s * (len(known) - 1) >= MIN_GROWTH_SHARE * latencies_s[0]:
        yield f"latency still grew at the end, its median by {1000 * slope_s / step_s:.3g} ms in each second"


def _queued_datagrams(figures: Mapping[str, float | None], result: TestResult, duration_s: float) -> Iterator[str]:
    """Whether datagrams on their way still grew in number at the end; not those that were lost, as on a path whose
    queue was full."""
    sent, lost = figures.get("sent") or 0.0, figures.get("lost") or 0.0
    if not sent or lost > LOST_SHARE * sent:
        return
    arriving_per_s = (sent - lost) / duration_s
    grown_per_s = _queued_per_s(result, "packets_per_s", arriving_per_s, duration_s)
    if grown_per_s is not None:
        delay_ms = 1000 * grown_per_s / arriving_per_s
        yield f"a queue still grew at the end: datagrams took {delay_ms:.3g} ms longer in each second"


def _queued_per_s(
    result: TestResult, name: str, rate_per_s: float, duration_s: float, least_s: float = 0.0
) -> float | None:
    """The growth of a queue at the end: how many more of what came at a rate for this time waited after each second;
    None if it did not grow, or not by `least_s` of waiting in all. `name` is the rate at which they left."""
    inside = [one for one in result.intervals if one.in_window]
    end_s = inside[0].start_s + 1.01 * duration_s if inside else 0.0
    gone = [
        (one.end_s - one.start_s, per_s)
        for one in inside
        if one.end_s <= end_s and (per_s := one.values.get(name)) is not None
    ]
    # Until the first one leaves, all are on their way.
    gone = list(dropwhile(lambda one: not one[1], gone))
    parts = min(QUEUE_PARTS, len(gone))
    if parts < MIN_VALUES:
        return None
    waiting = np.cumsum([length_s * (rate_per_s - per_s) for length_s, per_s in gone])
    slope = slope_at_end([float(part.mean()) for part in np.array_split(waiting, parts)])
    seconds = sum(length_s for length_s, _ in gone)
    # Sends that are late look the same, but then the generator counts as the limit, or its own link does.
    least = max(MIN_QUEUED, MIN_QUEUED_SHARE * rate_per_s * seconds, least_s * rate_per_s)
    return None if slope is None or slope * (parts - 1) < least else slope * parts / seconds


def _value(result: TestResult, name: str) -> float | None:
    metric = result.metrics.get(name)
    return None if metric is None else metric.value


def _undone(conditions: Conditions, figures: dict[str, float | None], connections: int) -> Iterator[str]:
    unsent = figures.get("unsent") or 0.0
    backlog = unsent > leftover(connections)
    if backlog:
        yield f"{unsent:.0f} requests that were due were not sent"
    if not backlog and _ERRORS not in conditions.metrics and figures.get(_ERRORS):
        yield f"{_ERRORS} is {_said(figures[_ERRORS])}"


def _doubts(validity: Validity, is_sparse: bool) -> Iterator[str]:
    """Why figures that meet the conditions may be invalid. With fewer requests than connections, a thread may have
    had none, which is not a gap."""
    if validity.verdict in (Verdict.INCOMPLETE, Verdict.UNDETERMINED):
        for reason in validity.reasons:
            if reason.code not in _WHOLE and not (is_sparse and reason.code == NOT_STARTED):
                yield reason.text


def _is_undetermined(validity: Validity) -> bool:
    """Whether evidence is missing. A trial of a search may be too short for the precision of its rate."""
    codes = {reason.code for reason in validity.reasons if reason.verdict is Verdict.UNDETERMINED}
    return validity.verdict is Verdict.UNDETERMINED and not (codes and codes <= UNEVEN)


def _said(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.6g}"
