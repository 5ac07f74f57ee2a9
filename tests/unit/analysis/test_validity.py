"""The verdict table of the design, case by case, with the thresholds' edges; notes change no verdict."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from made_journals import (
    EPOCH_NS,
    MS,
    S,
    counters,
    facts,
    finished,
    flow,
    histogram,
    load,
    observation,
    outcome,
    progress,
    steady_flow_events,
    steady_test,
    test_data,
    thread,
)

from leadline.analysis import TestData, analyse_test
from leadline.analysis.model import Bound, Ceiling, ClientBringUp, LimitedBy, Metric, Reason, Validity, Verdict
from leadline.analysis.scope import judge_figures
from leadline.plan.kinds import tagged_metrics_of

END_NS = EPOCH_NS + 10 * S


def verdict(data: TestData) -> tuple[str, list[str]]:
    validity: Validity = analyse_test(data).validity
    return validity.verdict.value, [reason.code for reason in (*validity.reasons, *validity.notes)]


@pytest.mark.parametrize("kind", ["tcp", "udp", "rr", "http"])
def test_nothing_wrong_is_valid(kind: str) -> None:
    assert verdict(steady_test(kind)) == ("valid", [])


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (thread(0.949), ("valid", [])),
        (thread(0.951), ("generator-limited", ["thread-saturated"])),
        (thread(0.5, 0.24), ("valid", [])),
        (thread(0.5, 0.47), ("generator-limited", ["thread-waited"])),
        (thread(0.5, 0.49), ("generator-limited", ["thread-starved"])),
        (thread(0.5, None), ("valid", [])),
        (thread(1.0) | {"spun_s": 0.51}, ("valid", [])),
        (thread(1.0) | {"spun_s": 0.49}, ("generator-limited", ["thread-saturated"])),
        (thread(0.0, 0.0, wall_s=0.0), ("valid", [])),
    ],
)
def test_a_generating_thread_with_nothing_to_spare(made: dict[str, Any], expected: tuple[str, list[str]]) -> None:
    assert verdict(steady_test("tcp", generator=load(thread(0.1), made))) == expected


@pytest.mark.parametrize("kind", ["tcp", "udp", "rr"])
def test_the_answering_side_with_nothing_to_spare(kind: str) -> None:
    assert verdict(steady_test(kind, receiver=load(thread(0.97), side="peer"))) == (
        "receiver-limited",
        ["thread-saturated"],
    )


def test_drops_at_the_receivers_socket_are_the_receivers() -> None:
    receiver = load(side="peer", socket_drops=3)
    assert verdict(steady_test("udp", receiver=receiver)) == ("receiver-limited", ["receiver-socket-drops"])


@pytest.mark.parametrize(("lost", "bound"), [(1, None), (99, None), (200, Bound.LEAST)])
def test_few_drops_at_the_receivers_socket_leave_a_whole_rate(lost: int, bound: Bound | None) -> None:
    """99 % of what was due is whole; the loss is the receiver's all the same."""
    data = steady_test("udp", receiver=load(side="peer", socket_drops=lost))
    data.outcomes[0].outcome["flows"][0] |= {"received_units": 10_000 - lost, "lost": lost}
    data.spec = paced(1000).spec
    found = analyse_test(data).metrics
    assert found["throughput_bps"].bound is bound
    assert (found["lost_ratio"].verdict, found["lost_ratio"].bound) == (Verdict.RECEIVER_LIMITED, Bound.MOST)


def test_where_payload_comes_down_the_far_side_generates() -> None:
    for far, near, expected in ((0.97, 0.5, "generator-limited"), (0.5, 0.97, "receiver-limited")):
        data = test_data(direction="down")
        report, events = steady_flow_events(0, EPOCH_NS, END_NS, 1e6, direction="down")
        for event in events:
            data.add("client1", event | {"side": "local"})
        made = outcome([report], generator=load(thread(near)), receiver=load(thread(far), side="peer"))
        data.add("client1", finished(END_NS, made))
        assert verdict(data) == (expected, ["thread-saturated"])


def doubted(data: TestData) -> dict[str, str]:
    """The figures that are not valid, and the side on which the true one lies."""
    found = analyse_test(data).metrics
    return {name: str(metric.bound) for name, metric in found.items() if metric.verdict is not Verdict.VALID}


