"""The figures of fleets: end states and their causes, times of those that got there, and who was the limit."""

# Figures are compared with pytest.approx within tuples.
# mypy: disable-error-code=comparison-overlap
from __future__ import annotations

from typing import Any

import pytest
from made_fleets import client, fleet
from made_journals import EPOCH_NS, MS, S, flow, histogram, load, progress, test_data, thread

from leadline.analysis import TestData, analyse_test
from leadline.analysis.model import Verdict
from leadline.analysis.tunnels import arrivals, storm_window
from leadline.plan.kinds import metrics_of, plan_kinds


def values(data: TestData) -> dict[str, float | None]:
    return {name: metric.value for name, metric in analyse_test(data).metrics.items()}


def reasons(data: TestData) -> set[str]:
    return {reason.code for reason in analyse_test(data).validity.reasons}


def mixed() -> list[dict[str, Any]]:
    """Sixty configured, forty without an address, and three that had no answer."""
    return [
        *(client(number) for number in range(60)),
        *(client(number, "partial", "partial_no_address") for number in range(60, 100)),
        *(client(number, "failed", "reset_unanswered", attempts=3, retransmits=5) for number in range(100, 103)),
    ]


def test_every_client_is_in_one_state_and_has_its_cause() -> None:
    found = analyse_test(fleet(mixed()))
    figures = {name: metric.value for name, metric in found.metrics.items()}
    assert [figures[name] for name in ("clients", "configured", "partial", "failed")] == [103, 60, 40, 3]
    assert figures["failed_ratio"] == pytest.approx(3 / 103)
    assert figures["unconfigured_ratio"] == pytest.approx(43 / 103)
    assert (figures["attempts"], figures["retransmits"]) == (60 + 40 + 9, 15)
    assert found.fleet is not None
    assert [(one.cause, one.clients, one.examples) for one in found.fleet.partial] == [
        ("partial_no_address", 40, (60, 61, 62))
    ]
    assert [(one.cause, one.clients, one.examples) for one in found.fleet.failed] == [
        ("reset_unanswered", 3, (100, 101, 102))
    ]
    assert found.fleet.ciphers == {"AES-256-GCM": 100}
    assert found.fleet.ignored_options == ("line 3: persist-tun",)
    assert found.validity.verdict is Verdict.VALID, "what a server does to its clients is a figure, not a gap"


def test_times_are_those_of_the_clients_that_got_there() -> None:
    figures = values(fleet(mixed()))
    assert figures["connect_min_ms"] == pytest.approx(10, rel=1e-3)
    assert figures["connect_max_ms"] == pytest.approx(69, rel=1e-3)
    assert figures["connect_p50_ms"] == pytest.approx(39, rel=1e-3)
    assert figures["late_p99_us"] == pytest.approx(900, rel=1e-3)
    assert figures["reconnect_p50_ms"] is None and figures["ping_during_p99_ms"] is None


def test_handshakes_are_counted_from_the_first_due_to_the_last_up() -> None:
    assert values(fleet(mixed()))["handshakes_per_s"] == pytest.approx(60 / 0.069)
    late = [client(0), client(1, due_ns=EPOCH_NS + 5 * S, configured_ns=S)]
    assert values(fleet(late))["handshakes_per_s"] == pytest.approx(2 / 6)
    settled = [client(0, due_ns=EPOCH_NS - 50 * S), client(1), client(2)]
    assert values(fleet(settled, {"settled": 1}))["handshakes_per_s"] == pytest.approx(2 / 0.012)
    assert values(fleet([client(0)]))["handshakes_per_s"] is None
    again = [client(0, due_ns=EPOCH_NS + 5 * S, first_due_ns=EPOCH_NS, configured_ns=S), client(1, due_ns=EPOCH_NS + S)]
    assert values(fleet(again))["handshakes_per_s"] == pytest.approx(2 / 6), "a retry's client was due before"


def test_a_storm_is_that_of_the_arrivals() -> None:
    settled = [client(0, due_ns=EPOCH_NS - 50 * S), client(1), client(2)]
    window = storm_window(fleet(settled, {"settled": 1}))
    assert window is not None and (window.start_ns, window.end_ns) == (EPOCH_NS, EPOCH_NS + 12 * MS)
    assert storm_window(fleet([client(0)], {"settled": 1})) is None


