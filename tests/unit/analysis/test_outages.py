"""Outages of links: which there were, which concern the load, and what is said of a test with one. Made journals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from made_journals import EPOCH_NS, MS, MadeRun, S, observation

from leadline.analysis import analyse
from leadline.analysis.model import LimitedBy, Reason, RunAnalysis, Verdict
from leadline.analysis.outages import CONSEQUENCES, without_consequences
from leadline.cli.output import run_code

Change = tuple[str, str, float, bool, bool]
"""Host, interface, second of the test, whether it is up, and whether it has a carrier."""


def link(change: Change, **others: Any) -> tuple[str, dict[str, Any]]:
    host, name, at_s, is_up, has_carrier = change
    state = {"name": name, "is_up": is_up, "has_carrier": has_carrier, "carrier_losses": 1, "is_removed": False}
    return host, {"type": "link", "t_ns": EPOCH_NS + round(at_s * S), **state, **others}


def run_with(
    *events: tuple[str, dict[str, Any]], repeats: int = 1, targets: Sequence[str] = (), over: str = "wan"
) -> RunAnalysis:
    """A run of TCP tests at 8 Mbit/s, 10 s each; the first one has these events. Each host has a link of the load and
    one that carries little."""
    made = MadeRun()
    made.begin()
    for repeat in range(1, repeats + 1):
        begin_ns = EPOCH_NS + (repeat - 1) * 60 * S
        made.begin_trial(f"c01/{repeat}", clients=1)
        for host, event in events if repeat == 1 else ():
            made.event(host, event)
        for host in ("client1", "gateway", "server"):
            for step in (0, 10):
                carried = {"lo": (0, 10**12), over: (0, step * 1_000_000), "management": (step * 10_000, 0)}
                made.event(host, observation(begin_ns + step * S, interfaces=carried))
        made.test(f"c01/{repeat}", 1e6, begin_ns=begin_ns)
        made.end_trial(f"c01/{repeat}")
    made.end()
    return analyse(
        {"plan": {"name": "made", "targets": list(targets)}, "cases": [{"id": "c01", "tests": []}]}, made.entries
    )


def reasons(run: RunAnalysis) -> dict[str, str]:
    return {reason.code: reason.text for reason in run.trials[0].tests[0].validity.reasons}


DOWN, UP = ("client1", "wan", 2.0, False, False), ("client1", "wan", 6.0, True, True)
SENTENCE = "the link wan of client1 was out for 4.00 s, from 2.00 s into the test on: its host set it down"


def test_outage_is_the_first_sentence_with_its_start_its_length_and_what_was_measured_before() -> None:
    run = run_with(link(DOWN), link(UP))
    (test,) = run.trials[0].tests
    assert test.validity.verdict is Verdict.UNSTABLE
    assert reasons(run)["link-outage"] == f"{SENTENCE}; until then it carried 8.00 Mbit/s"
    assert test.metrics["throughput_bps"].verdict is Verdict.UNSTABLE and test.metrics["throughput_bps"].value
    assert test.limit is not None and test.limit.by is LimitedBy.LINK and test.limit.evidence.startswith(SENTENCE)
    (answer,) = run.answers
    assert answer.sentence.startswith(f"T{SENTENCE[1:]}; until then it carried 8.00 Mbit/s. ")
    assert answer.next_step is not None and answer.next_step.startswith("see why the named link was out")
    assert run_code(run, ()) == 0


def test_target_over_an_outage_is_undecided() -> None:
    wanted = ("tcp-up.throughput_bps > 1mbit",)
    assert [one.outcome for one in run_with(targets=wanted).targets] == ["met"]
    run = run_with(link(DOWN), link(UP), targets=wanted)
    assert [one.outcome for one in run.targets] == ["undecided"]
    assert run_code(run, ()) == 4


def test_link_that_stays_out_is_incomplete_and_a_failure() -> None:
    run = run_with(link(DOWN))
    assert reasons(run)["link-lost"].startswith(
        "the link wan of client1 was out from 2.00 s into the test on to its end, for 8.00 s: its host set it down"
    )
    assert run.trials[0].tests[0].validity.verdict is Verdict.INCOMPLETE
    assert run_code(run, ()) == 1


def test_end_that_was_set_down_is_named_before_the_one_that_lost_its_carrier() -> None:
    early = ("gateway", "wan", 1.9, True, False)
    run = run_with(link(early), link(DOWN), link(UP), link(("gateway", "wan", 6.1, True, True)))
    assert reasons(run)["link-outage"].startswith(SENTENCE)
    assert "another outage" not in reasons(run)["link-outage"]


def test_pulled_cable_is_no_carrier() -> None:
    run = run_with(link(("server", "wan", 3.0, True, False)), link(("server", "wan", 3.5, True, True)))
    assert reasons(run)["link-outage"].startswith(
        "the link wan of server was out for 500 ms, from 3.00 s into the test on: it had no carrier (the cable, "
    )


def test_interface_that_is_gone_is_named() -> None:
    gone = link(("client1", "wan", 3.0, False, False), is_removed=True)
    assert ": it was gone from its host" in reasons(run_with(gone))["link-lost"]


def test_carrier_that_goes_before_its_interface_is_set_down_is_one_outage() -> None:
    run = run_with(link(("client1", "wan", 2.0, True, False)), link(("client1", "wan", 2.1, False, False)), link(UP))
    assert reasons(run)["link-outage"].startswith(SENTENCE)


def test_further_outages_are_counted() -> None:
    again = [
        ("client1", "wan", at, works, works) for at, works in ((7.0, False), (7.5, True), (8.0, False), (8.5, True))
    ]
    text = reasons(run_with(link(DOWN), link(UP), *map(link, again)))["link-outage"]
    assert "; 2 more outages of links followed" in text


def test_carrier_lost_and_found_between_two_reports_is_seen_in_its_count() -> None:
    first = link(("client1", "wan", -30.0, True, True))
    flap = link(("client1", "wan", 4.0, True, True), carrier_losses=2)
    text = reasons(run_with(first, flap))["link-outage"]
    assert text.startswith(
        "the link wan of client1 was out for a moment, 4.00 s into the test: it lost its carrier and"
    )


@pytest.mark.parametrize(
    "changes",
    [
        [("client1", "management", 2.0, False, False), ("client1", "management", 6.0, True, True)],
        [("client1", "wan", -20.0, False, False), ("client1", "wan", -10.0, True, True)],
        [("client1", "wan", 10.5, False, False)],
        [("client1", "tun0", 2.0, False, False)],
    ],
    ids=["carries no load", "before the test", "after the test", "never carried"],
)
def test_outage_that_is_not_the_loads_changes_nothing(changes: list[Change]) -> None:
    run = run_with(*map(link, changes))
    assert not {"link-outage", "link-lost"} & set(reasons(run))
    whole = run_with()
    assert (run.trials, run.summaries, run.answers) == (whole.trials, whole.summaries, whole.answers)


def test_link_beside_a_load_over_loopback_is_not_the_loads() -> None:
    """Although it carried more than any other link did, as that of a container that ends."""
    changes = (link(("client1", "management", 2.0, False, False)), link(("client1", "management", 6.0, True, True)))
    assert not {"link-outage", "link-lost"} & set(reasons(run_with(*changes, over="lo")))


def test_what_an_outage_brings_about_is_no_reason_of_its_own() -> None:
    """The rate falls to nothing and comes back: a change that the outage explains."""
    found = [(Verdict.UNSTABLE, Reason(code, code)) for code in ("link-outage", *CONSEQUENCES, "other-work")]
    assert [reason.code for _, reason in without_consequences(found)] == ["link-outage", "other-work"]
    assert without_consequences(found[1:]) == found[1:]


def test_repeat_with_an_outage_is_left_out_where_two_others_are_whole() -> None:
    run = run_with(link(DOWN), link(UP), repeats=3)
    (summary,) = run.summaries
    assert summary.repeats == 2 and not any(reason.code == "link-outage" for reason in summary.validity.reasons)
    (note,) = [note.text for note in summary.validity.notes if note.code == "repeats-with-outage"]
    assert note.startswith("1 of 3 repeats had an outage: left out (the link wan of client1 was out for 4.00 s")


def test_offsets_of_clocks_and_sampling_do_not_move_an_outage() -> None:
    """The hosts' clocks are seconds apart, and no sample falls into the outage."""
    run = run_with(link(("gateway", "wan", 2.0, False, False)), link(("gateway", "wan", 2.0 + 3 * MS / S, True, True)))
    assert reasons(run)["link-outage"].startswith(
        "the link wan of gateway was out for 3.00 ms, from 2.00 s into the test"
    )


def test_errors_of_an_interface_that_carried_the_load_are_a_note() -> None:
    sample = observation(EPOCH_NS, interfaces={"lo": (0, 10**12), "wan": (0, 0), "management": (0, 0)})
    for row in sample["network"]["interfaces"]:
        row |= {"rx_errors": 1_234, "tx_errors": 2}
    (test,) = run_with(("client1", sample)).trials[0].tests
    notes = [note.text for note in test.validity.notes if note.code == "interface-errors"]
    assert notes == [
        "wan of client1 counted 1,234 errors of receiving and 2 of sending meanwhile (`ethtool -S wan`): "
        "see its cable, its port and its driver"
    ]
