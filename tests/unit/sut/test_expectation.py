"""What a host must show to count as connected."""

from __future__ import annotations

from sites import POOL, SERVER_LAN

from leadline.contract.models import InterfaceView, NetworkView, RouteView
from leadline.sut.expectation import Expectation, addresses, missing, shared

EXPECTED = Expectation("tun0", POOL, tuple(SERVER_LAN.values()))


def view(*held: str, routes: tuple[str, ...] = (), up: bool = True, name: str = "tun0") -> NetworkView:
    return NetworkView(
        interfaces=[InterfaceView(name=name, up=up, mtu=1500, addresses=list(held))],
        routes=[RouteView(destination=route, gateway=None, interface=name) for route in routes],
    )


def test_complete_tunnel_misses_nothing() -> None:
    seen = view("10.83.0.2/16", "fd83::1000/64", "fe80::1/64", routes=("10.82.0.0/24", "fd82::/64", "10.83.0.0/16"))
    assert missing(seen, EXPECTED) == ()
    assert addresses(seen, EXPECTED) == {4: "10.83.0.2", 6: "fd83::1000"}


def test_an_address_of_one_version_only() -> None:
    assert missing(view("10.83.0.2/16", routes=("10.82.0.0/24", "fd82::/64")), EXPECTED) == ("ipv6 address",)


def test_addresses_outside_the_pool_are_none() -> None:
    seen = view("192.0.2.1/24", "fe80::1/64", routes=("10.82.0.0/24",))
    assert missing(seen, EXPECTED) == ("ipv4 address", "ipv6 address", "route fd82::/64")


def test_a_route_by_another_interface_does_not_count() -> None:
    seen = view("10.83.0.2/16", "fd83::2/64", routes=("fd82::/64",))
    seen.routes.append(RouteView(destination="10.82.0.0/24", gateway="10.81.0.1", interface="wan"))
    assert missing(seen, EXPECTED) == ("route 10.82.0.0/24",)


def test_an_interface_that_is_down_or_absent_has_nothing() -> None:
    assert missing(view("10.83.0.2/16", "fd83::2/64", up=False), EXPECTED)[:2] == ("ipv4 address", "ipv6 address")
    assert addresses(view("10.83.0.2/16", name="tun1"), EXPECTED) == {}


def test_a_duplicate_address_is_reported_for_the_second_host() -> None:
    held = {"client1": {4: "10.83.0.2"}, "client2": {4: "10.83.0.2", 6: "fd83::3"}, "client3": {6: "fd83::4"}}
    assert shared(held) == {"client2": "client1 has the same address, 10.83.0.2"}
