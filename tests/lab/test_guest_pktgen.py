"""The kernel's own packet generator: real pktgen over a pair of virtual interfaces, in a guest with Debian's kernel.

Software executes the guest, so nothing is said of its rates. What pktgen says of its run, what our agent reports of it
and what the receiver counts are the same number. In `make test-all`, as the kernel is downloaded.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Any

import pytest
from packet_programs import send_all

from leadline.agents import Launch, agent_binary
from leadline.errors import LeadlineError
from leadline.lab import guest
from waiting import WITHIN_S

pytestmark = [
    pytest.mark.lab,
    pytest.mark.full_matrix,
    pytest.mark.takes(90),
    pytest.mark.skipif(os.geteuid() != 0, reason="the guest reads this machine's whole root"),
]
PAIR = (
    "modprobe pktgen && "
    "for name in all default; do echo 1 > /proc/sys/net/ipv6/conf/$name/disable_ipv6; done; "
    "ip link add v0 address 02:00:00:00:00:01 type veth peer name v1 address 02:00:00:00:00:02 && "
    "ip addr add 198.18.0.1/24 dev v0 && ip link set v0 up && ip link set v1 up && "
)
"""Without the packets of the kernel's own IPv6."""
SEED = ("count=1000000", "clone_skb=0", "pkt_size=64", "dst=198.18.0.2", "dst_mac=02:00:00:00:00:02")
"""The seed's script, but for its interface and addresses, and for the delay."""
FEW = 20_000
FAR = {"dst": "198.18.0.2", "dst_mac": "02:00:00:00:00:02"}
TESTS: Mapping[str, Mapping[str, Any]] = {
    "seed": {"pktgen": dict(pair.split("=") for pair in (*SEED, "delay=5000")), "checksum": False},
    "unpaced": {"pktgen": dict(pair.split("=") for pair in SEED[1:]), "number": 300_000, "checksum": False},
    "xdp": {**FAR, "via": "xdp", "number": 1_000_000, "size": 68},
    "flows": {**FAR, "number": FEW, "flows": 100, "rate": "2kpps", "receive_via": "af_packet"},
    "mix": {**FAR, "number": FEW, "size": "imix"},
    "tags": {**FAR, "number": FEW, "size": 72, "vlan": "100.7"},
    "IPv6": {"dst": "fd00::2", "src": "fd00::1", "dst_mac": FAR["dst_mac"], "number": FEW, "size": 84},
    "queue": {**FAR, "number": FEW, "pktgen": {"xmit_mode": "queue_xmit", "flag": "QUEUE_MAP_CPU,!UDPCSUM"}},
    "stopped": {**FAR, "rate": "1kpps", "duration": "1s"},
    "copies": {**FAR, "to": None, "number": FEW, "pktgen": {"clone_skb": "10"}},
    "bad flag": {**FAR, "to": None, "number": FEW, "pktgen": {"flag": "NOSUCH"}},
    "bad command": {**FAR, "to": None, "number": FEW, "pktgen": {"no_such_command": "1"}},
    "bad number": {**FAR, "to": None, "number": FEW, "pktgen": {"skb_priority": "abc"}},
    "too many threads": {**FAR, "to": None, "number": FEW, "flows": 8, "threads": 2},
    "bad option": {**FAR, "to": None, "number": FEW, "pktgen": {"udp_src_min": "5"}},
    "afterwards": {**FAR, "number": 10},
}
WITH_TWO_CPUS: Mapping[str, Mapping[str, Any]] = {
    "threads": {**FAR, "number": FEW, "flows": 8, "threads": 2, "rate": "10kpps"},
}
COMMON = {"device": "v0", "to": "v1", "via": "pktgen", "duration": "10m", "name": "t", "warmup": 0}


@pytest.fixture(scope="module")
def reports() -> Mapping[str, Mapping[str, Any]]:
    """All tests, one after another in a guest of one CPU, whose receiver then works in the generator's time: nothing is
    refused. What needs two CPUs has a guest of its own.
    """
    try:
        guest.find_image()
    except LeadlineError as error:
        pytest.skip(f"no guest: {error}")
    return {**_send_in_guest(1, TESTS), **_send_in_guest(2, WITH_TWO_CPUS)}


