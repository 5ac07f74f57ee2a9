"""Fleets of VPN clients whose ends and times are known beforehand, as an agent reports them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from made_journals import EPOCH_NS, MS, S, finished, histogram, load, outcome, test_data

from leadline.analysis import TestData

STEPS = ("connect", "answer", "tls", "keys", "push", "first_data")


def client(number: int, state: str = "configured", cause: str | None = None, **changes: Any) -> dict[str, Any]:
    """A client that was due at once; configured ones took 10 ms and as many more as their number says."""
    due_ns = changes.pop("due_ns", EPOCH_NS)
    steps = {name: (index + 1) * MS for index, name in enumerate(("sent_ns", "answered_ns", "tls_ns", "keys_ns"))}
    whole = state == "configured"
    return {
        "client": number,
        "state": state,
        "cause": cause,
        "due_ns": due_ns,
        "first_due_ns": due_ns,
        **steps,
        "pushed_ns": 5 * MS if state != "failed" else None,
        "configured_ns": (10 + number) * MS if whole else None,
        "attempts": 1,
        "retransmits": 0,
        "addresses": [f"10.8.0.{number + 2}"] if whole else [],
        "peer_id": number if whole else None,
        "cipher": "AES-256-GCM" if state != "failed" else None,
        "local": f"127.0.0.1:{40000 + number}",
        "inside": {"pings_sent": 10, "pings_answered": 9} if whole else {},
        **changes,
    }


def fleet_outcome(clients: Sequence[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    """What an agent finishes with; histograms are made of the clients' rows."""
    times = [row["configured_ns"] for row in clients if row["configured_ns"] is not None]
    made = {
        "histograms": [histogram(name, times) for name in STEPS] + [histogram("late", [900_000 for _ in clients])],
        "receiver": None,
        "tunnel": {"clients": list(clients), "ignored_options": ["line 3: persist-tun"], "memory_bytes": 40_000_000},
        "generator": load(wall_s=10.0),
        **changes,
    }
    return outcome([], **made)


def fleet(clients: Sequence[dict[str, Any]], spec: dict[str, Any] | None = None, **changes: Any) -> TestData:
    """A test that has ended, 10 s after it began."""
    data = test_data("tunnel", **{"duration_ms": None, **(spec or {})})
    data.add("client1", finished(EPOCH_NS + 10 * S, fleet_outcome(clients, **changes)))
    return data
