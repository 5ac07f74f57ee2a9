"""Names the limit of a server that explains a fleet's failures, by comparison with clients that were served
meanwhile.

One client alone sees silence, or options without an address. If the server kept serving others, it has a limit; if
not, it is gone. The result is an indication, not a proof, and states what was observed. From OpenVPN's sources
(`multi.c`, `mudp.c`, `reliable.c` of 2.6): `connect-freq-initial` drops first resets; `max-clients` and
`connect-freq` answer them and drop what follows, or close a connection over TCP; a server without a free address
pushes all other options.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from leadline.analysis.fleet_model import Overload
from leadline.contract import records

Row = records.TunnelClientReport

_REFUSED = {
    "silence_after_reset": "answered once, then not at all",
    "closed_unanswered": "connected, then closed before an answer",
}


def overload(rows: Iterable[Row]) -> tuple[Overload, ...]:
    """The limits that explain the clients' failures; `rows` are the agents' reports of clients, times on one
    clock."""
    rows = list(rows)
    up = [row for row in rows if row.get("configured_ns") is not None]
    if not up:
        # If a server serves no client, no limit can be inferred.
        return ()
    found = (_pool_exhausted(rows), _max_clients(rows, up), _connect_freq_initial(rows, up))
    return tuple(one for one in found if one is not None)


def _pool_exhausted(rows: Sequence[Row]) -> Overload | None:
    without = [row for row in rows if row.get("cause") == "partial_no_address"]
    having = sum(bool(row["addresses"]) for row in rows)
    if not without or not having:
        return None
    said = f"{_clients(len(without))} connected without an address while {having:,} had one"
    return Overload("pool_exhausted", len(without), said)


def _max_clients(rows: Sequence[Row], up: Sequence[Row]) -> Overload | None:
    held = sum(row.get("state") in ("configured", "partial") for row in rows)
    refused = [row for row in rows if row.get("cause") in _REFUSED]
    # A client that failed the same way again did not have a temporary problem.
    if not refused or not held or not (any(row["attempts"] > 1 for row in refused) or _went_on(refused, up)):
        return None
    met = " or ".join(words for cause, words in _REFUSED.items() if any(row["cause"] == cause for row in refused))
    said = f"{_clients(len(refused))} {met}, while it held {held:,}"
    return Overload("max_clients", len(refused), said)


def _connect_freq_initial(rows: Sequence[Row], up: Sequence[Row]) -> Overload | None:
    unheard = [row for row in rows if row.get("cause") == "reset_unanswered"]
    if not unheard or not _went_on(unheard, up):
        return None
    answered = sum(row.get("answered_ns") is not None for row in rows)
    said = f"{_clients(len(unheard))} got no answer to any reset while {answered:,} got one"
    return Overload("connect_freq_initial", len(unheard), said)


def _went_on(refused: Sequence[Row], up: Sequence[Row]) -> bool:
    """Whether the server served other clients while it did not serve these: it answered in the second half of the
    time for which the first of them waited, or answered pings to the end (the last answer may be in flight)."""
    half_ns = min(row["due_ns"] + (row.get("ended_ns") or 0) // 2 for row in refused)
    if any(row["due_ns"] + max(row["configured_ns"] or 0, row.get("heard_ns") or 0) > half_ns for row in up):
        return True
    pings = [(row["inside"].get("pings_sent", 0), row["inside"].get("pings_answered", 0)) for row in up]
    return any(answered > 0 and sent - answered <= 1 for sent, answered in pings)


def _clients(count: int) -> str:
    return "1 client" if count == 1 else f"{count:,} clients"