def paced(late_ns: int, gap_s: float = 0.001, received: int = 10_000, **counts: int) -> TestData:
    data = steady_test("udp", received=received, histograms=[histogram("late", [late_ns] * 100)], counts=counts)
    spec = {"name": "t", "kind": "udp", "duration_ms": 10_000, "interval_ms": 100, "rate_pps": 1 / gap_s}
    data.spec = type(data.spec).read(spec)
    return data


def test_sends_may_be_late_by_a_millisecond_or_a_tenth_of_the_gap() -> None:
    assert verdict(paced(900_000)) == ("valid", [])
    assert verdict(paced(1_100_000)) == ("valid", ["sends-late"])
    assert verdict(paced(9_000_000, gap_s=0.1)) == ("valid", [])
    assert verdict(paced(11_000_000, gap_s=0.1)) == ("valid", ["sends-late"])


def test_late_sends_concern_jitter_alone_of_datagrams() -> None:
    assert doubted(paced(1_100_000)) == {"jitter_us": "at most"}


def test_what_was_never_sent_bounds_throughput_and_loss_from_below() -> None:
    found = doubted(paced(1000, unsent=3))
    assert found["throughput_bps"] == found["lost_ratio"] == found["lost"] == "at least"
    assert found["jitter_us"] == "not known" and "sent" not in found


def test_a_busy_thread_that_sent_everything_in_time_did_not_limit_the_rate() -> None:
    late = histogram("late", [1000] * 100)
    data = steady_test("udp", generator=load(thread(0.97)), histograms=[late])
    assert doubted(data)["throughput_bps"] == "at least"
    data.spec = paced(1000).spec
    assert verdict(data) == ("valid", ["thread-saturated"])
    delays = dict.fromkeys((f"one_way_delay_{part}_us" for part in ("min", "mean", "max", "bound")), "at most")
    assert doubted(data) == {"jitter_us": "at most", **delays}


def test_a_busy_receiver_may_have_lost_what_arrived() -> None:
    found = doubted(steady_test("udp", receiver=load(thread(0.97), side="peer")))
    assert (found["throughput_bps"], found["lost_ratio"]) == ("at least", "at most")


def test_a_short_window_concerns_rates_alone() -> None:
    whole = steady_test("udp")
    whole.spec = replace(whole.spec, duration_ns=30 * S)
    costs = {f"{end}_cpu_ns_per_packet" for end in ("client", "client_machine", "server", "server_machine")}
    assert set(doubted(whole)) == {"throughput_bps", "packets_per_s", *costs}


def test_each_reason_names_its_verdict_and_its_figures() -> None:
    (reason,) = analyse_test(paced(1_100_000)).validity.reasons
    assert (reason.verdict, reason.metrics) == (Verdict.GENERATOR_LIMITED, ("jitter_us",))


@pytest.mark.parametrize(
    ("planned_ms", "late_ns", "received", "codes", "bound"),
    [
        (9700, 350_000_000, 10_000, ["ran-over", "sends-late"], Bound.LEAST),
        (9700, 350_000_000, 6000, ["sends-late"], None),  # the path took no more
        (9700, 1000, 10_000, [], None),  # a queue of the path held the last datagrams back
        (9900, 350_000_000, 10_000, ["sends-late"], None),
        (10_000, 350_000_000, 10_000, ["sends-late"], None),  # they caught up
    ],
)
def test_rate_of_a_load_that_late_sends_drew_out_is_a_lower_bound(
    planned_ms: int, late_ns: int, received: int, codes: list[str], bound: Bound | None
) -> None:
    data = paced(late_ns, received=received)
    data.spec = replace(data.spec, duration_ns=planned_ms * MS)
    found = analyse_test(data)
    assert sorted(reason.code for reason in found.validity.reasons) == codes
    assert found.metrics["throughput_bps"].bound is bound
    assert found.validity.verdict is (Verdict.VALID if bound is None else Verdict.GENERATOR_LIMITED)
    assert found.limit is not None
    assert (found.limit.by is LimitedBy.OFFERED_RATE) == (bound is None and received == 10_000)
    assert (found.limit.by is LimitedBy.GENERATOR) == (bound is not None)
    data.spec = replace(data.spec, number=10_000)
    assert "ran-over" not in verdict(data)[1], "it ends with its number, whenever that is"


