"""The document that `iperf3 -J` prints, from the journal entries of one `tcp` or `udp` measurement.

The layout is that of iperf3 3.21, which is that of 3.12 with more fields; the figures are Leadline's. What Leadline
does not know is null.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np

from leadline.errors import LeadlineError

Document = dict[str, Any]
_COOKIE_LENGTH = 36


@dataclass(frozen=True, slots=True)
class Iperf3Requested:
    """One tcp or udp load, as given on the command line."""

    host: str
    port: int
    protocol: str
    """`TCP` or `UDP`."""
    flows: int
    direction: str
    block_bytes: int
    duration_s: float
    rate_bps: int | None
    """Of each flow."""
    version: str
    interval_s: float = 1.0
    type_of_service: int = 0
    """The byte in the IP header."""
    total_bytes: int = 0
    """Payload after which the test ends; 0 if a time ends it."""
    blocks: int = 0
    """Datagrams of all flows after which the test ends; 0 if a time ends it."""
    pacing_bps: int = 0
    """Rate at which the kernel paces each flow; 0 without one."""
    warmup_s: float = 0.0
    """The part of the duration that iperf3 calls omitted."""


_Rows = Sequence[tuple[float, Mapping[str, Any]]]
"""Seconds after the start, and the row of a progress event."""


@dataclass(frozen=True, slots=True)
class _Stream:
    """One flow: its number in the document, its report, and its counters over time."""

    number: int
    report: Mapping[str, Any]
    rows: _Rows
    """This end's."""
    peer_rows: _Rows
    """The other end's; an iperf3 server has none."""
    length_s: float
    """Length of the test: what is read later belongs to its last interval."""
    omit_s: float
    """The part of it at its start that the totals leave out."""

    @property
    def sends(self) -> bool:
        return bool(self.report["direction"] == "up")

    def total(self, name: str, counter: str | None = None, *, at_sender: bool) -> int | None:
        """A count of the report without the omitted time; None if it is unknown.

        `counter` is its name in the rows of the end that counts it. Without such rows the count grew evenly.
        """
        count: int | None = self.report.get(name)
        if count is None or not self.omit_s:
            return count
        rows = self.rows if at_sender == self.sends else self.peer_rows
        return self.growth(counter or name, self.omit_s, self.length_s, count, rows)

    def growth(self, name: str, start_s: float, end_s: float, total: int | None, rows: _Rows | None = None) -> int:
        """Growth of a counter of this end, or of `rows`; `total` is its reading at the end."""
        found = self.rows if rows is None else rows
        known = [(t_s, row[name]) for t_s, row in found if row.get(name) is not None and 0 < t_s < self.length_s]
        points = [(0.0, 0), *known, *([(self.length_s, total)] if total is not None else [])]
        t_s, values = zip(*points, strict=True)
        ends = np.interp([start_s, end_s], t_s, np.maximum.accumulate(values))
        return round(float(ends[1])) - round(float(ends[0]))

    def latest(self, name: str, end_s: float) -> Any:
        """The last known reading of a figure before an instant, or the first one at all."""
        known = [(t_s, row[name]) for t_s, row in self.rows if row.get(name) is not None]
        before = [value for t_s, value in known if t_s <= end_s]
        return before[-1] if before else known[0][1] if known else None


def iperf3_document(entries: Iterable[Mapping[str, Any]], asked: Iperf3Requested, started_at: datetime) -> Document:
    """The whole document.

    Raises:
        LeadlineError: the load has no figures.
    """
    events = [entry["event"] for entry in entries if "event" in entry]
    outcome = next((event["outcome"] for event in events if event["type"] == "finished" and event.get("outcome")), None)
    if outcome is None or not outcome["flows"]:
        raise LeadlineError("the load has no figures: there is no document in iperf3's layout")
    starts = [flow["start_ns"] for flow in outcome["flows"] if flow.get("start_ns") is not None]
    ends = [flow["end_ns"] for flow in outcome["flows"] if flow.get("end_ns") is not None]
    length_s = (max(ends) - min(starts)) / 1e9 if starts and ends else 0.0
    omit_s = min(asked.warmup_s, length_s)
    streams = _streams(events, outcome, min(starts, default=0), length_s, omit_s)
    omitted = _edges(0.0, omit_s, asked.interval_s) if omit_s else ()
    counted = _edges(omit_s, length_s, asked.interval_s)
    return {
        "start": _start(events, outcome, asked, started_at),
        "intervals": [
            *(_interval(asked, streams, start, end, omitted=True) for start, end in omitted),
            *(_interval(asked, streams, start, end, omitted=False) for start, end in counted),
        ],
        "end": _end(asked, streams, outcome, length_s - omit_s),
        **_server_output(events),
    }


