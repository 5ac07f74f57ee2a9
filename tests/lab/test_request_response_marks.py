"""The code point of `leadline rr --dscp` on the packets of both directions, as the loopback carries them."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest
from cli_runs import serve
from port_filter import see_port_alone

pytestmark = [pytest.mark.agent, pytest.mark.takes(4)]

EXPEDITED = 46
BY_NUMBER = ("-n", "50", "-d", "60s", "--timeout", "60s")


@pytest.mark.skipif(os.geteuid() != 0, reason="raw sockets need root")
@pytest.mark.parametrize("protocol", ["udp", "tcp"])
def test_requests_and_responses_carry_the_code_point(quick_command: Path, protocol: str) -> None:
    number = socket.IPPROTO_UDP if protocol == "udp" else socket.IPPROTO_TCP
    with serve() as server, socket.socket(socket.AF_INET, socket.SOCK_RAW, number) as watch:
        watch.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        see_port_alone(watch, server.port)
        watch.setblocking(False)
        ways: set[str] = set()
        options = ["--udp"] if protocol == "udp" else []
        argv = [str(quick_command), "rr", "127.0.0.1", "-p", str(server.port), *options, "--dscp", "EF", *BY_NUMBER]
        with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as process:
            while process.poll() is None:
                ways |= marked(watch, server.port)
        ways |= marked(watch, server.port)
        assert process.returncode == 0
    assert ways == {"request", "response"}


def marked(watch: socket.socket, port: int) -> set[str]:
    """The directions of the packets at hand that belong to the server's port and have the code point."""
    ways: set[str] = set()
    while True:
        try:
            packet = watch.recv(64)
        except BlockingIOError:
            return ways
        source, destination = (int.from_bytes(packet[at : at + 2], "big") for at in (20, 22))
        if packet[1] >> 2 == EXPEDITED and port in (source, destination):
            ways.add("request" if destination == port else "response")
