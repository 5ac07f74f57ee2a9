"""Parts of iperf3's document that need no measurement: the server's output, and the document of a failure."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from leadline.analysis.iperf3_document import Iperf3Requested, iperf3_document, iperf3_error_document

STARTED = datetime(2026, 1, 2, tzinfo=UTC)
HELLO = {"type": "hello", "host": {"hostname": "h", "kernel": "6.1", "architecture": "x86_64"}}
ASKED = Iperf3Requested(
    host="192.0.2.7",
    port=5201,
    protocol="TCP",
    flows=1,
    direction="up",
    block_bytes=1000,
    duration_s=1.0,
    rate_bps=None,
    version="9",
    type_of_service=184,
    total_bytes=500,
    pacing_bps=8_000,
)
FLOW = {"flow": 0, "direction": "up", "start_ns": 0, "end_ns": 10**9, "sent_bytes": 500, "received_bytes": 500}


def document(lines: list[str]) -> dict[str, Any]:
    outcome = {"flows": [FLOW], "generator": {"wall_s": 1.0, "threads": []}, "receiver": None}
    printed = [{"type": "output", "line": line} for line in lines]
    events = [HELLO, *printed, {"type": "finished", "outcome": outcome}]
    return iperf3_document([{"event": event} for event in events], ASKED, STARTED)


def test_start_has_what_was_asked_for() -> None:
    start = document([])["start"]
    assert (start["fq_rate"], start["timestamp"]["timemillisecs"]) == (8_000, int(STARTED.timestamp()) * 1000)
    test = start["test_start"]
    assert (test["tos"], test["bytes"], test["blocks"], test["bidir"], test["fqrate"]) == (184, 500, 0, 0, 8_000)


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ([], {}),
        (["one", "two"], {"server_output_text": "one\ntwo\n"}),
        (['{"start":', '{"version": "x"}}'], {"server_output_json": {"start": {"version": "x"}}}),
        (["5"], {"server_output_text": "5\n"}),
    ],
)
def test_output_of_the_server_has_its_own_field(lines: list[str], found: dict[str, Any]) -> None:
    made = document(lines)
    assert {key: value for key, value in made.items() if key.startswith("server_output")} == found


def test_failure_has_a_document_with_its_error() -> None:
    assert iperf3_error_document([{"event": HELLO}], "9", "it is busy") == {
        "start": {"connected": [], "version": "leadline 9", "system_info": "Linux h 6.1 x86_64"},
        "intervals": [],
        "end": {},
        "error": "it is busy",
    }


def warmed_up(*, protocol: str = "TCP", reordered: int = 0, with_peer: bool = True) -> dict[str, Any]:
    """A test of 4 s, of which 1 s is warm-up: 100 bytes/s in it, and 200 after it; the last datagram is lost."""
    flow = {**FLOW, "end_ns": 4 * 10**9, "sent_bytes": 700, "received_bytes": 700, "retransmits": 5}
    flow |= {"sent_units": 7, "received_units": 4, "lost": 3, "reordered": reordered, "jitter_us": 1.0}
    sides = {"local": ("sent_bytes", "sent_units", 0), "peer": ("received_bytes", "received_units", 1)}
    progress = []
    for side, (count, units, missing) in sides.items() if with_peer else [("local", sides["local"])]:
        for t_s, moved in ((1, 100), (2, 300), (3, 500)):
            row = {"flow": 0, count: moved, units: moved // 100, "missing_units": missing if t_s == 1 else 2 * missing}
            row |= (
                {"retransmits": 4, "rtt_us": 1000 // t_s, "peer_window_bytes": 9000 - t_s, "reorderings": t_s}
                if side == "local"
                else {}
            )
            progress.append({"type": "progress", "side": side, "t_ns": t_s * 10**9, "flows": [row]})
    outcome = {"flows": [flow], "generator": {"wall_s": 4.0, "threads": []}, "receiver": None}
    events = [HELLO, *progress, {"type": "finished", "outcome": outcome}]
    asked = replace(ASKED, protocol=protocol, duration_s=4.0, warmup_s=1.0)
    return iperf3_document([{"event": event} for event in events], asked, STARTED)


def test_warm_up_has_intervals_of_its_own_and_no_part_in_the_totals() -> None:
    made = warmed_up()
    assert (made["start"]["test_start"]["omit"], made["start"]["test_start"]["duration"]) == (1, 3)
    rows = [interval["streams"][0] for interval in made["intervals"]]
    assert [(row["start"], row["end"], row["bytes"], row["omitted"]) for row in rows] == [
        (0, 1, 100, True),
        (0, 1, 200, False),
        (1, 2, 200, False),
        (2, 3, 200, False),
    ]
    assert [interval["sum"]["omitted"] for interval in made["intervals"]] == [True, False, False, False]
    end = made["end"]
    for way in ("sum_sent", "sum_received"):
        assert (end[way]["bytes"], end[way]["seconds"], end[way]["bits_per_second"]) == (600, 3, 1600)
    assert end["sum_sent"]["retransmits"] == 1
    assert [(row["snd_wnd"], row["reorder"]) for row in rows] == [(8999, 1), (8998, 2), (8997, 3), (8997, 3)]
    assert (end["streams"][0]["sender"]["max_snd_wnd"], end["streams"][0]["sender"]["reorder"]) == (8999, 3)
    assert (end["streams"][0]["sender"]["max_rtt"], end["streams"][0]["sender"]["bytes"]) == (1000, 600)


def test_datagrams_of_the_warm_up_are_left_out() -> None:
    end = warmed_up(protocol="UDP")["end"]
    found = end["streams"][0]["udp"]
    assert (found["packets"], found["lost_packets"], found["bytes"], found["out_of_order"]) == (6, 2, 600, 0)
    assert (end["sum"]["packets"], end["sum"]["lost_packets"]) == (6, 2)
    # Which of them came in the warm-up is unknown.
    assert warmed_up(protocol="UDP", reordered=2)["end"]["streams"][0]["udp"]["out_of_order"] is None


def test_server_without_intervals_is_taken_to_have_received_evenly() -> None:
    assert warmed_up(with_peer=False)["end"]["sum_received"]["bytes"] == 525


def test_reordered_datagrams_are_known_without_a_warm_up() -> None:
    flow = {**FLOW, "sent_units": 7, "received_units": 7, "lost": 0, "reordered": 3, "jitter_us": 1.0}
    outcome = {"flows": [flow], "generator": {"wall_s": 1.0, "threads": []}, "receiver": None}
    events = [HELLO, {"type": "finished", "outcome": outcome}]
    made = iperf3_document([{"event": event} for event in events], replace(ASKED, protocol="UDP"), STARTED)
    assert made["end"]["streams"][0]["udp"]["out_of_order"] == 3
