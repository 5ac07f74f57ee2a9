"""Rates in equal parts of the window, and intervals over repeats that know of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_journals import steady_test, test_data

from leadline.analysis import analyse_test
from leadline.analysis.model import Metric
from leadline.analysis.model import TestResult as Result
from leadline.analysis.precision import half_widths, is_precise
from leadline.analysis.rate_parts import mean_of_results
from leadline.analysis.repeats import summarise

RATE = "throughput_bps"
STEADY = analyse_test(steady_test("tcp", 1e6))
UNEVEN = (1.0, 1.0, 1.0, 1.0, 3.0, 3.0, 1.0, 1.0, 1.0, 1.0)


def repeats(*parts: tuple[float, ...]) -> list[Result]:
    """Repeats with the same rate and these parts."""
    return [replace(STEADY, metrics={RATE: Metric(1.4, "bit/s")}, rate_parts={RATE: one}) for one in parts]


def test_rate_is_kept_in_ten_parts_of_its_window() -> None:
    value = STEADY.metrics[RATE].value
    assert value is not None
    assert STEADY.rate_parts[RATE] == pytest.approx([value] * 10)


def test_rate_in_stages_and_a_test_without_a_window_have_no_parts() -> None:
    data = steady_test("tcp", 1e6)
    data.spec = replace(data.spec, steady=False)
    assert analyse_test(data).rate_parts == {}
    assert analyse_test(test_data("tcp")).rate_parts == {}


def test_repeats_that_agree_by_chance_have_the_interval_of_their_parts() -> None:
    results = repeats(*[UNEVEN] * 5)
    found = summarise(results, planned=5, limit=0.1, case="c01", test="t", kind="tcp", parameters={})
    figure = found.metrics[RATE]
    assert figure.low is not None and figure.high is not None and figure.high - figure.low > 0.28
    assert [reason.code for reason in found.validity.reasons] == ["repeats-disagree"]
    assert figure.value == 1.4


def test_repeats_without_parts_have_the_interval_of_their_values() -> None:
    mean = mean_of_results([*repeats(UNEVEN, UNEVEN), replace(repeats(UNEVEN)[0], rate_parts={})], RATE, 0.95)
    assert mean is not None and (mean.low, mean.high) == (1.4, 1.4)
    assert mean_of_results(repeats(UNEVEN), "lost_ratio", 0.95) is None


def test_repeats_go_on_while_their_parts_leave_the_rate_uncertain() -> None:
    even = (1.4,) * 10
    for parts, enough in ((even, True), (UNEVEN, False)):
        assert is_precise(repeats(*[parts] * 3), least=3, most=6, until=0.1, named={}) is enough
    [half] = half_widths(repeats(UNEVEN, UNEVEN, UNEVEN), (), 0.95).values()
    assert half is not None and half > 0.1
