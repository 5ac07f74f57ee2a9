"""Arranges the requests of a recording: pages as transactions, requests that overlap in parallel, pauses.

A pause is the time from the end of what came before to the start of the next request. Requests that overlap are one
step: as many are outstanding at most as in the file, and each further one begins when an earlier one has ended. A
request that sends a value of an answer waits for that answer. Pure.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

from leadline.scenario.conversion import Conversion, Made

SHORTEST_PAUSE_MS = 1
LONGEST_PAUSE_MS = 600_000
USUAL_AT_ONCE = 6
"""Requests of a user that are outstanding at once, and its connections to a server, where nothing else is said."""
MOST_AT_ONCE = 256


@dataclass(slots=True)
class Entry:
    """One request of the file."""

    number: int
    page: str | None
    start_ms: float
    """When it was wanted."""
    sent_ms: float
    """When it left the browser's queue."""
    end_ms: float
    """When its answer had ended, or the answer of the last redirect."""
    method: str
    url: str
    request: dict[str, Any]
    response: dict[str, Any]
    from_cache: str = ""
    """The browser's cache that it came from."""
    made: Made = field(default_factory=lambda: Made(None))
    hops: list[Entry] = field(default_factory=list)
    """The redirects that it was followed by."""
    follows: int | None = None
    """How many of its redirects are followed; None for all."""
    needs: set[int] = field(default_factory=set)
    """Numbers of the entries whose answers give what it sends."""

    @property
    def what(self) -> str:
        """Its name in reports: the number from 1, and what it asks for."""
        return f"entry {self.number} {self.method} {self.url[:80]}"

    @property
    def last(self) -> Entry:
        """The entry with its last answer."""
        return self.hops[-1] if self.hops else self


def flow_of(entries: list[Entry], titles: dict[str, str], conversion: Conversion) -> list[Any]:
    """The steps of all entries, which are in order: a transaction per page, with the pauses between them."""
    groups: list[tuple[str | None, list[Entry]]] = []
    open_page: str | None = None
    for entry in entries:
        page = entry.page if entry.page is not None else open_page
        if groups and groups[-1][0] == page:
            groups[-1][1].append(entry)
        else:
            groups.append((page, [entry]))
        open_page = page
    flow: list[Any] = []
    last_ms: float | None = None
    for page, members in groups:
        if last_ms is not None and members[0].sent_ms < last_ms:
            conversion.changed(members[0].what, None, "it waits for the page before, with which it overlapped")
        flow += _pause(last_ms, members[0].start_ms, conversion)
        steps, last_ms = _steps(members, members[0].start_ms if last_ms is None else last_ms, conversion)
        if page is None:
            flow += steps
        else:
            flow.append(Made(None, transaction=titles.get(page, page), steps=steps))
    return flow


def _steps(entries: list[Entry], before_ms: float, conversion: Conversion) -> tuple[list[Any], float]:
    """The steps of a page, and when its last answer ended."""
    steps: list[Any] = []
    end_ms = before_ms
    for batch in _batches(entries, conversion):
        if steps:
            steps += _pause(end_ms, batch[0].start_ms, conversion)
        steps.append(batch[0].made if len(batch) == 1 else _parallel(batch, conversion))
        end_ms = max(end_ms, *(entry.end_ms for entry in batch))
    return steps, end_ms


def _batches(entries: list[Entry], conversion: Conversion) -> Iterable[list[Entry]]:
    """Entries that overlap: each is sent before all earlier ones have ended, and needs none of their answers."""
    batch: list[Entry] = []
    end_ms = 0.0
    for entry in sorted(entries, key=lambda one: one.sent_ms):
        overlaps = bool(batch) and entry.sent_ms < end_ms
        given = entry.needs & {one.number for one in batch} if overlaps and entry.needs else None
        if given:
            words = f"it sends what entry {min(given)} gives, so it waits for the requests beside that too"
            conversion.changed(entry.what, None, words)
        if overlaps and not given:
            batch.append(entry)
            end_ms = max(end_ms, entry.end_ms)
            continue
        if batch:
            yield batch
        batch, end_ms = [entry], entry.end_ms
    if batch:
        yield batch


