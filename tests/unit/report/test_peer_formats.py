"""The layouts of wrk and ab: read with expressions as scripts use them, and their units and columns by known values."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from sample_runs import one_result

from leadline.analysis.model import Distribution, Metric
from leadline.analysis.model import TestResult as Result
from leadline.report import HttpRequested, ab_text, wrk_text
from leadline.report.peer_formats import _binary, _metric, _padded, _seconds, _time, error_kinds

ASKED = HttpRequested("http://192.0.2.7:8080/index.html?x=1", 20, 2, 10.0, keep_alive=True, has_body=False)
ERRORS = {"connection_refused": 1, "closed_early": 2, "connection_reset": 3, "broken_pipe": 4, "timeout": 5}


def latency(median_us: float, highest_us: float) -> Distribution:
    shares = (50, 66, 75, 80, 90, 95, 98, 99, 99.9)
    return Distribution(
        "latency", 10_000, 1.0, median_us, median_us / 2, 0.9731, highest_us, {float(p): median_us for p in shares}
    )


def with_latency(median_us: float, highest_us: float) -> Result:
    return replace(one_result("http"), distributions=(latency(median_us, highest_us),))


def test_wrk_is_read_by_what_reads_wrk() -> None:
    text = wrk_text(one_result("http", errors=ERRORS), ASKED)
    assert re.search(r"Running (\S+) test @ (\S+)", text).groups() == ("10s", ASKED.url)  # type: ignore[union-attr]
    assert re.search(r"(\d+) threads and (\d+) connections", text).groups() == ("2", "20")  # type: ignore[union-attr]
    stats = re.search(r"Latency\s+(\S+)\s+(\S+)\s+(\S+)\s+(\S+)%", text)
    assert stats is not None and stats.groups() == ("96.80us", "79.20us", "5.28ms", "96.80")
    assert re.search(r"Req/Sec\s+(\S+)\s+(\S+)\s+(\S+)\s+(\S+)%", text)
    listed = re.findall(r"^\s+(50|75|90|99)%\s+([\d.]+)(us|ms|s)\s*$", text, re.MULTILINE)
    assert listed == [("50", "88.00", "us"), ("75", "105.60", "us"), ("90", "123.20", "us"), ("99", "272.80", "us")]
    assert re.search(r"(\d+) requests in ([\d.]+)s, ([\d.]+)([KMG]?B) read", text)
    errors = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", text)
    assert errors is not None and errors.groups() == ("1", "5", "4", "5")
    assert re.search(r"Non-2xx or 3xx responses: 30$", text, re.MULTILINE)
    assert re.search(r"^Requests/sec:\s+88046\.40$", text, re.MULTILINE)
    assert re.search(r"^Transfer/sec:\s+1\.36MB$", text, re.MULTILINE)


def test_wrk_says_nothing_of_errors_where_there_are_none() -> None:
    quiet = one_result("http", errors={})
    quiet = replace(quiet, metrics={**quiet.metrics, "status_5xx": Metric(0.0, "count")})
    text = wrk_text(quiet, ASKED)
    assert "Socket errors" not in text and "Non-2xx" not in text


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        (_time(33.0), "33.00us"),
        (_time(849.9), "849.90us"),
        (_time(850.0), "0.85ms"),
        (_time(999_999.0), "1000.00ms"),
        (_time(1_000_000.0), "1.00s"),
        (_time(51_000_000.0), "0.85m"),
        (_seconds(50, 0), "50s"),
        (_seconds(52, 0), "1m"),
        (_seconds(3600, 0), "60m"),
        (_metric(849), "849.00"),
        (_metric(63_560), "63.56k"),
        (_binary(1023), "1.00K"),
        (_binary(10.57 * 2**20), "10.57M"),
        (_padded("33.00us", 10), "   33.00us"),
        (_padded("1.10s", 8), "  1.10s "),
        (_padded("63.00", 8), " 63.00  "),
    ],
)
def test_wrks_units_change_at_85_percent_of_the_next(written: str, wanted: str) -> None:
    assert written == wanted


def test_ab_is_read_by_what_reads_ab() -> None:
    text = ab_text(with_latency(1_400.0, 61_000.0), ASKED)
    fields = dict(re.findall(r"^([A-Z][\w /-]+?): *(.*?)$", text, re.MULTILINE))
    assert fields["Server Hostname"] == "192.0.2.7"
    assert fields["Server Port"] == "8080"
    assert fields["Document Path"] == "/index.html?x=1"
    assert fields["Document Length"] == "12 bytes"
    assert fields["Concurrency Level"] == "20"
    assert fields["Failed requests"] == "0"
    assert fields["Non-2xx responses"] == "30"
    rate = re.search(r"Requests per second:\s+([\d.]+) \[#/sec\] \(mean\)", text)
    assert rate is not None and float(rate[1]) == pytest.approx(88046.40)
    each = re.findall(r"Time per request:\s+([\d.]+) \[ms\] \(mean(, across all concurrent requests)?\)", text)
    assert [float(value) for value, _ in each] == [0.227, 0.011]
    assert re.search(r"Transfer rate:\s+[\d.]+ \[Kbytes/sec\] received", text)
    rows = re.findall(r"^(Connect|Processing|Waiting|Total):\s+(\d+)\s+(\d+)\s+([\d.]+)\s+(\d+)\s+(\d+)$", text, re.M)
    assert [row[0] for row in rows] == ["Connect", "Processing", "Waiting", "Total"]
    assert rows[-1][1:] == ("0", "1", "0.7", "1", "61")
    percentages = re.findall(r"^ {1,2}(\d+)%\s+(\d+)", text, re.MULTILINE)
    assert [share for share, _ in percentages] == ["50", "66", "75", "80", "90", "95", "98", "99", "100"]
    assert percentages[0][1] == "1" and percentages[-1][1] == "61"


def test_abs_time_per_request_is_the_mean_latency_where_requests_have_a_rate() -> None:
    text = ab_text(with_latency(1_400.0, 61_000.0), replace(ASKED, paced=True))
    each = re.findall(r"Time per request:\s+([\d.]+) \[ms\] \(mean(, across all concurrent requests)?\)", text)
    mean_us = with_latency(1_400.0, 61_000.0).metrics["latency_mean_us"].value
    assert mean_us is not None
    assert [value for value, _ in each] == [f"{mean_us / 1e3:.3f}", "0.011"]


def test_ab_tells_failures_bodies_and_tls() -> None:
    asked = replace(ASKED, url="https://[2001:db8::7]/", keep_alive=False, has_body=True)
    text = ab_text(one_result("http", errors=ERRORS), asked)
    assert re.search(
        r"^Failed requests:        11\n   \(Connect: 1, Receive: 5, Length: 0, Exceptions: 5\)$", text, re.M
    )
    assert re.search(r"^Write errors:           4$", text, re.MULTILINE)
    assert re.search(r"^Total body sent:        \d+$", text, re.MULTILINE)
    assert re.search(r"^ {24}[\d.]+ kb/s sent\n {24}[\d.]+ kb/s total$", text, re.MULTILINE)
    assert "Keep-Alive requests" not in text
    assert re.search(r"^Server Port:            443$", text, re.MULTILINE)
    assert re.search(r"^TLS Server Name:        2001:db8::7$", text, re.MULTILINE)


def test_abs_times_to_connect_are_of_all_requests() -> None:
    connect = Distribution("connect", 5_000, 2_000.0, 2_000.0, 0.0, 1.0, 2_000.0, {50.0: 2_000.0})
    result = one_result("http", metrics={"requests": Metric(10_000.0, "count")})
    half = ab_text(replace(result, distributions=(connect, latency(10.0, 20.0))), ASKED)
    assert re.search(r"^Connect:        0    1   1\.0      0       2$", half, re.MULTILINE)
    every = ab_text(replace(result, distributions=(replace(connect, count=10_000), latency(10.0, 20.0))), ASKED)
    assert re.search(r"^Connect:        2    2   0\.0      2       2$", every, re.MULTILINE)


@pytest.mark.parametrize("layout", [wrk_text, ab_text])
def test_a_measurement_without_a_single_figure_still_has_the_layout(layout: object) -> None:
    empty = replace(one_result("http", metrics={}, generator=None, window=None), distributions=(), errors={})
    assert layout(empty, ASKED).count("\n") > 8  # type: ignore[operator]


def test_every_failure_is_of_one_kind() -> None:
    named = {"dns_failed": 1, "tls_certificate_expired": 1, "connect_timeout": 1, "malformed_chunk_size": 1}
    kinds = error_kinds({**named, "status_5xx": 100})
    assert (kinds.connect, kinds.read, kinds.write, kinds.timeout) == (2, 1, 0, 1)
