"""Real iperf3 clients against one `leadline-agent serve`: their options, several clients at once, and bad peers.

One server answers all of them on one port. Its log has what it sent and received in each test.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from leadline.agents import agent_binary
from waiting import WITHIN_S, free_port, until

pytestmark = [
    pytest.mark.agent,
    pytest.mark.takes(12),
    pytest.mark.skipif(shutil.which("iperf3") is None, reason="iperf3 is not installed"),
]

AT_ONCE = 6
COOKIE = b"abcdefghijklmnopqrstuvwxyz234567abcd\0"
IDLE_S, DEFAULT_IDLE_S = 3.0, 10.0
"""How long the impatient server waits for a client that should act, and one without that option."""

# Everything that the client sent arrives, and the server says so.
UP = (
    "-n 20M",
    "-n 20M -P 4",
    "-n 20M -l 1000",
    "-n 20M -w 64K",
    "-n 5M -M 600 -N",
    "-n 20M -C reno",
    "-n 20M -Z",
    "-n 20M -A 0,0",
    "-n 20M -b 800M/20",
    "-n 20M --repeating-payload",
    "-n 20M --cport FREE",
    "-n 20M -S 16 -T name",
    "-k 100",
    "-t 1 -b 50M",
    "-t 1 -b 50M --get-server-output",
    "-u -n 2M -b 50M",
    "-u -k 100 -b 50M -l 1400",
    "-u -t 1 -b 5M -P 3",
    "-u -t 1 -b 500K -l 16",
    "-u -t 1 -b 20M --udp-counters-64bit",
    "-u -n 1M -b 20M --cport FREE",
)
# A client that ends by bytes gets them all, and no more are sent.
DOWN = ("-R -n 20M", "-R -n 20000001 -P 3", "-R -n 20M --repeating-payload -Z", "-R -n 20M -C reno -w 256K -N")
# A client that ends by time counts nothing that is under way at its end.
DOWN_TIMED = ("-R -t 1 -b 50M", "-R -k 100 -l 1000", "-u -R -t 1 -b 20M", "-u -R -t 1 -b 20M --udp-counters-64bit -P 2")
BOTH = ("--bidir -n 20M", "-u --bidir -t 1 -b 10M")
OMITTED = ("-t 1 -O 1 -b 20M", "-u -t 1 -O 1 -b 5M", "-u -R -t 1 -O 1 -b 5M --get-server-output")


@dataclass(frozen=True)
class Server:
    """A running server."""

    port: int
    log: Path
    pid: int

    def closed(self) -> list[tuple[int, int]]:
        """The bytes sent and received in each test that has ended without a failure."""
        pattern = re.compile(r"iperf3 test closed .*sent_bytes=(\d+) received_bytes=(\d+)$", re.MULTILINE)
        return [(int(sent), int(received)) for sent, received in pattern.findall(self.log.read_text())]

    def waits_for(self, text: str) -> None:
        """Wait until its log has a text."""
        until(lambda: text in self.log.read_text(), self.log.read_text)


def serve(folder: Path, *options: str) -> Iterator[Server]:
    log = folder / "serve.log"
    with log.open("wb") as stderr:
        command = [str(agent_binary()), "serve", "--log", "info", "--no-http", "--port", "0", *options]
        process = subprocess.Popen(["env", "NO_COLOR=1", *command], stdout=subprocess.DEVNULL, stderr=stderr)
        try:
            until(lambda: " port=" in log.read_text() or process.poll() is not None, log.read_text)
            found = re.search(r" port=(\d+)", log.read_text())
            assert found is not None, log.read_text()
            yield Server(int(found[1]), log, process.pid)
        finally:
            process.terminate()
            process.wait()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from serve(tmp_path_factory.mktemp("serve"))


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from serve(tmp_path_factory.mktemp("impatient"), "--max-idle", f"{IDLE_S:g}s")


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from serve(
        tmp_path_factory.mktemp("strict"), "--max-flows", "3", "--max-rate", "50mbit", "--max-sessions", "2"
    )


def iperf3(server: Server, options: str, program: str = "iperf3") -> dict[str, Any]:
    # The name of a test is the same in each process, its free port is not.
    words = [str(free_port()) if word == "FREE" else word for word in shlex.split(options)]
    argv = [program, "-J", "-c", "127.0.0.1", "-p", str(server.port), *words]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=WITHIN_S)
    assert done.stdout.startswith("{"), (options, done.stdout, done.stderr)
    document: dict[str, Any] = json.loads(done.stdout)
    return document


@pytest.fixture(scope="module")
def documents(server: Server) -> dict[str, dict[str, Any]]:
    """The documents of all clients, of which several run at once.

    The server waits 3 s at most for a UDP client's first datagram: they come last, behind those at full speed.
    """
    cases = sorted([*UP, *DOWN, *DOWN_TIMED, *BOTH, *OMITTED], key=lambda options: "-u" in options)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(zip(cases, pool.map(lambda options: iperf3(server, options), cases), strict=True))


def ended(documents: dict[str, dict[str, Any]], options: str) -> dict[str, Any]:
    document = documents[options]
    assert "error" not in document, document["error"]
    end: dict[str, Any] = document["end"]
    return end


@pytest.mark.parametrize("options", UP)
def test_server_receives_each_byte_of_a_client(
    documents: dict[str, dict[str, Any]], server: Server, options: str
) -> None:
    end = ended(documents, options)
    sent = end["sum_sent"]["bytes"]
    assert end["sum_received"]["bytes"] == sent > 0
    assert (0, sent) in server.closed()
    if "-u" in options:
        assert end["sum"]["lost_packets"] == 0
    if "--get-server-output" in options:
        assert f"{sent} bytes received" in documents[options]["server_output_text"]


@pytest.mark.parametrize("options", DOWN)
def test_client_receives_as_many_bytes_as_it_asked_for(
    documents: dict[str, dict[str, Any]], server: Server, options: str
) -> None:
    end = ended(documents, options)
    asked = 20_000_001 if "20000001" in options else 20 << 20
    assert end["sum_received"]["bytes"] == end["sum_sent"]["bytes"] == asked
    assert (asked, 0) in server.closed()
    # The server tells what its kernel uses.
    assert (end["sender_tcp_congestion"] == "reno") is ("-C reno" in options)


@pytest.mark.parametrize("options", DOWN_TIMED)
def test_server_reports_what_it_sent(documents: dict[str, dict[str, Any]], server: Server, options: str) -> None:
    end = ended(documents, options)
    sent = end["sum_sent"]["bytes"]
    received = end["sum_received"]["bytes"]
    assert 0 < received <= sent
    assert (sent, 0) in server.closed()
    if "-u" in options:
        # A client that does not get its CPU in time loses datagrams: what it misses by their numbers is what it did not
        # receive, less what was under way at the end.
        block_bytes = documents[options]["start"]["test_start"]["blksize"]
        assert end["sum"]["packets"] * block_bytes <= sent
        assert end["sum"]["lost_packets"] * block_bytes <= sent - received


@pytest.mark.parametrize("options", BOTH)
def test_both_directions_have_their_own_bytes(
    documents: dict[str, dict[str, Any]], server: Server, options: str
) -> None:
    end = ended(documents, options)
    up, down = end["sum_sent"]["bytes"], end["sum_sent_bidir_reverse"]["bytes"]
    assert end["sum_received"]["bytes"] == up > 0
    assert 0 < end["sum_received_bidir_reverse"]["bytes"] <= down
    assert (down, up) in server.closed()


@pytest.mark.parametrize("options", OMITTED)
def test_omitted_time_does_not_count(documents: dict[str, dict[str, Any]], options: str) -> None:
    """Each end leaves out what it sent or received in its own first second, which is the other's later or earlier."""
    ended(documents, options)
    check_omitted(options, documents[options])