def test_clients_are_drawn_by_due_and_connect_time() -> None:
    late = client(3, due_ns=EPOCH_NS + S, configured_ns=S)
    rows = [client(0, due_ns=EPOCH_NS - S), client(1), client(2, "failed", "unanswered"), late, client(4, "waiting")]
    data = fleet(rows, {"settled": 1})
    due, up = analyse_test(data).series[:2]
    assert [(line.label, line.unit) for line in (due, up)] == [("due", "clients"), ("configured", "clients")]
    assert due.t_s == up.t_s and (due.t_s[0], due.t_s[-1]) == (0.0, 2.0)
    at = dict(zip(due.t_s, zip(due.values, up.values, strict=True), strict=True))
    assert at[0.0] == (2, 0) and at[2.0] == (3, 2)
    assert {counts for t, counts in at.items() if 0.02 < t < 0.99} == {(2, 1)}
    assert {counts for t, counts in at.items() if 1.01 < t < 1.99} == {(3, 1)}
    assert arrivals(fleet([client(0, "failed", "unanswered")])) == ()
    # Who came before all that came up stands before the zero that the other lines have.
    early, _ = arrivals(fleet([client(0, "failed", "unanswered", due_ns=EPOCH_NS - S), client(1)]))
    assert (early.t_s[0], early.values[0], early.values[-1]) == (-1.0, 1, 2)


def test_a_curve_is_drawn_once() -> None:
    drawn = [curve.metric for curve in analyse_test(fleet(mixed())).percentiles]
    assert "connect" in drawn and len(drawn) == len(set(drawn))


def test_who_came_back_after_a_failure_is_counted() -> None:
    rows = [client(0), client(1, attempts=3), client(2, "failed", "tls_alert_bad_certificate", attempts=3)]
    found = analyse_test(fleet(rows))
    assert found.metrics["recovered"].value == 1
    assert found.fleet is not None and found.fleet.recovered == 1


def test_pings_and_memory_are_summed_over_the_clients() -> None:
    figures = values(fleet(mixed()))
    assert (figures["pings_sent"], figures["pings_lost"]) == (600, 60)
    assert figures["memory_per_client_bytes"] == pytest.approx(40_000_000 / 103)
    counts = {"pings_sent_before": 10, "pings_answered_before": 10, "pings_sent_during": 5, "lost": 2, "recovered": 9}
    by_name = values(fleet(mixed(), counts=counts))
    assert [by_name[f"pings_lost_{when}"] for when in ("before", "during", "after")] == [0, 5, None]
    assert (by_name["tunnels_lost"], by_name["recovered"]) == (2, 9)
    assert (figures["tunnels_lost"], figures["recovered"]) == (0, 0), "what an agent leaves out did not happen"
    assert (figures["pings_unsent"], figures["actions_skipped"], figures["reconnects_begun"]) == (0, 0, 0)
    silent = values(fleet([client(0, inside={})]))
    assert (silent["pings_sent"], silent["pings_lost"]) == (None, None)


def test_planned_actions_of_clients_have_denominators() -> None:
    counts = {
        "recovered_partial": 2,
        "reconnects_begun": 9,
        "renegotiations_asked": 8,
        "renegotiations_unfinished": 3,
        "renegotiations_failed": 2,
        "actions_skipped": 1,
        "pings_unsent": 4,
    }
    by_name = values(fleet(mixed(), counts=counts))
    assert {name: by_name[name] for name in counts} == counts
    cut = test_data("tunnel", duration_ms=None)
    assert all(values(cut)[name] is None for name in counts), "not known is not nothing"


def carrying(**changes: Any) -> TestData:
    """Two clients, each with a flow of datagrams that lost one in ten, late by 100 µs."""
    spec = {"traffic": {"kind": "udp", "rate_per_s": 100.0, "duration_ms": 10_000}}
    data = fleet([client(0), client(1)], spec)
    made = data.outcomes[0].outcome
    rows = [
        flow(number, EPOCH_NS, EPOCH_NS + 10 * S, sent_bytes=1_000_000, received_bytes=900_000, sent_units=1000,
             received_units=900, lost=100)
        for number in range(2)
    ]  # fmt: skip
    late = histogram("traffic_late", [100_000] * 99 + [changes.pop("latest_ns", 100_000)])
    latency = histogram("latency", [5 * MS] * 10)
    changed = {**made, "flows": rows, "histograms": [*made["histograms"], late, latency], **changes}
    object.__setattr__(data.outcomes[0], "outcome", changed)
    return data


def test_traffic_has_the_names_that_it_has_without_tunnels() -> None:
    figures = values(carrying())
    assert set(figures) == set(metrics_of("tunnel"))
    [specs] = [kind.metrics for kind in plan_kinds() if kind.name == "tunnel"]
    units = {name: metric.unit for name, metric in analyse_test(carrying()).metrics.items()}
    assert units == {spec.name: spec.unit for spec in specs}
    assert figures["throughput_bps"] == pytest.approx(2 * 900_000 * 8 / 10)
    assert figures["packets_per_s"] == pytest.approx(180)
    assert (figures["sent"], figures["received"], figures["lost"]) == (2000, 1800, 200)
    assert figures["lost_ratio"] == pytest.approx(0.1)
    assert figures["latency_p99_us"] == pytest.approx(5000, rel=1e-3)
    assert (figures["sends_late_p99_us"], figures["sends_late_ratio"]) == (pytest.approx(100, rel=1e-3), 0)
    assert values(carrying(latest_ns=2 * MS))["sends_late_ratio"] == pytest.approx(0.01)
    assert not {name for name in values(fleet(mixed())) if name.endswith("_bps")}, "a fleet that carries nothing"


