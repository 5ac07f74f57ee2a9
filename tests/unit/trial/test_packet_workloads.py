"""The kind `packets`: what a user may write, and the workloads that it becomes."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from leadline.errors import InputError
from leadline.kinds.packets import fields
from leadline.kinds.packets.model import PacketsTest
from leadline.kinds.packets.pktgen import read_commands
from leadline.kinds.packets.workload import generator, receivers
from leadline.plan.field_types import validate_input
from leadline.registry import KINDS


def read(**keys: Any) -> PacketsTest:
    return validate_input(PacketsTest, {"name": "t", "kind": "packets", **keys})


@pytest.mark.parametrize(
    ("text", "first", "last", "order"),
    [
        ("192.0.2.1", "192.0.2.1", "192.0.2.1", "in_turn"),
        ("192.0.2.1-192.0.2.9 random", "192.0.2.1", "192.0.2.9", "random"),
        ("192.0.2.0/28", "192.0.2.0", "192.0.2.15", "in_turn"),
        ("fd00::1-fd00::ff", "fd00::1", "fd00::ff", "in_turn"),
    ],
)
def test_addresses_are_one_a_range_or_a_network(text: str, first: str, last: str, order: str) -> None:
    found = fields.addresses(text)
    assert (found.first, found.last, found.order) == (first, last, order)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"dst": "192.0.2.9-192.0.2.1"}, "not behind the first"),
        ({"dst": "example.org"}, "no address or range"),
        ({"dst": "192.0.2.1", "src": "fd00::1"}, "both are of one version"),
        ({"sport": "70000"}, "no range of ports"),
        ({"vlan": "5000"}, "no range of VLANs"),
        ({"vlan": "1.2.3"}, "at most two"),
        ({"dst_mac": "02:00"}, "no MAC address"),
        ({"rate": "50%"}, "whose rate is not known"),
        ({"rate": "fast"}, "not a rate of packets"),
        ({"tunnel": "vxlan", "tunnel_src": "192.0.2.1", "tunnel_dst": "192.0.2.2"}, "from 0 to 16777215"),
        ({"tunnel": "gre"}, "set tunnel_src"),
        ({"threads": 2}, "each has flows of its own"),
        ({"flows": 2_000_000}, "too large"),
        ({"pcap": "a.pcap", "top": True, "speed": 2.0}, "exclude each other"),
        ({"rate": "1kpps", "search": {"until": "lost_ratio <= 0"}}, "chooses the rate itself"),
        ({"size": "0:1"}, "above 0"),
        ({"clients": "all"}, "one client sends packets"),
        ({"pktgen": {"clone_skb": "0"}}, "for the path pktgen"),
        ({"via": "pktgen", "stamp_every": 1}, "no time of the receiver's clock"),
        ({"via": "pktgen", "search": {"until": "lost_ratio <= 0"}}, "too late for a search"),
        ({"via": "pktgen", "ttl": 64}, "a TTL of 32"),
        ({"via": "pktgen", "number": 5, "pktgen": {"count": "5"}}, "count and number exclude each other"),
        ({"via": "pktgen", "pktgen": {"count": "abc"}}, "not a whole number"),
    ],
)
def test_mistake_is_refused_with_what_would_be_right(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        read(**keys)


def test_sizes_have_the_fcs_in_them() -> None:
    """The arithmetic of a line: 64 bytes, 60 to the kernel, at 1 Gbit/s are 1.488 million a second."""
    test = read(rate="100%", line="1gbit")
    assert test.frame_bytes == {60: 1}
    assert test.rate_pps == pytest.approx(1_488_095, rel=1e-6)
    assert read(size="imix").frame_bytes == {60: 7, 590: 4, 1514: 1}


def test_generator_has_the_frames_that_were_asked_for() -> None:
    test = read(size=128, dst="198.18.0.0/30", vlan="100.7-9", protocol="tcp-syn", rate="1Mpps", flows=10, dscp="EF")
    load = generator(test, "192.0.2.1")
    assert load.rate_pps == 1_000_000
    assert [(vlan.protocol, vlan.first, vlan.last) for vlan in load.frame.vlans] == [(0x88A8, 100, 100), (0x8100, 7, 9)]
    assert (load.frame.destinations.first, load.frame.destinations.last) == ("198.18.0.0", "198.18.0.3")
    assert (load.frame.transport, load.frame.dscp, load.flows.count) == ("tcp_syn", 46, 10)
    assert (load.frame.sources, load.device, load.capture) == (None, None, None)


def test_frames_without_a_destination_go_to_the_server() -> None:
    assert generator(read(), "192.0.2.1").frame.destinations.first == "192.0.2.1"
    (only,) = receivers(read(stamp_every=4, flows=7), "192.0.2.1")
    counts: Any = only.work
    assert (counts.device, counts.address, counts.measures_delay, counts.flows) == (None, "192.0.2.1", True, 7)


def test_default_route_is_named_twice() -> None:
    assert not generator(read(device="eth0"), "192.0.2.1").may_use_default_route
    assert not generator(read(device="eth0", yes_i_mean="eth1"), "192.0.2.1").may_use_default_route
    assert generator(read(device="eth0", yes_i_mean="eth0"), "192.0.2.1").may_use_default_route


def test_capture_is_sent_at_its_own_times_at_a_rate_or_at_once() -> None:
    ways: list[tuple[dict[str, Any], str]] = [({}, "own"), ({"rate": "1kpps"}, "rate"), ({"top": True}, "top")]
    for keys, timing in ways:
        load = generator(read(pcap="a.pcap", loop=0, **keys), "192.0.2.1")
        assert load.capture is not None
        assert (load.capture.timing, load.capture.loops, load.via) == (timing, None, "pcap")


def test_commands_of_a_pktgen_script_set_the_keys_of_the_test() -> None:
    """The seed's script; its 64 bytes have no FCS."""
    commands = ["count=1000000", "delay=5000", "clone_skb=0", "pkt_size=64", "dst=192.168.0.55"]
    test = read(via="pktgen", pktgen=read_commands([*commands, "dst_mac=11:11:11:11:11:11", "flag=NODE", "flag=!IPV6"]))
    assert (test.number, test.rate_pps, test.size) == (1_000_000, 200_000, {68: 1})
    assert test.pktgen == {"clone_skb": "0", "flag": "NODE,!IPV6"}
    load = generator(test, "192.0.2.1")
    assert (load.via, load.frame.ttl, load.frame.destination_mac) == ("pktgen", 32, "11:11:11:11:11:11")
    assert (load.frame.destinations.first, load.pktgen) == ("192.168.0.55", test.pktgen)
    # A test that was stored has its keys.
    assert PacketsTest.model_validate(test.model_dump(), by_name=True) == test