def iperf3_error_document(entries: Iterable[Mapping[str, Any]], version: str, error: str) -> Document:
    """The document of a test that failed."""
    events = [entry["event"] for entry in entries if "event" in entry]
    start = {"connected": [], "version": f"leadline {version}", "system_info": _system_info(events)}
    return {"start": start, "intervals": [], "end": {}, "error": error}


def _server_output(events: Iterable[Mapping[str, Any]]) -> Document:
    """What the server printed, if it was asked for: a document if it is one."""
    lines = [event["line"] for event in events if event["type"] == "output"]
    if not lines:
        return {}
    text = "\n".join(lines) + "\n"
    try:
        found = json.loads(text)
    except ValueError:
        return {"server_output_text": text}
    return {"server_output_json": found} if isinstance(found, dict) else {"server_output_text": text}


def _system_info(events: Iterable[Mapping[str, Any]]) -> str:
    host: Mapping[str, Any] = next((event["host"] for event in events if event["type"] == "hello"), {})
    about = ("Linux", host.get("hostname"), host.get("kernel"), host.get("architecture"))
    return " ".join(str(part) for part in about if part)


def _streams(
    events: Sequence[Mapping[str, Any]],
    outcome: Mapping[str, Any],
    origin_ns: int,
    length_s: float,
    omit_s: float,
) -> list[_Stream]:
    rows: dict[tuple[str, int], list[tuple[float, Mapping[str, Any]]]] = {}
    for event in events:
        if event["type"] == "progress":
            for row in event["flows"]:
                of_flow = rows.setdefault((event["side"], row["flow"]), [])
                of_flow.append(((event["t_ns"] - origin_ns) / 1e9, row))
    both = [[rows.get((side, flow["flow"]), []) for side in ("local", "peer")] for flow in outcome["flows"]]
    return [
        _Stream(flow["flow"] + 1, flow, local, peer, length_s, omit_s)
        for flow, (local, peer) in zip(outcome["flows"], both, strict=True)
    ]


def _edges(start_s: float, end_s: float, interval_s: float) -> Iterator[tuple[float, float]]:
    """The intervals of a time; a remainder of under a tenth belongs to the last one."""
    count = max(1, int((end_s - start_s) / interval_s + 0.9))
    for index in range(count):
        last = index == count - 1
        yield start_s + index * interval_s, end_s if last else start_s + (index + 1) * interval_s


def _start(
    events: Sequence[Mapping[str, Any]], outcome: Mapping[str, Any], asked: Iperf3Requested, started_at: datetime
) -> Document:
    secret = hashlib.sha256(repr((asked, started_at)).encode()).digest()
    cookie = (base64.b32encode(secret).decode().lower().rstrip("=") * 2)[:_COOKIE_LENGTH]
    # As iperf3 does, of the first flow's socket at this end.
    first = outcome["flows"][0]
    own = first.get("sender_tcp" if first["direction"] == "up" else "receiver_tcp") or {}
    start: Document = {
        "connected": [_connected(flow) for flow in outcome["flows"]],
        "version": f"leadline {asked.version}",
        "system_info": _system_info(events),
        "timestamp": {
            "time": started_at.strftime("%a, %d %b %Y %H:%M:%S GMT"),
            "timesecs": int(started_at.timestamp()),
            "timemillisecs": int(started_at.timestamp() * 1000),
        },
        "connecting_to": {"host": asked.host, "port": asked.port},
        "cookie": cookie,
        **({"tcp_mss_default": own.get("mss_bytes")} if asked.protocol == "TCP" else {}),
        "target_bitrate": asked.rate_bps or 0,
        "fq_rate": asked.pacing_bps,
        "sock_bufsize": 0,
        "sndbuf_actual": own.get("send_buffer_bytes"),
        "rcvbuf_actual": own.get("receive_buffer_bytes"),
        "test_start": {
            "protocol": asked.protocol,
            "num_streams": asked.flows,
            "blksize": asked.block_bytes,
            "omit": _whole(asked.warmup_s),
            "duration": round(asked.duration_s - asked.warmup_s) or 1,
            "bytes": asked.total_bytes,
            "blocks": asked.blocks,
            "reverse": int(asked.direction == "down"),
            "tos": asked.type_of_service,
            "target_bitrate": asked.rate_bps or 0,
            "bidir": int(asked.direction == "both"),
            "fqrate": asked.pacing_bps,
            "interval": asked.interval_s,
            "gso": 0,
            "gro": 0,
        },
    }
    return start


