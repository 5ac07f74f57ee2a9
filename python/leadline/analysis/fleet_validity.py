"""Decides whether a fleet's own host was the limit, and which of its clients are missing.

A connect storm may last one second of a test of one minute. Threads are therefore judged by their busiest interval
while clients connected, not by their mean; and also over the whole load in the tunnels. Clients that failed are
figures of the server, not gaps: they change no verdict. `validity` has the thresholds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from leadline.analysis.metrics import Histograms, counter
from leadline.analysis.metrics import busy_s as worked_s
from leadline.analysis.model import Reason, Verdict
from leadline.analysis.test_data import TestData
from leadline.analysis.tunnels import client_rows, connected_at_ns, server_readings
from leadline.contract import records
from leadline.quantities import rounded_share

Account = tuple[int, records.ThreadReport]
"""Instant, ns, and a thread's cumulative report at that instant."""

UNFINISHED = "unfinished"
"""The cause of clients that the end of the test interrupted, not the server."""
# A shorter interval shows the start of a thread rather than its load.
SHORTEST_STRETCH_S = 0.2


def busiest_stretch(data: TestData) -> float | None:
    """The share of CPU time of the busiest thread, in its busiest interval while clients connected."""
    shares = [share for share, _ in _stretches(data)]
    return max(shares, default=None)


def limits(
    data: TestData, histograms: Histograms, saturated: float, starved: float
) -> Iterator[tuple[Verdict, Reason]]:
    """Reasons for which the fleet may have been the limit: a busy thread, or late sends in the tunnels."""
    limited = Verdict.GENERATOR_LIMITED
    # Downstream load is generated behind the gateway; the fleet is its receiver.
    carrying = Verdict.RECEIVER_LIMITED if data.spec.direction == "down" else limited
    stages = (
        (limited, "clients connected", _stretches(data)),
        (carrying, "they carried load", _under_load(data)),
    )
    for verdict, when, stretches in stages:
        busiest = max(stretches, default=(0.0, 0.0))
        waiting = max(((busy + waited, waited) for busy, waited in stretches), default=(0.0, 0.0))
        if busiest[0] >= saturated:
            text = f"the fleet's busiest thread was on a CPU {rounded_share(busiest[0])} of the time while {when}"
            yield verdict, Reason("thread-saturated", text)
            break
        if waiting[0] >= starved:
            text = (
                f"a thread of the fleet needed a CPU {rounded_share(waiting[0])} of the time while {when}, and waited "
                f"for one {rounded_share(waiting[1])}"
            )
            yield verdict, Reason("thread-starved", text)
            break
    late_us, allowed_us = histograms.named("traffic_late").percentile_us(99.0), late_allowed_inside_us(data)
    if late_us is not None and late_us > allowed_us:
        text = f"sends in the tunnels were {late_us / 1e3:.3g} ms late at p99; the limit is {allowed_us / 1e3:.3g} ms"
        yield limited, Reason("sends-late", text)
    unsent = counter(data, "unsent")
    if unsent and data.spec.carries and unsent > _leftover(data):
        yield limited, Reason("unsent", f"{unsent} packets that were due in the tunnels were not sent")


def gaps(data: TestData) -> Iterator[tuple[Verdict, Reason]]:
    """Clients of the fleet that are missing."""
    rows = list(client_rows(data))
    never = sum(row["state"] == "waiting" for row in rows)
    if never:
        text = f"{never} of {len(rows)} clients had not tried to connect at the end"
        yield Verdict.INCOMPLETE, Reason("clients-never-tried", text)
    unfinished = sum(row.get("cause") == UNFINISHED for row in rows)
    if unfinished:
        text = f"{unfinished} of {len(rows)} clients were still connecting at the end of the fleet's time"
        yield Verdict.INCOMPLETE, Reason("clients-unfinished", text)
    missing = Counter(row["state"] for row in rows if row["state"] != "configured")
    if missing and not data.spec.connects_clients:
        text = f"{len(rows) - missing.total()} of {len(rows)} clients connected"
        kinds = ", ".join(f"{count} {state}" for state, count in sorted(missing.items()))
        yield Verdict.INCOMPLETE, Reason("clients-missing", f"{text}; {kinds}")
    yield from _vanished(data)
    if data.spec.connects_clients and not rows and data.status == "done" and data.load_outcomes():
        yield Verdict.INCOMPLETE, Reason("no-clients-reported", "the agent did not report its clients")