def test_unsent_operations_are_the_generators_beyond_those_of_the_last_moment() -> None:
    # One flow, a datagram each ms: what fell due in the last ms, and one under way, may be left over.
    assert verdict(paced(1000, unsent=2)) == ("valid", [])
    assert verdict(paced(1000, unsent=3)) == ("generator-limited", ["unsent"])
    assert verdict(steady_test("udp", counts={"unsent": 3})) == ("valid", [])


@pytest.mark.parametrize(
    ("direction", "near", "far"), [("up", True, False), ("down", False, True), ("both", True, True)]
)
@pytest.mark.parametrize("kind", ["tcp", "udp"])
def test_the_lateness_of_the_side_that_sends_counts(kind: str, direction: str, near: bool, far: bool) -> None:
    for late_near, late_far, limited in ((1500.0, 10.0, near), (10.0, 1500.0, far)):
        generator = load(late_p99_us=late_near)
        data = steady_test(kind, generator=generator, receiver=load(side="peer", late_p99_us=late_far))
        # As long as it counts as TCP's: a block per ms.
        pace = {"rate_pps": 1000.0} if kind == "udp" else {"rate_bps": 8_000_000, "block_bytes": 1000}
        data.spec = type(data.spec).read({"name": "t", "kind": kind, "direction": direction, **pace})
        assert ("sends-late" in verdict(data)[1]) == limited, (late_near, late_far)


def test_a_paced_stream_is_cut_into_blocks_of_ten_milliseconds() -> None:
    read = type(test_data().spec).read
    slow = {"name": "t", "kind": "tcp", "rate_bps": 1_000_000, "block_bytes": 128 * 1024}
    assert read(slow).send_gap_s == pytest.approx(0.01)
    assert read({**slow, "flows": 4}).send_gap_s == pytest.approx(0.01)
    assert read({**slow, "rate_bps": 10_000_000_000}).send_gap_s == pytest.approx(8 * 128 * 1024 / 1e10)


def test_pushback_counts_from_one_send_in_a_hundred() -> None:
    assert verdict(steady_test("udp", generator=load(pushback=100))) == ("valid", [])
    assert verdict(steady_test("udp", generator=load(pushback=110))) == ("generator-limited", ["pushback"])
    assert verdict(steady_test("tcp", generator=load(pushback=10**6))) == ("valid", [])


def open_loop(late_ns: int, **counts: int) -> TestData:
    """10,000 requests in 10 s, on time to the ns but for `late_ns`."""
    made = [histogram("late", [late_ns] * 100)]
    data = steady_test("http", histograms=made, counts={"requests_due": 10_000, **counts}, receiver=None)
    spec = {"name": "t", "kind": "http", "duration_ms": 10_000, "rate_per_s": 1000.0, "connections": 10}
    data.spec = type(data.spec).read(spec)
    return data


def test_requests_that_wait_for_a_connection_are_not_the_generators_fault() -> None:
    assert verdict(open_loop(1000)) == ("valid", ["answering-side-unknown"])
    own = verdict(open_loop(50_000_000, unsent=4))
    assert own == ("generator-limited", ["sends-late", "unsent", "answering-side-unknown"])
    stalled = open_loop(1000, unsent=400, unsent_while_busy=400, due_while_busy=50)
    assert verdict(stalled) == ("valid", ["connections-busy", "answering-side-unknown"])
    text = analyse_test(stalled).validity.notes[0].text
    assert "450 of 10000" in text and "400 were not sent" in text
    assert verdict(open_loop(1000, due_while_busy=101))[1][0] == "connections-busy"
    assert verdict(open_loop(1000, due_while_busy=100, unsent=3))[1] == ["unsent", "answering-side-unknown"]


def test_an_open_loop_is_as_late_as_its_own_sends() -> None:
    generator = analyse_test(open_loop(2_000_000)).generator
    assert generator is not None
    assert generator.late_p99_us == pytest.approx(2000, rel=0.001)


def test_failed_and_unanswered_operations_are_noted() -> None:
    errors = {"reset": 3, "timeout": 30}
    result = analyse_test(steady_test("rr", errors=errors))
    assert result.validity.verdict is Verdict.VALID
    assert [note.text for note in result.validity.notes][-1:] == ["33 operations failed: 30 x timeout, 3 x reset"]
    sent = {"requests_sent": 10_000}
    assert verdict(steady_test("http", counts={**sent, "unanswered": 100})) == ("valid", [])
    assert verdict(steady_test("http", counts={**sent, "unanswered": 101})) == ("valid", ["unanswered"])
    silent = {**sent, "unanswered": 2, "unanswered_over_1s": 1}
    assert verdict(steady_test("http", counts=silent)) == ("valid", ["unanswered"])


