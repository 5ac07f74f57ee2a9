"""The code points of `leadline load-latency --classes` on the packets of the load, as the loopback carries them."""

from __future__ import annotations

import os
import socket
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest
from cli_runs import serve
from port_filter import see_port_alone

pytestmark = [pytest.mark.agent, pytest.mark.takes(10)]

CLASSES = {0, 8, 40, 46}
"""Best effort, CS1, CS5 and EF."""
BULK_BYTES = 1400
"""Neither a probe nor a message of the control connections is as long as this."""


@pytest.mark.skipif(os.geteuid() != 0, reason="raw sockets need root")
def test_load_of_each_class_carries_its_code_point_both_ways(quick_command: Path) -> None:
    seen: dict[tuple[str, int], set[int]] = defaultdict(set)
    with serve() as server, socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP) as watch:
        watch.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        see_port_alone(watch, server.port, least_bytes=BULK_BYTES, kept_bytes=64)
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
