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
from programs import PeerMissing, program
from rows import Bound, Rounds, Row, above, at_least, at_most, bounded, compared

_SCRIPTS = Path(__file__).resolve().parent.parent / "crates" / "script" / "tests" / "scripts"
_RATE, _OPEN_S = 50_000, 10

Pair = tuple[Cost, Cost]


def on_nginx(rounds: Rounds) -> Iterator[Row]:
    """Beside wrk, on a real server."""
    with servers.nginx() as url:
        pairs = _pairs(rounds, lambda: agent.closed(url, rounds.seconds), lambda: peers.wrk(url, rounds.seconds))
    yield _cpu("HTTP on nginx, CPU per request", "wrk", pairs, at_most(0.5))
    yield _rate("HTTP on nginx, requests per second", "wrk", pairs, at_least(1))
    waits = [ours.kernel_wait_p99_us for ours, _ in pairs if ours.kernel_wait_p99_us is not None]
    if waits:
        wait_us = statistics.median(waits)
        yield bounded("HTTP on nginx, p99 from the kernel's receive stamp to ours", wait_us, f"{wait_us:.4g} µs")


def beside_bare(rounds: Rounds) -> Iterator[Row]:
    """Beside a loop that does nothing but wait, receive and send: how near we are to what the kernel alone takes."""
    seconds = rounds.seconds
    with servers.nginx() as url, peers.bare_loop() as bare:
        trios = [(agent.closed(url, seconds), bare(url, seconds), peers.wrk(url, seconds)) for _ in range(rounds.count)]
    name = "a bare loop of epoll_wait, recv, send"
    yield _cpu("HTTP on nginx, CPU per request", name, [(ours, loop) for ours, loop, _ in trios])
    yield _cpu(f"HTTP on nginx, CPU per request of {name}", "wrk", [(loop, theirs) for _, loop, theirs in trios])


def beside_others(rounds: Rounds) -> Iterator[Row]:
    """Beside the cheaper of ab and h2load in each round."""
    others = [peer for name, peer in (("ab", peers.ab), ("h2load", peers.h2load)) if shutil.which(name)]
    if not others:
        raise PeerMissing("neither ab nor h2load is installed")
    with servers.nginx() as url:

        def cheapest() -> Cost:
            return min((peer(url, rounds.seconds) for peer in others), key=lambda cost: cost.cpu_us)

        pairs = _pairs(rounds, lambda: agent.closed(url, rounds.seconds), cheapest)
    names = " or ".join("ab -k" if peer is peers.ab else "h2load --h1" for peer in others)
    names += ", the cheaper" if len(others) > 1 else ""
    yield _cpu("HTTP on nginx, CPU per request", names, pairs, at_most(0.75))


def on_null(rounds: Rounds) -> Iterator[Row]:
    """Beside wrk, on a server that costs little itself."""
    with servers.null_responder() as url:
        pairs = _pairs(rounds, lambda: agent.closed(url, rounds.seconds), lambda: peers.wrk(url, rounds.seconds))
    yield _rate("HTTP on the null responder, requests per second", "wrk", pairs, above(1.3))
    yield _cpu("HTTP on the null responder, CPU per request", "wrk", pairs)


def scripts(rounds: Rounds) -> Iterator[Row]:
    """The same script for both: one sends on what it found in a response, one counts in its path."""
    with servers.nginx() as url:
        for what, file in (("login", "login_first.lua"), ("counting", "count_up.lua")):
            script = _SCRIPTS / file
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
    program("wrk")
    with servers.nginx(tls=True) as url:
        for name, peer in (("wrk", peers.wrk), ("h2load --h1", peers.h2load)):
            if shutil.which(name.split()[0]) is None:
                continue
            pairs = _pairs(rounds, partial(agent.closed, url, rounds.seconds), partial(peer, url, rounds.seconds))
            yield _rate("HTTPS on nginx, requests per second", name, pairs)
            yield _cpu("HTTPS on nginx, CPU per request", name, pairs)
        pairs = _pairs(
            rounds,
            lambda: agent.closed(url, rounds.seconds, requests_per_connection=1),
            lambda: peers.wrk(url, rounds.seconds, "-H", "Connection: close"),
        )
    yield _rate("HTTPS on nginx, full handshakes per second", "wrk", pairs)
    yield _cpu("HTTPS on nginx, CPU per full handshake and request", "wrk", pairs)


def open_model(rounds: Rounds) -> Iterator[Row]:
    """Requests at a fixed rate: whether all go out, and how late."""
    wanted, sent, late_us = _RATE * _OPEN_S, [], []
    with servers.null_responder() as url:
        for _ in range(rounds.count):
            done = agent.load(url, connections=CONNECTIONS, rate=str(_RATE), duration=f"{_OPEN_S}s").outcome
            sent.append(agent.http_counts(done).requests_sent)
            late = None if done.generator is None else done.generator.late_p99_us
            late_us.append(float("inf") if late is None else late)
    worst = max(sent, key=lambda count: abs(count - wanted))
    what = f"HTTP at {_RATE:,} requests/s for {_OPEN_S} s on the null responder"
    exact = Bound(f"exactly {wanted:,} in every round", lambda count: count == wanted)
    yield bounded(f"{what}, sent", worst, f"{worst:,}", exact)
    p99_us = statistics.median(late_us)
    yield bounded(f"{what}, p99 of lateness", p99_us, f"{p99_us:.4g} µs", at_most(50, " µs"))


def _pairs(rounds: Rounds, ours: Callable[[], Cost], theirs: Callable[[], Cost]) -> Sequence[Pair]:
    return [(ours(), theirs()) for _ in range(rounds.count)]


def _cpu(what: str, peer: str, pairs: Sequence[Pair], bound: Bound | None = None) -> Row:
    """CPU time of the whole process, user and system."""
    threads = [ours.thread_cpu_us for ours, _ in pairs if ours.thread_cpu_us is not None]
    note = f"generating thread alone {statistics.median(threads):.4g}" if threads else ""
    return compared(what, "µs", peer, [(ours.cpu_us, theirs.cpu_us) for ours, theirs in pairs], bound=bound, note=note)


def _rate(what: str, peer: str, pairs: Sequence[Pair], bound: Bound | None = None) -> Row:
    return compared(what, "k/s", peer, [(ours.per_s / 1e3, theirs.per_s / 1e3) for ours, theirs in pairs], bound=bound)
