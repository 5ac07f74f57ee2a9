"""What a run's figures say, in sentences: each case against its baseline, what limits it, its cost, what to do next.

A sentence claims no more than its figures allow: a ratio has an interval or is called "about", a bound is "at least" or
"at most", and where the two sides leave no ratio it says so, and why. It has no figure that is not in the run's
findings. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from leadline import quantities
from leadline.analysis.advice import ADVICE
from leadline.analysis.baselines import Case, baselines_of, cases_of
from leadline.analysis.comparison import MARGIN, costs_of_tiers, ratio_of_results
from leadline.analysis.gateways import SHARED, UNSEEN
from leadline.analysis.model import (
    Answer,
    Bound,
    Certainty,
    LimitedBy,
    Metric,
    RunAnalysis,
    Summary,
    TestAnswer,
    TestResult,
    Verdict,
)
from leadline.analysis.outages import outage_in
from leadline.analysis.ratio_words import TIMES_FROM, bounded_ratio, comparative, effect_of, is_exact, share_text
from leadline.analysis.repeats import comparable
from leadline.analysis.scope import WHOLE
from leadline.analysis.searches import NO_RATE_HELD
from leadline.analysis.validity import ENDS_FULL
from leadline.plan.gateway_metrics import CPU, GATEWAYS, PER_CLIENT, PER_GBPS, metric_of, says_per_gbps
from leadline.plan.tags import split_figure
from leadline.plan.tier_metrics import TAG
from leadline.registry import KINDS
from leadline.statistics import Comparison, compare

_LEAST_SHORTFALL = 0.001
"""A share of loss or failure below this does not stand in a sentence."""

_LIMITS = {
    LimitedBy.GENERATOR: "the load generator is the limit",
    LimitedBy.ANSWERING_SIDE: "the answering side is the limit",
    LimitedBy.LINK: "the link is the limit",
    LimitedBy.GATEWAY: "the gateway is the limit",
    LimitedBy.TIER: "a tier of the stack is the limit",
    LimitedBy.SERVER: "the server is the limit",
    LimitedBy.ENDS_CPUS: "the CPUs of the ends are the limit",
    LimitedBy.PACING: "the pacing rate is the limit",
    LimitedBy.RECEIVER_WINDOW: "the receiver's window is the limit",
    LimitedBy.SEND_BUFFER: "the send buffer is the limit",
    LimitedBy.PATH: "the path is the limit",
    LimitedBy.SENDING_PROGRAM: "the sending program is the limit",
    LimitedBy.UNKNOWN: "what limits it is not known",
}
_NEXT = {
    LimitedBy.OFFERED_RATE: "offer more (rate) to find out how much it can do",
    LimitedBy.GENERATOR: "use more threads or generating hosts: the system can do more than this",
    LimitedBy.ANSWERING_SIDE: "give the answering host more CPUs or threads: the system can do more than this",
    LimitedBy.LINK: "use a faster link to find the system's own limit",
    LimitedBy.GATEWAY: "look at the gateway's CPU first: a faster core, work on more cores, or less work per packet",
    LimitedBy.TIER: "give the tier more CPUs and threads, or less work per request",
    LimitedBy.SERVER: "look at the server first: its CPU limit, its workers, its log",
    LimitedBy.ENDS_CPUS: "use a machine with more CPUs, or separate machines, to find the gateway's own limit",
    LimitedBy.PACING: "raise or leave out the pacing rate",
    LimitedBy.RECEIVER_WINDOW: "raise the receiver's buffer (window, net.ipv4.tcp_rmem), or read faster there",
    LimitedBy.SEND_BUFFER: "raise the sender's buffer (window, net.ipv4.tcp_wmem)",
    LimitedBy.PATH: "look for a slow link, a shaper or loss on it, try another congestion control, or use more flows",
    LimitedBy.SENDING_PROGRAM: "send larger blocks, or use more threads",
    LimitedBy.UNKNOWN: "see in the charts whose CPU or queue comes near its end, and whether more connections (flows, "
    "connections) carry more: if they do, waiting is the limit",
}
_WHY = {
    Verdict.INCOMPLETE: "not everything was measured",
    Verdict.DISTURBED: "something else used the machine",
    Verdict.GENERATOR_LIMITED: "the load generator was at its end",
    Verdict.RECEIVER_LIMITED: "the answering side was at its end",
    Verdict.UNSTABLE: "repeats or parts of the test disagree",
    Verdict.UNDETERMINED: "evidence is missing",
}
_COSTS = {PER_GBPS: "per Gbit/s", PER_CLIENT: "per client"}
_HOSTS = {"gateway": "the gateway"}


class AnsweredKind(Protocol):
    """The attributes of a kind of test that this module uses."""

    @property
    def primary(self) -> str:
        """The figure that stands for a test."""

    @property
    def verb(self) -> str:
        """What a system does with its load."""

    @property
    def counted(self) -> str | None:
        """What the leading figure counts; None for bits."""

    @property
    def shortfall(self) -> tuple[str, str] | None:
        """The share that a system did not serve, and its words."""

    @property
    def delay(self) -> tuple[str, str] | None:
        """The time that matters where the rate was given, and its words."""


def answers_of(analysis: RunAnalysis, margin: float = MARGIN) -> tuple[Answer, ...]:
    """The answer of each case that began, in the order of the cases. What differs by less than the plan's `margin` is
    equivalent, as in its tables."""
    cases = cases_of(analysis)
    # The plan's baseline, or else the plain route.
    baselines = analysis.baselines or baselines_of(cases)
    summaries = {(summary.case, summary.test): summary for summary in analysis.summaries}
    return tuple(_answer(case, cases.get(baselines.get(case.case, "")), summaries, margin) for case in cases.values())


def _answer(case: Case, baseline: Case | None, summaries: dict[tuple[str, str], Summary], margin: float) -> Answer:
    sides = []
    for (of_case, test), summary in summaries.items():
        if of_case == case.case:
            same = summaries.get((baseline.case, test)) if baseline is not None else None
            sides.append(replace(_Sides.of(case, baseline, summary, same), margin=margin))
    tests = [side.answer() for side in sides]
    against = baseline.case if baseline is not None else None
    if not tests:
        return Answer(case.case, case.name, _without_result(case), None, (), against)
    effects = {side.summary.test: side.effect for side in sides}
    lead = min(tests, key=lambda test: _rank(test, effects[test.test]))
    return Answer(case.case, case.name, lead.sentence, lead.test, tuple(tests), against, _next_step(lead, tests))


def _next_step(lead: TestAnswer, tests: Sequence[TestAnswer]) -> str | None:
    """The next step of the leading test. Where it was carried whole, what another test left open comes first: how much
    the case can do was asked there."""
    unknown = [test.next_step for test in tests if test.certainty is Certainty.CANNOT_TELL]
    return unknown[0] if unknown and lead.limit is LimitedBy.OFFERED_RATE else lead.next_step


def _rank(answer: TestAnswer, effect: float) -> tuple[bool, bool, float, int]:
    """Ranks an answer: how much a case can do comes first, the largest difference to the baseline before others; then a
    load that was carried whole, which does not say that; what is not known comes last."""
    certainty = answer.certainty
    offered = answer.limit is LimitedBy.OFFERED_RATE
    return certainty is Certainty.CANNOT_TELL, offered, -effect, list(Certainty).index(certainty)


def _without_result(case: Case) -> str:
    ends = {trial.status: trial for trial in case.trials}
    if set(ends) == {"skipped"}:
        return f"{_sentence(case.name)} was skipped: {ends['skipped'].error or 'the plan allows it'}."
    error = next((trial.error for trial in case.trials if trial.error), None)
    return f"{_sentence(case.name)} has no result: {error or 'no test began'}."


@dataclass(frozen=True, slots=True)
class _Ratio:
    """The candidate's figure by the baseline's. Without an interval it is known from a bound or about; None: not at
    all."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    bound: Bound | None = None
    why: str | None = None
    word: Comparison = Comparison.CANNOT_TELL