def _send_in_guest(cpus: int, tests: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Mapping[str, Any]]:
    prefix = (*guest.launch_prefix(guest.Guest(cpus)), "sh", "-c", f'{PAIR} exec "$@"', "sh")
    launch = Launch((*prefix, str(agent_binary())), hello_within_s=guest.BOOT_WITHIN_S)
    found = asyncio.run(send_all([{**COMMON, **keys} for keys in tests.values()], launch, 2 * WITHIN_S))
    return dict(zip(tests, found, strict=True))


@pytest.mark.parametrize(("name", "number"), [("seed", 1_000_000), ("unpaced", 300_000)])
def test_seeds_settings_send_what_is_counted(name: str, number: int, reports: Mapping[str, Mapping[str, Any]]) -> None:
    """Packets of 64 bytes, every 5,000 ns and as fast as they go."""
    sent, counted = reports[name]["generator"], reports[name]["receiver"]
    assert (sent["via"], sent["sent"], sent["refused"]) == ("pktgen", number, 0)
    assert sent["by_size"] == counted["by_size"] == [{"bytes": 64, "frames": number}]
    assert (counted["via"], counted["received"], counted["foreign"], counted["beyond_flows"]) == ("xdp", number, 0, 0)
    assert (counted["duplicates"], counted["reordered"], counted["behind_window"]) == (0, 0, 0)
    assert counted["flows"] == [{"flow": 0, "frames": number, "numbers": number, "duplicates": 0, "reordered": 0}]


def test_xdp_in_the_same_guest_is_counted_beside_it(
    reports: Mapping[str, Mapping[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    def packets_per_s(name: str) -> float:
        sent = reports[name]["generator"]
        return float(1e9 * sent["sent"] / (sent["last_ns"] - sent["first_ns"]))

    sent, counted = reports["xdp"]["generator"], reports["xdp"]["receiver"]
    assert counted["received"] + sent["refused"] == sent["sent"] == 1_000_000
    ours, theirs = packets_per_s("xdp"), packets_per_s("unpaced")
    with capsys.disabled():
        print(
            f"\nin the guest (software emulation): xdp {ours:,.0f}, pktgen {theirs:,.0f}/s, {ours / theirs:.1f} times"
        )


@pytest.mark.parametrize("name", ["flows", "threads", "mix", "tags", "IPv6", "queue"])
def test_every_packet_is_counted_in_its_stream(name: str, reports: Mapping[str, Mapping[str, Any]]) -> None:
    sent, counted = reports[name]["generator"], reports[name]["receiver"]
    assert (sent["sent"], counted["received"], counted["duplicates"], counted["beyond_flows"]) == (FEW, FEW, 0, 0)
    assert sent["by_size"] == counted["by_size"]
    assert sent["sent_bytes"] == counted["received_bytes"]
    streams = 2 if name == "threads" else 1
    assert [flow["numbers"] for flow in counted["flows"]] == [FEW // streams] * streams


def test_mix_has_the_shares_that_whole_percents_allow(reports: Mapping[str, Mapping[str, Any]]) -> None:
    """In steps of 1 %, at random."""
    shares = {size["bytes"]: size["frames"] / FEW for size in reports["mix"]["generator"]["by_size"]}
    for size, parts in ((60, 7), (590, 4), (1514, 1)):
        assert abs(shares[size] - parts / 12) < 0.03


def test_load_without_a_number_ends_with_its_duration(reports: Mapping[str, Mapping[str, Any]]) -> None:
    sent, counted = reports["stopped"]["generator"], reports["stopped"]["receiver"]
    assert 0 < sent["sent"] == counted["received"] <= 1001
    assert sent["unsent"] is not None
    assert 0 < sent["last_ns"] - sent["first_ns"] < 10_000_000_000


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("copies", "the driver takes no copies"),
        ("bad flag", "flag NOSUCH"),
        ("bad command", "No such parameter"),
        ("bad number", "it made 0 of it"),
        ("bad option", "use --sport"),
        ("too many threads", "2 threads: pktgen has 1"),
    ],
)
def test_command_that_pktgen_does_not_take_is_named(
    name: str, said: str, reports: Mapping[str, Mapping[str, Any]]
) -> None:
    assert said in reports[name]["error"]
    assert "\n" not in reports[name]["error"]


def test_devices_are_gone_after_each_load(reports: Mapping[str, Mapping[str, Any]]) -> None:
    """Also after those that failed: pktgen is free, or this one would be refused."""
    assert reports["afterwards"]["generator"]["sent"] == reports["afterwards"]["receiver"]["received"] == 10
