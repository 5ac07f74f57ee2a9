"""Payload against a given gateway's interface counters: what went another way is found, what is not known is said."""

from __future__ import annotations

from typing import Any

import pytest
from made_journals import EPOCH_NS, MS, MadeRun, S, observation, outcome, steady_test, test_data
from made_journals import finished as finished_event
from made_journals import flow as flow_report

from leadline.analysis import TestData, analyse
from leadline.analysis.model import Reason, Verdict
from leadline.analysis.test_analysis import analyse_test

MOVED = 10_000_000
"""Payload of `steady_test`, bytes."""


def crossed(
    data: TestData, received: int, sent: int, *, together: tuple[str, ...] = (), before: bool = True, after: bool = True
) -> TestData:
    """The test with a gateway whose interfaces count these bytes from its beginning to its end."""
    data.given_gateways = {"gateway": together}
    instants = [*([EPOCH_NS - 50 * MS] if before else []), EPOCH_NS + 5 * S, *([EPOCH_NS + 11 * S] if after else [])]
    first = instants[0]
    for t_ns in instants:
        share = (t_ns - first) / (instants[-1] - first)
        counters = {"lo": (0, 0), "wan": (7_000 + round(share * received), 90_000 + round(share * sent))}
        data.add("gateway", observation(t_ns, interfaces=counters))
    return data


def reasons(data: TestData) -> dict[str, tuple[Verdict, Reason]]:
    validity = analyse_test(data).validity
    return {reason.code: (validity.verdict, reason) for reason in validity.reasons}


def test_payload_that_crossed_leaves_the_result_valid() -> None:
    assert reasons(crossed(steady_test(), MOVED + 1, MOVED + 1)) == {}


@pytest.mark.parametrize(("received", "sent"), [(4_000, 3_000), (MOVED - 1, MOVED + 1), (MOVED + 1, MOVED - 1)])
def test_payload_that_went_another_way_makes_the_result_incomplete(received: int, sent: int) -> None:
    verdict, reason = reasons(crossed(steady_test(), received, sent))["gateway-not-crossed"]
    assert verdict is Verdict.INCOMPLETE
    assert "10.000 MB of payload" in reason.text
    counted = {4_000: "4,000 bytes", 3_000: "3,000 bytes", MOVED - 1: "10.000 MB", MOVED + 1: "10.000 MB"}
    assert f"received {counted[received]} and sent {counted[sent]} while" in reason.text


def test_a_lab_gateway_is_not_asked() -> None:
    data = crossed(steady_test(), 0, 0)
    data.given_gateways = {}
    assert reasons(data) == {}


@pytest.mark.parametrize("missing", ["before", "after"])
def test_few_bytes_in_part_of_the_test_prove_nothing(missing: str) -> None:
    found = reasons(crossed(steady_test(), 100, 100, before=missing != "before", after=missing != "after"))
    assert found["gateway-counters-unknown"][0] is Verdict.UNDETERMINED
    assert "gateway-not-crossed" not in found


def test_enough_bytes_in_part_of_the_test_are_enough() -> None:
    assert reasons(crossed(steady_test(), 2 * MOVED, 2 * MOVED, before=False)) == {}


def test_a_gateway_that_was_not_observed_is_undetermined() -> None:
    data = steady_test()
    data.given_gateways = {"gateway": ()}
    assert reasons(data)["gateway-counters-unknown"][0] is Verdict.UNDETERMINED


def test_an_interface_that_goes_away_hides_no_bytes_and_proves_nothing() -> None:
    data = steady_test()
    data.given_gateways = {"gateway": ()}
    for t_ns, counters in (
        (EPOCH_NS - 1, {"wan": (0, 0), "tun0": (5 * MOVED, 5 * MOVED)}),
        (EPOCH_NS + 5 * S, {"wan": (10, 10)}),
        (EPOCH_NS + 11 * S, {"wan": (20, 20)}),
    ):
        data.add("gateway", observation(t_ns, interfaces=counters))
    assert set(reasons(data)) == {"gateway-counters-unknown"}


def test_a_gateway_on_the_servers_interfaces_cannot_show_the_way() -> None:
    verdict, reason = reasons(crossed(steady_test(), 3 * MOVED, 3 * MOVED, together=("client1", "server")))[
        "gateway-counters-unknown"
    ]
    assert verdict is Verdict.UNDETERMINED
    assert "shares its interfaces with client1 and server" in reason.text


def test_too_few_bytes_count_on_shared_interfaces_too() -> None:
    assert "gateway-not-crossed" in reasons(crossed(steady_test(), 5, 5, together=("client1",)))


def answered(requests: int, answers: int, asked_bytes: int, answered_bytes: int) -> TestData:
    """An rr test of 10 s, of whose requests some were answered."""
    data = test_data("rr")
    counts: dict[str, Any] = {"sent_units": requests, "received_units": answers}
    report = flow_report(
        0, EPOCH_NS, EPOCH_NS + 10 * S, sent_bytes=asked_bytes, received_bytes=answered_bytes, **counts
    )
    data.add("client1", finished_event(EPOCH_NS + 10 * S, outcome([report])))
    return data


def test_of_transactions_requests_and_answers_cross() -> None:
    """Of 1000 requests half were answered: what is known to have crossed is half of the requests, and the answers."""
    assert "gateway-not-crossed" not in reasons(crossed(answered(1000, 500, 64_000, 500_000), 532_000, 532_000))
    assert "gateway-not-crossed" in reasons(crossed(answered(1000, 500, 64_000, 500_000), 531_999, 532_000))


def test_what_was_only_sent_need_not_have_reached_the_gateway() -> None:
    data = test_data("udp")
    report = flow_report(0, EPOCH_NS, EPOCH_NS + 10 * S, sent_bytes=MOVED, received_bytes=None, sent_units=100)
    data.add("client1", finished_event(EPOCH_NS + 10 * S, outcome([report])))
    assert "gateway-not-crossed" not in reasons(crossed(data, 5, 5))


def test_both_gateways_of_a_journal_are_looked_at() -> None:
    run = MadeRun()
    run.offsets_ns["gateway-a"] = 4 * S
    run.begin()
    run.begin_trial("c01/1")
    run.record("given-hosts", trial="c01/1", gateways={"gateway": [], "gateway-a": []})
    for host in ("gateway", "gateway-a"):
        run.event(host, observation(EPOCH_NS - MS, interfaces={"wan": (0, 0)}))
    run.test("c01/1", 1e6)
    for host, counted in (("gateway", 2 * MOVED), ("gateway-a", MOVED // 500)):
        run.event(host, observation(EPOCH_NS + 20 * S, interfaces={"wan": (counted, counted)}))
    run.end_trial("c01/1")
    run.end()
    (trial,) = analyse({}, run.entries).trials
    named = [reason.text for reason in trial.tests[0].validity.reasons if reason.code == "gateway-not-crossed"]
    assert [text.partition("'")[0] for text in named] == ["gateway-a"]
