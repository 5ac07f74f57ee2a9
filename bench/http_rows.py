"""Rows of HTTP: CPU time per request and requests per second beside wrk, ab and h2load, scripts, engines, TLS, and the
open model. All on one nginx of one worker or on our null responder, with 50 connections and one generating thread.
"""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import agent
import peers
import servers
from peers import CONNECTIONS, Cost
from programs import PeerMissing
from rows import Bound, Rounds, Row, above, at_least, at_most, bounded, compared

from leadline.contract.models import Outcome

_SCRIPTS = Path(__file__).resolve().parent.parent / "crates" / "wrk-lua" / "tests" / "scripts"
LOGIN, _COUNTING = _SCRIPTS / "login_first.lua", _SCRIPTS / "count_up.lua"
_RATE, _OPEN_S = 50_000, 10

Pair = tuple[Cost, Cost]


def on_nginx(rounds: Rounds) -> Iterator[Row]:
    """On a real server: beside wrk, the cheaper of ab and h2load, and a loop that only waits, receives and sends, which
    shows how near we are to what the kernel alone takes. Each runs once in a round."""
    seconds = rounds.seconds
    others = [(name, peer) for name, peer in (("ab -k", peers.ab), ("h2load --h1", peers.h2load)) if _has(name)]
    bare_name = "a bare loop of epoll_wait, recv, send"
    ours: list[Cost] = []
    found: dict[str, list[Cost]] = {name: [] for name in ("wrk", bare_name, *(name for name, _ in others))}
    with servers.nginx() as url, peers.bare_loop() as bare:
        for _ in range(rounds.count):
            ours.append(agent.closed(url, seconds))
            for name, peer in (("wrk", peers.wrk), (bare_name, bare), *others):
                found[name].append(peer(url, seconds))
    pairs = {name: list(zip(ours, costs, strict=True)) for name, costs in found.items()}
    what = "HTTP on nginx, CPU per request"
    yield _cpu(what, "wrk", pairs["wrk"], at_most(0.5))
    yield _rate("HTTP on nginx, requests per second", "wrk", pairs["wrk"], at_least(1))
    waits = [cost.kernel_wait_p99_us for cost in ours if cost.kernel_wait_p99_us is not None]
    if waits:
        wait_us = statistics.median(waits)
        yield bounded("HTTP on nginx, p99 from the kernel's receive stamp to ours", wait_us, f"{wait_us:.4g} µs")
    yield _cpu(what, bare_name, pairs[bare_name])
    yield _cpu(f"{what} of {bare_name}", "wrk", list(zip(found[bare_name], found["wrk"], strict=True)))
    if not others:
        raise PeerMissing("neither ab nor h2load is installed")
    cheapest = [
        min(costs, key=lambda cost: cost.cpu_us) for costs in zip(*(found[name] for name, _ in others), strict=True)
    ]
    names = " or ".join(name for name, _ in others) + (", the cheaper" if len(others) > 1 else "")
    yield _cpu(what, names, list(zip(ours, cheapest, strict=True)), at_most(0.75))


def on_null(rounds: Rounds) -> Iterator[Row]:
    """Beside wrk, on a server that costs little itself."""
    with servers.null_responder() as url:
        pairs = _pairs(rounds, lambda: agent.closed(url, rounds.seconds), lambda: peers.wrk(url, rounds.seconds))
    yield _rate("HTTP on the null responder, requests per second", "wrk", pairs, above(1.3))
    yield _cpu("HTTP on the null responder, CPU per request", "wrk", pairs)


def scripts(rounds: Rounds) -> Iterator[Row]:
    """The same script for both: one sends on what it found in a response, one counts in its path."""
    with servers.nginx() as url:
        for what, script in (("login", LOGIN), ("counting", _COUNTING)):
            pairs = _pairs(
                rounds,
                partial(agent.closed, url, rounds.seconds, script),
                partial(peers.wrk, url, rounds.seconds, script=script),
            )
            yield _cpu(f"HTTP on nginx with a {what} script, CPU per request", "wrk", pairs, at_most(0.7))


