"""What a client asks of the sending of `leadline serve` beyond a rate: bursts (`-b RATE/N`), and a CPU (`-A n,m`)."""

from __future__ import annotations

import os
import shutil
import socket
import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import test_iperf3_clients as clients

from waiting import WITHIN_S, until

pytestmark = [
    pytest.mark.agent,
    pytest.mark.takes(5),
    pytest.mark.skipif(shutil.which("iperf3") is None, reason="iperf3 is not installed"),
]

SIZE, BURST, BURSTS = 500, 8, 6


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[clients.Server]:
    yield from clients.serve(tmp_path_factory.mktemp("serve"))


def stamps(server: clients.Server, count: int, **parameters: int | bool) -> list[tuple[int, int]]:
    """When the server says that it sent its first datagrams, in order."""
    with clients.asked(server, clients.COOKIE) as control:
        control.sendall(clients.message({"udp": True, "time": 600, "len": SIZE, "reverse": True, **parameters}))
        assert control.recv(1) == b"\x0a"
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as flow:
            flow.settimeout(WITHIN_S)
            flow.connect(("127.0.0.1", server.port))
            flow.send(b"9876")
            assert len(flow.recv(SIZE)) == 4
            assert clients.received(control, 2) == b"\x01\x02"
            headers = [struct.unpack(">III", flow.recv(SIZE)[:12]) for _ in range(count)]
    assert [number for _, _, number in headers] == list(range(1, count + 1))
    return [(s, us) for s, us, _ in headers]


def test_datagrams_of_a_burst_leave_together(server: clients.Server) -> None:
    """All datagrams of one call have one time. A late server sends several bursts in a call, never a part of one."""
    rate = SIZE * 8 * BURST * 20
    found = Counter(stamps(server, BURST * BURSTS, bandwidth=rate, burst=BURST))
    assert all(count % BURST == 0 for count in found.values()), found


@pytest.mark.parametrize(
    "options", ["-R -b 2M/10 -l 1000 -n 100K", "-u -R -b 2M/10 -l 1000 -k 100", "-b 2M/10 -n 100K"]
)
def test_real_client_is_served_in_bursts(server: clients.Server, options: str) -> None:
    document = clients.iperf3(server, options)
    assert "error" not in document, document["error"]
    end = document["end"]
    assert 0 < end["sum_received"]["bytes"] <= end["sum_sent"]["bytes"]


def test_threads_of_a_test_run_on_the_cpu_that_its_client_names(server: clients.Server) -> None:
    cpu = max(os.sched_getaffinity(0))
    held = clients.Held(server, 1, server_affinity=cpu)

    def moved() -> bool:
        """Whether that is so of both its threads; threads of tests before it may be about to end."""
        found = [cpus for name, cpus in threads(server) if name == "iperf3"]
        return len(found) == 2 and set(found) == {str(cpu)}

    until(moved, lambda: threads(server))
    assert dict(threads(server))["leadline-agent"] == cpus_of(Path("/proc/self"))
    assert held.ends(1001) == 1001


def test_cpu_that_the_server_may_not_use_is_refused(server: clients.Server) -> None:
    assert clients.raw_refusal(server, {"tcp": True, "time": 1, "server_affinity": 1023}) == (132, 22)
    assert "CPU affinity" in clients.iperf3(server, "-t 1 -A 0,1023")["error"]


def threads(server: clients.Server) -> list[tuple[str, str]]:
    """The names of its threads, and the CPUs that each may run on."""
    found = []
    for task in Path(f"/proc/{server.pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            found.append(((task / "comm").read_text().strip(), cpus_of(task)))
    return found


def cpus_of(process: Path) -> str:
    status = (process / "status").read_text().splitlines()
    return next(line.split()[1] for line in status if line.startswith("Cpus_allowed_list"))
