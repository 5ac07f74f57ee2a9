"""The parameters that `--peer iperf3` sends: every option of a full command is in the message, by iperf3's names, which
is that of a real client with the flag that stands for it.
"""

from __future__ import annotations

import shlex
import shutil
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
    "udp --warmup 1s -n 30 -P 2 -l 100 -w 64KiB": {
        "udp": True,
        "udp_counters_64bit": 1,
        "parallel": 2,
        "omit": 1,
        "time": 1,
        "blockcount": 60,
        "window": 65_536,
        "len": 100,
    },
    "tcp --warmup 500ms": {"tcp": True, "nodelay": True, "parallel": 1, "len": 131_072},
    "udp -R --udp-counters-32bit -l 1400": {"udp": True, "parallel": 1, "reverse": True, "len": 1400},
}


SAME = {
    "tcp": "-N -t 2",
    "tcp --nagle": "-t 2",
    "tcp -R": "-N -t 2 -R",
    "tcp --bidir -P 3": "-N -t 2 --bidir -P 3",
    "tcp -P 2 --rate 20mbit": "-N -t 2 -P 2 -b 10M",
    "tcp -l 1000 -n 1MiB": "-N -l 1000 -n 1M",
    "tcp -w 128KiB": "-N -t 2 -w 128K",
    "tcp --mss 1400": "-N -t 2 -M 1400",
    "tcp --congestion reno": "-N -t 2 -C reno",
    "tcp --warmup 1s": "-N -t 1 -O 1",
    "tcp --send sendfile": "-N -t 2 -Z",
    "tcp --pacing 50mbit": "-N -t 2 --fq-rate 50M",
    "tcp --dscp AF11": "-N -t 2 -S 0x28",
    "tcp --local-port 21920": "-N -t 2 --cport 21921",
    "tcp --get-server-output": "-N -t 2 --get-server-output",
    "tcp --repeating-payload": "-N -t 2 --repeating-payload",
    "udp -l 500 --rate 1mbit": "-u -t 2 -l 500 -b 1M --udp-counters-64bit",
    "udp -l 500 --rate 1mbit --udp-counters-32bit": "-u -t 2 -l 500 -b 1M",
    "udp -l 500 --rate 2mbit -R -P 2": "-u -t 2 -l 500 -b 1M --udp-counters-64bit -R -P 2",
    "udp -l 500 --rate 1mbit --bidir": "-u -t 2 -l 500 -b 1M --udp-counters-64bit --bidir",
    "udp -l 500 -n 100 --rate 1mbit": "-u -k 100 -l 500 -b 1M --udp-counters-64bit",
    "udp -l 500 -n 100 --rate 2mbit -P 2": "-u -k 200 -l 500 -b 1M --udp-counters-64bit -P 2",
    "udp -l 500 --rate 1mbit --warmup 1s": "-u -t 1 -O 1 -l 500 -b 1M --udp-counters-64bit",
    "udp -l 500 --rate 1mbit -w 64KiB": "-u -t 2 -l 500 -b 1M --udp-counters-64bit -w 64K",
    "udp -l 500 --rate 1mbit --dscp EF": "-u -t 2 -l 500 -b 1M --udp-counters-64bit -S 0xb8",
    "udp -l 500 --rate 1mbit --local-port 21922": "-u -t 2 -l 500 -b 1M --udp-counters-64bit --cport 21923",
    "udp -l 500 --rate 1mbit --get-server-output": "-u -t 2 -l 500 -b 1M --udp-counters-64bit --get-server-output",
    "udp -l 500 --rate 1mbit --repeating-payload": "-u -t 2 -l 500 -b 1M --udp-counters-64bit --repeating-payload",
}
"""Leadline's options, and those of a real client that mean the same."""
OF_CLIENTS = {"client_version", "pacing_timer", "gso", "gso_dg_size", "gso_bf_size", "gro", "gro_bf_size"}
"""Parameters whose absence means what a real client sends: its timer of 1 ms, and no batches."""


def parameters(argv: list[str]) -> dict[str, Any]:
    """What a client sends, if its server's port is appended to its command."""
    found: list[dict[str, Any]] = []

    def script(talk: servers.Talk) -> Iterator[str]:
        talk.receive(servers.COOKIE_BYTES)
        talk.control.sendall(b"\x09")
        found.append(talk.frame())
        yield "asked"

    with servers.serving(script, "asked", servers.close) as server:
        whole = [*argv, "-p", str(server.port)]
        done = subprocess.run(whole, check=False, capture_output=True, text=True, timeout=WITHIN_S)
    assert done.returncode == 1 and len(found) == 1, done.stderr
    return found[0]


def ours(command: Path, line: str) -> dict[str, Any]:
    kind, *options = line.split()
    return parameters([str(command), kind, "127.0.0.1", *options, "--peer", "iperf3", "-d", "2s"])


@pytest.mark.parametrize("line", CASES)
def test_each_option_is_a_parameter(quick_command: Path, line: str) -> None:
    assert ours(quick_command, line) == {**COMMON, **CASES[line]}


@pytest.mark.skipif(shutil.which("iperf3") is None, reason="iperf3 is not installed")
@pytest.mark.parametrize("line", SAME)
def test_parameters_are_those_of_a_real_client(quick_command: Path, line: str) -> None:
    check_same(quick_command, line, "iperf3")


def check_same(command: Path, line: str, program: str) -> None:
    theirs = parameters([program, "-c", "127.0.0.1", *shlex.split(SAME[line])])
    found = ours(command, line)
    if theirs["num"] or theirs["blockcount"]:
        # The time that bounds ours lets a server give up a client that is gone.
        assert (theirs.pop("time"), found.pop("time")) == (0, 2)
    assert {name: value for name, value in found.items() if name not in OF_CLIENTS} == {
        name: value for name, value in theirs.items() if name not in OF_CLIENTS
    }
