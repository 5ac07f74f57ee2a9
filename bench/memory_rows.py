"""Rows of memory: what many connections cost the generator. Once each, for memory does not vary from run to run.

Resident memory of the agent's process; what the kernel keeps for sockets is the kernel's and the same for every tool.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator

import agent
import servers
from rows import Bound, Rounds, Row, at_most, bounded

_ACTIVE, _IDLE = 10_000, 50_000
_MOST_ACTIVE, _MOST_IDLE = at_most(100, " MB"), at_most(400, " MB")
# Files that an agent and a responder have open besides connections, with room to spare.
_OTHER_FILES = 500
# One thread of the responder takes 16,384 where 20,000 files are the limit, and lets those of the run before go slowly.
_MOST_ANSWERED = 14_000
# Several, as one local address has some 28,000 ports for connections to one server.
_BIND = ["127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5"]


def memory(rounds: Rounds) -> Iterator[Row]:
    """Busy connections, and connections that only wait."""
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    reach = most_files - _OTHER_FILES
    active = min(_ACTIVE, reach)
    with servers.null_responder() as url:
        peak = _peak_mb(url, active, rounds.seconds)
        yield _row(f"memory with {_ACTIVE:,} busy connections", {active: peak}, (_ACTIVE, _MOST_ACTIVE), most_files)
        idle = min(_IDLE, reach if reach >= _IDLE else min(reach, _MOST_ANSWERED))
        # Each connection's one request waits for an answer that does not come while this lasts.
        silent = f"{url}?delay=3600s"
        peaks = {count: _peak_mb(silent, count, rounds.seconds) for count in {idle // 10, idle}}
    yield _row(f"memory with {_IDLE:,} idle connections", peaks, (_IDLE, _MOST_IDLE), most_files)


def _row(what: str, peaks: dict[int, float], bound: tuple[int, Bound], most_files: int) -> Row:
    """If the host allows fewer connections than wanted: the memory of those, extrapolated, without a
    verdict."""
    wanted, limit = bound
    most = max(peaks)
    if most == wanted:
        return bounded(what, peaks[most], f"{peaks[most]:.3g} MB", limit)
    least = min(peaks)
    each = (peaks[most] - peaks[least]) / (most - least) if most > least else peaks[most] / most
    at_wanted = peaks[most] + each * (wanted - most)
    shown = (
        f"{peaks[most]:.3g} MB with {most:,}, which is all that `ulimit -n` {most_files:,} allows; "
        f"on a line through {least:,} that is {at_wanted:.3g} MB"
    )
    return Row(what, shown, bound=limit.says)


def _peak_mb(url: str, connections: int, seconds: int) -> float:
    done = agent.load(url, connections=connections, duration=f"{seconds}s", timeout="1h", bind=_BIND)
    counts = agent.http_counts(done.outcome)
    up = counts.connections_opened - counts.connections_down
    if up < connections or done.outcome.errors:
        raise RuntimeError(f"only {up} of {connections} connections, errors: {done.outcome.errors}")
    return done.peak_bytes / 1e6
