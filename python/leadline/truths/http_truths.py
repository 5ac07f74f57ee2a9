"""The truths about an HTTP server: its latency, its failures, its capacity, and who the limit is."""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from leadline import quantities
from leadline.analysis.truths import Figure, Value
from leadline.errors import LeadlineError
from leadline.truths import http_server
from leadline.truths.http_server import Account, Behaviour, stalled_finish_s
from leadline.truths.model import LOOPBACK, HttpLoad, NotDecided, Site, Truth
from leadline.truths.processes import killed_at_end, read_account
from leadline.truths.quantiles import quantiles_us

RIVALS = 4
"""Processes that use the CPU of a tool that is short of CPU time."""
_MIN_CPUS = 2
_HALF = 0.5
_SPIN = """
import os, threading
threading.Thread(target=lambda: os.read(0, 1) or os._exit(0), daemon=True).start()
while True:
    pass
"""
Reader = Callable[[Account, HttpLoad], Mapping[str, Value]]
"""Reads the true figures of a load from the server's account."""


@dataclass
class HttpSite:
    """A server of a behaviour on loopback, for one load."""

    port: int
    load: HttpLoad
    read: Reader
    process: subprocess.Popen[str] = field(repr=False)
    address: str = LOOPBACK
    client: tuple[str, ...] = ()
    server: tuple[str, ...] = ()
    uncertain: Mapping[str, float] = field(default_factory=dict)

    def true_figures(self) -> Mapping[str, Value]:
        """End the server, and read its account."""
        account = Account(**json.loads(read_account(self.process, "the server")))
        if not account.answered_s:
            raise LeadlineError("the server answered nothing")
        self.uncertain = quantiles_us(account.late_s)
        return self.read(account, self.load)


@contextmanager
def http_site(behaviour: Behaviour, read: Reader, load: HttpLoad) -> Iterator[Site]:
    """Start a server, and end it with the block."""
    with started_server(behaviour) as process:
        yield HttpSite(port_of(process), load, read, process)


@contextmanager
def busy_site(behaviour: Behaviour, read: Reader, load: HttpLoad) -> Iterator[Site]:
    """The same with the tool on a CPU that other processes use, and the server on another one.

    Raises:
        NotDecided: there is one CPU alone.
    """
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < _MIN_CPUS:
        raise NotDecided("it takes two CPUs: one of the server, and one of the tool and its rivals")
    mine, servers = str(cpus[-1]), str(cpus[0])
    with ExitStack() as stack:
        process = stack.enter_context(started_server(behaviour, ("taskset", "--cpu-list", servers)))
        for _ in range(RIVALS):
            argv = ["taskset", "--cpu-list", mine, sys.executable, "-c", _SPIN]
            # Each ends with its stdin, so also if this process is killed.
            stack.enter_context(killed_at_end(subprocess.Popen(argv, stdin=subprocess.PIPE)))
        yield HttpSite(port_of(process), load, read, process, client=("taskset", "--cpu-list", mine))


@contextmanager
def started_server(behaviour: Behaviour, prefix: tuple[str, ...] = ()) -> Iterator[subprocess.Popen[str]]:
    """A server's process."""
    argv = [*prefix, sys.executable, str(Path(http_server.__file__)), json.dumps(asdict(behaviour)), LOOPBACK]
    pipe = subprocess.PIPE
    with killed_at_end(subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True)) as process:
        yield process


def port_of(process: subprocess.Popen[str]) -> int:
    """The port that a server prints."""
    assert process.stdout is not None
    return int(process.stdout.readline())


# --- What is true, by a server's account ------------------------------------------------------------------------------


def read_counts(account: Account, _: HttpLoad) -> Mapping[str, Value]:
    """What the server answered, and what it broke off."""
    return {
        "requests": float(len(account.answered_s)),
        "bad_statuses": float(account.bad),
        "failed": float(account.cut + account.short),
    }


def read_latencies(account: Account, _: HttpLoad) -> Mapping[str, Value]:
    """How long the answers took, and how many came per second."""
    return {**read_rate(account), **quantiles_us(account.took_s)}


def read_served(account: Account, load: HttpLoad) -> Mapping[str, Value]:
    """The same of a server that is the limit."""
    return {**read_latencies(account, load), "limited_by": "server"}


def read_rate(account: Account) -> Mapping[str, Value]:
    """The answers per second, from the first request to the last answer."""
    return {"requests_per_s": len(account.answered_s) / (account.answered_s[-1] - account.arrived_s[0])}


def read_capacity(account: Account, _: HttpLoad) -> Mapping[str, Value]:
    """The rate of the answers, which the server limits."""
    return {**read_rate(account), "limited_by": "server"}


def read_starved(account: Account, load: HttpLoad) -> Mapping[str, Value]:
    """The rate of a load whose requests were with the generator for most of their time (Little's law).

    Raises:
        NotDecided: they were at the server for as long, or may have been: it was late.
    """
    at_server_s = sum(account.took_s) + sum(account.late_s)
    share = at_server_s / (account.answered_s[-1] - account.arrived_s[0]) / load.connections
    if share > _HALF:
        at_server = quantities.rounded_share(share)
        raise NotDecided(f"requests were at the server for {at_server} of their time: it may be the limit as well")
    return {**read_rate(account), "limited_by": "generator"}