def test_connections_that_could_not_be_had_again_make_it_incomplete() -> None:
    data = steady_test("http", counts={"connections_down": 2}, errors={"connection_refused": 7})
    assert verdict(data) == ("incomplete", ["connections-lost", "errors"])
    assert "7 x connection_refused" in analyse_test(data).validity.reasons[0].text


@pytest.mark.parametrize(
    ("end_ms", "errors", "broken"),
    [(7000, {"reset": 1}, True), (9900, {"reset": 1}, False), (7000, {}, False), (10_000, {"timeout": 3}, False)],
)
@pytest.mark.parametrize("kind", ["tcp", "rr", "udp"])
def test_a_flow_that_an_error_ended_before_its_time(
    kind: str, end_ms: int, errors: dict[str, int], broken: bool
) -> None:
    data = test_data(kind)
    side = "local" if kind == "rr" else "peer"
    report, events = steady_flow_events(0, EPOCH_NS, EPOCH_NS + end_ms * MS, 1e6)
    for event in events:
        data.add("client1", event | {"side": side})
    data.add("client1", finished(END_NS, outcome([report], errors=errors)))
    found, codes = verdict(data)
    assert (found == "incomplete", "flows-broken-off" in codes) == (broken, broken)
    assert ("errors" in codes) == bool(errors)
    data.status = "interrupted"
    assert "flows-broken-off" not in verdict(data)[1], "the user ended it"


@pytest.mark.parametrize(
    ("kind", "done", "failed", "broken"),
    [("rr", 900, 100, False), ("rr", 900, 99, True), ("udp", 1000, 5, False), ("udp", 999, 5, True)],
)
def test_a_number_that_was_not_reached_because_of_an_error(kind: str, done: int, failed: int, broken: bool) -> None:
    data = test_data(kind, number=1000)
    report, events = steady_flow_events(
        0, EPOCH_NS, EPOCH_NS + 5 * S, 1e6, sent_units=done if kind == "udp" else 1000, received_units=done
    )
    for event in events:
        data.add("client1", event | {"side": "local" if kind == "rr" else "peer"})
    data.add("client1", finished(END_NS, outcome([report], errors={"reset": failed})))
    assert ("flows-broken-off" in verdict(data)[1]) == broken


def test_a_stall_that_lasts_to_the_end_is_in_the_rate() -> None:
    # 1000 answers a second for 6 s, then none, and the asking went on until 10 s.
    data = test_data("http")
    for step in range(1, 101):
        answered = min(6000, step * 100)
        row = counters(0, answered, answered, sent_units=answered, received_units=answered)
        data.add("client1", progress(EPOCH_NS + step * 100 * MS, [row], side="local"))
    report = flow(0, EPOCH_NS, END_NS, received_bytes=6000, received_units=6000, sent_units=6002)
    data.add("client1", finished(END_NS, outcome([report])))
    assert analyse_test(data).metrics["requests_per_s"].value == pytest.approx(600)
    assert verdict(data)[0] == "unstable"


def test_totals_without_intervals_prove_no_steadiness_and_no_change() -> None:
    data = test_data()
    data.add("client1", finished(END_NS, outcome([flow(0, EPOCH_NS, END_NS, received_bytes=1000)])))
    assert verdict(data) == ("valid", ["counters-missing"])


def test_clients_that_are_missing_or_partly_configured() -> None:
    data = steady_test()
    data.bring_up = ClientBringUp(3, 2, 0, 0.1, 0.2)
    assert verdict(data) == ("incomplete", ["clients-missing"])
    data.bring_up = ClientBringUp(5, 0, 0, 0.1, 0.2)
    assert verdict(data) == ("valid", [])


def test_hosts_without_figures() -> None:
    data = steady_test()
    data.hosts = ("client1", "client2")
    assert verdict(data) == ("incomplete", ["hosts-without-figures"])


