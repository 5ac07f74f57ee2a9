"""The server as the limit of a load that waits for its answers."""

from __future__ import annotations

from typing import Any

import pytest
from made_gateways import with_gateway
from made_journals import MS, facts, histogram, load, steady_test, thread

from leadline.analysis import TestData, analyse_test
from leadline.analysis.model import LimitedBy


def limit(data: TestData) -> tuple[LimitedBy, str]:
    found = analyse_test(data).limit
    assert found is not None
    return found.by, found.evidence


def closed_loop(
    path: str = "/",
    *,
    busy: float = 0.2,
    waiting: float = 0.0,
    first_ms: float = 19.9,
    connections: int = 20,
    trip_ms: float | None = 0.3,
    machine: float = 0.3,
    softirq: float = 0.1,
    longest_ms: int = 20,
    kernels_us: float | None = None,
    body_bytes: int | None = None,
    **more: Any,
) -> TestData:
    """1,000 requests per second over 20 connections, of 20 ms each, one of which may be longer."""
    times = {"service": 20 * MS, "latency": 20 * MS, "first_byte": round(first_ms * MS)}
    histograms = [histogram(name, [value] * 999 + [longest_ms * MS]) for name, value in times.items()]
    if trip_ms is not None:
        histograms.append(histogram("connect", [round(trip_ms * MS)] * 20))
    data = with_gateway(
        steady_test("http", histograms=histograms, generator=load(thread(busy, waiting), thread(busy, waiting)))
    )
    for found in data.load_outcomes():
        if body_bytes is not None:
            counts = {"body_bytes": 10_000 * body_bytes, "responses": 10_000}
            found.outcome["counts"] |= counts  # type: ignore[typeddict-item]
        for flow in found.outcome["flows"]:
            flow["rtt_mean_us"] = kernels_us
    data.facts["client1"] = facts()
    spec = {"name": "t", "kind": "http", "duration_ms": 10_000, "interval_ms": 100, "connections": connections}
    data.spec = type(data.spec).read({**spec, "path": path, **more})
    for number, sample in enumerate(data.samples["gateway"]):
        idle = (2 - machine - softirq) * number
        cpu_s = (machine * number, 0.0, softirq * number, 0.0, 0.0, 0.0, idle)
        data.samples["gateway"][number] = sample._replace(cpu_s=cpu_s, cpus=2)
    return data


def test_a_server_that_was_asked_to_wait() -> None:
    assert limit(closed_loop("/?delay=19.5ms", trip_ms=None, machine=1.9)) == (
        LimitedBy.SERVER,
        "20 requests at a time, of 20 ms each, are the rate of 1000/s; the server waited 19.5 ms of each, as the "
        "request asked it to",
    )
    assert limit(closed_loop("/?size=10&delay=25ms", trip_ms=None))[0] is LimitedBy.UNKNOWN, (
        "it answered before that time"
    )
    assert limit(closed_loop("/?delay=5ms", trip_ms=None))[0] is LimitedBy.UNKNOWN, "that is a quarter of its time"


def test_a_server_whose_own_time_is_what_a_round_trip_is_not() -> None:
    found, text = limit(closed_loop())
    assert found is LimitedBy.SERVER
    assert text.endswith(
        "19.9 ms of each passed until the first byte, of which a round trip is 0.3 ms: the rest is the server's"
    )


def test_a_client_that_was_late_to_see_its_connections_opened_does_not_blame_the_path() -> None:
    found, text = limit(closed_loop(trip_ms=8.0, kernels_us=300))
    assert found is LimitedBy.SERVER
    assert "a round trip is 0.3 ms" in text


def test_requests_that_the_window_cuts_are_missing_from_the_rate() -> None:
    assert limit(closed_loop(connections=22, longest_ms=900))[0] is LimitedBy.SERVER


def test_a_server_that_takes_longer_than_a_full_machine_explains() -> None:
    """Its generating threads waited 0.4 ms of a CPU for each answer, which took 19.9 ms."""
    assert limit(closed_loop(machine=1.9, waiting=0.2))[0] is LimitedBy.SERVER


def test_thread_that_waited_for_a_cpu_is_named_where_no_limit_is_known() -> None:
    text = limit(closed_loop(trip_ms=None, waiting=0.2))[1]
    assert text.endswith("at its end; a thread on client1 was ready to run and waited for a CPU 20 % of the time")


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"trip_ms": None}, id="the path's round trip is not known"),
        pytest.param({"trip_ms": 8.0, "kernels_us": 7000}, id="the path takes a good part of the time"),
        pytest.param({"first_ms": 10.0}, id="the answer's body takes half of the time"),
        pytest.param({"connections": 22}, id="connections had no request a tenth of the time"),
        pytest.param({"busy": 0.85}, id="the generator had hardly CPU to spare"),
        pytest.param({"machine": 1.9, "waiting": 0.55}, id="the machine was full, and its threads waited for a CPU"),
        pytest.param({"softirq": 0.6}, id="the kernel of the gateway was not idle"),
    ],
)
def test_a_closed_loop_that_may_wait_for_something_else(changes: dict[str, Any]) -> None:
    assert limit(closed_loop(**changes))[0] is not LimitedBy.SERVER


