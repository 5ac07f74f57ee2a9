"""What a stack's daemons count themselves: HAProxy's statistics and log, Redis' commands. Read before and after a load.

A tier whose counters cannot be read is missing in the result, never 0.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leadline.errors import LeadlineError
from leadline.sut.daemons import Daemons
from leadline.sut.model import Site
from leadline.sut.stack.haproxy import LoggedRequest, read_log, read_statistics
from leadline.sut.stack.parameters import HaproxyTier, RedisTier
from leadline.sut.stack.placement import PlacedTier

MAX_ROWS = 5000
"""Of a load's logged requests, as many as these go into the journal, evenly chosen, with the slowest."""
MAX_SLOWEST = 20
_ANSWER_WITHIN_S = 5.0
_OWN_COMMANDS = frozenset({"info", "config|resetstat", "config", "command"})
"""Those of Leadline itself."""
_COMMAND = re.compile(r"cmdstat_(?P<name>[^:]+):calls=(?P<calls>\d+),usec=(?P<usec>\d+)")

Snapshot = dict[str, dict[str, Any]]


def statistics_socket(site: Site, name: str) -> Path:
    """Path of the socket on which a tier's HAProxy answers."""
    return site.files("stack") / f"{name}.sock"


async def read_counters(
    placed: Sequence[PlacedTier], site: Site, daemons: Daemons, before: Mapping[str, Mapping[str, Any]] | None = None
) -> Snapshot:
    """The counters of each tier that has some. With those `before` a load also the requests logged since then."""
    found: Snapshot = {}
    for one in placed:
        counted: dict[str, Any] = {}
        with contextlib.suppress(LeadlineError, OSError, TimeoutError):
            counted |= await _of_daemon(one, site)
        if isinstance(one.tier, HaproxyTier) and one.tier.log_every and site.shared_files:
            earlier = (before or {}).get(one.tier.name, {}).get("log_bytes")
            counted |= await asyncio.to_thread(_of_log, site.log_file(one.processes[0], one.host), earlier)
        if parents := await _parents(one, site, daemons):
            counted["has_children"] = parents
        if counted:
            found[one.tier.name] = counted
    return found


async def _of_daemon(one: PlacedTier, site: Site) -> dict[str, Any]:
    if isinstance(one.tier, HaproxyTier):
        if not site.shared_files:
            # Its socket and its log are files of another host.
            return {}
        async with asyncio.timeout(_ANSWER_WITHIN_S):
            text = await _ask(statistics_socket(site, one.tier.name), "show stat\n")
        return dict(read_statistics(text))
    if isinstance(one.tier, RedisTier):
        host = site.hosts[one.host]
        asked = await host.run("redis-cli", "-h", one.address, "-p", str(one.ports[0]), "INFO", "commandstats")
        return read_commands(asked.output)
    return {}


async def _ask(path: Path, command: str) -> str:
    reader, writer = await asyncio.open_unix_connection(str(path))
    try:
        writer.write(command.encode())
        await writer.drain()
        return (await reader.read()).decode(errors="replace")
    finally:
        writer.close()


def read_commands(text: str) -> dict[str, Any]:
    """Commands that Redis executed, and the time that this took, us, by `INFO commandstats`; empty if it has none."""
    rows = [match for match in _COMMAND.finditer(text) if match["name"] not in _OWN_COMMANDS]
    if "# Commandstats" not in text:
        return {}
    return {"commands": sum(int(row["calls"]) for row in rows), "execution_us": sum(int(row["usec"]) for row in rows)}


def _of_log(path: Path, since_bytes: int | None) -> dict[str, Any]:
    """The log's length, and if that of before is known, the requests since then."""
    try:
        length = path.stat().st_size
        if since_bytes is None:
            return {"log_bytes": length}
        with path.open("rb") as file:
            file.seek(since_bytes)
            chosen = choose_rows(read_log(line.decode(errors="replace") for line in file))
    except OSError:
        return {}
    rows, slowest = ([_row(one) for one in some] for some in (chosen.even, chosen.slowest))
    return {"log_bytes": length, "logged": chosen.count, "rows": rows, "slowest": slowest}


@dataclass(frozen=True, slots=True)
class ChosenRequests:
    """Some of the requests in a log."""

    even: list[LoggedRequest]
    """Evenly chosen from all."""
    slowest: list[LoggedRequest]
    """The slowest of all, in order."""
    count: int
    """The number of all."""


def choose_rows(requests: Iterable[LoggedRequest], limit: int = MAX_ROWS) -> ChosenRequests:
    """Choose at most `limit` of the requests, evenly, and the slowest of all."""
    kept: list[LoggedRequest] = []
    slowest: list[LoggedRequest] = []
    stride, count = 1, 0
    for one in requests:
        if count % stride == 0:
            kept.append(one)
        if len(kept) > limit:
            kept, stride = kept[::2], 2 * stride
        slowest.append(one)
        if len(slowest) > 10 * MAX_SLOWEST:
            slowest = _slowest(slowest)
        count += 1
    return ChosenRequests(kept, _slowest(slowest), count)


def _slowest(requests: Iterable[LoggedRequest]) -> list[LoggedRequest]:
    return sorted(requests, key=lambda one: -one.whole_us)[:MAX_SLOWEST]


def _row(one: LoggedRequest) -> list[Any]:
    return [one.whole_us, dict(one.parts_us), one.status, one.trace]


async def _parents(one: PlacedTier, site: Site, daemons: Daemons) -> list[str]:
    """Its processes that have started others, whose CPU time no agent reads."""
    host = site.hosts[one.host]
    found = []
    for name in one.processes:
        pid = daemons.pids.get((one.host, name))
        if pid is None:
            continue
        with contextlib.suppress(LeadlineError):
            shown = await host.run("cat", f"/proc/{pid}/task/{pid}/children")
            if shown.status == 0 and shown.output.strip():
                found.append(name)
    return found