def _vanished(data: TestData) -> Iterator[tuple[Verdict, Reason]]:
    """Traffic of which no packet arrived, or of which most packets were too long for a path."""
    flows = [flow for found in data.load_outcomes() if found.fleet for flow in found.outcome["flows"]]
    sent = sum(flow.get("sent_units") or 0 for flow in flows)
    if not sent or any(flow.get("received_units") is None for flow in flows):
        return
    received = sum(flow["received_units"] or 0 for flow in flows)
    mean_bytes = sum(flow.get("sent_bytes") or 0 for flow in flows) / sent
    found_sizes = (report.get("packet_sizes") for report in data.fleet_reports())
    sizes = next((sizes for sizes in found_sizes if sizes and sizes["answered_bytes"] < mean_bytes), None)
    if sizes is not None:
        text = (
            f"{received:,} of {sent:,} packets arrived: in the tunnels, packets of up to "
            f"{sizes['answered_bytes']} bytes are answered, and packets of {sizes['unanswered_bytes']} bytes and more "
            "are not; the path's MTU may be smaller, without ICMP errors"
        )
        yield Verdict.INCOMPLETE, Reason("path-mtu-too-small", text)
    elif not received:
        yield (
            Verdict.INCOMPLETE,
            Reason("nothing-came-through", f"none of {sent:,} packets arrived through the tunnels"),
        )


def notes(data: TestData) -> Iterator[Reason]:
    """Notes on the figures."""
    rows = list(client_rows(data))
    up = sum(row["state"] == "configured" for row in rows)
    if data.spec.carries and rows and up < len(rows):
        yield Reason("clients-without-traffic", f"{up} of {len(rows)} clients carried the load in the tunnels")
    if not server_readings(data):
        text = "a VPN server does not report its threads' load to clients: watch its host, or give --server-pid"
        yield Reason("answering-side-unknown", text)


def _stretches(data: TestData) -> list[tuple[float, float]]:
    """Share of CPU time, and share of waiting for a CPU, of each thread between two reports, while clients
    connected."""
    rows = list(client_rows(data))
    ends = [connected_at_ns(row) for row in rows if row.get("configured_ns") is not None]
    storm = (min(row["due_ns"] for row in rows), max(ends)) if ends else None
    found = []
    for accounts in _accounts(data).values():
        for before, after in pairwise(accounts):
            outside = storm is not None and (before[0] >= storm[1] or after[0] <= storm[0])
            if not outside:
                found += _shares(before, after)
    return found


def _under_load(data: TestData) -> list[tuple[float, float]]:
    """The same shares of each thread over the whole load in the tunnels. A long load is not judged by its busiest
    second."""
    if not data.spec.carries:
        return []
    flows = [(found, flow) for found in data.load_outcomes() for flow in found.outcome["flows"]]
    begun = [flow["start_ns"] - found.offset_ns for found, flow in flows if flow["start_ns"] is not None]
    ended = [flow["end_ns"] - found.offset_ns for found, flow in flows if flow["end_ns"] is not None]
    if not begun or not ended:
        return []
    found = []
    for accounts in _accounts(data).values():
        # Threads report once per interval: those between the load's start and end belong to it.
        inside = [account for account in accounts if min(begun) <= account[0] <= max(ended)]
        if len(inside) > 1:
            found += _shares(inside[0], inside[-1])
    return found


def _shares(before: Account, after: Account) -> list[tuple[float, float]]:
    """The shares between two reports; nothing if the time is too short."""
    wall_s = after[1]["wall_s"] - before[1]["wall_s"]
    if wall_s < SHORTEST_STRETCH_S:
        return []
    busy_s = worked_s(after[1]) - worked_s(before[1])
    waited_s = (after[1].get("runnable_wait_s") or 0.0) - (before[1].get("runnable_wait_s") or 0.0)
    return [(busy_s / wall_s, waited_s / wall_s)]


def _accounts(data: TestData) -> dict[tuple[str, str, str], list[Account]]:
    """Each thread's reports in order, from zero at its start to the last."""
    nothing: records.ThreadReport = {"name": "", "user_s": 0.0, "system_s": 0.0, "runnable_wait_s": 0.0, "wall_s": 0.0}
    found: dict[tuple[str, str, str], list[Account]] = {}
    for (host, task), reports in data.thread_accounts.items():
        for t_ns, threads in reports:
            for thread in threads:
                began = (data.started_ns.get((host, task), data.start_at_ns or t_ns), nothing)
                found.setdefault((host, task, thread["name"]), [began]).append((t_ns, thread))
    for outcome in data.load_outcomes():
        for thread in outcome.outcome["generator"]["threads"]:
            key = (outcome.host, outcome.task, thread["name"])
            began_ns = data.started_ns.get((outcome.host, outcome.task), data.start_at_ns or outcome.t_ns)
            found.setdefault(key, [(began_ns, nothing)]).append((outcome.t_ns, thread))
    return found


def late_allowed_inside_us(data: TestData) -> float:
    """The allowed lateness of sends in the tunnels: 1 ms, or a tenth of the time between two sends of a client."""
    return max(1000.0, 0.1e6 * (data.spec.inside_gap_s or 0.0))


def _leftover(data: TestData) -> float:
    """Packets that may just have been due at the end: one per client."""
    return float(sum(row["state"] == "configured" for row in client_rows(data)))