def check_omitted(options: str, document: dict[str, Any]) -> None:
    """The client's figure is that of its intervals that are not omitted. The server's has no more than all that the
    client sent, or all that the server itself sent, by its own text."""
    end, intervals = document["end"], document["intervals"]
    own, other = ("sum_received", "sum_sent") if "-R" in options else ("sum_sent", "sum_received")
    every, counted = (
        sum(one["sum"]["bytes"] for one in intervals if not one["sum"]["omitted"] or with_omitted)
        for with_omitted in (True, False)
    )
    assert end[own]["bytes"] == counted
    if "-R" in options:
        sent = int(document["server_output_text"].partition(" bytes sent")[0].split()[-1])
        assert every <= sent
        assert 0 <= end[other]["bytes"] <= sent
    else:
        assert 0 <= end[other]["bytes"] <= every


PIECE_BYTES, PIECES = 1000, 50


def test_omitted_bytes_are_those_that_arrived_before(server: Server) -> None:
    """A client sends a piece after the server has read the one before it, each of another length. What counts is all
    from some piece on: the first one that the server can have read after its omitted second, or a later one."""
    began = time.monotonic()
    held = Held(server, 0, omit=1)
    sizes, read_s = [PIECE_BYTES], []
    while True:
        until(held.is_read)
        read_s.append(time.monotonic() - began)
        if len(sizes) == PIECES:
            break
        time.sleep(0.1)
        sizes.append(PIECE_BYTES + len(sizes))
        held.flow.sendall(b"x" * sizes[-1])
    counted = held.ends(sum(sizes))
    first = next((place for place in range(PIECES) if sum(sizes[place:]) == counted), None)
    assert first is not None and read_s[first] >= 1, (counted, read_s)
    assert first > 0 or read_s[0] >= 1, "what came at once is left out"


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ("-P 4", "number of parallel streams too large"),
        ("-t 1", "total required bandwidth is larger than server limit"),
        ("-t 86400 -O 60 -b 10M", "test duration"),
        ("-b 10M -C nonesuch", "congestion"),
    ],
)
def test_refusal_has_its_own_error(strict: Server, options: str, error: str) -> None:
    if "nonesuch" in options:  # a client refuses a name that its own kernel does not have
        refusal = raw_refusal(strict, {"tcp": True, "time": 1, "bandwidth": 1000, "congestion": "nonesuch"})
        assert refusal == (134, 2)
    else:
        assert error in iperf3(strict, options)["error"]


