"""Rows of scenarios: CPU time per request of a session beside k6, JMeter and Locust; of one static request beside plain
`leadline http`; the memory of users; and the open model. The sessions are in `scenarios/`, one server of one worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from subprocess import SubprocessError

import agent
import scenario_peers
import servers
from http_rows import open_rows
from peers import Cost
from programs import PeerMissing
from rows import Bound, Rounds, Row, at_most, bounded, compared, failed

_RATE, _OPEN_S = 5_000, 10
_USERS = 20_000
_BOUND_USER, _BOUND_ALL = at_most(16, " KB"), at_most(500, " MB")
# One local address has some 28,000 ports for connections to one server, and keeps those of closed ones for a minute.
_BIND = ("127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5")


def sessions(rounds: Rounds) -> Iterator[Row]:
    """A login, whose token ten requests send, by users that do not think. Each runs once in a round."""
    peers: dict[str, tuple[Callable[[str, int], Cost], float]] = {
        "k6": (scenario_peers.k6, 0.15),
        "JMeter": (scenario_peers.jmeter, 0.15),
        "Locust's FastHttpUser": (scenario_peers.locust, 0.05),
    }
    pairs: dict[str, list[tuple[Cost, Cost]]] = {name: [] for name in peers}
    without: dict[str, Exception] = {}
    seconds = rounds.seconds + 1
    with servers.nginx() as url:
        for _ in range(rounds.count):
            own = ours("session", url, seconds)
            for name in [name for name in peers if name not in without]:
                try:
                    pairs[name].append((own, peers[name][0](url, seconds)))
                except (PeerMissing, RuntimeError, OSError, SubprocessError) as error:
                    without[name] = error
    for name, (_, limit) in peers.items():
        what, bound = "scenario of a login and ten gets, CPU per request", at_most(limit)
        if name in without:
            yield failed(f"{what}, beside {name}", without[name], bound)
        else:
            yield _cpu(what, name, pairs[name], bound)


def static(rounds: Rounds) -> Iterator[Row]:
    """One request without variables, as a scenario and as plain load."""
    with servers.nginx() as url:
        pairs = [(ours("static", url, rounds.seconds), agent.closed(url, rounds.seconds)) for _ in range(rounds.count)]
    yield _cpu("scenario of one request, CPU per request", "leadline http", pairs, at_most(1.3))


def memory(rounds: Rounds) -> Iterator[Row]:
    """Users that have logged in and wait, each with a cookie and ten variables, and without a socket."""
    few = _USERS // 10
    with servers.nginx() as url:
        peaks = {users: idle_bytes(url, users) for users in (few, _USERS)}
    each_kb = (peaks[_USERS] - peaks[few]) / (_USERS - few) / 1024
    yield bounded("memory of an idle user of a scenario", each_kb, f"{each_kb:.3g} KB", _BOUND_USER)
    all_mb = peaks[_USERS] / 1e6
    yield bounded(f"memory with {_USERS:,} idle users of a scenario", all_mb, f"{all_mb:.3g} MB", _BOUND_ALL)


def open_model(rounds: Rounds) -> Iterator[Row]:
    """Iterations at a fixed rate: whether all go out, and how late."""
    with servers.null_responder() as url:
        outcomes = [
            agent.scenario(scenario_peers.SCENARIOS / "open.yaml", url=url).outcome for _ in range(rounds.count)
        ]
    what = f"scenario at {_RATE:,} iterations/s for {_OPEN_S} s on the null responder"
    yield from open_rows(what, outcomes, _RATE * _OPEN_S, at_most(1000, " µs"))


def ours(name: str, url: str, seconds: int) -> Cost:
    """What a scenario of `scenarios/` costs in our agent, its start and its end included."""
    done = agent.scenario(scenario_peers.SCENARIOS / f"{name}.yaml", url=url, seconds=str(seconds))
    if done.outcome.errors:
        raise RuntimeError(f"errors: {done.outcome.errors}")
    requests = agent.http_counts(done.outcome).responses
    return Cost(requests, requests / seconds, done.cpu_s)


def idle_bytes(url: str, users: int) -> int:
    """The most memory that our agent had resident with users that wait."""
    file = scenario_peers.SCENARIOS / "idle.yaml"
    done = agent.scenario(file, _BIND, url=url, users=str(users), ramp_s=str(max(1, users // 5000)))
    counts = agent.http_counts(done.outcome)
    if counts.responses != users or done.outcome.errors:
        raise RuntimeError(f"{counts.responses} of {users} users logged in, errors: {done.outcome.errors}")
    return done.peak_bytes


def _cpu(what: str, peer: str, pairs: Sequence[tuple[Cost, Cost]], bound: Bound) -> Row:
    return compared(what, "µs", peer, [(ours.cpu_us, theirs.cpu_us) for ours, theirs in pairs], bound=bound)
