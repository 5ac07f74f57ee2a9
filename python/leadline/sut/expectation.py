"""The expected state of a tunnel client's host, and what a `NetworkView` lacks of it. Pure.

The client's own message is not sufficient: OpenVPN prints "Initialization Sequence Completed" without an address if
the pool is empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address, ip_interface, ip_network

from leadline.contract.models import NetworkView
from leadline.sut.addressing import Network


@dataclass(frozen=True, slots=True)
class Expectation:
    """An interface, with an address in each of these networks, and routes through it."""

    interface: str | None
    """Its name; None for any."""
    pools: Mapping[int, Network]
    routes: tuple[Network, ...]


def missing(view: NetworkView, expected: Expectation) -> tuple[str, ...]:
    """What is missing, in the terms of `ClientState.missing`."""
    found = addresses(view, expected)
    absent = [f"ipv{version} address" for version in expected.pools if version not in found]
    present = {ip_network(route.destination) for route in view.routes if expected.interface in (None, route.interface)}
    absent += [f"route {route}" for route in expected.routes if route not in present]
    return tuple(absent)


def addresses(view: NetworkView, expected: Expectation) -> dict[int, str]:
    """The interface's address in each pool, by IP version; none while the interface is down."""
    found: dict[int, str] = {}
    interfaces = [item for item in view.interfaces if expected.interface in (None, item.name) and item.up]
    for text in (text for interface in interfaces for text in interface.addresses):
        address = ip_interface(text).ip
        pool = expected.pools.get(address.version)
        if pool is not None and address in pool:
            found.setdefault(address.version, str(address))
    return found


def shared(found: Mapping[str, Mapping[int, str]]) -> dict[str, str]:
    """Hosts that have an address of an earlier host, each with a sentence that names that host."""
    owner: dict[str, str] = {}
    doubles: dict[str, str] = {}
    for host, held in found.items():
        for address in held.values():
            first = owner.setdefault(str(ip_address(address)), host)
            if first != host:
                doubles.setdefault(host, f"{first} has the same address, {address}")
    return doubles