def read_stalls(behaviour: Behaviour, account: Account, load: HttpLoad) -> Mapping[str, Value]:
    """What requests wait that arrive at the load's rate over whole periods, by the schedule of the stalls; and the time
    by which the server's answers were later than its schedule, by its median."""
    assert load.rate_per_s is not None
    late_s = statistics.median(account.took_s) - behaviour.service_s
    periods = math.floor(load.duration_s / behaviour.stall_every_s)
    due_s = [number / load.rate_per_s for number in range(round(periods * behaviour.stall_every_s * load.rate_per_s))]
    return quantiles_us([stalled_finish_s(behaviour, at_s) - at_s + late_s for at_s in due_s])


# --- The truths -------------------------------------------------------------------------------------------------------

_STALLS = Behaviour(service_s=0.005, stall_every_s=2.004, stall_s=0.2)
_REQUESTS, _STATUSES, _FAILED = (Figure(name, "count") for name in ("requests", "bad_statuses", "failed"))
_RATE = Figure("requests_per_s", "1/s", tolerance=0.03)
_P50 = Figure("latency_p50_us", "us", tolerance=0.1, slack=500)
_P99 = Figure("latency_p99_us", "us", tolerance=0.15, slack=500)
_MAX = Figure("latency_max_us", "us", tolerance=0.15, slack=500)
_LIMIT = Figure("limited_by", "")

TRUTHS = (
    Truth(
        "http-stall",
        "what users wait while a server stalls",
        made="a server that takes 5 ms, and stands still for 200 ms every 2.004 s",
        known="arithmetic: what requests wait that are due at the rate; the server's own lateness is added",
        # As many connections as requests are due during a stall, so that none waits for a connection.
        load=HttpLoad(connections=12, duration_s=8.2, rate_per_s=50),
        figures=(_P50, _P99, _MAX),
        site=partial(http_site, _STALLS, partial(read_stalls, _STALLS)),
    ),
    Truth(
        "http-latency",
        "latency and rate of a closed loop",
        made="a server that takes 20 ms",
        known="the server's log of arrivals and answers",
        load=HttpLoad(connections=8, duration_s=2),
        figures=(_RATE, _P50, _P99, _LIMIT),
        site=partial(http_site, Behaviour(service_s=0.020), read_served),
    ),
    Truth(
        "http-errors",
        "failures are counted, each once",
        made="a server that takes 5 ms, answers every 10th request by 500, and resets the connection of every 50th in "
        "the middle of the body",
        known="the server counts its answers, its 500s and its resets",
        load=HttpLoad(connections=4, duration_s=2, number=988),
        figures=(_REQUESTS, _STATUSES, _FAILED),
        site=partial(http_site, Behaviour(service_s=0.005, bad_every=10, cut_every=50), read_counts),
    ),
    Truth(
        "http-short-body",
        "a body that ends before its length is a failure",
        made="a server that takes 5 ms, and closes the connection after 60 of 100 bytes of every 20th body",
        known="the server counts its answers and the bodies that it ended",
        load=HttpLoad(connections=4, duration_s=2, number=988),
        figures=(_REQUESTS, _FAILED),
        site=partial(http_site, Behaviour(service_s=0.005, short_every=20), read_counts),
    ),
    Truth(
        "http-late-body",
        "a server that sends the head at once, and the body late, is the limit",
        made="a server that sends the head of an answer at once, and the body after 20 ms",
        known="the server's log of arrivals and answers",
        load=HttpLoad(connections=8, duration_s=2),
        figures=(_RATE, _P50, _LIMIT),
        site=partial(http_site, Behaviour(service_s=0.020, head_first=True), read_served),
    ),
    Truth(
        "http-capacity",
        "the capacity of a server, which is the limit",
        made="a server that answers 400 requests per second at most",
        known="the server's log of answers",
        load=HttpLoad(connections=16, duration_s=2),
        figures=(_RATE, _LIMIT),
        site=partial(http_site, Behaviour(capacity_per_s=400), read_capacity),
    ),
    Truth(
        "http-overload",
        "twice the capacity of a server is offered",
        made="a server that answers 400 requests per second at most",
        known="the server's log of answers",
        load=HttpLoad(connections=16, duration_s=2, rate_per_s=800),
        figures=(_RATE, _LIMIT),
        site=partial(http_site, Behaviour(capacity_per_s=400), read_capacity),
    ),
    Truth(
        "http-generator",
        "the generator's own waiting is not the server's latency",
        made=f"a server that takes 10 ms on one CPU, and the tool on another one beside {RIVALS} processes that never "
        "wait",
        known="the server's log of arrivals and answers",
        load=HttpLoad(connections=8, duration_s=2, rate_per_s=200),
        figures=(_P50, _P99),
        site=partial(busy_site, Behaviour(service_s=0.010), read_latencies),
    ),
    Truth(
        "http-starved",
        "the generator is the limit",
        made=f"a server that takes 1 ms on one CPU, and the tool on another one beside {RIVALS} processes that never "
        "wait",
        known="the server's log: for most of their time, requests are with the tool",
        load=HttpLoad(connections=8, duration_s=2),
        figures=(_RATE, _LIMIT),
        site=partial(busy_site, Behaviour(service_s=0.001), read_starved),
    ),
)