def test_flows_that_never_moved_a_byte() -> None:
    data = test_data(flows=2)
    report, events = steady_flow_events(0, EPOCH_NS, END_NS, 1e6)
    for event in events:
        data.add("client1", event)
    data.add("client1", finished(END_NS, outcome([report, flow(1, None, None)])))
    assert verdict(data) == ("incomplete", ["flows-not-started"])
    assert analyse_test(data).metrics["received_bytes"].value == 10e6


@pytest.mark.parametrize(
    ("end_s", "number", "expected"), [(4, None, "incomplete"), (6, None, "valid"), (4, 10, "valid")]
)
def test_windows_under_half_of_what_was_planned(end_s: int, number: int | None, expected: str) -> None:
    data = test_data(number=number)
    end_ns = EPOCH_NS + end_s * S
    report, events = steady_flow_events(0, EPOCH_NS, end_ns, 1e6)
    for event in events:
        data.add("client1", event)
    data.add("client1", finished(end_ns, outcome([report])))
    found, codes = verdict(data)
    assert found == expected
    assert codes == (["window-too-short"] if expected == "incomplete" else [])


@pytest.mark.parametrize(("length_ms", "short"), [(199, True), (201, False)])
def test_windows_under_two_intervals_whatever_was_planned(length_ms: int, short: bool) -> None:
    data = test_data(number=10)
    end_ns = EPOCH_NS + length_ms * MS
    report, events = steady_flow_events(0, EPOCH_NS, end_ns, 1e6)
    for event in events:
        data.add("client1", event)
    data.add("client1", finished(end_ns, outcome([report])))
    assert verdict(data) == (("incomplete", ["window-too-short"]) if short else ("undetermined", ["precision-unknown"]))


def test_interrupted_tests_are_incomplete_and_say_why() -> None:
    data = test_data()
    _, events = steady_flow_events(0, EPOCH_NS, END_NS, 1e6)
    for event in events[:40]:
        data.add("client1", event)
    data.status, data.error = "interrupted", "Ctrl-C"
    result = analyse_test(data)
    assert result.metrics["throughput_bps"].value == pytest.approx(8e6)
    assert result.validity.verdict is Verdict.INCOMPLETE
    assert "Ctrl-C" in result.validity.reasons[0].text


def test_missing_evidence_is_undetermined() -> None:
    assert verdict(steady_test("tcp", generator=load() | {"threads": []})) == (
        "undetermined",
        ["no-generator-figures"],
    )
    assert verdict(steady_test("rr", receiver=None)) == ("undetermined", ["no-receiver-figures"])
    assert verdict(steady_test("http", receiver=None)) == ("valid", ["answering-side-unknown"])


def test_the_worst_verdict_wins_and_every_reason_is_kept() -> None:
    data = steady_test("udp", generator=load(thread(0.99)), receiver=load(thread(0.99), side="peer"))
    data.bring_up = ClientBringUp(1, 0, 1, None, None)
    found, codes = verdict(data)
    assert found == "incomplete"
    assert codes == ["clients-missing", "thread-saturated", "thread-saturated"]


def test_hosts_of_one_machine_are_noted_with_its_use() -> None:
    data = steady_test()
    data.facts = {"client1": facts(), "gateway": facts(), "server": facts()}
    for step in range(12):
        cpu_s = {"user": 0.5 * step, "system": 1.0 * step, "idle": 0.5 * step}
        data.add("gateway", observation(EPOCH_NS + step * S, cpu_s))
    result = analyse_test(data)
    assert result.validity.verdict is Verdict.VALID
    notes = {note.code: note.text for note in result.validity.notes}
    assert "3 hosts" in notes["shared-cpus"] and "2 CPUs, which were 75 % busy" in notes["shared-cpus"]


def test_a_machine_that_is_used_up_by_all_of_its_hosts_settles_nothing() -> None:
    data = steady_test()
    data.facts = {"client1": facts(), "gateway": facts(), "server": facts()}
    for step in range(12):
        cpu_s = {"user": 0.5 * step, "system": 1.46 * step, "idle": 0.04 * step}
        data.add("gateway", observation(EPOCH_NS + step * S, cpu_s))
    result = analyse_test(data)
    assert result.validity.verdict is Verdict.UNDETERMINED
    assert [reason.code for reason in result.validity.reasons] == ["machine-saturated"]


