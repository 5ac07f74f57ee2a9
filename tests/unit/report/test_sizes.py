"""Words for what a gateway's work costs."""

from __future__ import annotations

import pytest

from leadline.analysis.size_model import Bounded, ClientNeed, CostPoint, GatewayCost
from leadline.report.sizes import cost_lines


@pytest.mark.parametrize(
    ("per_byte", "text"),
    [
        (Bounded(2.5), "1.20 µs for each packet and 2.50 ns for each byte"),
        (Bounded(2.5, 2.0, 3.0), "1.20 µs for each packet and 2.50 ns (2.00 ns to 3.00 ns) for each byte"),
        (Bounded(0.0), "1.20 µs for each packet and none for each byte"),
        (Bounded(0.0, 0.0, 0.4), "1.20 µs for each packet and 0.400 ns for each byte at most"),
        (Bounded(0.0, 0.0, 4.0), "1.20 µs for each packet and 4.00 ns for each byte at most"),
    ],
)
def test_cost_that_does_not_grow_with_size_is_none_for_each_byte(per_byte: Bounded, text: str) -> None:
    points = (CostPoint(64.0, 1280.0),)
    cost = GatewayCost("openvpn", "udp", "gateway", points, Bounded(1200.0), per_byte, False, 1, None)
    assert cost_lines(cost) == [text]


def test_cost_that_is_too_uncertain_says_so_at_once() -> None:
    notes = ("packets of about one size alone", "too uncertain to plan with")
    points = (CostPoint(1400.0, 1280.0),)
    cost = GatewayCost("openvpn", "udp", "gateway", points, None, Bounded(30.0, 0.0, 90.0), False, 1, None, notes=notes)
    assert cost_lines(cost) == [
        "30.0 ns (0 s to 90.0 ns) for each byte: too uncertain to plan with",
        "packets of about one size alone",
    ]


def test_clients_for_each_cpu_are_a_lower_bound_where_the_cost_is_an_upper_one() -> None:
    need = ClientNeed(10, None, 40.0, None)
    points = (CostPoint(1400.0, 1280.0),)
    cost = GatewayCost("route", "udp", "gateway", points, None, Bounded(2.0), True, None, None, clients=need)
    assert cost_lines(cost)[1] == "at least 40.0 clients for each CPU (measured with 10)"
