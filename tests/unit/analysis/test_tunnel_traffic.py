"""Load inside of a fleet's tunnels: the side that counts, the side that was late, and the notes."""

from __future__ import annotations

from typing import Any

import pytest
from made_fleets import client, fleet_outcome
from made_journals import EPOCH_NS, MS, S, counters, finished, flow, histogram, load, progress, test_data, thread

from leadline.analysis import TestData, analyse_test
from leadline.analysis.flows import build_flows
from leadline.analysis.model import Verdict

END_NS = EPOCH_NS + 10 * S


def carrying(kind: str, direction: str = "up", rate_per_s: float = 100.0) -> TestData:
    """A fleet of one client whose load has not been reported yet."""
    traffic = {"kind": kind, "direction": direction, "rate_per_s": rate_per_s, "duration_ms": 10_000}
    return test_data("tunnel", duration_ms=None, traffic=traffic)


def end(data: TestData, report: dict[str, Any], **changes: Any) -> TestData:
    data.add("client1", finished(END_NS, {**fleet_outcome([client(0)], **changes), "flows": [report]}))
    return data


def asking(data: TestData, silent_ns: tuple[int, int] = (END_NS, END_NS)) -> int:
    """A client that asks a hundred times a second, and is answered but for one stretch; how many answers it has."""
    answers = 0
    for t_ns in range(EPOCH_NS + 100 * MS, END_NS + 1, 100 * MS):
        answers += 0 if silent_ns[0] < t_ns <= silent_ns[1] else 10
        asked = (t_ns - EPOCH_NS) // (10 * MS)
        row = counters(0, 100 * asked, 100 * answers, sent_units=asked, received_units=answers)
        data.add("client1", progress(t_ns, [row], side="local"))
    return answers


def report(answers: int, **changes: Any) -> dict[str, Any]:
    units = {"sent_units": 1000, "received_units": answers, "lost": 1000 - answers}
    return flow(0, EPOCH_NS, END_NS, sent_bytes=100_000, received_bytes=100 * answers, **units, **changes)


@pytest.mark.parametrize("kind", ["echo", "http"])
def test_an_outage_of_answers_inside_is_seen(kind: str) -> None:
    data = carrying(kind)
    answers = asking(data, silent_ns=(EPOCH_NS + 4 * S, EPOCH_NS + 6 * S))
    found = analyse_test(end(data, report(answers)))
    assert found.validity.verdict is Verdict.UNSTABLE
    assert "change-point" in {reason.code for reason in found.validity.reasons}
    rates = [interval.values["packets_per_s"] for interval in found.intervals]
    assert rates[45] == pytest.approx(0) and rates[10] == pytest.approx(100)
    assert found.metrics["packets_per_s"].value == pytest.approx(answers / 10)


@pytest.mark.parametrize("kind", ["echo", "http"])
def test_steady_answers_inside_are_steady(kind: str) -> None:
    data = carrying(kind)
    found = analyse_test(end(data, report(asking(data))))
    assert found.validity.verdict is Verdict.VALID, found.validity.reasons


def test_what_a_run_that_was_cut_off_was_answered_is_shown_and_not_what_it_asked() -> None:
    data = carrying("echo")
    asking(data, silent_ns=(EPOCH_NS + 5 * S, END_NS))
    (cut_off,) = build_flows(data)
    assert cut_off.evidence == "receiver" and cut_off.delivered_units is not None
    assert (cut_off.delivered_units.total, cut_off.sent_units) == (500, 1000)


def test_the_direction_of_a_fleet_is_that_of_its_load() -> None:
    data = carrying("udp", "down")
    row = counters(0, 0, 5000, sent_units=0, received_units=50)
    data.add("client1", progress(EPOCH_NS + 5 * S, [row], side="local"))
    (cut_off,) = build_flows(data)
    assert (cut_off.direction, cut_off.evidence) == ("down", "receiver")
    assert cut_off.delivered_units is not None and cut_off.delivered_units.total == 50


def downward(late_us: float, busy: float = 0.1, **changes: Any) -> TestData:
    server = load(thread(busy), side="peer", late_p99_us=late_us)
    generator = load(**changes)
    made = report(1000, direction="down")
    return end(carrying("udp", "down"), made, receiver=server, generator=generator)


def reasons(data: TestData) -> dict[str, Verdict]:
    found = analyse_test(data).validity
    return {reason.code: reason.verdict for reason in found.reasons if reason.verdict is not None}


