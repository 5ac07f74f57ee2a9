"""Rows of request-response: TCP transactions over a link of its own, beside a ping-pong in C."""

from __future__ import annotations

import json
from collections.abc import Iterator

from namespaces import GATEWAY, OWN_PORT, inside, own_server, places, served
from programs import GENERATOR_CPU, compiled, first_group, pinned, run
from rows import Rounds, Row, at_least, compared

_BARE_PORT = 5202


def transactions(rounds: Rounds) -> Iterator[Row]:
    """One connection, one byte each way, one at a time."""
    with (
        compiled("pingpong.c") as bare,
        places() as (gateway, clients),
        own_server(gateway),
        served(gateway, [bare, "serve", GATEWAY, str(_BARE_PORT)], _BARE_PORT),
    ):
        pairs = [(leadline(clients, rounds.seconds), _bare(clients, bare, rounds.seconds)) for _ in range(rounds.count)]
    yield compared("TCP request-response, 1 at a time", "1/s", "ping-pong over epoll", pairs, bound=at_least(0.97))


def leadline(pid: int, seconds: int) -> float:
    """Transactions per second of ours, from a namespace."""
    argv = ["leadline", "rr", GATEWAY, "--port", str(OWN_PORT), "-d", f"{seconds}s", "--warmup", "0s", "--json"]
    return float(json.loads(run(pinned(GENERATOR_CPU, inside(pid, argv))))["metrics"]["transactions_per_s"]["value"])


def _bare(pid: int, program_path: str, seconds: int) -> float:
    said = run(pinned(GENERATOR_CPU, inside(pid, [program_path, "ask", GATEWAY, str(_BARE_PORT), str(seconds)])))
    return int(first_group(r"(\d+) transactions", said)) / float(first_group(r"in ([\d.]+) s", said))
