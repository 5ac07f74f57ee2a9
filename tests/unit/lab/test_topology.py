"""The hosts, addresses and routes of each topology."""

from __future__ import annotations

from collections import Counter
from ipaddress import ip_address

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leadline.errors import InputError
from leadline.lab import topology
from leadline.lab.topology import Layout, LinkSpec, Port


def addresses(layout: Layout) -> dict[tuple[str, str], list[str]]:
    return {(host.name, i.name): [str(a) for a in i.addresses] for host in layout.hosts for i in host.interfaces}


def ports(layout: Layout) -> list[Port]:
    return [port for link in layout.links for port in (link.a, link.b)]


def test_remote_access_has_the_published_addresses() -> None:
    layout = topology.remote_access(2, LinkSpec())
    assert addresses(layout) == {
        ("client1", "wan"): ["10.81.1.1/16", "fd81::1:1/64"],
        ("client2", "wan"): ["10.81.1.2/16", "fd81::1:2/64"],
        ("gateway", "wan"): ["10.81.0.1/16", "fd81::1/64"],
        ("gateway", "lan"): ["10.82.0.1/24", "fd82::1/64"],
        ("server", "lan"): ["10.82.0.2/24", "fd82::2/64"],
    }
    assert layout.clients == ("client1", "client2")


def test_site_to_site_is_four_boxes_in_a_line() -> None:
    layout = topology.site_to_site(LinkSpec())
    assert addresses(layout) == {
        ("client1", "lan"): ["10.84.0.2/24", "fd84::2/64"],
        ("gateway-a", "lan"): ["10.84.0.1/24", "fd84::1/64"],
        ("gateway-a", "wan"): ["10.81.0.1/16", "fd81::1/64"],
        ("gateway-b", "wan"): ["10.81.0.2/16", "fd81::2/64"],
        ("gateway-b", "lan"): ["10.82.0.1/24", "fd82::1/64"],
        ("server", "lan"): ["10.82.0.2/24", "fd82::2/64"],
    }
    assert layout.switches == ()
    assert [(link.a.node, link.b.node) for link in layout.links] == [
        ("client1", "gateway-a"),
        ("gateway-a", "gateway-b"),
        ("gateway-b", "server"),
    ]


@pytest.mark.parametrize("layout", [topology.remote_access(3, LinkSpec()), topology.site_to_site(LinkSpec())])
def test_only_the_server_has_a_route_beyond_its_segment(layout: Layout) -> None:
    gateways = {host.name: host.gateways for host in layout.hosts if host.gateways}
    assert gateways == {"server": (ip_address("10.82.0.1"), ip_address("fd82::1"))}


@settings(max_examples=25)
@given(st.integers(1, topology.MOST_CLIENTS))
def test_every_address_is_used_once_and_inside_its_network(clients: int) -> None:
    layout = topology.remote_access(clients, LinkSpec())
    found = [a for host in layout.hosts for i in host.interfaces for a in i.addresses]
    assert max(Counter(a.ip for a in found).values()) == 1
    for address in found:
        assert address.ip not in (address.network.network_address, address.network.broadcast_address)
    names = [(port.node, port.interface) for port in ports(layout)]
    assert len(names) == len(set(names))
    assert all(len(interface) <= 15 for _, interface in names)  # IFNAMSIZ


@pytest.mark.parametrize("layout_of", [lambda link: topology.remote_access(3, link), topology.site_to_site])
def test_a_packet_over_the_wan_meets_loss_and_delay_once_each_way(layout_of: object) -> None:
    layout = layout_of(LinkSpec(drop_udp_every=100, delay_ms=5))  # type: ignore[operator]
    for port in ports(layout):
        on_wan_host = port.interface == "wan"
        assert (port.drops is not None, port.netem is not None) == (on_wan_host, on_wan_host)
        crosses_wan = on_wan_host or port.node == "switch"
        assert port.single_packets == crosses_wan


@pytest.mark.parametrize("layout_of", [lambda link: topology.remote_access(2, link), topology.site_to_site])
def test_own_emulator_lies_in_the_wan_and_leaves_nothing_to_the_kernel(layout_of: object) -> None:
    link = LinkSpec(rate_bps=10**7, delay_ms=5, jitter_ms=1, loss=0.1, reorder=0.1, own_emulator=True)
    layout = layout_of(link)  # type: ignore[operator]
    assert layout.emulator == "emulator"
    assert {port.interface for port in ports(layout) if port.node == "emulator"} == {"near", "far"}
    [(towards_server, other)] = [(one.b, one.a) for one in layout.links if one.a == Port("emulator", "far", 1500)]
    assert (towards_server.node.startswith("gateway"), towards_server.interface, other.node) == (
        True,
        "wan",
        "emulator",
    )
    for port in ports(layout):
        assert (port.shaper, port.netem, port.drops) == (None, None, None)
        assert port.single_packets == (port.interface == "wan" or port.node == "switch")


def test_netem_has_its_faults_on_single_packets() -> None:
    port = topology.site_to_site(LinkSpec(delay_ms=5, jitter_ms=1, reorder=0.1, duplicate=0.2, corrupt=0.3)).links[1].a
    assert (port.netem, port.single_packets) == (topology.Netem(5, 1, 0.1, 0.2, 0.3), True)


def test_rate_and_mtu_hold_for_every_port() -> None:
    layout = topology.remote_access(2, LinkSpec(rate_bps=10_000_000, mtu=1400))
    assert {(port.mtu, port.shaper) for port in ports(layout)} == {(1400, topology.shaper(10_000_000, 1400))}
    assert {port.shaper for port in ports(topology.remote_access(2, LinkSpec()))} == {None}


@given(st.integers(8000, topology.MOST_RATE_BPS), st.integers(topology.LEAST_MTU_BYTES, topology.MOST_MTU_BYTES))
def test_a_bucket_holds_two_frames_and_adds_little(rate_bps: int, mtu: int) -> None:
    shaper = topology.shaper(rate_bps, mtu)
    frame = mtu + 14
    assert shaper.burst_bytes >= 2 * frame
    assert shaper.burst_bytes <= max(2 * frame, rate_bps / 8 * 0.010 + 1)
    assert shaper.burst_bytes + 16 * frame <= shaper.limit_bytes < 2**32


def test_narrow_links_carry_no_ipv6() -> None:
    assert topology.site_to_site(LinkSpec(mtu=1280)).ipv6
    assert not topology.site_to_site(LinkSpec(mtu=1279)).ipv6


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"rate_bps": 0}, "link rate is 0; it can be from 8000 to 34359738360 bit/s"),
        ({"mtu": 100}, "link mtu is 100; it can be from 576 to 65535 bytes"),
        ({"loss": 1.5}, "link loss is 1.5; it can be from 0 to 1 (a share)"),
        ({"drop_every": 1}, "link drop_every is 1; it can be from 2 to 2147483648 packets"),
        ({"delay_ms": -1}, "link delay is -1; it can be from 0 to 60000 ms"),
    ],
)
def test_impossible_links_are_refused(wrong: dict[str, float], said: str) -> None:
    with pytest.raises(InputError) as caught:
        LinkSpec(**wrong)  # type: ignore[arg-type]
    assert str(caught.value) == said


@pytest.mark.parametrize("clients", [0, 1001])
def test_impossible_numbers_of_clients_are_refused(clients: int) -> None:
    with pytest.raises(InputError, match=f"clients is {clients}; it can be from 1 to 1000"):
        topology.remote_access(clients, LinkSpec())
