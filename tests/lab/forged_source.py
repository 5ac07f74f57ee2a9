"""Forges the source addresses of packets to `serve` by a raw socket, and prints the bytes that each address received:
`forged_source.py AGENT WORK`, in a network namespace of its own.

Watches loopback by a packet socket. WORK is the JSON of a session's work, `udp` or `rr`.
"""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
import time
from typing import Any

PORT, HERE, VICTIM, VICTIM_PORT = 5201, "127.0.0.1", "127.0.0.77", 4000
HELLO, ACK, DATA, REQUEST, CHALLENGE = 2, 3, 4, 5, 7
FORGED = 100
"""Packets of each kind that are forged before the session starts."""
ROUNDS = 200
"""Packets that the session's own client waits for."""
HEADER_BYTES = 40
IPV4 = 0x0800


def header(kind: int, token: int, sequence: int = 0) -> bytes:
    """The header of a packet of a session."""
    return struct.pack(">4sB3xQI4xQQ", b"LLD1", kind, token, 0, sequence, 0)


def sequence_of(packet: bytes) -> int:
    """The sequence number in a packet's header."""
    (sequence,) = struct.unpack(">Q", packet[24:32])
    return int(sequence)


def frame(message: object) -> bytes:
    """A message of the control connection: its length, then its JSON."""
    text = json.dumps(message).encode()
    return struct.pack(">I", len(text)) + text


def exactly(stream: socket.socket, length: int) -> bytes:
    """That many bytes of a connection."""
    data = b""
    while len(data) < length:
        piece = stream.recv(length - len(data))
        assert piece, "the server has closed the connection"
        data += piece
    return data


def receive(stream: socket.socket) -> dict[str, Any]:
    """The server's next message."""
    (length,) = struct.unpack(">I", exactly(stream, 4))
    message: dict[str, Any] = json.loads(exactly(stream, length))
    return message


def datagrams_from(address: str, port: int = 0) -> socket.socket:
    """A UDP socket with this address."""
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.bind((address, port))
    return made


class Forger:
    """Sends packets in the name of others."""

    def __init__(self) -> None:
        self._raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)

    def send(self, source: str, payload: bytes) -> None:
        """Send a payload to the server, as if from this address and the victim's port."""
        udp = struct.pack(">HHHH", VICTIM_PORT, PORT, 8 + len(payload), 0) + payload
        ends = socket.inet_aton(source), socket.inet_aton(HERE)
        ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, 0, 64, socket.IPPROTO_UDP, 0, *ends)
        self._raw.sendto(ip + udp, (HERE, 0))


class Watch:
    """Counts the UDP payload that the server sends to each address and port."""

    def __init__(self) -> None:
        self.sent: dict[str, int] = {}
        self._packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(IPV4))
        self._packets.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        self._packets.bind(("lo", 0))

    def read(self) -> None:
        """Count what has been sent by now. Loopback shows each packet twice: those that leave are not counted."""
        while True:
            try:
                framed, (*_, way, _, _) = self._packets.recvfrom(65536, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            packet = framed[14:]
            source_port, port = struct.unpack(">HH", packet[20:24])
            if way != socket.PACKET_OUTGOING and packet[9] == socket.IPPROTO_UDP and source_port == PORT:
                to = f"{socket.inet_ntoa(packet[16:20])}:{port}"
                self.sent[to] = self.sent.get(to, 0) + len(packet) - 28


def open_session(work: dict[str, Any]) -> tuple[socket.socket, int]:
    """The control connection of a new session, and its token."""
    control = socket.create_connection((HERE, PORT))
    asked = {
        "work": work,
        "flows": 1,
        "threads": 1,
        "direction": "down" if work["work"] == "udp" else "up",
        "duration_ms": 60_000,
        "congestion": None,
        "interval_ms": 100,
        "takes_turns": False,
    }
    control.sendall(b"LEADLINE/2\n" + frame({"say": "open", "open": asked, "nonce": None}))
    return control, int(receive(control)["token"])


def try_everything(work: dict[str, Any]) -> dict[str, Any]:
    """Forge packets before, during and after the handshake of a session; the bytes that each address received."""
    forger, watch = Forger(), Watch()
    control, token = open_session(work)
    victim = datagrams_from(VICTIM, VICTIM_PORT)
    for sequence in range(FORGED):
        for kind in (HELLO, REQUEST, DATA):
            forger.send(VICTIM, header(kind, token, sequence))
    # The session's own address may be forged too, by a sender that does not receive what is sent there.
    near = datagrams_from(HERE, VICTIM_PORT)
    for sequence in range(FORGED):
        forger.send(HERE, header(HELLO, token, sequence))
        watch.read()
    own = datagrams_from(HERE)
    own.connect((HERE, PORT))
    hellos = FORGED + shake_hands(own, forger, token)
    while receive(control)["say"] != "ready":
        pass
    watch.read()
    control.sendall(frame({"say": "begin", "at_ns": time.monotonic_ns()}))
    for sequence in range(ROUNDS):
        if work["work"] == "rr":
            own.send(header(REQUEST, token, sequence))
            forger.send(VICTIM, header(REQUEST, token, sequence))
            forger.send(HERE, header(REQUEST, token, sequence))
        own.recv(65536)
        watch.read()
    addresses = [f"{host}:{port}" for host, port in (one.getsockname() for one in (victim, near, own))]
    return {
        "victim": watch.sent.get(addresses[0], 0),
        "near": watch.sent.get(addresses[1], 0),
        "near_asked": HEADER_BYTES * (hellos + (ROUNDS if work["work"] == "rr" else 0)),
        "own": watch.sent[addresses[2]],
        "others": sorted({*watch.sent} - {*addresses}),
    }


def shake_hands(own: socket.socket, forger: Forger, token: int) -> int:
    """Answer challenges until the server acknowledges; each nonce is forged too. The number of nonces."""
    nonce = hellos = 0
    while True:
        own.send(header(HELLO, token, nonce))
        answer = own.recv(65536)
        if answer[4] == ACK:
            return hellos
        if answer[4] == CHALLENGE:
            nonce = sequence_of(answer)
            forger.send(VICTIM, header(HELLO, token, nonce))
            forger.send(HERE, header(HELLO, token, nonce))
            hellos += 1


def main(agent: str, work: dict[str, Any]) -> None:
    """Try it against a server that is started for it."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with subprocess.Popen([agent, "serve", "--bind", HERE, "--no-http"], stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            server.stdout.readline()
            print(json.dumps(try_everything(work)))
        finally:
            server.kill()


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