def test_peer_with_too_many_tests_is_refused_and_served_later(strict: Server) -> None:
    held = [Held(strict, number, bandwidth=1_000_000) for number in range(2)]
    assert "accept" in iperf3(strict, "-t 1 -b 1M")["error"]
    for number, one in enumerate(held):
        assert one.ends(1000 + number) == 1000 + number
    assert "error" not in iperf3(strict, "-n 1K -b 1M")


MOST_AT_ONCE = 64


def test_64_tests_run_at_once_on_one_port_and_each_is_counted(server: Server) -> None:
    """All others are in the middle of their payload when a real client comes as the last one."""
    held = [Held(server, number) for number in range(MOST_AT_ONCE - 1)]
    assert iperf3(server, "-n 1M")["end"]["sum_received"]["bytes"] == 1 << 20
    for number, one in enumerate(held):
        assert one.ends(1000 + number) == 1000 + number


class Held:
    """A test that has begun: its client has sent some bytes of its own number."""

    def __init__(self, server: Server, number: int, **parameters: int) -> None:
        cookie = COOKIE[:32] + b"qrst"[number // 16 % 4 :][:1] + COOKIE[number % 16 :][:1] + b"zz\0"
        self.control = asked(server, cookie)
        self.control.sendall(message({"tcp": True, "time": 600, **parameters}))
        assert self.control.recv(1) == b"\x0a"
        self.flow = connect(server)
        self.flow.sendall(cookie)
        assert received(self.control, 2) == b"\x01\x02"
        self.flow.sendall(b"x" * (1000 + number))

    def is_read(self) -> bool:
        """Whether the server has read all that was sent: no byte waits in its socket (proc_pid_net(5), tcp)."""
        own, theirs = (f":{name[1]:04X}" for name in (self.flow.getsockname(), self.flow.getpeername()))
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        queues = {(row[1][-5:], row[2][-5:]): row[4] for row in rows}
        return queues[own, theirs].startswith("00000000:") and queues[theirs, own].endswith(":00000000")

    def ends(self, sent_bytes: int) -> int:
        """It ends as iperf3 does; the bytes that the server counts."""
        self.control.sendall(b"\x04")
        assert self.control.recv(1) == b"\x0d"
        stream = {"id": 1, "bytes": sent_bytes, "retransmits": 0, "jitter": 0, "errors": 0, "packets": 0}
        cpu = dict.fromkeys(("cpu_util_total", "cpu_util_user", "cpu_util_system"), 0)
        self.control.sendall(message({**cpu, "sender_has_retransmits": 1, "streams": [stream]}))
        (length,) = struct.unpack(">I", received(self.control, 4))
        results = json.loads(received(self.control, length))
        assert self.control.recv(1) == b"\x0e"
        self.control.sendall(b"\x10")
        assert rest(self.control) == b""
        self.flow.close()
        self.control.close()
        [counted] = [one["bytes"] for one in results["streams"]]
        return int(counted)


def received(control: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        piece = control.recv(length - len(data))
        assert piece, data
        data += piece
    return data


# Bad peers. Each of these tests ends with a client that is served.


@pytest.fixture
def served_afterwards(server: Server) -> Iterator[None]:
    yield
    end = iperf3(server, "-n 1M")["end"]
    assert end["sum_received"]["bytes"] == 1 << 20


def connect(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=WITHIN_S)


def message(document: object) -> bytes:
    text = json.dumps(document).encode()
    return struct.pack(">I", len(text)) + text


def asked(server: Server, cookie: bytes) -> socket.socket:
    """A control connection on which the server has asked for the parameters."""
    control = connect(server)
    control.sendall(cookie)
    assert control.recv(1) == b"\x09"
    return control


def rest(control: socket.socket) -> bytes:
    """What the server sends until it closes."""
    data = b""
    try:
        while piece := control.recv(4096):
            data += piece
    except ConnectionResetError:
        pass
    return data


def raw_refusal(server: Server, parameters: object) -> tuple[int, int]:
    with asked(server, COOKIE) as control:
        control.sendall(message(parameters))
        state, error, errno = struct.unpack(">bii", rest(control))
    assert state == -2
    return error, errno


@pytest.mark.usefixtures("served_afterwards")
@pytest.mark.parametrize(
    ("data", "error"),
    [
        (struct.pack(">I", 0xFFFFFFFF), 114),
        (struct.pack(">I", 8193) + b"{" * 100, 114),
        (struct.pack(">I", 4) + b"nope", 114),
        (message({"tcp": True, "parallel": 129}), 6),
        (message({"tcp": True, "parallel": -1}), 114),
        (message({"udp": True, "len": 8}), 20),
        (message({"tcp": True, "len": 1 << 40}), 7),
        (message({"tcp": True, "reverse": True, "bidirectional": True}), 25),
        (message({"sctp": True}), 131),
    ],
)
def test_wrong_parameters_are_answered_with_their_error(server: Server, data: bytes, error: int) -> None:
    with asked(server, COOKIE) as control:
        control.sendall(data)
        assert struct.unpack(">bii", rest(control)) == (-2, error, 22)


@pytest.mark.parametrize("data", [b"a", COOKIE[:36] + b"x", COOKIE, COOKIE + struct.pack(">I", 100) + b"{"])
def test_client_that_falls_silent_before_its_test_is_closed(impatient: Server, data: bytes) -> None:
    began = time.monotonic()
    with connect(impatient) as control:
        control.sendall(data)
        assert rest(control) in (b"", b"\x09")
    assert time.monotonic() - began < DEFAULT_IDLE_S, "by its own limit"
    assert iperf3_again(impatient)["end"]["sum_received"]["bytes"] == 1 << 20


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_client_that_opens_no_flows_gets_an_error_in_time(impatient: Server, protocol: str) -> None:
    assert until(lambda: without_flows(impatient, protocol)) == (-2, 204, 110)
    assert iperf3_again(impatient)["end"]["sum_received"]["bytes"] == 1 << 20


def without_flows(server: Server, protocol: str) -> tuple[int, int, int] | None:
    """How a test ends whose client opens no flows; None if the client itself was too late to begin it."""
    with connect(server) as control:
        control.sendall(COOKIE)
        if control.recv(1) != b"\x09":
            return None
        control.sendall(message({protocol: True, "time": 1}))
        if control.recv(1) != b"\x0a":
            return None
        began = time.monotonic()
        # A flow with another cookie is not this test's.
        with connect(server) as stranger:
            stranger.sendall(COOKIE[::-1][1:] + b"\0")
            state, error, errno = struct.unpack(">bii", rest(control))
    assert time.monotonic() - began < DEFAULT_IDLE_S, "by its own limit"
    return state, error, errno


def iperf3_again(server: Server) -> dict[str, Any]:
    """The document of a client that this server serves; one that stalls for longer than it waits is not served."""
    found: dict[str, Any] = until(lambda: None if "error" in (one := iperf3(server, "-n 1M")) else one)
    return found


@pytest.mark.usefixtures("served_afterwards")
@pytest.mark.parametrize("ending", ["reset", "nonsense", "lie"])
def test_client_that_breaks_off_ends_its_test_alone(server: Server, ending: str) -> None:
    """A reset in the middle; a state that is none; results that are longer than they may be."""
    cookie = b"b" * 36 + b"\0"
    with asked(server, cookie) as control:
        control.sendall(message({"tcp": True, "time": 10}))
        assert control.recv(1) == b"\x0a"
        with connect(server) as flow:
            flow.sendall(cookie + b"x" * 100_000)
            assert control.recv(2) == b"\x01\x02"
            if ending == "reset":
                for one in (flow, control):
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    one.close()
                server.waits_for('failure="unexpected end of file"')
            elif ending == "nonsense":
                control.sendall(b"\x63")
                assert struct.unpack(">bii", rest(control)) == (-2, 110, 71)
            else:
                control.sendall(b"\x04")
                assert control.recv(1) == b"\x0d"
                control.sendall(struct.pack(">I", 1 << 30) + b"{")
                assert rest(control) == b""


@pytest.mark.usefixtures("served_afterwards")
def test_flood_of_connections_leaves_a_running_test_and_new_ones_alone(server: Server) -> None:
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(iperf3, server, "-t 1 -b 20M")
        flood = [connect(server) for _ in range(600)]
        for index, one in enumerate(flood):
            one.sendall(COOKIE[: index % 38])
        assert "error" not in iperf3(server, "-n 1M")
        document = running.result()
        for one in flood:
            one.close()
    assert document["end"]["sum_received"]["bytes"] == document["end"]["sum_sent"]["bytes"]
