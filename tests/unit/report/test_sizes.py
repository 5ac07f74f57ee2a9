"""Words for what a gateway's work costs."""

from __future__ import annotations

import pytest

from leadline.analysis.size_model import Bounded, CostPoint, GatewayCost
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
