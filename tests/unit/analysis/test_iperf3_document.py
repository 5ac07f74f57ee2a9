"""Parts of iperf3's document that need no measurement: the server's output, and the document of a failure."""

from __future__ import annotations

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
