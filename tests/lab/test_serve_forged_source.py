"""`serve` and packets whose source address is forged, in a network namespace of its own.

Nothing of a session reaches an address that has not shown to receive there.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import cli_runs as cli
import pytest

from waiting import WITHIN_S

# Forges by a raw socket, watches loopback by a packet socket, and prints what came where, in bytes.
PROGRAM = r"""
import json, socket, struct, subprocess, sys, time

AGENT, WORK = sys.argv[1], json.loads(sys.argv[2])
PORT, HERE, VICTIM, VICTIM_PORT = 5201, "127.0.0.1", "127.0.0.77", 4000
HELLO, ACK, DATA, REQUEST, CHALLENGE = 2, 3, 4, 5, 7


def header(kind, token, sequence=0):
    return struct.pack(">4sB3xQI4xQQ", b"LLD1", kind, token, 0, sequence, 0)


def kind_of(packet):
    return packet[4]


def sequence_of(packet):
    return struct.unpack(">Q", packet[24:32])[0]


def frame(message):
    text = json.dumps(message).encode()
    return struct.pack(">I", len(text)) + text


def exactly(stream, length):
    data = b""
    while len(data) < length:
        piece = stream.recv(length - len(data))
        assert piece, "the server has hung up"
        data += piece
    return data


def hear(stream):
    (length,) = struct.unpack(">I", exactly(stream, 4))
    return json.loads(exactly(stream, length))


def forged(source, source_port, payload):
    udp = struct.pack(">HHHH", source_port, PORT, 8 + len(payload), 0) + payload
    ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0,
                     socket.inet_aton(source), socket.inet_aton(HERE))
    raw.sendto(ip + udp, (HERE, 0))


def look():
    # The UDP payload that the server sent to each address and port. Loopback shows each packet twice.
    while True:
        try:
            packet, (*_, way, _, _) = watch.recvfrom(65536, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        packet = packet[14:]
        if way != socket.PACKET_OUTGOING and packet[9] == 17 and struct.unpack(">H", packet[20:22])[0] == PORT:
            to = f"{socket.inet_ntoa(packet[16:20])}:{struct.unpack('>H', packet[22:24])[0]}"
            sent[to] = sent.get(to, 0) + len(packet) - 28


subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
watch = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
watch.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
watch.bind(("lo", 0))
sent = {}
server = subprocess.Popen([AGENT, "serve", "--bind", HERE, "--no-http"], stdout=subprocess.PIPE)
server.stdout.readline()
try:
    control = socket.create_connection((HERE, PORT))
    asked = {"work": WORK, "flows": 1, "threads": 1, "direction": "down" if WORK["work"] == "udp" else "up",
             "duration_ms": 60_000, "congestion": None, "interval_ms": 100, "takes_turns": False}
    control.sendall(b"LEADLINE/2\n" + frame({"say": "open", "open": asked, "nonce": None}))
    token = hear(control)["token"]
    victim = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    victim.bind((VICTIM, VICTIM_PORT))
    for sequence in range(100):
        for kind in (HELLO, REQUEST, DATA):
            forged(VICTIM, VICTIM_PORT, header(kind, token, sequence))
    # The session's own address may be forged too, by one who does not see what comes to it.
    near = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    near.bind((HERE, VICTIM_PORT))
    for sequence in range(100):
        forged(HERE, VICTIM_PORT, header(HELLO, token, sequence))
        look()
    own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    own.bind((HERE, 0))
    own.connect((HERE, PORT))
    nonce, hellos = 0, 100
    while True:
        own.send(header(HELLO, token, nonce))
        answer = own.recv(65536)
        if kind_of(answer) == ACK:
            break
        if kind_of(answer) == CHALLENGE:
            nonce = sequence_of(answer)
            forged(VICTIM, VICTIM_PORT, header(HELLO, token, nonce))
            forged(HERE, VICTIM_PORT, header(HELLO, token, nonce))
            hellos += 1
    while hear(control)["say"] != "ready":
        pass
    look()
    control.sendall(frame({"say": "begin", "at_ns": time.monotonic_ns()}))
    got = 0
    while got < 200:
        if WORK["work"] == "rr":
            own.send(header(REQUEST, token, got))
            forged(VICTIM, VICTIM_PORT, header(REQUEST, token, got))
            forged(HERE, VICTIM_PORT, header(REQUEST, token, got))
        own.recv(65536)
        got += 1
        look()
    address = lambda one: "%s:%d" % one.getsockname()
    print(json.dumps({"victim": sent.get(address(victim), 0), "near": sent.get(address(near), 0),
                      "near_asked": 40 * (hellos + (200 if WORK["work"] == "rr" else 0)), "own": sent[address(own)],
                      "others": sorted({*sent} - {address(victim), address(near), address(own)})}))
finally:
    server.kill()
"""


def outcome(work: dict[str, Any]) -> dict[str, Any]:
    """Packets by the host that received them."""
    inside = cli.own_network()
    if inside is None or not cli.LEADLINE.exists():
        pytest.skip("no network namespace can be made here, or the leadline command is not installed")
    agent = cli.LEADLINE.with_name("leadline-agent")
    command = [*inside, sys.executable, "-c", PROGRAM, str(agent), json.dumps(work)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    "work",
    [
        {"work": "udp", "datagram_bytes": 1400, "rate_pps": 1000.0, "number": None},
        {"work": "rr", "protocol": "udp", "request_bytes": 40, "response_bytes": 60_000},
    ],
    ids=["udp", "rr"],
)
def test_nothing_reaches_a_forged_source(work: dict[str, Any]) -> None:
    found = outcome(work)
    assert found["victim"] == 0
    assert found["others"] == []
    # The session's own address with another port is asked for its nonce, and gets no more than was sent in its name.
    assert found["near"] <= found["near_asked"]
    assert found["own"] > 200 * 1000
