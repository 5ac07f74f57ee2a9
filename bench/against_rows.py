"""The agent beside an older one, each in every round, in what the agent itself does: whether any figure is worse than
before. `make bench AGAINST=AGENT`. Both are driven by this Python, so the older one has to know its contract; a group
that it does not know fails and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import agent
import crypto_rows
import http_rows
import rr_rows
import scenario_rows
import servers
import stream_rows
import transport_rows
import tunnel_rows
from namespaces import own_server, places
from programs import agent_binary
from rows import Rounds, Row, not_worse

from leadline.agents.binary import agent_binary as own_agent


@dataclass(frozen=True, slots=True)
class _Figure:
    """A figure of one agent."""

    what: str
    unit: str
    value: float
    is_cost: bool = True
    """Less of it is better."""


def groups(older: Path) -> dict[str, Callable[[Rounds], Iterator[Row]]]:
    """The groups of rows, each beside `older`."""
    return {name: partial(_beside, older, measure) for name, measure in _MEASURES.items()}


def _beside(older: Path, measure: Callable[[int], Iterator[_Figure]], rounds: Rounds) -> Iterator[Row]:
    newer = own_agent()
    found: dict[str, tuple[_Figure, list[tuple[float, float]]]] = {}
    for number in range(rounds.count):
        figures: dict[Path, list[_Figure]] = {}
        # Neither always runs first: what the one before leaves in caches is the same for both.
        for binary in (newer, older) if number % 2 == 0 else (older, newer):
            with agent_binary(binary):
                figures[binary] = list(measure(rounds.seconds))
        for new, old in zip(figures[newer], figures[older], strict=True):
            found.setdefault(new.what, (new, []))[1].append((new.value, old.value))
    for figure, pairs in found.values():
        yield not_worse(figure.what, figure.unit, "the older agent", pairs, is_cost=figure.is_cost)


def _http(seconds: int) -> Iterator[_Figure]:
    with servers.nginx() as url:
        plain = agent.closed(url, seconds)
        script = agent.closed(url, seconds, http_rows.LOGIN)
    yield _Figure("HTTP on nginx, CPU per request", "µs", plain.cpu_us)
    yield _Figure("HTTP on nginx, requests per second", "k/s", plain.per_s / 1e3, is_cost=False)
    yield _Figure("HTTP on nginx with a login script, CPU per request", "µs", script.cpu_us)
    with servers.null_responder() as url:
        null = agent.closed(url, seconds)
    yield _Figure("HTTP on the null responder, requests per second", "k/s", null.per_s / 1e3, is_cost=False)


def _tls(seconds: int) -> Iterator[_Figure]:
    with servers.nginx(tls=True) as url:
        stays = agent.closed(url, seconds)
        shakes = agent.closed(url, seconds, requests_per_connection=1)
    yield _Figure("HTTPS on nginx, CPU per request", "µs", stays.cpu_us)
    yield _Figure("HTTPS on nginx, CPU per full handshake and request", "µs", shakes.cpu_us)


def _scenario(seconds: int) -> Iterator[_Figure]:
    with servers.nginx() as url:
        for name in ("session", "static"):
            cost = scenario_rows.ours(name, url, seconds)
            yield _Figure(f"scenario `{name}`, CPU per request", "µs", cost.cpu_us)
        yield _Figure("memory with 2,000 idle users of a scenario", "MB", scenario_rows.idle_bytes(url, 2_000) / 1e6)


def _transport(seconds: int) -> Iterator[_Figure]:
    with places() as (gateway, clients), own_server(gateway):
        for name, options in (("", ()), (", at its best", stream_rows.BEST)):
            stream = stream_rows.leadline(clients, seconds, *options)
            what = f"TCP over a veth, one flow{name}"
            yield _Figure(f"{what}, throughput", "Gbit/s", stream.gbps, is_cost=False)
            yield _Figure(f"{what}, sender's CPU", "ns/B", stream.sender_ns)
            yield _Figure(f"{what}, receiver's CPU", "ns/B", stream.receiver_ns)
        for length in (1400, 64):
            rate = transport_rows.received(clients, seconds, length)
            yield _Figure(f"UDP, {length} B, received per core", "kpackets/s", rate, is_cost=False)
        yield _Figure("TCP request-response, 1 at a time", "1/s", rr_rows.leadline(clients, seconds), is_cost=False)


def _vpn(seconds: int) -> Iterator[_Figure]:
    handshake_ms, up_ns, down_ns = tunnel_rows.own_costs(seconds)
    yield _Figure("a handshake, CPU time", "ms", handshake_ms)
    yield _Figure("data up through one tunnel, CPU time", "ns/B", up_ns)
    yield _Figure("data down through one tunnel, CPU time", "ns/B", down_ns)


def _crypto(seconds: int) -> Iterator[_Figure]:
    for what, rate in crypto_rows.ours(seconds).items():
        yield _Figure(f"AES-256-GCM packets, {what}", "MB/s", rate, is_cost=False)


_MEASURES: dict[str, Callable[[int], Iterator[_Figure]]] = {
    "http": _http,
    "tls": _tls,
    "scenario": _scenario,
    "transport": _transport,
    "vpn": _vpn,
    "crypto": _crypto,
}
NAMES = tuple(_MEASURES)
