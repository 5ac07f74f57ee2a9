"""Repeating a single measurement until a precision: when that ends, and what is kept of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from leadline.analysis.model import Metric, TestResult, Validity, Verdict
from leadline.errors import DatasetError, LeadlineError
from leadline.kinds.rr import RrTest
from leadline.plan.repeats import PrecisionGoal
from leadline.trial import Interrupt, Single, repeated
from leadline.trial.event_log import EntryList


class Measured:
    """Measurements with these figures; None fails."""

    def __init__(self, rates: Sequence[float | None], verdicts: dict[int, Verdict] | None = None) -> None:
        self.rates = list(rates)
        self.verdicts = verdicts or {}
        self.singles: list[Single] = []

    async def __call__(self, single: Single, *_: Any) -> tuple[TestResult, None]:
        self.singles.append(single)
        rate = self.rates[len(self.singles) - 1]
        if rate is None:
            raise LeadlineError("connection refused")
        number = single.repeat
        metrics = {"transactions_per_s": Metric(rate, "1/s"), "latency_p99_us": Metric(1e6 / rate, "us")}
        validity = Validity(self.verdicts.get(number, Verdict.VALID))
        return TestResult("c01", number, "rr", "rr", {}, "done", None, metrics, validity, None, None, {}), None


def repeats(
    measured: Measured, monkeypatch: pytest.MonkeyPatch, goal: PrecisionGoal, entries: list[Any] | None = None
) -> repeated.Repeats:
    monkeypatch.setattr(repeated, "measure_repeat", measured)
    single = Single(RrTest(name="rr"), None, ["leadline"])  # type: ignore[arg-type]
    sink = EntryList(entries if entries is not None else [])
    interrupt = Interrupt(lambda: None, lambda: None)
    return asyncio.run(repeated.measure_repeats(single, goal, sink, interrupt))


def test_three_equal_repeats_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = Measured([100.0, 101.0, 99.0, 100.0])
    found = repeats(measured, monkeypatch, PrecisionGoal())
    assert (len(found.results), found.is_precise) == (3, True)
    assert [(one.repeat, one.alone) for one in measured.singles] == [(1, False), (2, False), (3, False)]


def test_repeats_that_spread_go_on_until_the_mean_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    found = repeats(Measured([90.0, 110.0] * 10), monkeypatch, PrecisionGoal(width=0.1))
    assert found.is_precise
    assert 3 < len(found.results) < 15
    assert found.half_widths["transactions_per_s"] == pytest.approx(0.1, abs=0.03)


def test_a_higher_confidence_needs_more_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = [90.0, 110.0] * 10
    counts = [
        len(repeats(Measured(rates), monkeypatch, PrecisionGoal(confidence=level, width=0.1)).results)
        for level in (0.90, 0.95, 0.99)
    ]
    assert counts == sorted(set(counts))


def test_the_most_repeats_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = repeats(Measured([50.0, 150.0] * 10), monkeypatch, PrecisionGoal(most=5))
    assert (len(found.results), found.is_precise) == (5, False)


def test_a_disturbed_repeat_is_made_up_for(monkeypatch: pytest.MonkeyPatch) -> None:
    found = repeats(Measured([100.0] * 5, {2: Verdict.DISTURBED}), monkeypatch, PrecisionGoal())
    assert (len(found.results), found.is_precise) == (4, True)


def test_a_later_failure_keeps_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    entries: list[Any] = []
    found = repeats(Measured([100.0, None]), monkeypatch, PrecisionGoal(), entries)
    assert (len(found.results), str(found.error)) == (1, "connection refused")
    assert (entries[-1]["record"], entries[-1]["status"]) == ("run-end", "failed")


def test_full_disk_at_the_end_keeps_every_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise DatasetError("no space left on the device")

    entries: Any = SimpleNamespace(append=refuse)
    found = repeats(Measured([100.0] * 3), monkeypatch, PrecisionGoal(), entries)
    assert (len(found.results), found.is_precise, found.error) == (3, True, None)
    assert str(found.unwritten) == "no space left on the device"


def test_the_first_failure_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LeadlineError, match="connection refused"):
        repeats(Measured([None]), monkeypatch, PrecisionGoal())