def _connected(flow: Mapping[str, Any]) -> Document:
    local_host, local_port = _address(flow.get("local"))
    remote_host, remote_port = _address(flow.get("remote"))
    return {
        "socket": flow["flow"] + 1,
        "local_host": local_host,
        "local_port": local_port,
        "remote_host": remote_host,
        "remote_port": remote_port,
    }


def _address(text: str | None) -> tuple[str | None, int | None]:
    if text is None:
        return None, None
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


def _whole(seconds: float) -> float:
    """The same without a fraction of 0, as iperf3 writes it."""
    return int(seconds) if seconds == int(seconds) else seconds


def _interval(
    asked: Iperf3Requested, streams: Sequence[_Stream], start_s: float, end_s: float, *, omitted: bool
) -> Document:
    """One interval of all flows. iperf3's time begins again at 0 after the omitted part."""
    rows = [
        {**_interval_row(asked, stream, start_s, end_s), "omitted": omitted, "sender": stream.sends}
        for stream in streams
    ]
    for row in rows:
        origin_s = 0.0 if omitted else streams[0].omit_s
        row.update(start=row["start"] - origin_s, end=row["end"] - origin_s)
    found: Document = {"streams": rows}
    senders, receivers = ([row for row in rows if row["sender"] is sends] for sends in (True, False))
    if asked.direction == "both":
        return {**found, "sum": _interval_sum(senders), "sum_bidir_reverse": _interval_sum(receivers)}
    return {**found, "sum": _interval_sum(rows)}


def _interval_row(asked: Iperf3Requested, stream: _Stream, start_s: float, end_s: float) -> Document:
    report, way = stream.report, "sent" if stream.sends else "received"
    count = stream.growth(f"{way}_bytes", start_s, end_s, report.get(f"{way}_bytes"))
    row = {"socket": stream.number, **_span(start_s, end_s, count)}
    if asked.protocol == "TCP":
        if stream.sends:
            row["retransmits"] = stream.growth("retransmits", start_s, end_s, report.get("retransmits"))
            row["snd_cwnd"] = stream.latest("congestion_window_bytes", end_s)
            row["snd_wnd"] = stream.latest("peer_window_bytes", end_s)
            row["rtt"] = stream.latest("rtt_us", end_s)
            row["rttvar"] = stream.latest("rtt_variance_us", end_s)
            row["pmtu"] = stream.latest("path_mtu_bytes", end_s)
            row["reorder"] = stream.latest("reorderings", end_s)  # since the beginning, as iperf3 counts it
    elif stream.sends:
        row["packets"] = stream.growth("sent_units", start_s, end_s, report.get("sent_units"))
    else:
        received = stream.growth("received_units", start_s, end_s, report.get("received_units"))
        lost = stream.growth("missing_units", start_s, end_s, None)
        # Jitter is known over the whole test only.
        row.update(_losses(None, lost, received + lost))
    return row


def _interval_sum(rows: Sequence[Mapping[str, Any]]) -> Document:
    first = rows[0]
    found = _span(first["start"], first["end"], sum(row["bytes"] for row in rows))
    if "retransmits" in first:
        found["retransmits"] = sum(row["retransmits"] for row in rows)
    if "lost_packets" in first:
        lost, packets = (sum(row[name] for row in rows) for name in ("lost_packets", "packets"))
        found.update(_losses(None, lost, packets))
    elif "packets" in first:
        found["packets"] = sum(row["packets"] for row in rows)
    return {**found, "omitted": first["omitted"], "sender": first["sender"]}


def _end(asked: Iperf3Requested, streams: Sequence[_Stream], outcome: Mapping[str, Any], length_s: float) -> Document:
    row = _tcp_stream if asked.protocol == "TCP" else _udp_stream
    found: Document = {"streams": [row(stream, length_s) for stream in streams]}
    if asked.direction == "both":
        senders, receivers = ([one for one in streams if one.sends is sends] for sends in (True, False))
        found.update(_end_sums(asked, senders, length_s, ""))
        found.update(_end_sums(asked, receivers, length_s, "_bidir_reverse"))
    else:
        found.update(_end_sums(asked, streams, length_s, ""))
    found["cpu_utilization_percent"] = {
        **_cpu("host", outcome["generator"]),
        **_cpu("remote", outcome.get("receiver")),
    }
    if asked.protocol == "TCP":
        own, other = (streams[0].report.get(name) for name in ("congestion", "peer_congestion"))
        names = ("sender", "receiver") if streams[0].sends else ("receiver", "sender")
        found.update({f"{names[0]}_tcp_congestion": own, f"{names[1]}_tcp_congestion": other})
    return found


