"""`leadline udp -w` as the kernel shows it: the buffers of the sockets of both ends."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from cli_runs import serve

from waiting import until

pytestmark = [
    pytest.mark.agent,
    pytest.mark.takes(4),
    pytest.mark.skipif(shutil.which("ss") is None, reason="ss is not installed"),
]

WINDOW = 64 << 10


@pytest.mark.parametrize("direction", [(), ("-R",)], ids=["up", "down"])
def test_both_ends_have_the_buffers_that_were_asked_for(quick_command: Path, direction: tuple[str, ...]) -> None:
    with serve() as server:
        load = ("--rate", "100kbit", "-w", str(WINDOW), "-d", "60s", *direction)
        argv = [str(quick_command), "udp", "127.0.0.1", "-p", str(server.port), *load]
        with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                found = until(lambda: both_ends(server.port))
            finally:
                process.terminate()
    # The kernel counts its own overhead as much again.
    assert found == [(2 * WINDOW, 2 * WINDOW)] * 2


def both_ends(port: int) -> list[tuple[int, int]] | None:
    """The receive and the send buffers of the two sockets of a flow, once they have other ones than at first."""
    done = subprocess.run(["ss", "-H", "-u", "-n", "-m", "-O"], check=True, capture_output=True, text=True)
    rows = [line for line in done.stdout.splitlines() if re.search(rf":{port}\s", line)]
    found = [re.search(r"rb(\d+),t\d+,tb(\d+)", line) for line in rows]
    sizes = [(int(one[1]), int(one[2])) for one in found if one is not None]
    return sizes if len(sizes) == 2 and all(max(one) < 4 << 20 for one in sizes) else None