@pytest.mark.parametrize(
    ("commands", "keys"),
    [
        ({"count": "0", "delay": "0"}, {}),
        ({"ratep": "1000"}, {"rate": "1000pps"}),
        ({"imix_weights": "60,7 590,4 1514,1"}, {"size": {64: 7, 594: 4, 1518: 1}}),
        ({"dst6": "fd00::2", "src6": "fd00::1", "burst": "8"}, {"dst": "fd00::2", "src": "fd00::1", "batch": 8}),
    ],
)
def test_command_of_pktgen_is_the_key_that_says_the_same(commands: dict[str, str], keys: dict[str, Any]) -> None:
    assert read(via="pktgen", pktgen=commands) == read(via="pktgen", **keys)


@pytest.mark.parametrize("texts", [["count"], ["=5"], ["spi=1", "spi=2"]])
def test_text_that_is_no_command_is_refused(texts: list[str]) -> None:
    with pytest.raises(InputError, match="--pktgen"):
        read_commands(texts)


def test_receiver_knows_the_streams_of_pktgen() -> None:
    def streams(**keys: Any) -> tuple[int, int, bool, int]:
        load: Any = receivers(read(via="pktgen", **keys), None)[0].work
        assert load.pktgen is not None
        return load.pktgen.first_port, load.pktgen.ports, load.pktgen.has_numbers, load.flows

    plain: Any = receivers(read(), None)[0].work
    assert plain.pktgen is None
    assert streams(flows=100) == (0, 0, True, 1)
    assert streams(flows=8, threads=2) == (1024, 4, True, 2)
    assert streams(flows=8, threads=2, sport="2000-2099 random") == (2000, 50, True, 2)
    assert streams(batch=8)[2:] == streams(pktgen={"clone_skb": "10"})[2:] == (False, 1)


def test_each_load_has_a_number_of_its_own() -> None:
    kind = KINDS.get("packets")
    ends = [kind.marked(work, 7) for work in (generator(read(), "192.0.2.1"), receivers(read(), "192.0.2.1")[0].work)]
    assert [end.test_id for end in ends] == [7, 7]


def test_tasks_of_an_agent_are_of_the_kind() -> None:
    assert KINDS.get("packet_generator") is KINDS.get("packet_receiver") is KINDS.get("packets")


def test_echo_has_a_reflector_afar_and_a_receiver_where_the_frames_come_back() -> None:
    """Their times are then those of round trips, of every frame if the test names no share."""
    test = read(device="eth0", to="eth1", echo=True)
    reflector, counter = receivers(test, None)
    back: Any = reflector.work
    here: Any = counter.work
    assert (reflector.sends_back, reflector.is_at_client, back.device, back.then) == (True, False, "eth1", "echo")
    assert (counter.sends_back, counter.is_at_client, here.device, here.then) == (False, True, "eth0", "drop")
    assert (back.measures_delay, here.measures_delay, here.is_round_trip) == (False, True, True)
    assert generator(test, "192.0.2.1").stamp_every == 1
    assert generator(read(echo=True, stamp_every=50), "192.0.2.1").stamp_every == 50


def test_frames_come_back_to_the_interface_of_the_route_to_their_destination() -> None:
    reflector, counter = receivers(read(echo=True), "192.0.2.1")
    back: Any = reflector.work
    here: Any = counter.work
    assert (back.address, back.toward) == ("192.0.2.1", None)
    assert (here.device, here.address, here.toward) == (None, None, "192.0.2.1")


def test_receiver_knows_by_how_much_the_clocks_differ() -> None:
    (only,) = receivers(read(), "192.0.2.1")
    assert KINDS.get("packets").aligned(only.work, 1_500).clock_ahead_ns == 1_500
