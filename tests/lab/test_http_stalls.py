"""A server that stalls for a second every five seconds, under 1,000 requests per second: what open and closed loop
make of it, against latencies computed from when each request was due and when the server did what.

The server writes down when it stood still, when each request came and when it gave each answer. So a process that is
kept from its CPU, the server or the load, shows in these notes: no answer was read before it was given, nor after the
load had sent what fell due later, for it reads and sends in turns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cli_runs as cli
import http_servers as servers
import pytest
from counting_server import Account

pytestmark = pytest.mark.skipif(not cli.LEADLINE.exists(), reason="the leadline command is not installed")

RATE, LENGTH_S, DELAY_MS = 1000, 10, 100
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999, "max": 1.0}


def quantile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed."""
    return ordered[max(math.ceil(share * len(ordered)), 1) - 1]


def from_schedule(account: Account) -> tuple[list[float], list[float]]:
    """Latencies as the server's own record has them, at least and at most: request n was due at the n-th millisecond,
    and answered n-th."""
    read, answered = (sorted(times) for times in zip(*account.times_s, strict=True))
    # No request is read before it is due, and some are read right then.
    begin_s = min(read_s - number / RATE for number, read_s in enumerate(read))
    least, most = [], []
    for number, answered_s in enumerate(answered):
        due_s = begin_s + number / RATE
        # The turn after the one in which the next is sent has surely seen it; after the last one, all hang up.
        later = math.ceil((answered_s - begin_s) * RATE) + 1
        least.append(answered_s - due_s)
        most.append((read[later] if later < len(read) else account.hung_up_s) - due_s)
    return sorted(least), sorted(most)


def test_open_loop_shows_the_stalls_and_closed_loop_hides_them(tmp_path: Path) -> None:
    for name in ("io_uring", "epoll", "closed"):
        (tmp_path / name).mkdir()
    with (
        servers.counting(tmp_path / "io_uring", "--stall") as first,
        servers.counting(tmp_path / "epoll", "--stall") as second,
        servers.counting(tmp_path / "closed", "--stall") as third,
        ThreadPoolExecutor() as pool,
    ):
        paced = ("--rate", str(RATE), "-n", str(RATE * LENGTH_S), "-d", "60s", "-c", "2000", "-t", "1")
        # How long an answer takes is what is looked at: that is never too long.
        patient = ("--timeout", "60s")
        loads = [
            pool.submit(cli.load, engine, server.url(f"ok/{DELAY_MS}"), *paced, *patient, engine=engine)
            for engine, server in zip(cli.ENGINES, (first, second), strict=True)
        ]
        closed = pool.submit(
            cli.load, "closed", third.url("ok/10"), "-c", "10", "-d", f"{LENGTH_S}s", *patient
        ).result()
        opened = [load.result() for load in loads]
    for load, server in zip(opened, (first, second), strict=True):
        account = server.account
        assert load.errors == {}
        assert load.count("requests_due") == load.count("latency_samples") == account.requests["ok"] == RATE * LENGTH_S
        stalls = account.stalls_s[:2]
        assert len(stalls) == 2 and all(to_s - from_s >= 1 for from_s, to_s in stalls)
        least, most = from_schedule(account)
        for name, share in QUANTILES.items():
            value = load.value(f"latency_{name}_us")
            assert value is not None
            assert name == "p50" or value > 0.5e6, "each tenth request waits for half of a stall or more"
            assert 0.98 * quantile(least, share) <= value / 1e6 <= 1.02 * quantile(most, share), name
    # One request of each connection is under way in a stall, whatever else would have been asked for in the meantime.
    assert closed.errors == {}
    slow_us, most_us = closed.value("latency_p90_us"), closed.value("latency_max_us")
    assert slow_us is not None and most_us is not None
    assert slow_us < 0.5e6 and most_us > 0.9e6, "not each tenth request, as where they fall due"
