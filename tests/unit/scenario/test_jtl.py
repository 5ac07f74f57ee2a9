"""Single requests as rows of JMeter's result file."""

from __future__ import annotations

import csv
import io

from leadline.contract.records import SampleBatch
from leadline.kinds.scenario.jtl import COLUMNS, HEADER, jtl_text

MS = 1_000_000
BATCH: SampleBatch = {
    "wall_offset_ns": 1_700_000_000_000 * MS,
    "names": [
        {"name": "login, twice", "kind": "request", "population": "buyers"},
        {"name": "all", "kind": "transaction", "population": "readers"},
    ],
    "name": [0, 0, 0, 0, 1],
    "user": [1, 2, 3, 4, 5],
    "due_ns": [1000 * MS, 2000 * MS, 3000 * MS, 4000 * MS, 5000 * MS],
    "elapsed_ns": [12_600_000, 20 * MS, 30 * MS, 40 * MS, 50 * MS],
    "before_sent_ns": [2 * MS, 1 * MS, None, 0, None],
    "first_byte_ns": [9 * MS, 3 * MS, None, 5 * MS, None],
    "status": [200, 503, None, 200, None],
    "sent_bytes": [100, 101, 0, 103, 304],
    "received_bytes": [200, 201, 0, 203, 604],
    "group_active": [3, 3, 3, 3, 2],
    "all_active": [5, 5, 5, 5, 4],
    "urls": ["http://a.test/", "http://a.test/b", "http://a.test/c", "http://a.test/d", None],
    "failures": [
        {"row": 1, "cause": "status_503", "message": "503 http://a.test/b"},
        {"row": 2, "cause": "connection_refused", "message": "a.test:80 refused"},
        {"row": 3, "cause": "check_body", "message": 'no "ok" in it'},
    ],
    "openings": [{"row": 0, "dns_ns": 100_000, "connect_ns": 900_000, "tls_ns": 1 * MS}],
    "transactions": [{"row": 4, "waits_ns": 7 * MS, "requests": 3, "failed": 1}],
    "left_out": 0,
}


def rows() -> list[dict[str, str]]:
    text = HEADER + jtl_text(BATCH, ["readers", "buyers"])
    return list(csv.DictReader(io.StringIO(text)))


def test_answered_request_has_all_of_jmeters_columns() -> None:
    first = rows()[0]
    assert tuple(first) == COLUMNS
    assert list(first.values()) == [
        "1700000001000", "13", "login, twice", "200", "OK", "buyers 2-1", "text", "true", "", "200", "100", "3", "5",
        "http://a.test/", "11", "0", "2",
    ]  # fmt: skip


def test_no_cell_is_a_formula() -> None:
    """Names, URLs and messages are those of a file or of a server."""
    batch: SampleBatch = {
        **BATCH,
        "names": [{**BATCH["names"][0], "name": "=HYPERLINK(1)"}, BATCH["names"][1]],
        "failures": [
            {"row": 2, "cause": "x", "message": "y\r\n=1"},
            {"row": 3, "cause": "check_x", "message": "\t@SUM(1)"},
        ],
    }
    found = list(csv.DictReader(io.StringIO(HEADER + jtl_text(batch, ["readers", "buyers"]))))
    assert len(found) == 5
    assert {row["label"] for row in found[:4]} == {"'=HYPERLINK(1)"}
    assert found[3]["failureMessage"] == "'\t@SUM(1)"


def test_failures_say_what_jmeter_says_of_statuses_of_connections_and_of_checks() -> None:
    results = [
        (row["responseCode"], row["responseMessage"], row["success"], row["failureMessage"]) for row in rows()[1:4]
    ]
    assert results == [
        ("503", "Service Unavailable", "false", ""),
        (
            "Non HTTP response code: connection_refused",
            "Non HTTP response message: a.test:80 refused",
            "false",
            "",
        ),
        ("200", "OK", "false", 'no "ok" in it'),
    ]


def test_transaction_counts_its_requests_and_has_no_url() -> None:
    last = rows()[4]
    message = "Number of samples in transaction : 3, number of failing samples : 1"
    found = [last[name] for name in ("responseMessage", "dataType", "URL", "Latency", "IdleTime", "success")]
    assert found == [message, "", "null", "0", "7", "true"]