def test_units_follow_from_the_names_of_a_fleets_figures() -> None:
    endings = {
        "_per_s": "1/s",
        "_s": "s",
        "_bps": "bit/s",
        "_us": "us",
        "_ms": "ms",
        "_ratio": "ratio",
        "_bytes": "bytes",
    }
    for name, metric in analyse_test(carrying()).metrics.items():
        expected = next((unit for ending, unit in endings.items() if name.endswith(ending)), "count")
        assert metric.unit == expected, name


def standing(t_ns: int, busy_s: float, wall_s: float) -> dict[str, Any]:
    """A progress event in which the fleet's one thread tells what it has cost."""
    account = {"name": "load", "user_s": busy_s, "system_s": 0.0, "runnable_wait_s": 0.0, "wall_s": wall_s}
    by_name = {"counts": {"configured": 1}, "errors": {}, "threads": [account]}
    return {**progress(t_ns, [], side="local"), "standing": by_name}


def storm(busy_s: float) -> TestData:
    """A storm of 69 ms at the beginning of 10 s, in whose first second the thread was busy for this time."""
    data = test_data("tunnel", duration_ms=None)
    data.add("client1", {"type": "started", "task": "load", "t_ns": EPOCH_NS, "due_ns": EPOCH_NS})
    data.add("client1", standing(EPOCH_NS + S, busy_s, 1.0))
    data.add("client1", standing(EPOCH_NS + 9 * S, busy_s + 0.1, 9.0))
    done = fleet(mixed(), generator=load({**thread(0.0), "user_s": busy_s + 0.1, "wall_s": 10.0}))
    data.outcomes = done.outcomes
    return data


def test_a_short_storm_is_judged_by_the_second_that_it_lasted() -> None:
    busy = analyse_test(storm(0.97))
    assert busy.validity.verdict is Verdict.GENERATOR_LIMITED
    assert [reason.code for reason in busy.validity.reasons] == ["thread-saturated"]
    assert busy.generator is not None and busy.generator.busiest_thread == pytest.approx(0.97)
    idle = analyse_test(storm(0.5))
    assert idle.validity.verdict is Verdict.VALID
    assert idle.generator is not None and idle.generator.busiest_thread == pytest.approx(0.5)


def test_arrivals_at_a_rate_and_sends_inside_must_not_be_late() -> None:
    rate = {"rate_per_s": 1000.0}
    assert "sends-late" not in reasons(fleet(mixed(), rate)), "under 1 ms is as good as on time"
    late = fleet(mixed(), rate)
    made = late.outcomes[0].outcome
    slow = [one for one in made["histograms"] if one["metric"] != "late"] + [histogram("late", [20 * MS] * 100)]
    object.__setattr__(late.outcomes[0], "outcome", {**made, "histograms": slow})
    assert reasons(late) == {"sends-late"}
    late.spec = fleet(mixed()).spec
    assert reasons(late) == set(), "of clients that come at once, all but the first are late"
    assert "sends-late" not in reasons(carrying(latest_ns=200 * MS)), "one in a hundred is not p99"
    assert "unsent" not in reasons(carrying(counts={"unsent": 2})), "one of each client may just be due"
    assert "unsent" in reasons(carrying(counts={"unsent": 3}))


def test_what_is_missing_of_a_fleet_is_said() -> None:
    waiting = fleet([client(0), client(1, "waiting", attempts=0)])
    assert reasons(waiting) == {"clients-never-tried"}
    assert reasons(fleet([])) == {"no-clients-reported"}
    assert reasons(fleet([client(0), client(1, "failed", "unfinished")])) == {"clients-unfinished"}
    cut = test_data("tunnel", duration_ms=None)
    cut.status = "interrupted"
    by_name = standing(EPOCH_NS + S, 0.1, 1.0)
    by_name["standing"]["counts"] = {"configured": 7, "partial": 1, "failed": 2, "waiting": 90}
    cut.add("client1", by_name)
    figures = values(cut)
    assert [figures[name] for name in ("clients", "configured", "partial", "failed")] == [100, 7, 1, 2]
    assert reasons(cut) == {"ended-early"}


def test_load_inside_is_that_of_the_configured_clients() -> None:
    data = carrying()
    made = data.outcomes[0].outcome
    report = made["tunnel"]
    assert report is not None
    rows = [*report["clients"], client(2, "failed", "window_timeout")]
    object.__setattr__(data.outcomes[0], "outcome", {**made, "tunnel": {**report, "clients": rows}})
    notes = {note.code: note.text for note in analyse_test(data).validity.notes}
    assert notes["clients-without-traffic"] == "2 of 3 clients carried the load in the tunnels"
