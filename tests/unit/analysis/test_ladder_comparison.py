"""Two ladders: the shares that differ, those that do not, and those that say nothing of each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from leadline.analysis.ladder_comparison import OF_BELOW, OF_ROUTE, ComparedShare, compare_ladders
from leadline.analysis.ladder_model import Ladder
from leadline.analysis.model import Bound, Verdict
from leadline.statistics import Comparison
from made_ladders import MBIT, PLAIN, TUNNEL, ladders

SLOWER_TLS = {**PLAIN, "https": 600 * MBIT}


def compared(first: Ladder, second: Ladder, *metrics: str) -> dict[tuple[str, str], ComparedShare]:
    found = compare_ladders([first], [second], margin=0.05, metrics=metrics, apart=None)
    return {(one.test.removeprefix("ladder-"), one.metric): one for one in found}


def words(found: Mapping[tuple[str, str], ComparedShare]) -> dict[str, str]:
    return {test: one.word.value for (test, metric), one in found.items() if metric == OF_BELOW}


def test_a_layer_that_carries_less_of_what_is_below_it_is_slower() -> None:
    found = compared(ladders({"c02": PLAIN})["c02"], ladders({"c02": SLOWER_TLS})["c02"])
    assert words(found) == {"udp": "equivalent", "tcp": "equivalent", "http": "equivalent", "https": "slower"}
    https = found["https", OF_BELOW]
    assert https.estimate is not None and https.estimate.value == pytest.approx(600 / 760)
    # All repeats have the same factor, so that the interval is a point but for rounding.
    assert (https.estimate.low, https.estimate.high) == pytest.approx((600 / 760, 600 / 760))
    assert https.baseline == pytest.approx(0.8)
    assert https.reason is None


def test_shares_of_the_plain_route_are_compared_too() -> None:
    first = ladders({"c01": TUNNEL, "c02": PLAIN})["c01"]
    second = ladders({"c01": {**TUNNEL, "udp": 388 * MBIT}, "c02": PLAIN})["c01"]
    found = compared(first, second)
    udp = found["udp", OF_ROUTE]
    assert udp.estimate is not None
    assert udp.word is Comparison.FASTER
    assert udp.estimate.value == pytest.approx(2)
    assert {metric for _, metric in compared(first, second, OF_ROUTE)} == {OF_ROUTE}
    assert compared(first, second, "throughput_bps") == {}


def test_shares_without_an_interval_cannot_tell() -> None:
    whole, single = ladders({"c02": PLAIN})["c02"], ladders({"c02": PLAIN}, repeats=(1.0,))["c02"]
    found = compared(whole, single)["tcp", OF_BELOW]
    assert (found.word, found.reason) == (Comparison.CANNOT_TELL, "1 repeat is too few: 3 of each are needed")


def test_shares_of_different_layers_and_bounds_have_no_ratio() -> None:
    whole = ladders({"c02": PLAIN})["c02"]
    without_udp = ladders({"c02": {name: value for name, value in PLAIN.items() if name != "udp"}})["c02"]
    found = compared(whole, without_udp)["tcp", OF_BELOW]
    assert (found.estimate, found.reason) == (None, "shares of different layers: of UDP, and of the link")
    doubts = {("c02", "http"): (Verdict.GENERATOR_LIMITED, Bound.LEAST)}
    found = compared(whole, ladders({"c02": PLAIN}, doubts=doubts)["c02"])["http", OF_BELOW]
    assert found.estimate is None and found.reason is not None and "a bound alone" in found.reason


def test_ladders_of_other_cases_are_not_compared() -> None:
    one = ladders({"c02": PLAIN})["c02"]
    first, second = replace(one, parameters={"sut": "route"}), replace(one, parameters={"sut": "openvpn"})
    assert not list(compare_ladders([first], [second], margin=0.05, metrics=(), apart=None))
    assert list(compare_ladders([first], [second], margin=0.05, metrics=(), apart="sut"))
