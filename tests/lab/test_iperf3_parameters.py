"""The parameters that `--peer iperf3` sends: every option of a full command is in the message, by iperf3's names."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cli_runs as cli
import pytest
import scripted_servers as servers

from waiting import WITHIN_S

pytestmark = [
    pytest.mark.agent,
    pytest.mark.skipif(not cli.LEADLINE.exists(), reason="the leadline command is not installed"),
]

COMMON = {"omit": 0, "time": 2, "num": 0, "blockcount": 0, "client_version": "3.12"}
CASES: dict[str, dict[str, Any]] = {
    "tcp": {"tcp": True, "nodelay": True, "parallel": 1, "len": 131_072},
    "tcp -P 2 -R -l 1000 --rate 20mbit -w 128KiB --mss 1400 --congestion reno --dscp 46 --pacing 50mbit"
    " --send sendfile --receive discard --repeating-payload --get-server-output -n 1MiB": {
        "tcp": True,
        "nodelay": True,
        "parallel": 2,
        "reverse": True,
        "len": 1000,
        "bandwidth": 10_000_000,
        "window": 131_072,
        "MSS": 1400,
        "congestion": "reno",
        "TOS": 184,
        "fqrate": 25_000_000,
        "zerocopy": 1,
        "skip_rx_copy": 1,
        "repeating_payload": 1,
        "get_server_output": 1,
        "num": 1 << 20,
    },
    "tcp --nagle --mptcp --bidir": {"tcp": True, "mptcp": True, "bidirectional": True, "parallel": 1, "len": 131_072},
    "udp -P 2 --bidir -l 500 --rate 2mbit --dscp 8": {
        "udp": True,
        "udp_counters_64bit": 1,
        "parallel": 2,
        "bidirectional": True,
        "len": 500,
        "bandwidth": 1_000_000,
        "TOS": 32,
    },
    "udp -R --udp-counters-32bit -l 1400": {"udp": True, "parallel": 1, "reverse": True, "len": 1400},
}


@pytest.mark.parametrize("line", CASES)
def test_each_option_is_a_parameter(quick_command: Path, line: str) -> None:
    found: list[dict[str, Any]] = []

    def script(talk: servers.Talk) -> Iterator[str]:
        talk.receive(servers.COOKIE_BYTES)
        talk.control.sendall(b"\x09")
        found.append(talk.frame())
        yield "asked"

    kind, *options = line.split()
    command = [str(quick_command), kind, "127.0.0.1"]
    with servers.serving(script, "asked", servers.close) as server:
        argv = [*command, "-p", str(server.port), *options, "--peer", "iperf3", "-d", "2s"]
        done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=WITHIN_S)
    assert done.returncode == 1, done.stderr
    assert found == [{**COMMON, **CASES[line]}]
