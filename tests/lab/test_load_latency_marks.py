"""The code points of `leadline load-latency --classes` on the packets of the load, as the loopback carries them."""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest
from cli_runs import serve
from test_request_response_marks import SO_ATTACH_FILTER

pytestmark = [pytest.mark.agent, pytest.mark.takes(10)]

CLASSES = {0, 8, 40, 46}
"""Best effort, CS1, CS5 and EF."""
BULK_BYTES = 1400
"""Neither a probe nor a message of the control connections is as long as this."""


def see_bulk_alone(watch: socket.socket, port: int) -> None:
    """Let a raw socket receive the long packets of one port alone."""
    # Classic BPF: the packet's length; X is the length of the IPv4 header, behind which both ports are.
    program = (
        (0x28, 0, 0, 2),
        (0x35, 0, 6, BULK_BYTES),
        (0xB1, 0, 0, 0),
        (0x48, 0, 0, 0),
        (0x15, 2, 0, port),
        (0x48, 0, 0, 2),
        (0x15, 0, 1, port),
        (0x06, 0, 0, 64),
        (0x06, 0, 0, 0),
    )
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in program))
    watch.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HP", len(program), ctypes.addressof(code)))


@pytest.mark.skipif(os.geteuid() != 0, reason="raw sockets need root")
def test_load_of_each_class_carries_its_code_point_both_ways(quick_command: Path) -> None:
    seen: dict[tuple[str, int], set[int]] = defaultdict(set)
    with serve() as server, socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP) as watch:
        watch.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        see_bulk_alone(watch, server.port)
        watch.settimeout(0.1)
        argv = [str(quick_command), "load-latency", "127.0.0.1", "-p", str(server.port), "--classes", "-d", "6s"]
        with subprocess.Popen([*argv, "--warmup", "200ms"], stdout=subprocess.DEVNULL) as process:
            while process.poll() is None:
                note(watch, server.port, seen)
        assert process.returncode == 0
    assert all(len(marks) == 1 for marks in seen.values()), "a connection has one class"
    for way in ("up", "down"):
        assert {mark for (one, _), marks in seen.items() if one == way for mark in marks} == CLASSES


def note(watch: socket.socket, port: int, seen: dict[tuple[str, int], set[int]]) -> None:
    """Write the code point of the next packet down, under its direction and its client's port."""
    try:
        packet = watch.recv(64)
    except TimeoutError:
        return
    source, destination = (int.from_bytes(packet[at : at + 2], "big") for at in (20, 22))
    way, client = ("up", source) if destination == port else ("down", destination)
    seen[way, client].add(packet[1] >> 2)