@pytest.mark.parametrize(
    ("kind", "rate", "time", "wanted"),
    [
        ("tcp", "throughput_bps", "rtt_mean_us", (Bound.LEAST, Bound.NONE)),
        ("udp", "throughput_bps", "jitter_us", (Bound.LEAST, Bound.NONE)),
        ("rr", "transactions_per_s", "latency_p50_us", (Bound.NONE, Bound.NONE)),
        ("http", "requests_per_s", "latency_p50_us", (Bound.NONE, Bound.NONE)),
    ],
)
def test_a_machine_that_is_used_up_bounds_no_closed_loop(
    kind: str, rate: str, time: str, wanted: tuple[Bound, Bound]
) -> None:
    """With CPUs of their own hosts carry more; but CPUs that sleep between two operations answer later than busy
    ones."""
    data = steady_test(kind)
    data.facts = {"client1": facts(), "gateway": facts(), "server": facts()}
    for step in range(12):
        data.add(
            "gateway",
            observation(EPOCH_NS + step * S, {"user": 0.5 * step, "system": 1.46 * step, "idle": 0.04 * step}),
        )
    outcome: Any = data.outcomes[0].outcome
    outcome["histograms"] = [histogram("latency", [100_000] * 10_000)]
    outcome["flows"][0] |= {"jitter_us": 3.0, "rtt_mean_us": 200.0}
    metrics = analyse_test(data).metrics
    assert (metrics[rate].bound, metrics[time].bound) == wanted


def test_clocks_of_several_machines_that_are_loosely_known() -> None:
    data = steady_test()
    data.facts = {"client1": facts("a"), "server": facts("b")}
    data.clock_bounds_ns = {"client1": 1000, "server": 2 * MS}
    assert verdict(data) == ("valid", ["unsynchronised-clock"])
    data.facts = {"client1": facts("a"), "server": facts("a")}
    assert verdict(data) == ("valid", ["shared-cpus"])


# --- The generator's own ceiling ------------------------------------------------------------------------------------


def near(per_s: float, *threads: dict[str, Any], extrapolated: bool = False) -> TestData:
    """1000 requests per second by a generator with this ceiling."""
    data = steady_test("http", generator=load(*(threads or (thread(0.9),))))
    data.ceiling = Ceiling(per_s, extrapolated)
    return data


@pytest.mark.parametrize(
    ("per_s", "wanted"),
    [
        (900.0, ("generator-limited", ["near-ceiling"])),
        (1000 / 0.901, ("generator-limited", ["near-ceiling"])),
        (1000 / 0.899, ("valid", [])),
        (50_000.0, ("valid", [])),
    ],
)
def test_a_rate_near_the_ceiling_is_the_generators(per_s: float, wanted: tuple[str, list[str]]) -> None:
    assert verdict(near(per_s)) == wanted


def test_a_ceiling_is_written_with_how_it_is_known() -> None:
    (reason,) = analyse_test(near(1000.0)).validity.reasons
    assert reason.text == "1000 requests/s are 100 % of this generator's ceiling (1000/s against a null responder)"
    (reason,) = analyse_test(near(1000.0, extrapolated=True)).validity.reasons
    assert "(about 1000/s against a null responder)" in reason.text


@pytest.mark.parametrize("threads", [(thread(0.79),), (thread(0.55, 0.24), thread(0.3))])
def test_threads_with_time_to_spare_were_not_at_their_ceiling(threads: tuple[dict[str, Any], ...]) -> None:
    """The null responder let the generator do less than it can: what it did here shows that."""
    assert verdict(near(1000.0, *threads)) == ("valid", ["ceiling-doubtful"])


@pytest.mark.parametrize("threads", [(thread(0.81),), (thread(0.5, 0.31),), (thread(0.2), thread(0.85))])
def test_one_busy_thread_is_enough(threads: tuple[dict[str, Any], ...]) -> None:
    assert verdict(near(1000.0, *threads)) == ("generator-limited", ["near-ceiling"])


def test_an_unknown_ceiling_is_noted_if_it_could_matter() -> None:
    assert verdict(steady_test("http", generator=load(thread(0.5)))) == ("valid", [])
    assert verdict(steady_test("http", generator=load(thread(0.9)))) == ("valid", ["ceiling-unknown"])
    assert verdict(steady_test("rr", generator=load(thread(0.9)))) == ("valid", [])


def test_the_ceiling_is_among_the_generators_figures() -> None:
    for data, wanted in ((near(5000.0), 5000.0), (steady_test("http"), None)):
        generator = analyse_test(data).generator
        assert generator is not None and generator.ceiling_per_s == wanted