def engines(rounds: Rounds) -> Iterator[Row]:
    """io_uring beside epoll, both ours."""
    with servers.nginx() as url:
        pairs = _pairs(
            rounds,
            lambda: agent.closed(url, rounds.seconds, engine="io_uring"),
            lambda: agent.closed(url, rounds.seconds, engine="epoll"),
        )
    yield _cpu("HTTP on nginx by io_uring, CPU per request", "leadline by epoll", pairs)


def tls(rounds: Rounds) -> Iterator[Row]:
    """Over TLS: requests on connections that stay, and a connection with a full handshake for each request."""
    generators = {"wrk": peers.wrk} | ({"h2load --h1": peers.h2load} if _has("h2load") else {})
    stays: dict[str, list[Pair]] = {name: [] for name in generators}
    shakes: list[Pair] = []
    with servers.nginx(tls=True) as url:
        for _ in range(rounds.count):
            ours = agent.closed(url, rounds.seconds)
            for name, peer in generators.items():
                stays[name].append((ours, peer(url, rounds.seconds)))
            shakes.append(
                (
                    agent.closed(url, rounds.seconds, requests_per_connection=1),
                    peers.wrk(url, rounds.seconds, "-H", "Connection: close"),
                )
            )
    for name, pairs in stays.items():
        yield _rate("HTTPS on nginx, requests per second", name, pairs)
        yield _cpu("HTTPS on nginx, CPU per request", name, pairs)
    yield _rate("HTTPS on nginx, full handshakes per second", "wrk", shakes)
    yield _cpu("HTTPS on nginx, CPU per full handshake and request", "wrk", shakes)


def open_model(rounds: Rounds) -> Iterator[Row]:
    """Requests at a fixed rate: whether all go out, and how late."""
    with servers.null_responder() as url:
        outcomes = [
            agent.load(url, connections=CONNECTIONS, rate=str(_RATE), duration=f"{_OPEN_S}s").outcome
            for _ in range(rounds.count)
        ]
    what = f"HTTP at {_RATE:,} requests/s for {_OPEN_S} s on the null responder"
    yield from open_rows(what, outcomes, _RATE * _OPEN_S, at_most(50, " µs"))


def open_rows(what: str, outcomes: Sequence[Outcome], wanted: int, latest: Bound) -> Iterator[Row]:
    """Of loads at a rate: whether each sent exactly what it had to, and how late."""
    sent = [agent.http_counts(outcome).requests_sent for outcome in outcomes]
    worst = max(sent, key=lambda count: abs(count - wanted))
    exact = Bound(f"exactly {wanted:,} in every round", lambda count: count == wanted)
    yield bounded(f"{what}, sent", worst, f"{worst:,}", exact)
    late_us = [outcome.generator.late_p99_us for outcome in outcomes]
    p99_us = statistics.median(float("inf") if late is None else late for late in late_us)
    yield bounded(f"{what}, p99 of lateness", p99_us, f"{p99_us:.4g} µs", latest)


def _has(name: str) -> bool:
    return shutil.which(name.split(maxsplit=1)[0]) is not None


def _pairs(rounds: Rounds, ours: Callable[[], Cost], theirs: Callable[[], Cost]) -> Sequence[Pair]:
    return [(ours(), theirs()) for _ in range(rounds.count)]


def _cpu(what: str, peer: str, pairs: Sequence[Pair], bound: Bound | None = None) -> Row:
    """CPU time of the whole process, user and system."""
    threads = [ours.thread_cpu_us for ours, _ in pairs if ours.thread_cpu_us is not None]
    note = f"generating thread alone {statistics.median(threads):.4g}" if threads else ""
    return compared(what, "µs", peer, [(ours.cpu_us, theirs.cpu_us) for ours, theirs in pairs], bound=bound, note=note)


def _rate(what: str, peer: str, pairs: Sequence[Pair], bound: Bound | None = None) -> Row:
    return compared(what, "k/s", peer, [(ours.per_s / 1e3, theirs.per_s / 1e3) for ours, theirs in pairs], bound=bound)
