"""How each peer is run on the generators' CPU for a number of seconds, and how its output is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from programs import compiled, first_group, program, timed

CONNECTIONS = 50
PEERS = ("iperf3", "wrk", "ab", "h2load", "nginx", "openvpn", "netperf")
"""Every program that some row compares with or measures against."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one run of an HTTP generator did, and what it took."""

    requests: int
    per_s: float
    """Requests per second."""
    cpu_s: float
    """CPU time of the whole process, start and end included, user and system."""
    thread_cpu_us: float | None = None
    """CPU time per request by the generating thread's own account; None where the generator has none."""
    kernel_wait_p99_us: float | None = None
    """99th percentile of the time between the kernel's receive timestamp and ours; None if it was not
    measured."""

    @property
    def cpu_us(self) -> float:
        """CPU time per request."""
        return self.cpu_s * 1e6 / self.requests


def wrk(url: str, seconds: int, *more: str, script: Path | None = None) -> Cost:
    """wrk with one thread."""
    script_given = () if script is None else ("-s", str(script))
    said, cpu_s = timed([program("wrk"), "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", *script_given, *more, url])
    return Cost(
        int(first_group(r"(\d+) requests in", said)), float(first_group(r"Requests/sec:\s+([\d.]+)", said)), cpu_s
    )


def ab(url: str, seconds: int) -> Cost:
    """ab with keep-alive."""
    said, cpu_s = timed([program("ab"), "-q", "-k", f"-c{CONNECTIONS}", "-t", str(seconds), "-n", "100000000", url])
    requests = int(first_group(r"Complete requests:\s+(\d+)", said))
    return Cost(requests, float(first_group(r"Requests per second:\s+([\d.]+)", said)), cpu_s)


def h2load(url: str, seconds: int) -> Cost:
    """h2load in its HTTP/1.1 mode, with one thread."""
    said, cpu_s = timed([program("h2load"), "--h1", "-t1", f"-c{CONNECTIONS}", "-D", str(seconds), url])
    requests = int(first_group(r"(\d+) succeeded", said))
    return Cost(requests, requests / seconds, cpu_s)


@contextmanager
def bare_loop() -> Iterator[Callable[[str, int], Cost]]:
    """`bare.c`, compiled: what the kernel alone takes for a request, as a generator that is given URL and seconds."""
    with compiled("bare.c") as built:

        def bare(url: str, seconds: int) -> Cost:
            said, cpu_s = timed([built, str(urlsplit(url).port), str(seconds), str(CONNECTIONS)])
            requests = int(first_group(r"(\d+) answers", said))
            return Cost(requests, requests / float(first_group(r"in ([\d.]+) s", said)), cpu_s)

        yield bare
