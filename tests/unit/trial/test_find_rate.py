"""What a search as a whole is worth, and the exit code of each ending."""

from __future__ import annotations

from dataclasses import replace

import pytest

from leadline.analysis.model import Bound, Metric, TestResult, Validity, Verdict
from leadline.analysis.search_findings import Trial
from leadline.kinds.http.search import search_validity
from leadline.trial.capacity_search import Ending, SearchResult
from leadline.trial.find_rate import Answer

HELD = Trial(900.0, 10.0, True, False, 1.0, "latency_p99_us 1200", {})
FAILED = Trial(1000.0, 10.0, False, False, 0.9, "latency_p99_us 90000 is not < 5000", {})
BUSY = replace(FAILED, connections_busy=True)
FOUND = SearchResult(Ending.FOUND, 900.0, 1000.0, 10.0)


def test_a_search_that_its_connections_limited_says_so() -> None:
    validity = search_validity(FOUND, [HELD, BUSY], 20, None)
    assert validity.verdict is Verdict.VALID
    (note,) = validity.notes
    assert note.code == "connections-busy"
    assert "for 20 connections" in note.text and "more may reach a higher rate" in note.text


def test_only_the_trials_that_bound_the_rate_tell() -> None:
    far = replace(BUSY, rate_per_s=2000.0)
    assert search_validity(FOUND, [far, HELD, FAILED], 20, None).notes == ()
    late = replace(FAILED, generator_limited=True)
    open_above = SearchResult(Ending.GENERATOR_LIMITED, 900.0, None, 10.0)
    assert search_validity(open_above, [far, HELD, late], 20, None).notes[0].code == "connections-busy"
    assert search_validity(FOUND, [replace(HELD, connections_busy=True), FAILED], 20, None).notes == ()


def test_bound_above_the_generators_limit_is_in_the_reason() -> None:
    late = replace(FAILED, generator_limited=True)
    between = SearchResult(Ending.GENERATOR_LIMITED, 900.0, 1100.0, 1.0)
    validity = search_validity(between, [HELD, late, replace(FAILED, rate_per_s=1100.0)], 20, None)
    assert validity.verdict is Verdict.GENERATOR_LIMITED
    assert validity.reasons[0].text.startswith(
        "at 1,000/s the generator was at its limit or late, at 1,100/s the server"
    )


@pytest.mark.parametrize(
    ("ending", "low_per_s", "verdict"),
    [
        (Ending.NONE_HELD, None, Verdict.VALID),
        (Ending.BUDGET, 900.0, Verdict.INCOMPLETE),
        (Ending.ALL_HELD, 900.0, Verdict.UNDETERMINED),
    ],
)
def test_the_verdict_is_the_endings(ending: Ending, low_per_s: float | None, verdict: Verdict) -> None:
    validity = search_validity(SearchResult(ending, low_per_s, None, None), [HELD, BUSY], 20, None)
    assert validity.verdict is verdict
    assert [note.code for note in validity.notes] == ["connections-busy"]


@pytest.mark.parametrize(
    ("ending", "verdict", "bound"),
    [
        (Ending.FOUND, Verdict.VALID, None),
        (Ending.GENERATOR_LIMITED, Verdict.GENERATOR_LIMITED, Bound.LEAST),
        (Ending.ALL_HELD, Verdict.UNDETERMINED, Bound.LEAST),
        (Ending.BUDGET, Verdict.INCOMPLETE, Bound.NONE),
        (Ending.INTERRUPTED, Verdict.INCOMPLETE, Bound.NONE),
    ],
)
def test_rate_found_has_the_verdict_of_its_search(ending: Ending, verdict: Verdict, bound: Bound | None) -> None:
    late, result = replace(FAILED, generator_limited=True), SearchResult(ending, 900.0, None, 10.0)
    validity = search_validity(result, [HELD, late], 20, None)
    first = steady_result()
    answer = Answer(result, first, Metric(2000.0, "1/s"), "reached_per_s", (HELD, late), validity, None)
    rate = answer.metrics["found_rate_per_s"]
    assert (validity.verdict, rate.verdict, rate.bound) == (verdict, verdict, bound)
    assert rate.reasons == tuple(reason.code for reason in validity.reasons)


def steady_result() -> TestResult:
    """A load without figures, as the one before the first trial."""
    empty = Validity(Verdict.VALID)
    return TestResult("c01", 1, "http", "http", {}, "done", None, {}, empty, None, None, {})
