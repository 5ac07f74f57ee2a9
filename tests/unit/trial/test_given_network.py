"""Addresses of a tunnel between given hosts: derived where one answer is possible, asked for by key where not."""

from __future__ import annotations

import re
from dataclasses import replace
from ipaddress import ip_network

import pytest

from leadline.contract.models import InterfaceView, NetworkView, RouteView
from leadline.errors import LeadlineError
from leadline.plan.host_address import HostAddress
from leadline.sut.addressing import Addressing, TunnelClient
from leadline.sut.forwarding import leads
from leadline.trial.given_network import GivenHostView, given_addressing

Networks = dict[str, str]


def host(
    name: str, interfaces: Networks, *, address: tuple[str, ...] = (), routes: Networks | None = None
) -> GivenHostView:
    views = [
        InterfaceView(name=interface, up=True, mtu=1400 if interface == "wan" else 1500, addresses=text.split())
        for interface, text in interfaces.items()
    ]
    ways = [
        RouteView(destination=destination, gateway=gateway, interface="wan")
        for destination, gateway in (routes or {}).items()
    ]
    given = HostAddress("ssh", name, addresses=address)
    return GivenHostView(given, NetworkView(interfaces=views, routes=ways), f"machine of {name}", None)


LO = {"lo": "127.0.0.1/8 ::1/128"}
CLIENT = host("client1", LO | {"wan": "10.1.0.20/24 fe80::2/64", "mgmt": "192.168.1.20/24"})
GATEWAY = host("gateway", LO | {"wan": "10.1.0.1/24 fe80::1/64", "lan": "10.2.0.9/24"})
SERVER = host("server", LO | {"lan": "10.2.0.2/24", "mgmt": "192.168.1.30/24"}, address=("10.2.0.2",))
HOSTS = {"client1": CLIENT, "gateway": GATEWAY, "server": SERVER}


def derive(**changed: GivenHostView) -> Addressing:
    return given_addressing("remote-access", HOSTS | changed, ["client1"])


def refusal(**changed: GivenHostView) -> str:
    with pytest.raises(LeadlineError) as raised:
        derive(**changed)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_addresses_are_those_of_the_networks_that_the_gateway_joins() -> None:
    found = derive()
    assert (found.gateway, found.forwarding) == ("gateway", ("gateway",))
    assert found.outer == {4: "10.1.0.1"}
    assert found.clients == (TunnelClient("client1", "client1", 1, {4: "10.1.0.20"}),)
    assert found.server_lan == {4: ip_network("10.2.0.0/24")}
    assert found.return_via == {4: "10.2.0.9"}
    assert found.wan == {4: ip_network("10.1.0.0/24")}
    assert found.pool == {4: ip_network("10.83.0.0/16")}
    assert found.link_mtu_bytes == 1400
    assert not found.site_to_site


def test_site_to_site_has_the_clients_network_too() -> None:
    hosts = {
        "client1": host("client1", {"near": "10.4.0.2/24", "mgmt": "192.168.1.20/24"}),
        "gateway-a": host("gateway-a", {"near": "10.4.0.9/24", "wan": "10.1.0.2/24"}),
        "gateway-b": GATEWAY,
        "server": SERVER,
    }
    found = given_addressing("site-to-site", hosts, ["client1"])
    assert (found.gateway, found.forwarding) == ("gateway-b", ("gateway-a", "gateway-b"))
    assert found.clients == (TunnelClient("client1", "gateway-a", 1, {4: "10.1.0.2"}),)
    assert found.client_lan == {4: ip_network("10.4.0.0/24")}
    assert found.client_gateway(4) == "10.4.0.9"
    assert found.site_to_site


def test_both_versions_of_the_servers_addresses_are_used() -> None:
    def dual(name: str, **more: str) -> GivenHostView:
        return host(name, {interface: text.replace("_", "/") for interface, text in more.items()})

    server = replace(
        dual("server", lan="10.2.0.2_24 fd02::2_64"), address=HostAddress("ssh", addresses=("10.2.0.2", "fd02::2"))
    )
    found = derive(
        client1=dual("client1", wan="10.1.0.20_24 fd01::20_64"),
        gateway=dual("gateway", wan="10.1.0.1_24 fd01::1_64", lan="10.2.0.9_24 fd02::9_64"),
        server=server,
    )
    assert found.outer == {4: "10.1.0.1", 6: "fd01::1"}
    assert found.server_lan[6] == ip_network("fd02::/64")
    assert found.pool[6] == ip_network("fd83::/64")


