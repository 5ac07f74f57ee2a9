"""A fleet's test as its agent's workload: its time limit, and the configuration expected of a plan's gateway."""

from __future__ import annotations

from typing import Any

import pytest

from leadline.contract.models import TunnelWorkload
from leadline.kinds.tunnel.model import TunnelTest
from leadline.kinds.tunnel.workload import Access, tunnel_workload
from leadline.plan.field_types import validate_input
from leadline.sut.model import FleetAccess
from leadline.trial.workloads import fleet_workload, kind_of

GATEWAY = FleetAccess("client\n", "CERTIFICATE", "KEY", pools=("10.8.0.0/16",), routes=("10.20.0.0/16",))


def asked(**given: Any) -> TunnelTest:
    return validate_input(TunnelTest, {"name": "t", **given})


def made(clients: int, **given: Any) -> TunnelWorkload:
    return tunnel_workload(asked(**given), Access("client\n"), clients)


@pytest.mark.parametrize("settled", [0, 5])
def test_a_stay_is_that_of_the_clients_that_come(settled: int) -> None:
    """A plan's test may leave their number to its fleet; at 10/s, 500 take 50 s to come."""
    load = made(500, rate="10/s", settled=settled)
    assert load.arrivals[0].duration_ms >= 50_000
    assert load.duration_ms >= load.arrivals[0].duration_ms + 65_000, "the last one too has its time"
    assert (
        load.model_dump()
        == tunnel_workload(asked(rate="10/s", settled=settled, number=500), Access("client\n"), 500).model_dump()
    )


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"retries": 6, "attempt_timeout": "5s"},
        {"settled": 50, "retries": 6, "rate": "10/s"},
        {"settled": 5, "ping": "1s", "duration": "7s"},
    ],
)
def test_the_controller_waits_for_as_long_as_the_fleet_may_take(given: dict[str, Any]) -> None:
    load = made(100, **given)
    assert kind_of(load).longest_ms(load) == asked(number=100, **given).longest_ms


def test_settled_clients_have_the_time_of_all_their_attempts() -> None:
    load = made(100, settled=50, retries=2)
    assert load.settling_ms >= 3 * 65_000 + 1_000 + 2_000 + 50 * 10
    assert made(100).settling_ms == 0


def test_pings_go_on_after_the_last_arrival_unless_a_duration_says_how_long() -> None:
    assert made(100, settled=5).pinged_ms == 10_000
    assert made(100, settled=5, duration="30s").pinged_ms is None
    assert made(100).pinged_ms is None, "no client is pinged"


@pytest.mark.parametrize(
    ("expect", "pools", "routes", "dns"),
    [
        (None, ["10.8.0.0/16"], ["10.20.0.0/16"], []),
        ({"dns": ["10.8.0.1"]}, ["10.8.0.0/16"], ["10.20.0.0/16"], ["10.8.0.1"]),
        ({"routes": ["10.30.0.0/16"]}, ["10.8.0.0/16"], ["10.30.0.0/16"], []),
        ({"pools": [], "routes": []}, [], [], []),
    ],
)
def test_what_a_gateway_gives_is_expected_unless_the_test_says_what(
    expect: dict[str, Any] | None, pools: list[str], routes: list[str], dns: list[str]
) -> None:
    test = asked() if expect is None else asked(expect=expect)
    found = fleet_workload(test, GATEWAY, 10, "10.20.0.2").expect
    assert (found.pools, found.routes, found.dns) == (pools, routes, dns)
