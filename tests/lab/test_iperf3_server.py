"""`tcp` and `udp` against a real `iperf3 -s`, and the document that `iperf3 -J` prints."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from leadline.agents import agent_binary
from waiting import WITHIN_S, free_port, free_ports, until

pytestmark = [
    pytest.mark.agent,
    pytest.mark.takes(20),
    pytest.mark.skipif(shutil.which("iperf3") is None, reason="iperf3 is not installed"),
]

CASES = (
    "tcp",
    "tcp -R",
    "tcp --bidir -P 2",
    "tcp --rate 20mbit -P 3 -t 2",
    "tcp --congestion reno -l 1000 --rate 20mbit",
    # What a flow sends in some seconds fits into a socket's buffer: none is lost even if an end stalls.
    "udp --rate 100kbit -l 500",
    "udp --rate 100kbit -l 500 -R -P 2",
    "udp --rate 100kbit -l 500 --bidir",
    "udp --rate 5mbit -n 100 -l 100",
    "tcp --rate 20mbit -P 2 --local-port FREE --repeating-payload --get-server-output",
    "udp --rate 100kbit -l 500 --bidir --local-port FREE --udp-counters-32bit --repeating-payload --dscp 46",
)
LENGTH = "1500ms"
"""Long enough that no process stalls for all of it."""
NEWER = ("reorder", "fq_rate", "timemillisecs", "bidir", "fqrate", "interval", "gso", "gro")
"""Fields of 3.21's document that 3.12's does not have."""
# Unknown to Leadline: the congestion control of a Leadline server, jitter of intervals, what a sending server knows.
NULLS = {
    "max_snd_wnd",
    "sender_tcp_congestion",
    "receiver_tcp_congestion",
    "jitter_ms",
    "max_snd_cwnd",
    "max_rtt",
    "min_rtt",
    "mean_rtt",
    "out_of_order",
    "reorder",
}
UDP_NULLS = {"sndbuf_actual", "rcvbuf_actual"}
"""Of UDP sockets, the buffers are unknown too."""


class RealServer:
    """A running `iperf3 -s`."""

    def __init__(self, folder: Path, program: str = "iperf3") -> None:
        self.port = free_port()
        self.log = folder / "iperf3.log"
        argv = [program, "-s", "-p", str(self.port), "--forceflush", "--logfile", str(self.log), "-f", "k"]
        self.process = subprocess.Popen(argv)
        self.waits_for_tests(0)

    def waits_for_tests(self, count: int) -> None:
        """Wait until it has ended this many tests and listens again."""

        def listens_again() -> bool:
            assert self.process.poll() is None, self.text()
            return self.tests() >= count

        until(listens_again, self.text)

    def tests(self) -> int:
        """How many tests have ended."""
        return len(re.findall(r"Server listening on", self.text())) - 1

    def received(self) -> int:
        """Datagrams that it received in its last test, by its own count: the highest number that it read, less those
        that it missed before. Where it stalls as a test ends, it leaves unread what is in its socket."""
        *_, last, _ = re.split(r"Server listening on", self.text())
        rows = re.findall(r"^\[ *\d+\].* (\d+)/(\d+) \(.*receiver$", last, re.MULTILINE)
        return sum(int(highest) - int(missed) for missed, highest in rows)

    def missed(self, line: str, sent_bytes: int) -> int:
        """Datagrams of this load that it did not receive in its last test."""
        if not line.startswith("udp") or "-R" in line:
            return 0
        return sent_bytes // datagram_bytes(line) - self.received()

    def text(self) -> str:
        return self.log.read_text() if self.log.exists() else ""


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    server = RealServer(tmp_path_factory.mktemp("iperf3"))
    try:
        yield server
    finally:
        server.process.terminate()
        server.process.wait()


@pytest.fixture(scope="module")
def command(quick_command: Path) -> str:
    return str(quick_command)


def datagram_bytes(line: str) -> int:
    """The length that this load asks for; 0 without one."""
    return int(line.split("-l ")[1].split(maxsplit=1)[0]) if "-l " in line else 0


def leadline(command: str, line: str, port: int, *options: str) -> subprocess.CompletedProcess[str]:
    # The name of a test is the same in each process, its free ports are not.
    kind, *rest = (str(free_ports(2)) if word == "FREE" else word for word in line.split())
    argv = [command, kind, "127.0.0.1", "-p", str(port), *rest, *options]
    return subprocess.run(argv, check=False, capture_output=True, text=True, timeout=WITHIN_S)


@pytest.mark.parametrize("line", CASES)
def test_both_ends_count_the_same_bytes(real: RealServer, command: str, line: str) -> None:
    before = real.tests()
    done = leadline(command, line, real.port, "--peer", "iperf3", "-d", LENGTH, "--format", "iperf3-json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    end = document["end"]
    real.waits_for_tests(before + 1)
    for suffix in ("", "_bidir_reverse") if "--bidir" in line else ("",):
        sent, received = end[f"sum_sent{suffix}"], end[f"sum_received{suffix}"]
        lost = real.missed(line, sent["bytes"]) if not suffix else 0
        if line.startswith("tcp") and "-R" not in line:
            # Where it stalls as a test ends, iperf3 leaves unread what is in its sockets.
            assert sent["bytes"] >= received["bytes"] > 0
        else:
            assert sent["bytes"] == received["bytes"] + lost * datagram_bytes(line) > 0
        if line.startswith("udp"):
            assert received["lost_packets"] == lost
    if "-n 100" in line:
        assert end["sum"]["packets"] == 100
    if "--local-port" in line:
        first = int(done.args[done.args.index("--local-port") + 1])
        assert [one["local_port"] for one in document["start"]["connected"]] == [first, first + 1]
    assert ("[SUM]" in document.get("server_output_text", "")) is ("--get-server-output" in line)
    assert end["cpu_utilization_percent"]["remote_total"] >= 0
    if line.startswith("tcp"):
        own, other = ("receiver", "sender") if "-R" in line else ("sender", "receiver")
        assert (end[f"{own}_tcp_congestion"] == "reno") is ("--congestion reno" in line)
        # Without a wish, this server reports what an earlier client asked for.
        wished = end[f"{own}_tcp_congestion"] if "--congestion" in line else end[f"{other}_tcp_congestion"]
        assert end[f"{other}_tcp_congestion"] == wished != ""
        assert all(document["start"][name] > 0 for name in ("tcp_mss_default", *UDP_NULLS))


def test_what_iperf3_does_not_report_is_unknown(real: RealServer, command: str) -> None:
    before = real.tests()
    done = leadline(command, "udp --rate 100kbit -l 500", real.port, "--peer", "iperf3", "-d", LENGTH, "--json")
    document = json.loads(done.stdout)
    real.waits_for_tests(before + 1)
    metrics = document["metrics"]
    assert metrics["received"]["value"] == real.received() > 0
    assert metrics["lost"]["value"] == metrics["sent"]["value"] - real.received()
    assert (metrics["duplicates"]["value"], metrics["reordered"]["value"]) == (None, None)
    assert "counters-missing" in done.stdout


def test_busy_server_is_named(real: RealServer, command: str) -> None:
    before = real.tests()
    other = subprocess.Popen(
        ["iperf3", "-c", "127.0.0.1", "-p", str(real.port), "-t", "600", "-b", "1M"], stdout=subprocess.DEVNULL
    )
    try:
        until(lambda: real.text().count("Accepted connection") > before, real.text)
        done = leadline(command, "tcp", real.port, "--peer", "iperf3", "-d", "500ms", "--format", "iperf3-json")
        argv = ["iperf3", "-J", "-c", "127.0.0.1", "-p", str(real.port), "-t", "1"]
        refused = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=WITHIN_S)
    finally:
        other.terminate()
        other.wait()
    assert done.returncode == 1
    assert "busy with another test" in done.stderr
    document = json.loads(done.stdout)
    assert shape(document) == shape(json.loads(refused.stdout))
    assert "busy with another test" in document["error"]
    real.waits_for_tests(before + 1)


def test_wrong_server_is_an_error_in_one_line(command: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        client = subprocess.Popen(
            [command, "tcp", "127.0.0.1", "-p", str(port), "--peer", "iperf3", "-d", "500ms"],
            stderr=subprocess.PIPE,
            text=True,
        )
        peer, _ = server.accept()
        with peer:
            peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            _, errors = client.communicate(timeout=WITHIN_S)
    assert client.returncode == 1
    assert "answers nonsense" in errors


@pytest.mark.parametrize(
    "line",
    [
        "tcp --bidir -n 3000000 -P 2",
        "tcp --bidir -n 1500001 --rate 100mbit",
        # A real server sends until it receives the end: at this rate, that fits into a socket's buffer.
        "udp --rate 100kbit -l 500 --bidir -n 20",
    ],
)
def test_amount_ends_both_directions(real: RealServer, command: str, line: str) -> None:
    before = real.tests()
    # By its time, the load would end long after `leadline` above gives up.
    done = leadline(command, line, real.port, "--peer", "iperf3", "-d", "1h", "--format", "iperf3-json")
    assert done.returncode == 0, done.stderr
    real.waits_for_tests(before + 1)
    end = json.loads(done.stdout)["end"]
    sent_up, sent_down = end["sum_sent"]["bytes"], end["sum_sent_bidir_reverse"]["bytes"]
    amount = int(line.split("-n ")[1].split(maxsplit=1)[0]) * (datagram_bytes(line) or 1)
    assert sent_up == amount
    assert sent_down >= amount
    assert end["sum_received_bidir_reverse"]["bytes"] == sent_down
    # Where it stalls as a test ends, iperf3 leaves unread what is in its sockets.
    assert sent_up >= end["sum_received"]["bytes"] > 0


def test_key_is_refused(command: str, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("secret\n")
    key.chmod(0o600)
    done = leadline(command, "tcp", 1, "--peer", "iperf3", "--key-file", str(key))
    assert done.returncode != 0 and "iperf3 has no shared key" in done.stderr


def shape(value: Any, nulls: set[str] = NULLS, path: str = "", key: str = "") -> set[str]:
    """The paths of a document's values with their types; all numbers are one type."""
    if isinstance(value, dict):
        return {found for name, inner in value.items() for found in shape(inner, nulls, f"{path}.{name}", name)}
    if isinstance(value, list) and not value:
        return {f"{path}: empty"}
    if isinstance(value, list):
        return {found for inner in value for found in shape(inner, nulls, f"{path}[]", key)}
    if value is None:
        assert key in nulls, path
    name = "any" if key in nulls else "flag" if isinstance(value, bool) else type(value).__name__
    return {f"{path}: {'number' if name in ('int', 'float') else name}"}


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("tcp", ""),
        ("tcp -R -P 2", "-R -P 2"),
        ("tcp --bidir", "--bidir"),
        ("udp --rate 5mbit", "-u -b 5M"),
        ("udp --rate 5mbit -R", "-u -b 5M -R"),
        ("udp --rate 5mbit --bidir -P 2", "-u -b 5M --bidir -P 2"),
    ],
)
def test_document_has_the_fields_of_the_real_one(
    server_port: int, real: RealServer, command: str, ours: str, theirs: str
) -> None:
    before = real.tests()
    argv = ["iperf3", "-J", "-c", "127.0.0.1", "-p", str(real.port), "-t", "1", "-i", "0.5", *theirs.split()]
    model = json.loads(subprocess.run(argv, check=True, capture_output=True, text=True, timeout=WITHIN_S).stdout)
    real.waits_for_tests(before + 1)
    done = leadline(command, ours, server_port, "-d", LENGTH, "-i", "500ms", "--format", "iperf3-json")
    document = json.loads(done.stdout)
    nulls = NULLS | UDP_NULLS if ours.startswith("udp") else NULLS
    found = shape(document, nulls)
    more = {one for one in found if one.split(": ")[0].rpartition(".")[2] in NEWER}
    assert found - more == shape(model, nulls)
    check_intervals(document, len(model["end"]["streams"]))
    # Where its timers are late, iperf3 has fewer intervals, or more: in each it names the same streams.
    assert {len(one["streams"]) for one in model["intervals"]} == {len(model["end"]["streams"])}
    end = document["end"]
    reverse = "_bidir_reverse" if "--bidir" in ours else ""
    for sends, total in ((True, "sum_sent"), (False, f"sum_received{reverse}")):
        rows = [row for one in document["intervals"] for row in one["streams"] if row["sender"] is sends]
        assert bool(rows) is ("--bidir" in ours or sends is ("-R" not in ours))
        assert not rows or sum(row["bytes"] for row in rows) == end[total]["bytes"] > 0
    assert len(end["streams"]) == len(model["end"]["streams"])


def check_intervals(document: dict[str, Any], streams: int) -> None:
    """Half a second each, but the last one, from the first flow's start to the last flow's end, whenever that was: a
    remainder of under a tenth of an interval belongs to the last one. Each has all streams."""
    length_s = document["end"]["sum_sent"]["seconds"]
    intervals = document["intervals"]
    assert [len(one["streams"]) for one in intervals] == [streams] * max(1, int(length_s / 0.5 + 0.9))
    edges = [(one["sum"]["start"], one["sum"]["end"]) for one in intervals]
    assert (edges[0][0], edges[-1][1]) == (0, length_s)
    assert all(before[1] == after[0] == before[0] + 0.5 for before, after in pairwise(edges))


@pytest.fixture(scope="module")
def server_port() -> Iterator[int]:
    argv = [str(agent_binary()), "serve", "--no-http", "--port", "0"]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        yield int(line.rsplit(" ", 1)[1])
    finally:
        process.terminate()
        process.wait()