def test_a_script_that_fails_at_its_end_is_no_request() -> None:
    data = steady_test("http")
    made = data.outcomes[0].outcome
    made["counts"] = {"kind": "http", "responses": 50, "requests_sent": 50, "requests_due": 50}  # type: ignore[typeddict-unknown-key]
    made["errors"] = {"script_error": 1}
    assert analyse_test(data).metrics["error_ratio"].value == 0
    made["errors"] = {"reset": 1}
    assert analyse_test(data).metrics["error_ratio"].value == pytest.approx(1 / 51)


@pytest.mark.parametrize("kind", ["rr", "http"])
def test_a_load_without_any_answer_has_no_rate_to_tell(kind: str) -> None:
    data = steady_test(kind)
    for event in data.progress.values():
        event[:] = [point._replace(received_units=0) for point in event]
    made = data.outcomes[0].outcome
    made["flows"][0]["received_units"] = 0
    found = analyse_test(data)
    assert found.validity.verdict is Verdict.INCOMPLETE
    (reason,) = (one for one in found.validity.reasons if one.code == "nothing-answered")
    assert reason.text == "none of 10,000 requests or transactions was answered (no errors were counted)"
    rate = found.metrics["transactions_per_s" if kind == "rr" else "requests_per_s"]
    assert rate.verdict is Verdict.INCOMPLETE
    if kind == "http":
        assert found.metrics["error_ratio"].verdict is Verdict.VALID, "that all failed is known"


@pytest.mark.parametrize("code", ["other-work", "cpu-stolen", "thread-saturated", "machine-saturated", "sends-late"])
def test_lateness_of_sends_is_evidence_and_no_bound(code: str) -> None:
    metrics = {name: Metric(7.0, "us") for name in ("late_p99_us", "sends_late_p99_us", "service_p99_us")}
    judged = judge_figures(
        metrics, [(Verdict.DISTURBED, Reason(code, "made"))], (), primary="none", decisive=(), delivered=None
    ).metrics
    assert judged["late_p99_us"].bound is judged["sends_late_p99_us"].bound is None
    assert judged["late_p99_us"].verdict is Verdict.VALID
    sides = {"sends-late": None, "machine-saturated": Bound.NONE}
    assert judged["service_p99_us"].bound is sides.get(code, Bound.MOST)


def bounds(code: str, *names: str) -> list[Bound | None]:
    """The sides of figures on which the true ones lie, by one reason."""
    metrics = {name: Metric(0.8, "ratio") for name in names}
    against = [(Verdict.GENERATOR_LIMITED, Reason(code, "made"))]
    judged = judge_figures(metrics, against, (), primary="none", decisive=(), delivered=None).metrics
    return [judged[name].bound for name in names]


def test_parts_of_a_rate_are_doubted_with_it_and_its_inverse_the_other_way() -> None:
    names = ("throughput_bps", "line_use_ratio", "line_use_up_ratio", "transfer_time_ratio", "transfer_time_down_ratio")
    assert bounds("thread-saturated", *names) == [*[Bound.LEAST] * 3, *[Bound.MOST] * 2]
    assert bounds("no-steady-window", *names) == [Bound.NONE] * 5
    assert bounds("sends-late", *names) == [None] * 5


@pytest.mark.parametrize("code", ["other-work", "thread-saturated", "sends-late", "nothing-answered", "unsent"])
def test_figures_of_a_part_of_a_scenario_are_doubted_as_those_of_the_whole(code: str) -> None:
    whole = tagged_metrics_of("scenario")
    assert "error_ratio" in whole
    assert bounds(code, *(f"{name}{{name:login}}" for name in whole)) == bounds(code, *whole)


def test_clients_that_are_not_configured_are_doubted_as_those_that_failed() -> None:
    assert bounds("other-work", "failed_ratio", "unconfigured_ratio") == [Bound.MOST] * 2


def test_what_was_never_sent_would_have_been_later() -> None:
    unsent = [(Verdict.GENERATOR_LIMITED, Reason("unsent", "made"))]
    judged = judge_figures(
        {"late_p99_us": Metric(7.0, "us")}, unsent, (), primary="none", decisive=(), delivered=None
    ).metrics
    assert judged["late_p99_us"].bound is Bound.LEAST