@dataclass(frozen=True, slots=True)
class _Sides:
    """One test of a case, and the same test of its baseline if there is one."""

    case: Case
    summary: Summary
    lead: Metric
    baseline: Case | None = None
    base_summary: Summary | None = None
    base_lead: Metric | None = None
    margin: float = MARGIN

    @classmethod
    def of(cls, case: Case, baseline: Case | None, summary: Summary, base_summary: Summary | None) -> _Sides:
        """A baseline without the test's figure is none."""
        lead = _lead(summary)
        base = _lead(base_summary) if base_summary is not None else None
        if baseline is None or base_summary is None or base is None or base.value is None:
            return cls(case, summary, lead)
        return cls(case, summary, lead, baseline, base_summary, base)

    @property
    def kind(self) -> AnsweredKind:
        known: AnsweredKind = KINDS.find(self.summary.kind)
        return known

    @property
    def where(self) -> str:
        """The test, in a sentence."""
        return f"in {self.summary.test}"

    @property
    def effect(self) -> float:
        """How far the ratio to the baseline is from 1 for sure."""
        ratio = self._ratio()
        return effect_of(ratio.value, ratio.low, ratio.high, ratio.bound)

    def answer(self) -> TestAnswer:
        """The sentence, with what stands in it."""
        limit = self.summary.limit
        ratio = self._ratio()
        text, certainty = self._claim(ratio)
        clauses = [text + self._shortfall()]
        outage = outage_in(self.summary.validity.reasons)
        if outage is None and self.lead.bound is Bound.NONE and self.lead.value is not None and self.baseline is None:
            clauses.append(f"this is not certain, since {self._why(self.summary)}")
        if self.lead.value is not None and certainty is not Certainty.CANNOT_TELL and outage is None:
            clauses += self._limit_clause()
        is_known = ratio.value is not None and ratio.word is not Comparison.CANNOT_TELL
        return TestAnswer(
            test=self.summary.test,
            metric=self.kind.primary,
            sentence=(f"{_sentence(outage.text)}. " if outage is not None else "")
            + f"{_sentence('; '.join(clauses))}.",
            certainty=certainty,
            baseline=self.baseline.case if self.baseline is not None else None,
            ratio=ratio.value,
            low=ratio.low,
            high=ratio.high,
            limit=limit.by if limit is not None else None,
            cost=self._cost(),
            next_step=self._next_step(),
            unknown=None if is_known else ratio.why or self.lead.unbounded,
        )

    def _claim(self, ratio: _Ratio) -> tuple[str, Certainty]:
        """The main clause, and how much of it is known."""
        name, kind = self.case.name, self.kind
        if self.lead.value is None:
            return f"{name} has no figure {self.where}: {self._why(self.summary)}", Certainty.CANNOT_TELL
        amount = _amount(self.lead, kind.counted, self.summary.repeats)
        if self._is_offered(self.case, self.summary):
            like = self.baseline is not None and self._is_offered(self.baseline, self.base_summary)
            also = f", as {self.baseline.name} does" if like and self.baseline is not None else ""
            share = "nearly all" if 0 < self._missing() <= 1 - WHOLE else "all"
            return f"{name} {kind.verb} {share} that is offered {self.where}, {amount}{also}", Certainty.KNOWN
        if self.baseline is None or self.base_lead is None:
            known = _has_interval(self.lead) and self.lead.bound is not Bound.NONE
            return f"{name} {kind.verb} {amount} {self.where}", Certainty.KNOWN if known else Certainty.ABOUT
        return self._compared(ratio, amount, _amount(self.base_lead, kind.counted, self._base_repeats))

    def _compared(self, ratio: _Ratio, amount: str, base_amount: str) -> tuple[str, Certainty]:
        assert self.baseline is not None
        name, other, kind = self.case.name, self.baseline.name, self.kind
        figures = f"({amount} against {base_amount})"
        if ratio.value is None:
            doubted = self.summary if self.lead.bound is not None else self.base_summary or self.summary
            text = f"how much {name} {kind.verb} {self.where} against {other} is not known {figures}"
            return f"{text}: {self._why(doubted)}", Certainty.CANNOT_TELL
        share = share_text(ratio.value, ratio.low, ratio.high, ratio.bound)
        if ratio.low is not None and ratio.word is Comparison.CANNOT_TELL:
            text = f"whether {name} {kind.verb} more or less than {other} {self.where} is not known {figures}"
            return f"{text}: it is {share} of it", Certainty.CANNOT_TELL
        known = Certainty.KNOWN if ratio.low is not None else Certainty.ABOUT
        if (than := comparative(ratio.low, ratio.high, ratio.word)) is not None:
            return f"{name} {kind.verb} {than} {other} {self.where}, {share} {figures}", known
        of = "" if ratio.value >= TIMES_FROM else "of "
        what = f"{of}the {kind.counted} that" if kind.counted else f"{of}what"
        return f"{name} {kind.verb} {share} {what} {other} {kind.verb} {self.where} {figures}", known

    def _ratio(self) -> _Ratio:
        """The ratio to the baseline, from the repeats of both sides that are valid; else from what the two figures
        bound."""
        base, lead = self.base_lead, self.lead
        if self.baseline is None or base is None or base.value is None or lead.value is None:
            return _Ratio(why=None)
        metric = self.kind.primary
        estimate, why = ratio_of_results(self._results(self.baseline), self._results(self.case), metric)
        if estimate is not None:
            word = Comparison.CANNOT_TELL
            if estimate.low is not None:
                word = compare(estimate, margin=self.margin, higher_is_better=True)
            return _Ratio(estimate.value, estimate.low, estimate.high, None, why or None, word)
        return _bounded_ratio(lead, base, why)

    @property
    def _base_repeats(self) -> int:
        return 0 if self.base_summary is None else self.base_summary.repeats

    def _results(self, case: Case) -> list[TestResult]:
        tests = (test for trial in case.trials for test in trial.tests)
        return [test for test in tests if test.test == self.summary.test and test.status == "done"]

    def _is_offered(self, case: Case, summary: Summary | None) -> bool:
        """Whether each repeat that counts delivered what was offered."""
        limits = [one.limit.by for one in comparable(self._results(case))[0] if one.limit is not None]
        return summary is not None and bool(limits) and all(by is LimitedBy.OFFERED_RATE for by in limits)

    def _limit_clause(self) -> list[str]:
        """What limits it; where that is the offered rate, the time of answers."""
        limit, base = self.summary.limit, self.base_summary.limit if self.base_summary is not None else None
        if limit is None:
            return []
        if limit.by is LimitedBy.OFFERED_RATE:
            return [delay] if (delay := self._delay()) else []
        clause = limit.clause or _LIMITS[limit.by]
        shared = base is not None and base.by is limit.by is not LimitedBy.UNKNOWN
        shared = shared and base is not None and _without_figures(base.clause) == _without_figures(limit.clause)
        return [f"{clause}, as it is for {self.baseline.name}" if shared and self.baseline is not None else clause]

    def _shortfall(self) -> str:
        """`, with 3.1 % of the packets lost`; empty where nothing worth a word was."""
        if self.kind.shortfall is None or not (missing := self._missing()):
            return ""
        metric, words = self.kind.shortfall
        return f", with {_bounded(quantities.share(missing), self.summary.metrics[metric])} {words}"

    def _missing(self) -> float:
        """The share that was lost or failed; 0 where that is not worth a word, or not known."""
        found = self.summary.metrics.get(self.kind.shortfall[0]) if self.kind.shortfall is not None else None
        if found is None or found.value is None or found.value < _LEAST_SHORTFALL or self.lead.value is None:
            return 0.0
        return found.value

    def _delay(self) -> str:
        """The time of answers, against the baseline's."""
        if self.kind.delay is None:
            return ""
        metric, words = self.kind.delay
        own = self.summary.metrics.get(metric)
        base = self.base_summary.metrics.get(metric) if self.base_summary is not None else None
        if own is None or own.value is None:
            return ""
        delay = f"the {words} is {_time(own, self.summary.repeats)}"
        if base is None or base.value is None or self.baseline is None:
            return delay
        of_base = _time(base, self._base_repeats)
        # Bounds invite no comparison: the true times may be the other way round.
        is_bound = own.side is not None or base.side is not None
        return f"{delay} ({of_base} for {self.baseline.name})" if is_bound else f"{delay} against {of_base}"

    def _cost(self) -> str | None:
        """CPU per Gbit/s and per client of each gateway, or a request of each tier; None where no figure is known."""
        if tiers := costs_of_tiers(self.summary):
            return self._cost_of_tiers(tiers)
        parts = []
        for host in GATEWAYS:
            costs = {figure: self.summary.metrics.get(metric_of(host, figure)) for figure in (CPU, *_COSTS)}
            cpu, per_gbps, each = (
                found.value if (found := costs[name]) is not None else None for name in (CPU, PER_GBPS, PER_CLIENT)
            )
            if not says_per_gbps(cpu, per_gbps):
                del costs[PER_GBPS]
            per = {**_COSTS, PER_CLIENT: "in all"} if each == cpu else _COSTS
            known = [
                f"{_bounded(quantities.percent(found.value), found)} of a core {per[figure]}"
                for figure, found in costs.items()
                if figure in _COSTS and found is not None and found.value is not None and not _says_nothing(found)
            ]
            if known:
                parts.append(f"{_HOSTS.get(host, host)} spends {' and '.join(known)}")
        return f"{_sentence('; '.join(parts))}." if parts else None

    def _cost_of_tiers(self, names: Sequence[str]) -> str | None:
        costs = {split_figure(name)[1][TAG]: self.summary.metrics[name].value for name in names}
        known = [f"{quantities.microseconds(cost)} in {tier}" for tier, cost in costs.items() if cost is not None]
        listed = f"{', '.join(known[:-1])} and {known[-1]}" if len(known) > 1 else "".join(known)
        return f"A request takes {listed} of CPU time." if known else None

    def _next_step(self) -> str | None:
        """The advice against what is doubted, or else against the limit."""
        if (outage := outage_in(self.summary.validity.reasons)) is not None:
            return ADVICE[outage.code]
        for code in self.lead.reasons:
            if code in ADVICE:
                return ADVICE[code]
        limit = self.summary.limit
        return limit.next_step or _NEXT[limit.by] if limit is not None else None

    def _why(self, summary: Summary) -> str:
        """Why a figure is doubted or missing."""
        lead = _lead(summary)
        verdict = lead.verdict if lead.verdict is not Verdict.VALID else summary.validity.verdict
        if verdict is Verdict.VALID and ENDS_FULL in lead.reasons:
            return "the CPUs of the ends had no time left"
        none_held = next((note.text for note in summary.validity.notes if note.code == NO_RATE_HELD), None)
        if none_held is not None and lead.value is None and verdict is Verdict.VALID:
            return none_held
        return _WHY.get(verdict, "it was not measured")