def _tcp_stream(stream: _Stream, length_s: float) -> Document:
    rows = [row for t_s, row in stream.rows if t_s >= stream.omit_s]
    highest = {
        name: max((row[name] for row in rows if row.get(name) is not None), default=None)
        for name in ("congestion_window_bytes", "peer_window_bytes", "rtt_us")
    }
    lowest = min((row["rtt_us"] for row in rows if row.get("rtt_us") is not None), default=None)
    mean = stream.report.get("rtt_mean_us")
    own = {"socket": stream.number}
    return {
        "sender": {
            **own,
            **_span(0, length_s, stream.total("sent_bytes", at_sender=True)),
            "retransmits": stream.total("retransmits", at_sender=True),
            "max_snd_cwnd": highest["congestion_window_bytes"],
            "max_snd_wnd": highest["peer_window_bytes"],
            "max_rtt": highest["rtt_us"],
            "min_rtt": lowest,
            "mean_rtt": None if mean is None else round(mean),
            "reorder": stream.latest("reorderings", math.inf),
            "sender": stream.sends,
        },
        "receiver": {
            **own,
            **_span(0, length_s, stream.total("received_bytes", at_sender=False)),
            "sender": stream.sends,
        },
    }


def _udp_stream(stream: _Stream, length_s: float) -> Document:
    sent = {"socket": stream.number, **_span(0, length_s, stream.total("sent_bytes", at_sender=True))}
    jitter_ms = _milliseconds(stream.report.get("jitter_us"))
    losses = _losses(jitter_ms, _lost(stream), stream.total("sent_units", at_sender=True))
    reordered = stream.report.get("reordered")
    # How many of them belong to the omitted time is unknown, unless there are none.
    known = reordered if not stream.omit_s or reordered == 0 else None
    return {"udp": {**sent, **losses, "out_of_order": known, "sender": stream.sends}}


def _lost(stream: _Stream) -> int | None:
    return stream.total("lost", "missing_units", at_sender=False)


def _end_sums(asked: Iperf3Requested, streams: Sequence[_Stream], length_s: float, suffix: str) -> Document:
    sender = {"sender": streams[0].sends}
    sent = _span(0, length_s, _sum(stream.total("sent_bytes", at_sender=True) for stream in streams))
    received = _span(0, length_s, _sum(stream.total("received_bytes", at_sender=False) for stream in streams))
    if asked.protocol == "TCP":
        retransmits = {"retransmits": _sum(stream.total("retransmits", at_sender=True) for stream in streams)}
        return {f"sum_sent{suffix}": {**sent, **retransmits, **sender}, f"sum_received{suffix}": {**received, **sender}}
    reports = [stream.report for stream in streams]
    jitters = [report["jitter_us"] for report in reports if report.get("jitter_us") is not None]
    jitter_ms = _milliseconds(sum(jitters) / len(jitters) if jitters else None)
    packets = _sum(stream.total("sent_units", at_sender=True) for stream in streams)
    losses = _losses(jitter_ms, _sum(_lost(stream) for stream in streams), packets)
    return {
        f"sum{suffix}": {**sent, **losses, **sender},
        f"sum_sent{suffix}": {**sent, **_losses(0, 0, packets), **sender},
        f"sum_received{suffix}": {**received, **losses, **sender},
    }


def _span(start_s: float, end_s: float, count: int | None) -> Document:
    seconds = end_s - start_s
    rate = None if count is None else 8.0 * count / seconds if seconds > 0 else 0.0
    return {"start": start_s, "end": end_s, "seconds": seconds, "bytes": count, "bits_per_second": rate}


def _losses(jitter_ms: float | None, lost: int | None, packets: int | None) -> Document:
    share = None if lost is None else 100.0 * lost / packets if packets else 0.0
    return {"jitter_ms": jitter_ms, "lost_packets": lost, "packets": packets, "lost_percent": share}


def _sum(counts: Iterable[int | None]) -> int | None:
    """The sum of all flows' counts; None if one is unknown."""
    found = list(counts)
    return None if None in found else sum(count or 0 for count in found)


def _milliseconds(us: float | None) -> float | None:
    return None if us is None else us / 1000


def _cpu(side: str, load: Mapping[str, Any] | None) -> Document:
    """CPU time of a side's threads in percent of one CPU; null if it is unknown."""
    threads = [] if load is None else load["threads"]
    wall_s = 0.0 if load is None else load["wall_s"]
    known = bool(threads) and wall_s > 0
    user, system = (sum(thread[name] for thread in threads) for name in ("user_s", "system_s"))
    share = {"total": user + system, "user": user, "system": system}
    return {f"{side}_{name}": 100.0 * value / wall_s if known else None for name, value in share.items()}