def test_pool_avoids_networks_of_any_host() -> None:
    far = host("server", {"lan": "10.2.0.2/24"}, address=("10.2.0.2",), routes={"10.83.5.0/24": "10.2.0.1"})
    assert derive(server=far).pool == {4: ip_network("10.84.0.0/16")}
    wide = host("server", {"lan": "10.2.0.2/24"}, address=("10.2.0.2",), routes={"10.0.0.0/8": "10.2.0.1"})
    assert derive(server=wide).pool == {4: ip_network("172.16.0.0/16")}
    default = host("server", {"lan": "10.2.0.2/24"}, address=("10.2.0.2",), routes={"0.0.0.0/0": "10.2.0.1"})
    assert derive(server=default).pool == {4: ip_network("10.83.0.0/16")}
    controlled = replace(SERVER, reached_from="10.83.0.7")
    assert derive(server=controlled).pool == {4: ip_network("10.84.0.0/16")}


def test_hosts_without_a_free_pool_are_refused() -> None:
    everything = dict.fromkeys(("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "198.18.0.0/15", "100.64.0.0/10"), "x")
    full = host("server", {"lan": "10.2.0.2/24"}, address=("10.2.0.2",), routes=everything)
    assert "every private IPv4 network is in use" in refusal(server=full)


def test_interfaces_get_names_that_no_host_uses() -> None:
    assert derive().free_interface("wg") == "wg0"
    taken = host("gateway", {"wan": "10.1.0.1/24", "lan": "10.2.0.9/24", "wg0": "10.7.0.1/24"})
    assert derive(gateway=taken).free_interface("wg") == "wg1"


MANAGED = {"wan": "10.1.0.1/24", "lan": "10.2.0.9/24", "mgmt": "192.168.1.1/24"}


def test_two_networks_in_common_are_decided_by_the_plan() -> None:
    text = refusal(gateway=host("gateway", MANAGED))
    assert text == (
        "gateway and client1 share 10.1.0.0/24 and 192.168.1.0/24, and the plan does not say which is measured; "
        "add hosts.gateway.address, gateway's address in that network"
    )
    assert derive(gateway=host("gateway", MANAGED, address=("10.1.0.1",))).outer == {4: "10.1.0.1"}
    named = replace(CLIENT, address=HostAddress("ssh", addresses=("10.1.0.20",)))
    assert derive(gateway=host("gateway", MANAGED), client1=named).outer == {4: "10.1.0.1"}


def test_gateway_behind_a_router_is_named_by_the_plan() -> None:
    far = host("client1", {"wan": "10.5.0.20/24"})
    assert "add hosts.gateway.address if they reach it through a router" in refusal(client1=far)
    named = replace(GATEWAY, address=HostAddress("ssh", addresses=("10.1.0.1",)))
    found = derive(client1=far, gateway=named)
    assert (found.outer, found.clients[0].outer) == ({4: "10.1.0.1"}, {})


@pytest.mark.parametrize(
    ("changed", "wanted"),
    [
        ({"client1": replace(CLIENT, machine=GATEWAY.machine)}, "client1 and gateway are the same host"),
        (
            {"server": replace(SERVER, address=HostAddress("ssh", addresses=("10.2.0.3",)))},
            "server has no address 10.2.0.3; its addresses: 10.2.0.2, 192.168.1.30",
        ),
        (
            {"server": replace(SERVER, address=HostAddress("ssh", addresses=("192.168.1.30",)))},
            "gateway has no address in the network of the server's address 192.168.1.30; its networks: "
            "10.1.0.0/24 (wan), 10.2.0.0/24 (lan); hosts.server.address has to be in a network of gateway's",
        ),
        (
            {"client1": host("client1", {"wan": "10.1.0.20/24", "other": "10.2.0.30/24"})},
            "client1 is itself in the server's network 10.2.0.0/24, by its address 10.2.0.30",
        ),
        (
            {"gateway": host("gateway", {"wan": "10.1.0.1/24 10.1.0.3/24", "lan": "10.2.0.9/24"})},
            "gateway has 10.1.0.1 and 10.1.0.3 in the network of client1; add hosts.gateway.address, one of them",
        ),
    ],
    ids=["one-host", "other-server", "past-the-gateway", "flat", "two-addresses"],
)
def test_hosts_that_leave_no_room_for_a_gateway_are_named(changed: dict[str, GivenHostView], wanted: str) -> None:
    assert re.search(re.escape(wanted), refusal(**changed))


@pytest.mark.parametrize(
    ("routes", "is_led"),
    [
        ({}, False),
        ({"0.0.0.0/0": "10.2.0.9"}, True),
        ({"0.0.0.0/0": "10.2.0.1"}, False),
        ({"0.0.0.0/0": "10.2.0.1", "10.83.0.0/16": "10.2.0.9"}, True),
        ({"0.0.0.0/0": "10.2.0.9", "10.0.0.0/8": "10.2.0.1"}, False),
        ({"0.0.0.0/0": "10.2.0.9", "10.83.7.0/24": "10.2.0.1"}, False),
    ],
    ids=["none", "default", "other-default", "own", "other-own", "other-part"],
)
def test_server_needs_a_route_where_it_has_no_such_one(routes: Networks, is_led: bool) -> None:
    view = host("server", {"lan": "10.2.0.2/24"}, routes=routes).network
    assert leads(view, ip_network("10.83.0.0/16"), "10.2.0.9") is is_led
