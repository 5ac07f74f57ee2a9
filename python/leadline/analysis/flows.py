"""Flows as curves: cumulative counters over time, from the agents' interval counters and final reports.

The receiving side counts what a flow delivered. The sent count is kept apart and is used only if the receiver did not
report. Between two readings a counter is interpolated linearly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from leadline.analysis.test_data import FlowKey, Point, TestData
from leadline.contract import records

Report = records.FlowReport


@dataclass(frozen=True, slots=True)
class Curve:
    """A counter that never decreases: instants, ns, in ascending order, and readings."""

    t_ns: NDArray[np.float64]
    values: NDArray[np.float64]

    def at(self, t_ns: float | NDArray[np.float64]) -> NDArray[np.float64]:
        """The counter at these instants; before all readings its first one, after them its last one."""
        return np.asarray(np.interp(t_ns, self.t_ns, self.values), dtype=np.float64)

    def growth(self, start_ns: float, end_ns: float) -> float:
        """Growth between two instants."""
        return float(self.at(end_ns) - self.at(start_ns))

    @property
    def total(self) -> float:
        """Its last reading."""
        return float(self.values[-1])


@dataclass(frozen=True, slots=True)
class Flow:
    """One flow in one direction. `start_ns` is None if it never moved a byte.

    `evidence` says which side counted `delivered_bytes`: `receiver` at intervals, `receiver-total` only at the end,
    `sender` if the receiver did not report. `report` is the final report, None if the task did not finish.
    """

    key: FlowKey
    direction: str
    due_ns: int | None
    start_ns: int | None
    end_ns: int | None
    delivered_bytes: Curve | None
    delivered_units: Curve | None
    sent_bytes: float | None
    sent_units: float | None
    evidence: str
    report: Report | None


def build_flows(data: TestData) -> list[Flow]:
    """Every flow of the test, each direction separately, in the order of hosts, tasks and numbers."""
    reports: dict[FlowKey, list[tuple[Report, int]]] = {}
    finished_ns: dict[tuple[str, str], int] = {}
    for found in data.load_outcomes():
        finished_ns[(found.host, found.task)] = found.t_ns
        for report in found.outcome["flows"]:
            key = FlowKey(found.host, found.task, report["flow"])
            reports.setdefault(key, []).append((report, found.offset_ns))
    own = (key for key, _ in data.progress if (key.host, key.task) not in data.other_parts)
    seen = {key for key in own if not data.hosts or key.host in data.hosts}
    flows = []
    for key in sorted(reports.keys() | seen, key=lambda key: (key.host, key.task, key.flow)):
        if key in reports:
            flows += [_reported(data, key, *report, finished_ns[(key.host, key.task)]) for report in reports[key]]
        else:
            flows += _unfinished(data, key)
    return flows


def _reported(data: TestData, key: FlowKey, report: Report, offset_ns: int, finished_ns: int) -> Flow:
    """A flow with its final report."""
    start_ns = _shifted(report.get("start_ns"), offset_ns)
    end_ns = _shifted(report.get("end_ns"), offset_ns)
    if start_ns is not None and end_ns is None:
        end_ns = finished_ns
    direction = report["direction"]
    receiver, sender = _sides(data, direction)
    bytes_total, units_total = report.get("received_bytes"), report.get("received_units")
    series = data.points(key, receiver)
    delivered = units = None
    evidence = "receiver"
    if start_ns is not None and end_ns is not None:
        # Answers are counted at the requesting side. A stream ends when its sender has written its last byte.
        settled_ns = None if data.spec.counts_units else max(end_ns, finished_ns)
        delivered = _curve(start_ns, end_ns, [(p.t_ns, p.received_bytes) for p in series], bytes_total, settled_ns)
        units = _curve(start_ns, end_ns, _units(series), units_total, settled_ns)
        if not series:
            evidence = "receiver-total"
        if delivered is None and not data.spec.counts_units:
            evidence = "sender"
            sent = data.points(key, sender)
            delivered = _curve(start_ns, end_ns, [(p.t_ns, p.sent_bytes) for p in sent], report["sent_bytes"])
            units = units or _curve(start_ns, end_ns, _units(sent, sent=True), report.get("sent_units"))
    return Flow(
        key=key,
        direction=direction,
        due_ns=_shifted(report.get("due_ns"), offset_ns),
        start_ns=start_ns,
        end_ns=end_ns,
        delivered_bytes=delivered,
        delivered_units=units,
        sent_bytes=report["sent_bytes"],
        sent_units=report.get("sent_units"),
        evidence=evidence,
        report=report,
    )


def _unfinished(data: TestData, key: FlowKey) -> list[Flow]:
    """A flow of a task that was interrupted: only its interval counters are known."""
    local, peer = (data.points(key, side) for side in ("local", "peer"))
    points = sorted((*local, *peer), key=lambda point: point.t_ns)
    moving = [point.t_ns for point in points if point.sent_bytes or point.received_bytes]
    due_ns = data.started_ns.get((key.host, key.task), data.start_at_ns)
    flows = []
    for direction in _directions(data, local, peer):
        receiver, sender = _sides(data, direction)
        start_ns = end_ns = delivered = units = None
        evidence = "receiver"
        if moving:
            start_ns = due_ns if due_ns is not None and due_ns <= moving[0] else moving[0]
            end_ns = moving[-1]
            series = data.points(key, receiver)
            if not series:
                evidence, series = "sender", data.points(key, sender)
            by_sender = evidence == "sender"
            counted = [(p.t_ns, p.sent_bytes if by_sender else p.received_bytes) for p in series]
            delivered = _curve(start_ns, end_ns, counted, None)
            units = _curve(start_ns, end_ns, _units(series, sent=by_sender), None)
        sent = data.points(key, sender)
        flows.append(
            Flow(
                key=key,
                direction=direction,
                due_ns=due_ns,
                start_ns=start_ns,
                end_ns=end_ns,
                delivered_bytes=delivered,
                delivered_units=units,
                sent_bytes=sent[-1].sent_bytes if sent else None,
                sent_units=sent[-1].sent_units if sent else None,
                evidence=evidence,
                report=None,
            )
        )
    return flows


def _sides(data: TestData, direction: str) -> tuple[str, str]:
    """The side that counts what arrived, and the side that counts what was sent. Answers arrive at the requesting
    side."""
    if data.spec.counts_units or direction == "down":
        return "local", "local" if data.spec.counts_units else "peer"
    return "peer", "local"


def _directions(data: TestData, local: Sequence[Point], peer: Sequence[Point]) -> tuple[str, ...]:
    """The direction of an unfinished flow; in a test of both directions, the one whose counters grew."""
    if data.spec.counts_units or data.spec.direction != "both":
        return (data.spec.direction,)
    up = any(point.sent_bytes for point in local) or any(point.received_bytes for point in peer)
    down = any(point.received_bytes for point in local) or any(point.sent_bytes for point in peer)
    return tuple(name for name, grew in (("up", up), ("down", down)) if grew) or ("up",)


def _units(points: Sequence[Point], *, sent: bool = False) -> list[tuple[int, int]]:
    readings = ((point.t_ns, point.sent_units if sent else point.received_units) for point in points)
    return [(t_ns, value) for t_ns, value in readings if value is not None]


def _curve(
    start_ns: int, end_ns: int, readings: Sequence[tuple[int, int]], total: float | None, settled_ns: int | None = None
) -> Curve | None:
    """The curve from 0 at the start through the readings to the total; None if nothing was counted.

    If the end is the sender's, data in flight arrives later, until `settled_ns` at the latest: a TCP socket alone may
    hold megabytes. The counter is then extrapolated to the end from its last readings, never beyond the total. If the
    end is the counting side's own (`settled_ns` is None), the counter has its total there.
    """
    if not readings and total is None:
        return None
    points = sorted([(start_ns, 0.0), *((t_ns, float(value)) for t_ns, value in readings if t_ns > start_ns)])
    final = float(total) if total is not None else points[-1][1]
    if settled_ns is None or len(points) == 1:
        points.append((end_ns, final))
    else:
        points += [(end_ns, _carried_on(points, end_ns, final)), (max(points[-1][0], settled_ns), final)]
    points.sort()
    t_ns = np.array([point[0] for point in points], dtype=np.float64)
    values = np.maximum.accumulate(np.array([point[1] for point in points], dtype=np.float64))
    last_of_instant = np.append(np.diff(t_ns) > 0, True)
    return Curve(t_ns[last_of_instant], values[last_of_instant])


def _carried_on(points: Sequence[tuple[int, float]], end_ns: int, final: float) -> float:
    """The counter at the end, from the last two readings before it; never beyond `final` or the next reading."""
    past = [point for point in points if point[0] <= end_ns]
    following = points[len(past)][1] if len(past) < len(points) else final
    if len(past) < 2:
        return following
    last_ns, last = past[-1]
    before_ns, before = past[-2]
    pace = (last - before) / (last_ns - before_ns) if last_ns > before_ns else 0.0
    return min(final, following, last + pace * (end_ns - last_ns))


def _shifted(t_ns: int | None, offset_ns: int) -> int | None:
    return t_ns - offset_ns if t_ns is not None else None
