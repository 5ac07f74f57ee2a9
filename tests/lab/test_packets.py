"""Raw packets: what is sent is what was asked for, as another program reads it; what is counted is what happened."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import cli_runs as cli
import pytest

pytestmark = [
    pytest.mark.lab,
    pytest.mark.takes(6),
    pytest.mark.skipif(os.geteuid() != 0, reason="raw packets need root"),
    pytest.mark.skipif(bool(cli.why_not()), reason=cli.why_not() or "-"),
]
PAIR = (
    "ip link add v0 address 02:00:00:00:00:01 type veth peer name v1 address 02:00:00:00:00:02 && "
    "ip addr add 198.18.0.1/24 dev v0 && ip addr add fd00::1/64 dev v0 nodad && "
    "ip link set lo up && ip link set v0 up && ip link set v1 up"
)
"""Two virtual interfaces that are each other's far end, in a network namespace of its own."""
TSHARK = shutil.which("tshark")
CHECKED = ("-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE", "-o", "tcp.check_checksum:TRUE")
FRAMES = 40
PROGRAM = Path(__file__).with_name("packet_programs.py")


def shell(script: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a network namespace of its own."""
    return subprocess.run(
        ["unshare", "--net", "sh", "-c", script], capture_output=True, text=True, timeout=cli.WITHIN_S, check=False
    )


def measured(*options: str, before: str = PAIR) -> dict[str, Any]:
    """The document of `leadline packets` on the pair."""
    done = shell(f"{before} && exec {cli.LEADLINE} packets {' '.join(options)} --json -i 0")
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return {name: metric["value"] for name, metric in document["metrics"].items()}


@pytest.mark.parametrize("via", ["xdp", "af_xdp", "af_packet"])
def test_every_packet_is_counted_once(via: str) -> None:
    found = measured(
        "v0 --to v1 --dst 198.18.0.2 --dst-mac 02:00:00:00:00:02 -n 20000 -d 30s --flows 100", f"--via {via}"
    )
    assert (found["sent"], found["received"], found["refused"]) == (20_000, 20_000, 0)
    assert (found["lost"], found["duplicates"], found["reordered"]) == (0, 0, 0)


@pytest.mark.parametrize(("via", "expected"), [("auto", "af_xdp"), ("af_xdp", "af_xdp"), ("af_packet", "af_packet")])
def test_long_frames_and_mixes_are_counted_by_size(via: str, expected: str) -> None:
    """Of up to three parts in AF_XDP's memory. XDP takes no frames of several sizes."""
    document = cli.call("packets", "--size", "64:3,4000:2,9018:1", "-n", "6000", "-d", "30s", "--via", via, "--json")
    assert document.returncode == 0, document.stderr
    found = json.loads(document.stdout)
    assert [(part["number"], part["sent"], part["lost"]) for part in found["packets"]["sizes"]] == [
        (64, 3000, 0),
        (4000, 2000, 0),
        (9018, 1000, 0),
    ]
    assert found["generator"]["engine"] == expected


def test_command_without_an_interface_measures_a_pair_and_leaves_nothing() -> None:
    done = cli.call("packets", "-n", "5000", "-d", "30s", "--rate", "50kpps", "--stamp-every", "10", "--json")
    assert done.returncode == 0, done.stderr
    metrics = {name: metric["value"] for name, metric in json.loads(done.stdout)["metrics"].items()}
    assert (metrics["sent"], metrics["lost"], metrics["unsent"]) == (5000, 0, 0)
    assert 0 < metrics["one_way_delay_min_us"] <= metrics["one_way_delay_p50_us"] <= metrics["one_way_delay_p99_9_us"]
    assert "leadline0" not in subprocess.run(["ip", "link"], capture_output=True, text=True, check=True).stdout


def test_echo_counts_what_came_back_and_measures_round_trips() -> None:
    found = measured(
        "v0 --to v1 --dst 198.18.0.2 --dst-mac 02:00:00:00:00:02 -n 20000 -d 30s --rate 100kpps --echo --flows 50"
    )
    assert (found["sent"], found["echoed"], found["received"], found["lost"]) == (20_000,) * 3 + (0,)
    assert 0 < found["round_trip_min_us"] <= found["round_trip_p50_us"] <= found["round_trip_p99_9_us"]
    assert "one_way_delay_p50_us" not in found


KINDS: Mapping[str, tuple[Mapping[str, Any], str]] = {
    "udp": ({"size": 64}, "ip.proto==17 and udp.srcport>=1024 and udp.srcport<=1063 and frame.len==60"),
    "udp of IPv6": ({"size": 90, "dst": "fd00::2"}, "ipv6.dst==fd00::2 and udp.dstport==9 and frame.len==86"),
    "tcp-syn": ({"protocol": "tcp-syn"}, "tcp.flags.syn==1 and tcp.flags.ack==0 and frame.len==97"),
    "tcp-ack": ({"protocol": "tcp-ack", "dport": "9000-9019"}, "tcp.flags.ack==1 and tcp.dstport>=9000"),
    "icmp": ({"protocol": "icmp"}, "icmp.type==8"),
    "icmp of IPv6": ({"protocol": "icmp", "dst": "fd00::2"}, "icmpv6.type==128"),
    "vlan": ({"vlan": "7-9"}, "vlan.id>=7 and vlan.id<=9 and udp"),
    "qinq": ({"vlan": "100.7"}, "vlan.id==7 and udp"),
    "gre": (
        {"tunnel": "gre", "tunnel_src": "192.0.2.1", "tunnel_dst": "192.0.2.2", "tunnel_id": 5},
        "gre.key==5 and ip.dst==192.0.2.2 and ip.dst==198.18.0.2 and udp",
    ),
    "vxlan": (
        {"tunnel": "vxlan", "tunnel_src": "192.0.2.1", "tunnel_dst": "192.0.2.2", "tunnel_id": 77, "size": 200},
        "vxlan.vni==77 and udp.dstport==4789 and ip.dst==198.18.0.2",
    ),
    "ranges": (
        {"src": "10.0.0.0/28", "dst": "198.18.0.2-198.18.0.5", "dscp": "EF"},
        "ip.dsfield.dscp==46 and ip.src>=10.0.0.0 and ip.src<=10.0.0.15 and ip.dst<=198.18.0.5",
    ),
    "in turn": ({"flows": 8, "sport": "2000-2007"}, "udp.srcport==2003"),
    "by Zipf": ({"flows": 8, "sport": "3000-3007", "zipf": 1.5, "number": 800}, "udp.srcport==3000"),
}
COMMON = {"device": "v0", "to": "v1", "dst": "198.18.0.2", "dst_mac": "02:00:00:00:00:02", "then": "pass", "name": "t"}


@pytest.mark.skipif(TSHARK is None, reason="tshark is not installed")
@pytest.mark.parametrize("via", ["xdp", "af_xdp", "af_packet"])
def test_packets_are_those_that_were_asked_for(via: str, tmp_path: Path) -> None:
    """As tshark reads them, with its checks of checksums. Each kind has a time to live of its own."""
    tests = [
        {**COMMON, "size": 101, "number": FRAMES, "flows": FRAMES, "via": via, "ttl": ttl, **keys}
        for ttl, (keys, _) in enumerate(KINDS.values(), 10)
    ]
    frames = sum(test["number"] for test in tests)
    capture = tmp_path / "capture.pcapng"
    script = (
        f"{PAIR} && (tshark -q -i v1 -f 'ether dst 02:00:00:00:00:02' -c {frames} -a duration:120 -w {capture}"
        f" 2>{tmp_path}/log & until grep -q Capturing {tmp_path}/log; do sleep 0.05; done; sleep 0.3;"
        f" {sys.executable} {PROGRAM} '{json.dumps(tests)}'; wait)"
    )
    done = shell(script)
    assert done.returncode == 0, done.stderr
    for report, test in zip(json.loads(done.stdout), tests, strict=True):
        assert (report["generator"]["via"], report["generator"]["sent"]) == (via, test["number"])
        assert (report["receiver"]["received"], report["receiver"]["duplicates"]) == (test["number"], 0)
    filters = [
        f"(ip.ttl=={ttl} or ipv6.hlim=={ttl}) and {wanted}" for ttl, (_, wanted) in enumerate(KINDS.values(), 10)
    ]
    found = dict(zip(KINDS, _counts(capture, [*filters, BAD]), strict=False))
    *_, bad = _counts(capture, [*filters, BAD])
    assert bad == 0
    assert (found.pop("in turn"), FRAMES // 8) == (FRAMES // 8,) * 2
    # 1, 2^-1.5, 3^-1.5 ...: the first has 51 % of all.
    assert 350 <= found.pop("by Zipf") <= 470
    assert found == dict.fromkeys(found, FRAMES)


BAD = (
    "ip.checksum.status==0 or udp.checksum.status==0 or tcp.checksum.status==0 or icmp.checksum.status==0"
    " or icmpv6.checksum.status==0 or _ws.malformed"
)


def _counts(capture: Path, filters: Sequence[str]) -> list[int]:
    """How many frames each display filter passes, in one reading."""
    statistics = ",".join(["io,stat,0", *filters])
    command = ["tshark", "-r", str(capture), *CHECKED, "-q", "-z", statistics]
    table = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    row = next(line for line in table.splitlines() if "<>" in line and line.count("|") > len(filters))
    cells = [cell.strip() for cell in row.split("|")]
    return [int(cell) for cell in cells[2::2] if cell.isdecimal()][: len(filters)]


def test_refusals_are_one_line_that_says_what_would_be_right() -> None:
    far = {"dst": "198.18.0.2", "dst_mac": "02:00:00:00:00:02", "name": "t"}
    wrong: list[tuple[str, dict[str, Any], str]] = [
        ("true", {"device": "v9"}, "there is no interface v9 on this host; it has lo, v0, v1"),
        ("true", {"device": "v0", "size": 2004}, "need an MTU of 1986; that of v0 is 1500"),
        ("true", {"device": "v0", "via": "xdp"}, "GRO"),
        ("true", {"device": "v0", "dst_mac": None}, "198.18.0.2 does not answer on v0"),
        ("true", {"device": "v0", "dst": "203.0.113.1", "dst_mac": None}, "v0 has no route to 203.0.113.1"),
        ("true", {"device": "v1"}, "v1 has no IPv4 address; name the frames' sources (--src)"),
        ("true", {"device": "v0", "size": 40}, "have from 60 to 9216 bytes"),
        ("true", {"device": "v0", "flows": 2, "sport": "5"}, "only 1 different"),
        ("ip route add default via 198.18.0.2", {"device": "v0"}, "--yes-i-mean v0"),
        ("ip link set v1 down", {"device": "v1"}, "interface v1 is down"),
    ]
    steps = [f"{before} && {sys.executable} {PROGRAM} '{json.dumps([{**far, **keys}])}'" for before, keys, _ in wrong]
    done = shell(" && ".join([PAIR, *steps]))
    assert done.returncode == 0, done.stderr
    for line, (_, _, expected) in zip(done.stdout.splitlines(), wrong, strict=True):
        [said] = json.loads(line)
        assert expected in said["error"]


def test_command_lines_are_refused_in_one_line() -> None:
    for options, expected in (
        ("v0", "--dst"),
        ("v0 --dst nonsense", "no address or range"),
        ("--to v1", "without a DEV"),
        ("v0 --dst 198.18.0.2 --protocol tcp-syn", "flood what answers"),
        ("v0 --dst 198.18.0.2 --echo", "nothing sends the packets back"),
    ):
        done = cli.call("packets", *options.split())
        assert (done.returncode, done.stdout) == (2, "")
        assert expected in done.stderr
    script = f"{PAIR} && exec setpriv --bounding-set=-all --inh-caps=-all {cli.LEADLINE} packets v0"
    done = shell(f"{script} --dst 198.18.0.2 --dst-mac 02:00:00:00:00:02 --via xdp")
    assert (done.returncode, done.stdout) == (2, "")
    assert "root" in done.stderr


@pytest.mark.skipif(Path("/proc/net/pktgen").exists(), reason="this kernel has pktgen")
def test_kernel_without_pktgen_is_refused_with_the_module_to_load() -> None:
    options = "packets v0 --to v1 --dst 198.18.0.2 --dst-mac 02:00:00:00:00:02 --via pktgen --pktgen count=10"
    done = shell(f"{PAIR} && exec {cli.LEADLINE} {options}")
    assert (done.returncode, done.stdout) == (2, "")
    assert "modprobe pktgen" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_default_route_may_be_named() -> None:
    default = f"{PAIR} && ip route add default via 198.18.0.2"
    found = measured("v0 --to v1 --yes-i-mean v0 --dst 198.18.0.2 --dst-mac 02:00:00:00:00:02 -n 10", before=default)
    assert (found["sent"], found["received"]) == (10, 10)


def test_program_is_gone_with_its_killed_agent() -> None:
    has_program = "ip link show v1 | grep -q prog/xdp"
    script = (
        f"{PAIR} && {cli.LEADLINE} packets v0 --to v1 --dst 198.18.0.2 --dst-mac 02:00:00:00:00:02 -i 0 -d 60s"
        f" >/dev/null 2>&1 & until {has_program}; do sleep 0.05; done;"
        f" kill -KILL $(pgrep -P $!); until ! {has_program}; do sleep 0.05; done; wait; echo gone"
    )
    done = shell(script)
    assert (done.returncode, done.stdout) == (0, "gone\n"), done.stderr


def made_capture(path: Path, frames: int) -> None:
    """A capture with nanoseconds: UDP from 10.0.0.1 to 10.0.0.2 with a VLAN tag, a frame each millisecond."""
    content = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 1)
    for number in range(frames):
        udp = struct.pack(">HHHH", 1000 + number, 9, 26, 0) + bytes(18)
        ip = bytes.fromhex("4500002e000040004011") + checksum_of_header() + bytes([10, 0, 0, 1, 10, 0, 0, 2])
        frame = bytes.fromhex("0200000000020200000000018100000708 00".replace(" ", "")) + ip + udp
        content += struct.pack("<IIII", 1_700_000_000, number * 1_000_000, len(frame), len(frame)) + frame
    path.write_bytes(content)


def checksum_of_header() -> bytes:
    """The checksum of the header in `made_capture`."""
    words = struct.unpack(">10H", bytes.fromhex("4500002e0000400040110000") + bytes([10, 0, 0, 1, 10, 0, 0, 2]))
    total = sum(words)
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return struct.pack(">H", 0xFFFF - total)


@pytest.mark.skipif(TSHARK is None, reason="tshark is not installed")
def test_capture_is_sent_with_other_addresses_and_right_checksums(tmp_path: Path) -> None:
    made_capture(tmp_path / "sent.pcap", 50)
    capture = tmp_path / "capture.pcapng"
    script = (
        f"{PAIR} && (tshark -q -i v1 -f 'ether dst 02:00:00:00:00:02' -c 100 -a duration:120 -w {capture}"
        f" 2>{tmp_path}/log & until grep -q Capturing {tmp_path}/log; do sleep 0.05; done; sleep 0.3;"
        f" {cli.LEADLINE} packets v0 --pcap {tmp_path}/sent.pcap --rewrite 10.0.0.0/8:198.0.0.0/8 --set-vlan 0 --loop 2"
        " -d 30s -i 0 --json; wait)"
    )
    done = shell(script)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["metrics"]["sent"]["value"] == 100
    wanted = "ip.src==198.0.0.1 and ip.dst==198.0.0.2 and !vlan and udp.srcport>=1000 and udp.srcport<=1049"
    assert _counts(capture, [wanted, BAD]) == [100, 0]


PACKETS = 20_000
LINK = "delay: 1ms, loss: 1%, duplicate: 2%, reorder: 1%"
COUNTED = f"{{name: n, kind: packets, number: {PACKETS}, duration: 60s, rate: 10kpps, flows: 7, stamp_every: 4}}"


@pytest.mark.decided_by("counts of what a wire did")
def test_what_a_wire_did_is_exact_to_the_packet(tmp_path: Path) -> None:
    plan = (
        f"{{name: wire, topology: remote-access, lab: {{emulator: own, link: {{{LINK}}}}}, sut: {{kind: route}}, "
        f"tests: [{COUNTED}]}}"
    )
    run = cli.run(plan, tmp_path)
    assert run.code == 0, run.err
    figures = {name: value for name, value in run.figures("n").items() if value is not None}
    wire = cli.wire_counters(run)["up"]
    # A datagram that asks for the next hop's address may go before.
    udp = wire["udp"]
    others = udp["arrived"] - PACKETS
    assert 0 <= others <= 4
    assert (figures["sent"], figures["unsent"], wire["overrun"], wire["refused"]) == (PACKETS, 0, 0, 0)
    for figure, fault in (("lost", "lost"), ("duplicates", "duplicated"), ("reordered", "reordered")):
        assert udp[fault] > 20
        assert 0 <= udp[fault] - figures[figure] <= others, fault
    assert figures["received"] == PACKETS - figures["lost"] + figures["duplicates"]
    assert figures["one_way_delay_min_us"] > 1000
    [outcome] = [
        found
        for line in (run.folder / "journal.ndjson").read_text().splitlines()
        if (event := json.loads(line).get("event", {})).get("type") == "finished"
        and (found := (event["outcome"].get("packets") or {}).get("generator"))
    ]
    # A lab's links take frames of XDP.
    assert outcome["via"] == "xdp"


LINK_BPS = 50e6
BETWEEN = {64: 60, 512: 508, 1518: 1514}
"""Bytes of a frame as the link's queue counts them, by its size with FCS."""


@pytest.mark.full_matrix
@pytest.mark.takes(60)
@pytest.mark.parametrize("size", BETWEEN)
@pytest.mark.decided_by("what the queue between two routers lets through")
def test_highest_rate_without_loss_is_the_one_that_the_link_has(size: int, tmp_path: Path) -> None:
    """NDR and PDR of a path whose link has 50 Mbit/s, by one search."""
    test = (
        f"{{name: n, kind: packets, size: {size}, duration: 4s, search: {{width: 1%, until: "
        "[lost_ratio <= 0, lost_ratio <= 0.5%]}}"
    )
    plan = (
        "{name: ndr, topology: remote-access, lab: {link: {rate: 50mbit}}, sut: {kind: route}, "
        f"tests: [{test}]}}"
    )
    run = cli.run(plan, tmp_path)
    assert run.code == 0, run.err
    figures = run.figures("n")
    truth = LINK_BPS / 8 / BETWEEN[size]
    for name in ("found_rate_per_s", "found_rate_2_per_s"):
        # Half of a percent is lost at half of a percent above the link's rate.
        assert figures[name] == pytest.approx(truth, rel=0.015), name
