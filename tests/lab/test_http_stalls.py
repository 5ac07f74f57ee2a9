"""A server that stalls for a second every five seconds, under 1,000 requests per second: what open and closed loop
make of it, against latencies computed from when each request was due and when the server did what.

The server writes down when it stood still, when each request came and when it gave each answer, and the load's journal
when its first request was due. So a process that is kept from its CPU, the server or the load, shows in these notes: no
answer was read before it was given, nor after the load had sent what fell due later, for it reads and sends in turns.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cli_runs as cli
import http_servers as servers
import pytest
from counting_server import Account

pytestmark = pytest.mark.skipif(not cli.LEADLINE.exists(), reason="the leadline command is not installed")

RATE, LENGTH_S, DELAY_MS, CONNECTIONS = 1000, 10, 100, 10
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999, "max": 1.0}


def quantile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed."""
    return ordered[max(math.ceil(share * len(ordered)), 1) - 1]


def first_due_s(folder: Path) -> float:
    """When a load's first request was due, by the server's clock, which is the same host's."""
    (journal,) = folder.glob("runs/*/journal.ndjson")
    events = [json.loads(line).get("event") or {} for line in journal.read_text().splitlines()]
    (outcome,) = [event["outcome"] for event in events if event.get("outcome")]
    due_ns: int = min(flow["due_ns"] for flow in outcome["flows"])
    return due_ns / 1e9


def from_schedule(account: Account, begin_s: float) -> tuple[list[float], list[float]]:
    """Latencies as the server's own record has them, at least and at most: request n was due at the n-th millisecond,
    and answered n-th."""
    read, answered = (sorted(times) for times in zip(*account.times_s, strict=True))
    least, most = [], []
    for number, answered_s in enumerate(answered):
        due_s = begin_s + number / RATE
        assert read[number] >= due_s, "no request is sent before it is due"
        # The turn after the one in which the next is sent has surely seen it; after the last one, all hang up.
        later = math.ceil((answered_s - begin_s) * RATE) + 1
        least.append(answered_s - due_s)
        most.append((read[later] if later < len(read) else account.hung_up_s) - due_s)
    return sorted(least), sorted(most)


def from_connections(account: Account) -> tuple[list[float], list[float]]:
    """Latencies of a closed loop by the server's record, at least and at most: a connection's next request is sent
    after the answer to its last one was read, and before it is read by the server."""
    least, most = [], []
    for number in set(account.carried_by):
        times = [at for at, connection in zip(account.times_s, account.carried_by, strict=True) if connection == number]
        for (_, before_s), (read_s, answered_s), (after_s, _) in zip(times, times[1:], times[2:], strict=False):
            least.append(answered_s - read_s)
            most.append(after_s - before_s)
    return sorted(least), sorted(most)


@pytest.mark.exclusive
def test_open_loop_shows_the_stalls_and_closed_loop_hides_them(tmp_path: Path) -> None:
    for name in ("io_uring", "epoll", "closed"):
        (tmp_path / name).mkdir()
    with (
        servers.counting(tmp_path / "io_uring", "--stall") as first,
        servers.counting(tmp_path / "epoll", "--stall") as second,
        servers.counting(tmp_path / "closed", "--stall") as third,
        ThreadPoolExecutor() as pool,
    ):

        def kept(engine: str) -> tuple[str, str]:
            return "--out", str(tmp_path / engine / "runs")

        paced = ("--rate", str(RATE), "-n", str(RATE * LENGTH_S), "-d", "60s", "-c", "2000", "-t", "1")
        # How long an answer takes is what is looked at: that is never too long.
        patient = ("--timeout", "60s")
        loads = [
            pool.submit(cli.load, engine, server.url(f"ok/{DELAY_MS}"), *paced, *patient, *kept(engine), engine=engine)
            for engine, server in zip(cli.ENGINES, (first, second), strict=True)
        ]
        closed = pool.submit(
            cli.load, "closed", third.url("ok/10"), "-c", str(CONNECTIONS), "-d", f"{LENGTH_S}s", *patient
        ).result()
        opened = [load.result() for load in loads]
    for load, server in zip(opened, (first, second), strict=True):
        account = server.account
        assert load.errors == {}
        assert load.count("requests_due") == load.count("latency_samples") == account.requests["ok"] == RATE * LENGTH_S
        assert account.stalls_s and all(to_s - from_s >= 1 for from_s, to_s in account.stalls_s)
        least, most = from_schedule(account, first_due_s(tmp_path / load.run))
        for name, share in QUANTILES.items():
            value = load.value(f"latency_{name}_us")
            assert value is not None
            assert name == "p50" or value > 0.5e6, "each tenth request waits for half of a stall or more"
            assert 0.98 * quantile(least, share) <= value / 1e6 <= 1.02 * quantile(most, share), name
    # One request of each connection is under way in a stall, whatever else would have been asked for in the meantime.
    assert closed.errors == {}
    account = third.account
    held = [
        sum(read_s < to_s and answered_s > from_s for read_s, answered_s in account.times_s)
        for from_s, to_s in account.stalls_s
    ]
    assert held and max(held) <= CONNECTIONS
    least, most = from_connections(account)
    longest_us = closed.value("latency_max_us")
    assert longest_us is not None and longest_us / 1e6 >= 0.98 * least[-1], "it is there, and in no other figure"
    # Of each connection the first request and the last two are none of these.
    apart = 3 * CONNECTIONS / len(least)
    for name in ("p50", "p90"):
        value, share = closed.value(f"latency_{name}_us"), QUANTILES[name]
        assert value is not None
        low, high = quantile(least, max(share - apart, 0)), quantile(most, min(share + apart, 1))
        assert 0.98 * low <= value / 1e6 <= 1.02 * high, name
