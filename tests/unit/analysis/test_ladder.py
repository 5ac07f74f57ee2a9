"""Ladders with known shares: headers apart from losses, bounds, intervals, the waterfall, and the sentence."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_journals import steady_test
from test_limiting_queues import PACKETS_PER_S, flood, with_queue

from leadline.analysis import TestData, analyse_test
from leadline.analysis.ladder import costs_of
from leadline.analysis.ladder_model import BarKind, HostCost, Ladder, LadderLayer, Share
from leadline.analysis.model import Bound, Limit, LimitedBy, Metric, Verdict
from leadline.report.ladders import cost_text
from made_ladders import MBIT, PLAIN, SPREAD, TUNNEL, ladders

UDP_SHARE = 1372 / 1414
TCP_SHARE = 1448 / 1514


def layer(ladder: Ladder, test: str) -> LadderLayer:
    return next(one for one in ladder.layers if one.test == f"ladder-{test}")


def test_each_layer_is_a_share_of_the_one_below() -> None:
    route = ladders({"c02": PLAIN})["c02"]
    assert [one.title for one in route.layers] == ["UDP", "TCP", "HTTP bodies", "HTTPS bodies"]
    udp, tcp, https = layer(route, "udp"), layer(route, "tcp"), layer(route, "https")
    assert udp.below == "the link" and udp.share.value == pytest.approx(0.97)
    assert tcp.below == "UDP" and tcp.share.value == pytest.approx(956 / 970)
    assert https.below == "HTTP bodies" and https.share.value == pytest.approx(760 / 950)


def test_ladder_has_the_name_that_its_system_has_since_the_bring_up() -> None:
    made = ladders({"c01": TUNNEL, "c02": PLAIN}, named="openvpn (in user space)")
    assert (made["c01"].sut, made["c01"].parameters) == ("openvpn (in user space)", {"sut": "openvpn (in user space)"})
    assert (made["c02"].sut, made["c02"].parameters) == ("route", {"sut": "route"})


def test_repeats_that_move_together_leave_a_narrow_interval() -> None:
    tcp = layer(ladders({"c02": PLAIN})["c02"], "tcp")
    assert tcp.share.low is not None and tcp.share.high is not None and tcp.share.reason is None
    assert tcp.share.low <= 956 / 970 <= tcp.share.high
    assert tcp.share.high - tcp.share.low < 0.001, "repeats are pairs: what both have in common cancels"
    single = layer(ladders({"c02": PLAIN}, repeats=SPREAD[:1])["c02"], "tcp")
    assert single.share.value is not None and single.share.low is None
    assert single.share.reason == "1 repeat is too few: 3 of each are needed"


def test_headers_are_no_loss() -> None:
    route = ladders({"c02": PLAIN})["c02"]
    udp, tcp = layer(route, "udp"), layer(route, "tcp")
    assert udp.headers == pytest.approx(1 - UDP_SHARE)
    assert udp.lost.value == pytest.approx(1 - 0.97 / UDP_SHARE, abs=1e-9)
    assert tcp.headers == pytest.approx(1 - TCP_SHARE / UDP_SHARE)
    assert tcp.lost.value == pytest.approx(1 - (956 / 970) / (TCP_SHARE / UDP_SHARE))
    full = ladders({"c02": {"udp": 1000 * MBIT * UDP_SHARE, "tcp": 1000 * MBIT * TCP_SHARE}})["c02"]
    assert [one.lost.value for one in full.layers] == pytest.approx([0, 0], abs=1e-9)


def test_headers_of_the_tunnel_count_beside_the_plain_route() -> None:
    udp = layer(ladders({"c01": TUNNEL, "c02": PLAIN})["c01"], "udp")
    assert udp.below == "the plain route" and udp.share.value == pytest.approx(0.2)
    assert udp.headers == pytest.approx(1 - (1372 / 1466) / UDP_SHARE)
    assert udp.share_of_baseline is not None and udp.share_of_baseline.value == pytest.approx(0.2)
    assert udp.baseline is not None and udp.baseline.value == pytest.approx(970 * MBIT)


def test_unknown_shares_have_reasons() -> None:
    alone = ladders({"c01": TUNNEL}, link_bps=None)["c01"]
    udp = layer(alone, "udp")
    assert (udp.share.value, udp.share.reason) == (None, "the rate of the link is not known")
    assert (udp.headers, udp.headers_reason) == (None, "the layer below is not known")
    assert alone.baseline is None and alone.why_alone == "its plain route was left out of this run"
    requests = ladders({"c02": {"rr-udp": 9000.0, "rr-tcp": 8000.0}})["c02"]
    lowest, tcp = requests.layers
    assert (lowest.share.value, lowest.share.reason) == (None, "it is the lowest layer")
    assert tcp.share.value == pytest.approx(8 / 9) and tcp.headers is None
    assert tcp.headers_reason == "requests are counted, not their bytes"


def test_layer_that_failed_is_left_out_and_the_others_go_on() -> None:
    why = "connection refused"
    route = ladders({"c02": PLAIN}, missing={("c02", "http"): why})["c02"]
    http, https = layer(route, "http"), layer(route, "https")
    assert (http.figure.value, http.error, http.share.reason) == (None, why, why)
    assert https.below == "TCP" and https.share.value == pytest.approx(760 / 956)


def test_layer_above_a_blocked_one_has_no_share_of_it() -> None:
    figures = {"c02": {**PLAIN, "udp": 0.0}}
    route = ladders(figures, doubts={("c02", "tcp"): (Verdict.GENERATOR_LIMITED, Bound.LEAST)})["c02"]
    assert layer(route, "tcp").share.value is None
    assert layer(route, "tcp").share.reason == "UDP carried nothing"


def test_doubted_layer_allows_what_a_layer_above_it_carried() -> None:
    figures = {"c02": {**PLAIN, "udp": 500 * MBIT}}
    doubts = {("c02", "udp"): (Verdict.GENERATOR_LIMITED, Bound.LEAST)}
    route = ladders(figures, doubts=doubts)["c02"]
    udp, tcp = layer(route, "udp"), layer(route, "tcp")
    assert udp.figure.value == pytest.approx(500 * MBIT) and udp.figure.bound == "at least"
    assert udp.share.bound == "at least" and udp.share.value == pytest.approx((tcp.allowed or 0) / 1e9)
    assert tcp.allowed is not None and tcp.allowed >= 956 * MBIT * UDP_SHARE / TCP_SHARE - 1
    assert tcp.allowed_by in ("TCP", "HTTP bodies") and tcp.share.bound == "at most"
    assert tcp.share.low is None and "comes from a layer above" in str(tcp.share.reason)
    assert any("its own figure is doubted" in note for note in route.notes)


def test_valid_layer_may_carry_more_than_the_one_below() -> None:
    route = ladders({"c02": {**PLAIN, "udp": 500 * MBIT}}, link_bps=None)["c02"]
    tcp = layer(route, "tcp")
    assert tcp.allowed == pytest.approx(500 * MBIT) and tcp.share.value == pytest.approx(956 / 500)
    assert any(bar.kind is BarKind.GAINED for bar in route.waterfalls[0].bars)
    assert any("more than 100 %" in note for note in route.notes)


@pytest.mark.parametrize(
    ("lower", "upper", "word"),
    [
        (None, None, None),
        (Bound.MOST, None, "at least"),
        (None, Bound.LEAST, "at least"),
        (Bound.LEAST, Bound.MOST, "at most"),
        (Bound.MOST, Bound.MOST, "not known"),
        (None, Bound.NONE, "not known"),
    ],
)
def test_bounds_of_both_parts_make_that_of_a_share(lower: Bound | None, upper: Bound | None, word: str | None) -> None:
    given = {("c02", "udp"): lower, ("c02", "tcp"): upper}
    doubts = {key: (Verdict.DISTURBED, bound) for key, bound in given.items() if bound is not None}
    tcp = layer(ladders({"c02": {"udp": 970 * MBIT, "tcp": 700 * MBIT}}, doubts=doubts)["c02"], "tcp")
    assert tcp.share.value == pytest.approx(700 / 970) and tcp.share.bound == word


def test_waterfall_adds_up_from_the_link_to_the_highest_layer() -> None:
    ladder = ladders({"c01": TUNNEL, "c02": PLAIN})["c01"]
    (waterfall,) = ladder.waterfalls
    levels = [bar for bar in waterfall.bars if bar.kind is BarKind.LEVEL]
    assert [bar.label for bar in levels] == [
        "link",
        "UDP, plain route",
        "UDP, openvpn",
        "TCP",
        "HTTP bodies",
        "HTTPS bodies",
    ]
    assert [bar.end for bar in levels] == pytest.approx([one * MBIT for one in (1000, 970, 194, 190, 188, 186)])
    reached = levels[0].end
    for bar in waterfall.bars[1:]:
        if bar.kind is BarKind.LEVEL:
            assert bar.end == pytest.approx(reached, rel=1e-3)
            reached = bar.end
        else:
            assert bar.start == pytest.approx(reached, rel=1e-3)
            reached = bar.end
    assert levels[0].share == 1


def test_sentence_names_the_tunnel_its_limit_and_its_cost() -> None:
    limit = {("c01", "udp"): Limit(LimitedBy.GATEWAY, "openvpn on gateway used 100 % of a CPU")}
    ladder = ladders({"c01": TUNNEL, "c02": PLAIN}, limits=limit)["c01"]
    assert ladder.look_first == (
        "Look first at openvpn: 20.0 % of what the plain route carries (UDP); headers explain 3.55 %; the "
        "gateway is the limit (openvpn on gateway used 100 % of a CPU); gateway spends 20.0 ns of CPU time on each "
        "byte, 1.00 ns through the plain route."
    )


@pytest.mark.parametrize(
    ("host", "kind", "word", "queue"),
    [("client1", "tbf", "link", "tbf"), ("gateway", "fq_codel", "gateway", "fq_codel")],
)
def test_rung_that_floods_a_queue_is_exact_and_named_by_it(host: str, kind: str, word: str, queue: str) -> None:
    """Its generator was at its end too, which without the queue leaves a lower bound, and the layer above a share of
    `at most`."""
    figures = {"c02": {"udp": 400 * MBIT, "tcp": 380 * MBIT}}

    def measured(data: TestData) -> Ladder:
        found = analyse_test(data)
        assert found.limit is not None
        rate = replace(found.metrics["throughput_bps"], value=400 * MBIT, low=None, high=None)
        limits, more = {("c02", "udp"): found.limit}, {("c02", "udp"): {"throughput_bps": rate}}
        return ladders(figures, limits=limits, more=more, link_bps=1e9)["c02"]

    full = measured(with_queue(host, kind, 199 * PACKETS_PER_S, data=flood()))
    udp, tcp = layer(full, "udp"), layer(full, "tcp")
    assert (udp.figure.verdict, udp.figure.bound, udp.limited_by) == (Verdict.VALID, None, word)
    assert (udp.share.bound, tcp.share.bound) == (None, None)
    said = f"; the {word} is the limit (the queue ({queue}) of wan on {host} dropped 99.5 % of the packets to send"
    assert full.look_first.startswith("Look first below UDP: 40.0 % of the link's rate") and said in full.look_first
    busy = measured(flood())
    udp, tcp = layer(busy, "udp"), layer(busy, "tcp")
    assert (udp.figure.bound, udp.limited_by, tcp.share.bound) == (Bound.LEAST, "generator", "at most")


def test_sentence_names_the_layer_that_loses_most() -> None:
    route = ladders({"c02": PLAIN})["c02"]
    assert route.look_first.startswith("Look first at HTTPS bodies: 80.0 % of what the layer of HTTP bodies carries")
    slow = ladders({"c02": {"udp": 400 * MBIT, "tcp": 394 * MBIT}})["c02"]
    assert slow.look_first.startswith("Look first below UDP: 40.0 % of the link's rate; headers explain")


def test_sentence_without_a_loss_names_the_limit_or_the_requests() -> None:
    full = {"udp": 970 * MBIT, "tcp": 956 * MBIT}
    link = {("c02", "tcp"): Limit(LimitedBy.LINK, "full")}
    quiet = ladders({"c02": full}, limits=link)["c02"].look_first
    assert quiet == "No layer loses more than 5 % of what the one below allows: look at the link, which limits TCP."
    requests = {"rr-udp": 20_000.0, "rr-tcp": 19_000.0, "http-small": 10_000.0, "https-small": 9_500.0}
    words = ladders({"c02": {**full, **requests}})["c02"].look_first
    assert "Look first at the time of a request: 47.4 µs of 100 µs are of HTTP requests." in words


def test_doubt_about_a_figure_stands_in_the_sentence() -> None:
    doubts = {("c02", "https"): (Verdict.DISTURBED, Bound.LEAST)}
    words = ladders({"c02": PLAIN}, doubts=doubts)["c02"].look_first
    assert "at least 80.0 %" in words and words.endswith("HTTPS bodies is disturbed: measure it again to be sure.")


def test_repeats_that_the_summary_leaves_out_are_in_no_share_and_in_no_cost() -> None:
    apart = (0.99, 1.0, 0.5, 1.005, 0.995)
    doubts = {("c02", "tcp", 3): (Verdict.INCOMPLETE, Bound.NONE)}
    tcp = layer(ladders({"c02": PLAIN}, repeats=apart, doubts=doubts)["c02"], "tcp")
    assert tcp.figure.repeats == 4 and tcp.figure.value == pytest.approx(956 * MBIT * 0.9975)
    assert tcp.share.value == pytest.approx(956 / 970, rel=1e-3)
    good = replace(analyse_test(steady_test()), host_costs=(HostCost("gateway", "process", 50.0, 20.0, None, None),))
    broken = HostCost("gateway", "process", 50.0, 90.0, None, None)
    lost = replace(good, validity=replace(good.validity, verdict=Verdict.INCOMPLETE), host_costs=(broken,))
    [cost] = costs_of([good, good, lost])
    assert cost.ns_per_byte == 20.0


def test_costs_are_means_over_the_repeats() -> None:
    udp = layer(ladders({"c01": TUNNEL, "c02": PLAIN})["c01"], "udp")
    assert [(cost.host, cost.ns_per_byte) for cost in udp.costs] == [("client1", 5.0), ("gateway", 20.0)]
    assert [(cost.host, cost.ns_per_byte) for cost in udp.baseline_costs] == [("client1", 0.25), ("gateway", 1.0)]
    assert all(cost.bounds["ns_per_byte"] == (cost.ns_per_byte, cost.ns_per_byte) for cost in udp.costs)


def test_costs_have_an_interval_over_the_repeats_or_say_why_not() -> None:
    costs = [HostCost("gateway", "process", 50.0, ns, None, None) for ns in (18.0, 20.0, 22.0)]
    results = [replace(analyse_test(steady_test()), host_costs=(cost,)) for cost in costs]
    [mean] = costs_of(results)
    assert (mean.ns_per_byte, mean.unbounded) == (20.0, None)
    # t(0.975, 2) = 4.302653; the standard error is 2 / sqrt(3).
    assert mean.bounds["ns_per_byte"] == pytest.approx((20 - 4.968274, 20 + 4.968274), rel=1e-6)
    assert cost_text(mean, "ns_per_byte") == "20.0 ns ±25 %"
    [alone] = costs_of(results[:1])
    assert (alone.bounds, alone.unbounded) == ({}, "one repeat has no interval: two or more are needed")
    assert cost_text(alone, "ns_per_byte") == "18.0 ns"


def test_note_says_that_datagrams_were_sent_faster_than_they_could_arrive() -> None:
    lost = {("c02", "udp"): {"lost_ratio": Metric(0.37, "ratio")}}
    (ladder,) = ladders({"c02": PLAIN}, more=lost).values()
    assert ladder.notes[0].startswith(
        "UDP: sent as fast as possible, with 37.0 % of the packets lost; its figure is what"
    )
    few = {("c02", "udp"): {"lost_ratio": Metric(0.002, "ratio")}}
    (ladder,) = ladders({"c02": PLAIN}, more=few).values()
    assert not any("as fast as possible" in note for note in ladder.notes)


def test_rate_that_a_search_found_is_the_figure_of_its_layer() -> None:
    limit = {("c02", "udp"): Limit(LimitedBy.OFFERED_RATE, "all of it was delivered")}
    (offered,) = ladders({"c02": PLAIN}, limits=limit).values()
    assert offered.layers[0].figure.bound == "at least"
    found = {("c02", "udp"): {"found_rate_bps": Metric(900 * MBIT, "bit/s")}}
    (ladder,) = ladders({"c02": PLAIN}, limits=limit, more=found).values()
    assert (ladder.layers[0].figure.value, ladder.layers[0].figure.bound) == (900 * MBIT, None)


def share_of_found(high: float | None) -> Share:
    """The share of TCP in a rate of UDP that a search found, with the lowest rate that does not hold."""
    found = {("c02", "udp"): {"found_rate_bps": Metric(900 * MBIT, "bit/s", 900 * MBIT, high)}}
    return layer(ladders({"c02": {**PLAIN, "tcp": 450 * MBIT}}, more=found)["c02"], "tcp").share


def test_share_of_a_found_rate_has_what_its_search_left_open() -> None:
    known, wide, unbounded = share_of_found(900 * MBIT), share_of_found(990 * MBIT), share_of_found(None)
    assert [one.value for one in (known, wide, unbounded)] == [pytest.approx(0.5)] * 3
    assert known.low is not None and wide.low == pytest.approx(known.low / 1.1) and wide.high == known.high
    assert (unbounded.low, unbounded.reason) == (None, "a search did not bound its rate from above")


@pytest.mark.parametrize("users", [1, 4])
def test_users_of_a_scenario_are_the_highest_layer_and_raise_none_below(users: int) -> None:
    """What several users carry at once is no rate of the layers with one request outstanding."""
    figures = {"c02": {"http-small": 1000.0, "scenario": 800.0 * users}}
    doubts = {("c02", "http-small"): (Verdict.UNSTABLE, Bound.NONE)}
    more = {("c02", "scenario"): {"users_most": Metric(users, "count")}}
    ladder = ladders(figures, doubts=doubts, more=more)["c02"]
    http, scenario = ladder.layers
    assert (scenario.title, scenario.below, scenario.allowed_by) == ("Scenario", "HTTP requests", None)
    assert http.allowed is None and scenario.allowed == pytest.approx(1000)
    assert scenario.share.value == pytest.approx(0.8 * users)
    assert [note for note in ladder.notes if "users at once" in note] == [
        "Scenario: 4 users at once, where the layers below have one request outstanding: its share of them is that of "
        "as many"
    ] * (users > 1)
