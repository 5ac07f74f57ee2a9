"""No two sentences about one result contradict each other: made tests of all kinds, with any mix of a busy or waiting
generator, a busy server, other work, a full link, a pace and connections that were busy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from made_journals import MS, histogram, load, steady_test, thread
from test_doubt_by_other_work import LINK_BPS, observe
from test_searches import LOADS, TEST, found

from leadline.analysis import TestData, analyse_test
from leadline.analysis.model import Bound, LimitedBy, TestResult, Verdict
from leadline.analysis.repeats import summarise
from leadline.analysis.searches import search_result
from leadline.analysis.test_spec import TestSpec
from leadline.analysis.validity import LATENCY_BOUND, worst
from leadline.registry import KINDS
from leadline.report.verdicts import WORDINGS

RATES = {"tcp": {"rate_bps": 8e6}, "udp": {"rate_pps": 1000.0}, "rr": {"rate_per_s": 1000.0}, "http": {"rate": 1000.0}}


def made(kind: str, generator: np.random.Generator) -> TestData:
    """A test of 1,000 operations per second, whose bytes are all that its link carries, in circumstances that are
    drawn."""

    def draw(*choices: Any) -> Any:
        return choices[generator.integers(len(choices))]

    far = None if kind == "http" else load(thread(draw(0.3, 0.97), draw(0.0, 0.01, 0.3)), side="peer", socket_drops=0)
    received = draw(10_000, 10_000, 9_850, 9_000)
    waits = [histogram("kernel_wait", [draw(1, 5) * MS] * 1000)] if kind == "http" else []
    ages = draw([], [histogram("latency_censored", [30 * MS] * draw(1, 500))]) if kind in ("rr", "http") else []
    bits = draw(0.3, 0.96, 0.975, 0.99) * LINK_BPS
    data = steady_test(
        kind,
        bits / 8 * 1448 / 1514,
        received=received,
        generator=load(thread(draw(0.3, 0.5, 0.8, 0.97), draw(0.0, 0.01, 0.42)), pushback=draw(0, 0, 500)),
        receiver=far,
        histograms=[
            histogram("latency", [draw(2, 20) * MS] * received),
            histogram("service", [2 * MS] * 99),
            *waits,
            *ages,
        ],
    )
    outcome: Any = data.outcomes[0].outcome
    if kind == "udp":
        outcome["flows"][0] |= {"lost": 10_000 - received, "jitter_us": 3.0}
    if kind != "tcp":
        outcome["counts"] = {"unsent": draw(0, 0, 400)}
    if kind == "http":
        outcome["counts"] |= {"requests_due": 10_000, "responses": received, "due_while_busy": draw(0, 900)}
    spec = {"name": "t", "kind": kind, "duration_ms": 10_000, "interval_ms": 100, "connections": 2}
    data.spec = TestSpec.read({**spec, **draw({}, RATES[kind])})
    observe(data, busy=0.3, foreign=draw(0.0, 0.0, 0.4, 1.0), bits=bits, backlog=draw(False, True))
    return data


def contradictions(data: TestData, result: TestResult) -> list[str]:
    """What one part of a result says against another."""
    kind: Any = KINDS.find(result.kind)
    rate, limit = result.metrics[kind.primary], result.limit
    assert limit is not None
    leading = [result.metrics[name] for name in (kind.primary, *kind.decisive) if name in result.metrics]
    said = [reason.text for reason in (*result.validity.reasons, *result.validity.notes)]
    said += [WORDINGS[result.validity.verdict].sentence, limit.evidence, limit.clause]
    against = {name for name, metric in result.metrics.items() if metric.reasons and metric.value is not None}
    named = {name for one in result.validity.reasons for name in one.metrics or result.metrics}
    codes = {one.code for one in (*result.validity.reasons, *result.validity.notes)}
    is_known = limit.by is not LimitedBy.UNKNOWN
    return [
        what
        for what, is_so in {
            "the verdict is not that of its figures": result.validity.verdict
            is not worst(one.verdict for one in leading if one.value is not None or one is rate),
            "a valid figure with reasons": any(
                (one.verdict is Verdict.VALID) != (not one.reasons) for one in result.metrics.values()
            ),
            "a figure is doubted by no reason": bool(against - named),
            "more is possible than was offered": limit.by is LimitedBy.OFFERED_RATE and rate.bound is not None,
            "more is possible than the link takes": limit.by is LimitedBy.LINK and rate.bound is Bound.LEAST,
            "what the generator limits is valid": limit.by is LimitedBy.GENERATOR and rate.verdict is Verdict.VALID,
            "what waited for a CPU is valid": "waited for a CPU" in limit.evidence
            and is_known
            and (rate.verdict is Verdict.VALID or rate.bound is None),
            "a bound without a word": any(
                one.side in (Bound.LEAST, Bound.MOST) and codes.isdisjoint(one.reasons or {LATENCY_BOUND})
                for one in result.metrics.values()
            ),
            "the limit is known and is not": is_known and any("limit is unknown" in text for text in said),
            "at least, and no more was offered": any("at least this" in text for text in said),
            "no connection was free where each sends its next request": not data.spec.paced
            and any("no connection was free" in text for text in said),
        }.items()
        if is_so
    ]


@pytest.mark.parametrize("kind", list(RATES))
def test_no_result_contradicts_itself(kind: str) -> None:
    generator = np.random.default_rng(27)
    verdicts, limits = set(), set()
    for _ in range(60):
        data = made(kind, generator)
        result = analyse_test(data)
        verdicts.add(result.validity.verdict)
        limits.add(result.limit.by if result.limit else None)
        shown = (data.spec, result.validity, result.limit)
        assert contradictions(data, result) == [], shown
        summary = summarise([result], planned=1, limit=0.1, case="c01", test="t", kind=kind, parameters={})
        assert summary.validity.verdict is result.validity.verdict, shown
    assert {Verdict.VALID, Verdict.GENERATOR_LIMITED} <= verdicts
    assert {LimitedBy.OFFERED_RATE, LimitedBy.LINK} <= limits


ENDINGS = ("found", "none-held", "generator-limited", "all-held", "budget", "interrupted", "failed")


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize(("low", "high"), [(1000.0, 1020.0), (1000.0, None), (None, 1020.0)])
def test_rate_found_has_the_verdict_of_its_search(ending: str, low: float | None, high: float | None) -> None:
    result = search_result(LOADS, found(ending, low, high), TEST)
    for name in ("found_rate_per_s", "found_rate_bps"):
        assert result.metrics[name].verdict is result.validity.verdict
