"""What ends a test at a real iperf3 server, and what it leaves out: `--warmup` is its `-O`, `-n` its `-n` or `-k`. The
server's own document is compared with ours, to the byte.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import test_iperf3_server as servers

from waiting import WITHIN_S, free_port, until

pytestmark = [
    pytest.mark.agent,
    pytest.mark.takes(20),
    pytest.mark.skipif(shutil.which("iperf3") is None, reason="iperf3 is not installed"),
]

OMITTED = (
    "tcp --rate 20mbit",
    "tcp --rate 20mbit -P 2 -R",
    "tcp --rate 20mbit --bidir",
    "udp --rate 100kbit -l 500",
    "udp --rate 100kbit -l 500 -R",
    "udp --rate 100kbit -l 500 --bidir --udp-counters-32bit",
)
COUNTED = (
    "tcp -n 1300000 -l 1000",
    "tcp -n 1300001 -l 1000 -P 2",
    "tcp -n 1300000 -l 1000 --rate 20mbit -R",
    "udp -n 100 -l 500 --rate 1mbit",
    "udp -n 50 -l 500 --rate 1mbit -P 2",
    "udp -n 100 -l 500 --rate 1mbit -R",
    "udp -n 50 -l 500 --rate 1mbit -P 2 -R",
)
Document = dict[str, Any]


@contextmanager
def recorded(folder: Path, program: str) -> Iterator[tuple[int, Path]]:
    """A server of one test, and where its document is once it has ended."""
    port, log = free_port(), folder / "document.json"
    argv = [program, "-s", "-1", "-J", "-p", str(port), "--logfile", str(log)]
    with subprocess.Popen(argv) as process:
        try:
            until(lambda: listens(port) or process.poll() is not None)
            yield port, log
            process.wait(WITHIN_S)
        finally:
            process.kill()


def listens(port: int) -> bool:
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    return any(local.endswith(f":{port:04X}") and state == "0A" for _, local, _, state, *_ in rows)


def both(command: str, line: str, folder: Path, program: str, *options: str) -> tuple[Document, Document]:
    """Our document of a test and the server's."""
    with recorded(folder, program) as (port, log):
        done = servers.leadline(command, line, port, "--peer", "iperf3", *options, "--format", "iperf3-json")
        assert done.returncode == 0, done.stderr
    theirs: Document = json.loads(log.read_text())
    return json.loads(done.stdout), theirs


def figures_of_server(line: str) -> list[str]:
    """Which totals of both documents are the server's own count."""
    if "--bidir" in line:
        return ["sum_received", "sum_sent_bidir_reverse"]
    return ["sum_sent" if "-R" in line else "sum_received"]


def check_omitted(command: str, line: str, folder: Path, program: str) -> None:
    """Both documents have the same bytes of the second that counts."""
    ours, theirs = both(command, line, folder, program, "-d", "2s", "--warmup", "1s")
    asked = theirs["start"]["test_start"]
    assert (asked["omit"], asked["duration"]) == (1, 1)
    assert ours["start"]["test_start"]["omit"] == 1
    for name in figures_of_server(line):
        assert ours["end"][name]["bytes"] == theirs["end"][name]["bytes"] > 0
    for direction in ("sum", "sum_bidir_reverse") if "--bidir" in line else ("sum",):
        omitted = [one[direction]["omitted"] for one in ours["intervals"]]
        assert omitted == sorted(omitted, reverse=True) and set(omitted) == {True, False}


def check_counted(command: str, line: str, folder: Path, program: str) -> None:
    """A sender sends exactly what was asked for; a server that sends goes on until it hears that all is there."""
    ours, theirs = both(command, line, folder, program, "-d", f"{WITHIN_S:g}s")
    number, size = (int(line.split(f"{option} ")[1].split(maxsplit=1)[0]) for option in ("-n", "-l"))
    flows = 2 if "-P 2" in line else 1
    asked, total = theirs["start"]["test_start"], number
    if line.startswith("udp"):
        assert (asked["bytes"], asked["blocks"]) == (0, number * flows)
        total = number * flows * size
    else:
        assert (asked["bytes"], asked["blocks"]) == (number, 0)
    assert [ours["start"]["test_start"][name] for name in ("bytes", "blocks")] == [asked["bytes"], asked["blocks"]]
    for name in figures_of_server(line):
        assert ours["end"][name]["bytes"] == theirs["end"][name]["bytes"] > 0
    sent, received = (ours["end"][name]["bytes"] for name in ("sum_sent", "sum_received"))
    if "-R" in line:
        assert sent >= received >= total
    else:
        # Where it stalls as a test ends, iperf3 leaves unread what is in its sockets.
        assert sent == total >= received


@pytest.fixture(scope="module")
def command(quick_command: Path) -> str:
    return str(quick_command)


@pytest.mark.parametrize("line", OMITTED)
def test_server_omits_the_warm_up(command: str, tmp_path: Path, line: str) -> None:
    check_omitted(command, line, tmp_path, "iperf3")


@pytest.mark.parametrize("line", COUNTED)
def test_bytes_or_datagrams_end_the_test_at_both_ends(command: str, tmp_path: Path, line: str) -> None:
    check_counted(command, line, tmp_path, "iperf3")


def test_a_part_of_a_second_is_not_omitted_by_the_server(command: str, tmp_path: Path) -> None:
    ours, theirs = both(command, "tcp --rate 20mbit", tmp_path, "iperf3", "-d", "1500ms", "--warmup", "500ms")
    asked = theirs["start"]["test_start"]
    assert (asked["omit"], asked["duration"]) == (0, 2)
    # An even rate is assumed: the second that counts has a part of what the server received.
    assert 0 < ours["end"]["sum_received"]["bytes"] < theirs["end"]["sum_received"]["bytes"]