def _lead(summary: Summary) -> Metric:
    kind: AnsweredKind = KINDS.find(summary.kind)
    return summary.metrics.get(kind.primary, Metric(None, ""))


def _bounded_ratio(lead: Metric, base: Metric, why: str) -> _Ratio:
    """The ratio of figures of which one is a bound, or that have no repeat in common."""
    assert lead.value is not None and base.value is not None
    if is_exact(lead) and is_exact(base) and base.value > 0:
        return _Ratio(lead.value / base.value, why=why)
    value, bound = bounded_ratio(lead, base)
    return _Ratio(value, bound=bound, why=why)


def _amount(metric: Metric, counted: str | None, repeats: int) -> str:
    """The figure with its interval, or with the words for what is not known of it."""

    def text(value: float | None) -> str:
        shown = quantities.metric(value, metric.unit)
        return f"{shown.removesuffix('/s').rstrip()} {counted}/s" if counted and shown.endswith("/s") else shown

    if metric.bound is None and metric.low is not None and metric.high is not None:
        return text(metric.value) + _interval(metric, repeats)
    if metric.bound in (Bound.LEAST, Bound.MOST) or metric.is_least:
        return _bounded(text(metric.value), metric)
    return f"about {text(metric.value)}"


def _interval(metric: Metric, repeats: int) -> str:
    """` ±1.2 %`; empty without an interval."""
    shown = quantities.plus_minus(metric.value, metric.low, metric.high, repeats)
    if shown.endswith("repeats"):
        return f" ({shown})"
    return f" {shown}" if shown else ""


def _time(metric: Metric, repeats: int) -> str:
    shown = quantities.metric(metric.value, metric.unit)
    if metric.bound is None and _has_interval(metric):
        return shown + _interval(metric, repeats)
    return _bounded(shown, metric) if metric.bound in (Bound.LEAST, Bound.MOST) or metric.is_least else f"about {shown}"


def _bounded(text: str, metric: Metric) -> str:
    words = {Bound.LEAST: "at least ", Bound.MOST: "at most ", Bound.NONE: "about "}
    return f"{words[metric.side]}{text}" if metric.side is not None else text


def _says_nothing(cost: Metric) -> bool:
    """Whether a gateway's cost is no statement: all busy time of its machine, or an upper bound that other work made
    none."""
    return UNSEEN in cost.reasons or (SHARED in cost.reasons and cost.side is Bound.NONE)


def _without_figures(clause: str) -> str:
    return re.sub(r"[\d.,]+", "", clause)


def _has_interval(metric: Metric) -> bool:
    return metric.low is not None and metric.high is not None


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