def test_a_server_that_sends_down_is_the_generator() -> None:
    assert reasons(downward(900.0)) == {}
    assert reasons(downward(5000.0)) == {"sends-late": Verdict.GENERATOR_LIMITED}
    assert reasons(downward(900.0, busy=0.99)) == {"thread-saturated": Verdict.GENERATOR_LIMITED}
    upward = end(carrying("udp"), report(1000), receiver=load(thread(0.99), side="peer"))
    assert reasons(upward) == {"thread-saturated": Verdict.RECEIVER_LIMITED}


def busy_under_load(direction: str, busy: float) -> TestData:
    """A fleet whose thread is busy so much of each second of its load, which begins a second after the clients came."""
    data = carrying("udp", direction)
    for second in range(11):
        account = thread(0.0) | {"user_s": busy * max(0, second - 1), "wall_s": 1.0 + second, "runnable_wait_s": 0.0}
        standing = {"counts": {"configured": 1}, "errors": {}, "threads": [account]}
        data.add("client1", {**progress(EPOCH_NS + second * S, [], side="local"), "standing": standing})
    generator = load(thread(0.0) | {"user_s": 9 * busy, "wall_s": 11.0, "runnable_wait_s": 0.0})
    return end(
        data,
        report(1000, direction=direction) | {"start_ns": EPOCH_NS + S},
        receiver=load(side="peer"),
        generator=generator,
    )


def test_a_fleets_thread_must_have_something_to_spare_under_load_too() -> None:
    assert reasons(busy_under_load("up", 0.5)) == {}
    assert reasons(busy_under_load("up", 0.99)) == {"thread-saturated": Verdict.GENERATOR_LIMITED}
    assert reasons(busy_under_load("down", 0.99)) == {"thread-saturated": Verdict.RECEIVER_LIMITED}


def test_arrivals_are_the_fleets_own_whichever_way_its_load_goes() -> None:
    data = carrying("udp", "down")
    object.__setattr__(data, "spec", type(data.spec).read({**_spec(), "rate_per_s": 1000.0}))
    late = {"histograms": [histogram("late", [20 * MS] * 100)]}
    server = load(side="peer")
    assert "sends-late" in reasons(end(data, report(1000, direction="down"), receiver=server, **late))


def _spec() -> dict[str, Any]:
    traffic = {"kind": "udp", "direction": "down", "rate_per_s": 100.0, "duration_ms": 10_000}
    return {"name": "t", "kind": "tunnel", "interval_ms": 100, "traffic": traffic}


def test_drops_of_the_fleets_own_sockets_are_reported() -> None:
    assert reasons(downward(900.0, socket_drops=3)) == {"receiver-socket-drops": Verdict.RECEIVER_LIMITED}
    assert reasons(downward(900.0, socket_drops=0)) == {}


def test_sent_packets_are_shown_if_the_receiver_does_not_report() -> None:
    made = report(1000) | {"received_bytes": None, "received_units": None, "lost": None}
    found = reasons(end(carrying("udp"), made, receiver=load(side="peer")))
    assert found == {"sender-side-figure": Verdict.UNDETERMINED}


def test_what_came_down_stays_where_the_server_does_not_tell_what_it_sent() -> None:
    made = report(900, direction="down") | {"sent_bytes": None, "sent_units": None, "lost": None}
    found = analyse_test(end(carrying("udp", "down"), made, receiver=load(side="peer")))
    assert found.metrics["throughput_bps"].value == pytest.approx(900 * 100 * 8 / 10)
    assert (found.metrics["received"].value, found.metrics["sent"].value) == (900, None)


def notes(data: TestData) -> dict[str, str]:
    return {note.code: note.text for note in analyse_test(data).validity.notes}


def test_requests_without_an_answer_are_reported_with_their_outcome() -> None:
    echo = carrying("echo")
    lost = report(asking(echo, silent_ns=(EPOCH_NS + 9 * S, END_NS)))
    assert "unanswered" not in notes(end(echo, lost, counts={"unanswered": 100})), "they are the lost ones"
    http = carrying("http")
    made = report(asking(http))
    counts = {"requests_sent": 1000, "unanswered": 100, "unanswered_over_1s": 90}
    assert "90 of them for more than a second" in notes(end(http, made, counts=counts))["unanswered"]
