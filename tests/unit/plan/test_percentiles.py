"""Percentiles by name: in metrics, in targets, in a test's own list."""

from __future__ import annotations

import pytest

from leadline.analysis import parse_targets
from leadline.analysis.test_spec import TestSpec
from leadline.errors import PlanError
from leadline.kinds.http.model import HttpTest
from leadline.kinds.rr import RrTest
from leadline.plan.field_types import validate_input
from leadline.plan.percentiles import histogram_of, percentile_name, percentile_of


@pytest.mark.parametrize(
    ("name", "percentile"),
    [("p1", 1), ("p5", 5), ("p50", 50), ("p99", 99), ("p999", 99.9), ("p9999", 99.99), ("p095", 9.5), ("p005", 0.5)],
)
def test_digits_after_the_first_two_are_decimals(name: str, percentile: float) -> None:
    assert percentile_of(name) == percentile
    assert percentile_name(name) == percentile_name(percentile) == percentile_name(str(percentile)) == name


@pytest.mark.parametrize("name", ["p", "p0", "p00", "p01", "p100", "p990", "p99.9", "P50", "p1234567891", "p٣", "50"])
def test_what_is_no_percentile_has_no_value(name: str) -> None:
    with pytest.raises(ValueError, match="is not a percentile"):
        percentile_of(name)
    assert histogram_of(f"latency_{name}_us") is None


@pytest.mark.parametrize("value", [0, 100, -1, 100.5, "0.0", "99.", "all", True, None, "1e1", "0.00000000001"])
def test_a_value_outside_of_the_open_range_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="is not a percentile"):
        percentile_name(value)


def test_a_target_may_name_any_percentile_of_what_has_one() -> None:
    kinds = {"web": "http", "call": "rr", "vpn": "tunnel"}
    texts = [
        "web.latency_p1_us < 5ms",
        "web.first_byte_p9995_us < 1s",
        "call.latency_p25_us < 5",
        "vpn.connect_p75_ms < 9",
    ]
    assert [target.metric for target in parse_targets(texts, kinds)] == [
        "latency_p1_us",
        "first_byte_p9995_us",
        "latency_p25_us",
        "connect_p75_ms",
    ]
    for text in ("web.latency_p0_us < 1", "web.body_p50_us < 1", "web.latency_p25_ms < 1"):
        with pytest.raises(PlanError, match="unknown metric"):
            parse_targets([text], kinds)


def test_a_tests_list_asks_for_latency_and_service_time() -> None:
    http = validate_input(HttpTest, {"name": "web", "percentiles": [1, 99.95, "p25"]})
    assert http.percentiles == ("p1", "p9995", "p25")
    asked = TestSpec.read(http.model_dump()).asked
    assert asked[:3] == ("latency_p1_us", "latency_p9995_us", "latency_p25_us")
    assert asked[3:] == ("service_p1_us", "service_p9995_us", "service_p25_us")
    rr = validate_input(RrTest, {"name": "call", "percentiles": [10]})
    assert TestSpec.read(rr.model_dump()).asked == ("latency_p10_us", "service_p10_us")
    with pytest.raises(ValueError, match="'101' is not a percentile"):
        validate_input(RrTest, {"name": "call", "percentiles": [101]})
