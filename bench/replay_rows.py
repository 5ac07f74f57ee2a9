"""Rows of replay: a made log at its own times beside plain `leadline http` at the same rate, on the null responder."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import agent
import servers
from http_rows import open_rows
from peers import CONNECTIONS, Cost
from rows import Rounds, Row, at_most, compared

from leadline.kinds.replay.model import ReplayTest
from leadline.kinds.replay.workload import replay_workload

_RATE = 50_000
_USERS = CONNECTIONS
_FORMAT = '$remote_addr $msec $remote_user "$request" $status'


def log(rounds: Rounds) -> Iterator[Row]:
    """Requests at 50,000 a second, of as many sessions as plain load has connections: lateness and CPU time."""
    seconds = max(rounds.seconds, 4)
    pairs, outcomes = [], []
    with servers.null_responder() as url, _made(seconds) as file:
        for _ in range(rounds.count):
            done = agent.run(replay_workload(_test(file, url), url, "v4"))
            requests = agent.http_counts(done.outcome).responses
            outcomes.append(done.outcome)
            plain = agent.load(url, connections=_USERS, rate=str(_RATE), duration=f"{seconds}s")
            answered = agent.http_counts(plain.outcome).responses
            ours = Cost(requests, requests / seconds, done.cpu_s)
            pairs.append((ours.cpu_us, Cost(answered, answered / seconds, plain.cpu_s).cpu_us))
    what = f"replay of a log at {_RATE:,} requests/s for {seconds} s on the null responder"
    yield from open_rows(what, outcomes, _RATE * seconds, at_most(1000, " µs"))
    yield compared(f"{what}, CPU per request", "µs", "leadline http", pairs, bound=at_most(1.3))


def _test(file: Path, url: str) -> ReplayTest:
    given = {"name": "replay", "kind": "replay", "source": str(file), "url": url, "format": _FORMAT}
    return ReplayTest.model_validate({**given, "interval_ms": 1000})


@contextmanager
def _made(seconds: int) -> Iterator[Path]:
    """A log of requests at a constant rate; gives its path."""
    chance = random.Random(5)
    with tempfile.NamedTemporaryFile("w", suffix=".log") as file:
        for number in range(_RATE * seconds):
            at_s, user = 1_770_000_000 + number / _RATE, chance.randrange(_USERS)
            file.write(f'192.0.2.{user % 200} {at_s:.3f} u{user} "GET /item/{number % 1000} HTTP/1.1" 200\n')
        file.flush()
        yield Path(file.name)