def _parallel(batch: list[Entry], conversion: Conversion) -> Made:
    """The step of a batch, with as many requests at once as there were."""
    times = [(entry.sent_ms, entry.end_ms) for entry in batch]
    at_once = min(_most_at_once(times), MOST_AT_ONCE)
    made = Made(None, parallel=[entry.made for entry in batch])
    if at_once < min(len(batch), USUAL_AT_ONCE) or at_once > USUAL_AT_ONCE:
        made["connections"] = at_once
    what = f"entries {batch[0].number} to {batch[-1].number}"
    replayed = _replayed(times, at_once)
    shifts_ms = [sent_ms - times[0][0] - begin_ms for (sent_ms, _), (begin_ms, _) in zip(times, replayed, strict=True)]
    if (shift := _shift(shifts_ms)) is not None:
        conversion.changed(what, None, f"{shift}: each begins when it may, without a pause of its own")
    differing = _differing(_reach(times), _reach(replayed))
    if differing:
        words = f"{differing} overlaps differ: each begins as soon as fewer than {at_once} are outstanding"
        conversion.changed(what, None, words)
    if at_once > USUAL_AT_ONCE:
        words = f"{at_once} were outstanding at once: give --connections-per-user {at_once} if they go to one server"
        conversion.changed(what, None, words)
    return made


def _most_at_once(times: list[tuple[float, float]]) -> int:
    """The largest number that is outstanding at one instant; one that ends then is not."""
    ends: list[float] = []
    most = 0
    for sent_ms, end_ms in times:
        while ends and ends[0] <= sent_ms:
            heappop(ends)
        heappush(ends, end_ms)
        most = max(most, len(ends))
    return most


def _replayed(times: list[tuple[float, float]], at_once: int) -> list[tuple[float, float]]:
    """The times at which requests would begin and end if each took as long as in the file."""
    ends: list[float] = []
    found = []
    for sent_ms, end_ms in times:
        begin_ms = heappop(ends) if len(ends) >= at_once else 0.0
        heappush(ends, begin_ms + end_ms - sent_ms)
        found.append((begin_ms, begin_ms + end_ms - sent_ms))
    return found


def _reach(times: list[tuple[float, float]]) -> list[int]:
    """The number, for each request, of those that begin before it has ended."""
    begins = [begin_ms for begin_ms, _ in times]
    return [max(bisect_left(begins, end_ms), index + 1) for index, (_, end_ms) in enumerate(times)]


def _shift(shifts_ms: list[float]) -> str | None:
    """How far requests of a step begin from when they did in the file, if answers take as long; None for under 1 ms."""
    ways = ((max(shifts_ms), "earlier"), (-min(shifts_ms), "later"))
    parts = [f"{most_ms:.0f} ms {way}" for most_ms, way in ways if most_ms >= SHORTEST_PAUSE_MS]
    return f"they begin up to {' and up to '.join(parts)} than in the file" if parts else None


def _differing(first: list[int], second: list[int]) -> int:
    return sum(abs(one - other) for one, other in zip(first, second, strict=True))


def _pause(end_ms: float | None, start_ms: float, conversion: Conversion) -> list[Any]:
    if end_ms is None or start_ms - end_ms < SHORTEST_PAUSE_MS:
        return []
    pause_ms = round(start_ms - end_ms)
    if pause_ms > LONGEST_PAUSE_MS:
        words = f"its {pause_ms / 3.6e6:.1f} h are cut to {LONGEST_PAUSE_MS // 60_000} min"
        conversion.changed("a pause between recordings", None, words)
        pause_ms = LONGEST_PAUSE_MS
    return [{"wait": f"{pause_ms // 1000}s" if pause_ms % 1000 == 0 else f"{pause_ms}ms"}]