@pytest.mark.parametrize(
    ("busy", "waiting", "by", "how"),
    [
        (0.85, 0.0, LimitedBy.ANSWERING_SIDE, "85 % of the time of its flow, on a CPU"),
        (0.3, 0.55, LimitedBy.ANSWERING_SIDE, "85 % of the time of its flow, 55 % of it waiting for a CPU"),
        (0.4, 0.1, LimitedBy.UNKNOWN, ""),
    ],
)
def test_an_answering_side_that_takes_most_of_a_transaction(
    busy: float, waiting: float, by: LimitedBy, how: str
) -> None:
    data = steady_test("rr", receiver=load(thread(busy, waiting=waiting), side="peer"))
    found, text = limit(data)
    assert found is by
    assert text.endswith(how)


def test_load_whose_rate_was_kept_waits_for_no_server() -> None:
    assert limit(closed_loop("/?delay=19.5ms", rate_per_s=1000.0))[0] is LimitedBy.OFFERED_RATE


@pytest.mark.parametrize("changes", [{}, {"first_ms": 0.4, "body_bytes": 1000}])
def test_server_that_brings_less_than_is_due_on_all_connections(changes: dict[str, Any]) -> None:
    """1,000/s come of 2,000/s that are due: each of 20 connections waits 20 ms for each answer."""
    found, text = limit(short_of_rate(closed_loop(rate_per_s=2000.0, **changes)))
    assert found is LimitedBy.SERVER
    assert text.startswith("20 requests at a time, of 20 ms each, are the rate of 1000/s, and more were due; ")
    # A fifth of the connections was free: something else held requests back.
    assert limit(short_of_rate(closed_loop(rate_per_s=2000.0, connections=25)))[0] is LimitedBy.UNKNOWN


@pytest.mark.parametrize(("waited", "by"), [(9000, LimitedBy.SERVER), (100, LimitedBy.GENERATOR)])
def test_connection_that_becomes_free_at_the_very_end_leaves_the_backlog_to_the_server(
    waited: int, by: LimitedBy
) -> None:
    data = short_of_rate(closed_loop(rate_per_s=2000.0))
    for found in data.load_outcomes():
        counts = {"unsent_while_busy": 0, "due_while_busy": waited, "requests_sent": 10_000}
        found.outcome["counts"] |= counts  # type: ignore[typeddict-item]
    assert limit(data)[0] is by


def short_of_rate(data: TestData) -> TestData:
    """Half of the requests that were due had no free connection."""
    for found in data.load_outcomes():
        counts = {"requests_due": 20_000, "unsent": 10_000, "unsent_while_busy": 10_000}
        found.outcome["counts"] |= counts  # type: ignore[typeddict-item]
    return data


@pytest.mark.parametrize(
    ("changes", "by"),
    [
        pytest.param({"body_bytes": 1000}, LimitedBy.SERVER, id="a short body comes in one more round trip"),
        pytest.param({"body_bytes": 100_000}, LimitedBy.UNKNOWN, id="the path may need the time for a long one"),
        pytest.param({"body_bytes": 14_000}, LimitedBy.UNKNOWN, id="half of the time on a slow line"),
        pytest.param({"body_bytes": 1000, "kernels_us": 9000}, LimitedBy.UNKNOWN, id="queues of the path"),
        pytest.param({"body_bytes": 1000, "softirq": 0.6}, LimitedBy.UNKNOWN, id="the gateway was not idle"),
        pytest.param({"body_bytes": 1000, "trip_ms": None}, LimitedBy.UNKNOWN, id="the round trip is not known"),
        pytest.param({}, LimitedBy.UNKNOWN, id="the length is not known"),
    ],
)
def test_server_whose_headers_come_at_once_and_whose_body_does_not(changes: dict[str, Any], by: LimitedBy) -> None:
    found, text = limit(closed_loop(first_ms=0.4, **changes))
    assert found is by
    if by is LimitedBy.SERVER:
        assert text.endswith(
            "20 ms of each passed until the last byte, of which two round trips, and 1,000 bytes on a slow line, are "
            "1.4 ms: the rest is the server's"
        )


@pytest.mark.parametrize(
    ("test", "delay_s"),
    [
        ({"path": "/?delay=250us"}, 250e-6),
        ({"path": "/a?x=1&delay=1.5s"}, 1.5),
        ({"path": "/?delay=5"}, None),
        ({"path": "/"}, None),
        ({"path": "/?delay=5ms", "urls": ["/a"]}, None),
        ({"requests": [{"url": "http://[::1]:80/?delay=2ms"}]}, 0.002),
        ({"requests": [{"url": "http://a/?delay=2ms"}, {"url": "http://a/"}]}, None),
    ],
)
def test_the_delay_that_requests_ask_for(test: dict[str, Any], delay_s: float | None) -> None:
    data = steady_test("http")
    found = type(data.spec).read({"name": "t", "kind": "http", "duration_ms": 1000, **test}).asked_delay_s
    assert found == (None if delay_s is None else pytest.approx(delay_s))
