"""Sentences on synthetic results: they claim what the figures and their bounds allow, and no more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from leadline.analysis.advice import ADVICE
from leadline.analysis.answers import answers_of
from leadline.analysis.baseline_ratios import with_ratios
from leadline.analysis.gateways import SHARED, UNSEEN
from leadline.analysis.model import (
    Answer,
    Bound,
    Certainty,
    Limit,
    LimitedBy,
    Metric,
    Reason,
    RunAnalysis,
    Summary,
    TestResult,
    TrialResult,
    Validity,
    Verdict,
)
from leadline.analysis.repeats import summarise
from leadline.analysis.searches import NO_RATE_HELD
from leadline.analysis.validity import ENDS_FULL
from leadline.report.ratios import ratio_text

MBIT = 1e6
OF_GATEWAY = Limit(
    LimitedBy.GATEWAY, "openvpn used 100 % of a CPU", "its single thread is the limit at 100 % of a core"
)
OF_LINK = Limit(LimitedBy.LINK, "wan carried 99 of 100 Mbit/s", "the link is the limit at 99 % of its rate")
OFFERED = Limit(LimitedBy.OFFERED_RATE, "100 % of what was due was delivered")
DISTURBED: dict[str, Any] = {"verdict": Verdict.DISTURBED, "reasons": ("other-work",)}
VALID = Validity(Verdict.VALID)
TITLES = {"openvpn": "OpenVPN", "wireguard": "WireGuard", "route": "the plain route"}


def metric(value: float | None, unit: str = "bit/s", **judged: Any) -> Metric:
    return Metric(value, unit, **judged)


def trials(
    case: str,
    system: str,
    values: Sequence[float | None],
    *,
    limit: Limit | None = None,
    kind: str = "tcp",
    leading: str = "throughput_bps",
    unit: str = "bit/s",
    parameters: dict[str, Any] | None = None,
    others: dict[str, Metric] | None = None,
    **judged: Any,
) -> list[TrialResult]:
    """A trial for each value of the leading figure, judged alike."""
    validity = Validity(judged.get("verdict", Verdict.VALID))
    own = {"sut": system, **(parameters or {})}
    found = []
    for repeat, value in enumerate(values, start=1):
        metrics = {leading: metric(value, unit, **judged), **(others or {})}
        test = TestResult(case, repeat, "load", kind, own, "done", None, metrics, validity, None, None, {}, limit=limit)
        label, title = f"{case}/{repeat}", TITLES.get(system)
        found.append(TrialResult(label, case, repeat, "done", None, system, None, None, (test,), own, sut_title=title))
    return found


def summary(repeats: Sequence[TrialResult]) -> Summary:
    tests = [trial.tests[0] for trial in repeats]
    first = tests[0]
    of: dict[str, Any] = {"case": first.case, "test": first.test, "kind": first.kind, "parameters": first.parameters}
    return summarise(tests, planned=len(tests), limit=1.0, **of)


def answers(*cases: Sequence[TrialResult]) -> list[Answer]:
    summaries = [summary(case) for case in cases if case[0].tests]
    return list(answers_of(run_of([trial for case in cases for trial in case], summaries)))


def run_of(trials: Sequence[TrialResult], summaries: Sequence[Summary]) -> RunAnalysis:
    return RunAnalysis(
        run_id="r", name="n", status="done", started_at="", plan_text="", command="", version="0", hosts={},
        trials=tuple(trials),
        summaries=tuple(summaries),
        targets=(), validity=VALID, notes=(), observer_cpu_share={},
    )  # fmt: skip


ROUTE = trials("c01", "route", [950 * MBIT, 952 * MBIT, 948 * MBIT], limit=OF_LINK)

ENDS = Limit(LimitedBy.ENDS_CPUS, "the only CPU of client1 and server was 98 % busy: it had no time left")
BY_ENDS: dict[str, Any] = {"bound": Bound.LEAST, "reasons": (ENDS_FULL,)}


def test_gateway_whose_ends_had_no_cpu_left_carries_at_least_this_share() -> None:
    openvpn = trials("c02", "openvpn", [475 * MBIT, 470 * MBIT, 480 * MBIT], limit=ENDS, **BY_ENDS)
    [_, tunnel] = answers(ROUTE, openvpn)
    assert (
        "OpenVPN carries at least 48 %" in tunnel.sentence and "the CPUs of the ends are the limit" in tunnel.sentence
    )
    assert tunnel.next_step == ADVICE[ENDS_FULL]
    run = run_of([*ROUTE, *openvpn], [summary(ROUTE), summary(openvpn)])
    ratio = with_ratios(run, {"c02": "c01"}, 0.05, ()).summaries[1].ratios["throughput_bps"]
    assert (ratio.value, ratio.high) == (None, None) and ratio.low == pytest.approx(0.485, abs=0.005)
    assert ratio_text(ratio) == f"≥ {ratio.low:.3f} ?"
    [_, both] = answers(trials("c01", "route", [950 * MBIT] * 3, limit=ENDS, **BY_ENDS), openvpn)
    assert "is not known" in both.sentence and "the CPUs of the ends had no time left" in both.sentence


def test_uneven_repeats_of_full_ends_stay_lower_bounds() -> None:
    """The interval over the repeats answers that they were uneven, and not that the ends were full."""
    uneven = Reason("intervals-disagree", "its parts differ", Verdict.UNSTABLE, ("throughput_bps",))
    judged = {**BY_ENDS, "reasons": (uneven.code, ENDS_FULL), "verdict": Verdict.UNSTABLE}
    repeats = [one.tests[0] for one in trials("c02", "openvpn", [475 * MBIT, 470 * MBIT, 480 * MBIT], **judged)]
    doubted = [replace(one, validity=Validity(Verdict.UNSTABLE, (uneven,))) for one in repeats]
    found = summarise(doubted, planned=3, limit=1.0, case="c02", test="load", kind="tcp", parameters={})
    rate = found.metrics["throughput_bps"]
    assert (rate.verdict, rate.side, rate.reasons) == (Verdict.VALID, Bound.LEAST, (ENDS_FULL,))


def test_ratio_has_its_interval_and_the_limit_stands_behind_it() -> None:
    openvpn = trials("c02", "openvpn", [200 * MBIT, 198 * MBIT, 202 * MBIT], limit=OF_GATEWAY)
    route, tunnel = answers(ROUTE, openvpn)
    assert (
        route.sentence
        == "The plain route carries 950 Mbit/s ±0.52 % in load; the link is the limit at 99 % of its rate."
    )
    assert tunnel.baseline == "c01"
    [test] = tunnel.tests
    assert test.ratio == pytest.approx(200 / 950)
    assert test.low is not None and test.high is not None and test.low < 200 / 950 < test.high
    start = f"OpenVPN carries 21.1 % ({test.low * 100:.1f} % to {test.high * 100:.1f} %)"
    assert tunnel.sentence.startswith(start.replace(" % to", " to"))
    assert tunnel.sentence.endswith(
        "of what the plain route carries in load (200 Mbit/s ±2.5 % against 950 Mbit/s ±0.52 %); "
        "its single thread is the limit at 100 % of a core."
    )
    assert test.certainty is Certainty.KNOWN and test.unknown is None
    assert tunnel.next_step is not None and "gateway's CPU" in tunnel.next_step


def test_single_repeats_are_about() -> None:
    _, tunnel = answers(ROUTE[:1], trials("c02", "openvpn", [200 * MBIT]))
    assert tunnel.sentence == (
        "OpenVPN carries about 21 % of what the plain route carries in load "
        "(about 200 Mbit/s against about 950 Mbit/s)."
    )
    assert tunnel.tests[0].certainty is Certainty.ABOUT
    assert tunnel.tests[0].unknown == "1 repeat is too few: 3 of each are needed"


def test_lower_bound_of_the_candidate_bounds_the_ratio_from_below() -> None:
    bounded = trials("c02", "openvpn", [190 * MBIT], **DISTURBED, bound=Bound.LEAST)
    _, tunnel = answers(ROUTE[:1], bounded)
    assert tunnel.sentence.startswith(
        "OpenVPN carries at least 20 % of what the plain route carries in load (at least 190"
    )
    assert tunnel.next_step is not None and "`top` shows it" in tunnel.next_step


def test_lower_bound_of_the_baseline_bounds_the_ratio_from_above() -> None:
    route = trials("c01", "route", [950 * MBIT], **DISTURBED, bound=Bound.LEAST)
    _, tunnel = answers(route, trials("c02", "wireguard", [475 * MBIT]))
    assert tunnel.sentence.startswith("WireGuard carries at most 50 % of what the plain route carries in load")


def test_two_bounds_leave_no_ratio() -> None:
    route = trials("c01", "route", [950 * MBIT], **DISTURBED, bound=Bound.LEAST)
    _, tunnel = answers(route, trials("c02", "openvpn", [190 * MBIT], **DISTURBED, bound=Bound.LEAST))
    assert tunnel.sentence == (
        "How much OpenVPN carries in load against the plain route is not known "
        "(at least 190 Mbit/s against at least 950 Mbit/s): something else used the machine."
    )
    assert tunnel.tests[0].ratio is None
    assert tunnel.tests[0].certainty is Certainty.CANNOT_TELL


def test_interval_that_holds_1_cannot_tell() -> None:
    _, tunnel = answers(
        trials("c01", "route", [900 * MBIT, 1000 * MBIT, 800 * MBIT]),
        trials("c02", "wireguard", [1000 * MBIT, 800 * MBIT, 950 * MBIT]),
    )
    assert tunnel.sentence.startswith(
        "Whether WireGuard carries more or less than the plain route in load is not known ("
    )
    assert tunnel.tests[0].certainty is Certainty.CANNOT_TELL


def test_equal_systems_carry_as_much() -> None:
    route = [950 * MBIT, 952 * MBIT, 948 * MBIT, 951 * MBIT, 949 * MBIT]
    like_it = [949 * MBIT, 951.5 * MBIT, 949.5 * MBIT, 950.2 * MBIT, 950.7 * MBIT]
    _, tunnel = answers(
        trials("c01", "route", route, limit=OF_LINK), trials("c02", "wireguard", like_it, limit=OF_LINK)
    )
    assert tunnel.sentence.startswith("WireGuard carries as much as the plain route in load, 100.0 % (99.")
    assert tunnel.sentence.endswith("; the link is the limit at 99 % of its rate, as it is for the plain route.")


def test_ratio_from_two_on_is_a_number_of_times() -> None:
    _, tunnel = answers(trials("c01", "route", [100.0]), trials("c02", "wireguard", [250.0]))
    assert tunnel.sentence.startswith("WireGuard carries about 2.5 times of what") is False
    assert "2.5 times what the plain route carries" in tunnel.sentence


def test_paced_load_that_arrived_is_no_capacity() -> None:
    late = {"latency_p99_us": metric(7000.0, "us")}
    paced: dict[str, Any] = {
        "kind": "http",
        "leading": "requests_per_s",
        "unit": "1/s",
        "limit": OFFERED,
        "others": late,
    }
    route, tunnel = answers(trials("c01", "route", [1000.0], **paced), trials("c02", "openvpn", [1000.0], **paced))
    assert route.sentence == (
        "The plain route answers all that is offered in load, about 1.00 k requests/s; "
        "the p99 of the latency is about 7.00 ms."
    )
    assert tunnel.sentence == (
        "OpenVPN answers all that is offered in load, about 1.00 k requests/s, as the plain route does; "
        "the p99 of the latency is about 7.00 ms against about 7.00 ms."
    )
    assert tunnel.next_step is not None and tunnel.next_step.startswith("offer more")


def test_all_that_is_offered_is_said_only_if_each_repeat_delivered_it() -> None:
    paced: dict[str, Any] = {"kind": "rr", "leading": "transactions_per_s", "unit": "1/s"}
    whole = trials("c01", "route", [1000.0, 1000.0, 500.0], limit=OFFERED, **paced)
    part = trials("c01", "route", [1000.0, 1000.0, 500.0], limit=Limit(LimitedBy.UNKNOWN, "nothing was"), **paced)
    assert "all that is offered" in answers(whole)[0].sentence
    [mixed] = answers([*whole[:2], part[2]])
    assert mixed.sentence.startswith("The plain route completes 833 transactions/s"), mixed.sentence


@pytest.mark.parametrize(("failed", "share"), [(0.004, "nearly all"), (1.0, "all")])
def test_failed_answers_are_answers_and_stand_in_the_sentence(failed: float, share: str) -> None:
    errors = {"error_ratio": metric(failed, "ratio")}
    paced: dict[str, Any] = {"kind": "http", "leading": "requests_per_s", "unit": "1/s", "others": errors}
    [route] = answers(trials("c01", "route", [1000.0], limit=OFFERED, **paced))
    assert route.sentence.startswith(f"The plain route answers {share} that is offered in load")
    assert "of the requests failed" in route.sentence


def test_open_question_of_another_test_is_what_to_do_next() -> None:
    """The load with a rate was carried whole, and how much can be carried is not known."""
    cases = []
    for case, system in (("c01", "route"), ("c02", "openvpn")):
        (paced,) = trials(case, system, [50 * MBIT], kind="udp", limit=OFFERED)
        (most,) = trials(case, system, [190 * MBIT], **DISTURBED, bound=Bound.LEAST)
        cases.append(replace(paced, tests=(paced.tests[0], replace(most.tests[0], test="most"))))
    summaries = [summary([replace(trial, tests=(test,))]) for trial in cases for test in trial.tests]
    _, tunnel = answers_of(run_of(cases, summaries))
    assert tunnel.lead == "load" and tunnel.sentence.startswith("OpenVPN carries all that is offered in load")
    assert tunnel.next_step is not None and "`top` shows it" in tunnel.next_step


def test_loss_stands_in_the_sentence() -> None:
    lost = {"lost_ratio": metric(0.38, "ratio")}
    [tunnel] = answers(trials("c01", "openvpn", [12 * MBIT], kind="udp", limit=OF_GATEWAY, others=lost))
    assert tunnel.sentence == (
        "OpenVPN carries about 12.0 Mbit/s in load, with 38.0 % of the packets lost; "
        "its single thread is the limit at 100 % of a core."
    )


def test_cost_is_per_gbit_and_per_client() -> None:
    cost = {
        "gateway_cpu_percent_per_gbps": metric(206.0, "%"),
        "gateway_cpu_percent_per_client": metric(9.5, "%", bound=Bound.MOST, verdict=Verdict.UNDETERMINED),
    }
    [tunnel] = answers(trials("c01", "openvpn", [200 * MBIT], others=cost))
    assert tunnel.tests[0].cost == (
        "The gateway spends 206 % of a core per Gbit/s and at most 9.50 % of a core per client."
    )


def test_baseline_has_the_same_load() -> None:
    cases = [
        trials(f"c{number}", system, [number * MBIT], parameters={"clients": clients})
        for number, (system, clients) in enumerate(
            [("route", 5), ("openvpn", 5), ("route", 20), ("openvpn", 20)], start=1
        )
    ]
    found = {answer.case: answer for answer in answers(*cases)}
    assert {case: answer.baseline for case, answer in found.items()} == {"c1": None, "c2": "c1", "c3": None, "c4": "c3"}
    assert found["c4"].name == "OpenVPN (clients 20)"


def test_system_without_its_route_has_no_baseline() -> None:
    route = trials("c01", "route", [MBIT], parameters={"clients": 5})
    _, tunnel = answers(route, trials("c02", "openvpn", [MBIT], parameters={"clients": 20}))
    assert tunnel.baseline is None
    assert tunnel.sentence == "OpenVPN (clients 20) carries about 1.00 Mbit/s in load."


def test_case_without_a_test_says_why() -> None:
    reason = "openvpn is not installed"
    skipped = [TrialResult("c02/1", "c02", 1, "skipped", reason, "openvpn", None, None, (), {}, sut_title="OpenVPN")]
    [_, answer] = answers(ROUTE, skipped)
    assert answer.sentence == "OpenVPN was skipped: openvpn is not installed."
    assert answer.lead is None


def test_figure_that_is_unknown_is_said_to_be() -> None:
    [answer] = answers(trials("c01", "openvpn", [None]))
    assert answer.sentence == "OpenVPN has no figure in load: it was not measured."


def test_search_whose_lowest_rate_failed_says_so() -> None:
    note = Reason(NO_RATE_HELD, "not even the lowest rate tried, 1020/s, holds")
    found = [
        replace(one, tests=(replace(one.tests[0], validity=Validity(Verdict.VALID, notes=(note,))),))
        for one in trials("c01", "openvpn", [None, None, None], kind="udp")
    ]
    [answer] = answers(found)
    assert answer.sentence == "OpenVPN has no figure in load: not even the lowest rate tried, 1020/s, holds."


def test_case_speaks_of_its_capacity_before_a_load_that_was_carried_whole() -> None:
    paced = trials("c01", "openvpn", [100 * MBIT, 100 * MBIT, 100.1 * MBIT], kind="udp", limit=OFFERED)
    bulk = trials("c01", "openvpn", [200 * MBIT], limit=OF_GATEWAY)
    named = [replace(trial.tests[0], test="paced") for trial in paced]
    trial = replace(bulk[0], tests=(named[0], bulk[0].tests[0]))
    summaries = (summary([replace(one, tests=(test,)) for one, test in zip(paced, named, strict=True)]), summary(bulk))
    [answer] = answers_of(run_of([trial], summaries))
    assert (answer.lead, answer.tests[0].certainty, answer.tests[1].certainty) == ("load", "known", "about")


def with_tests(case: str, system: str, values: dict[str, Sequence[float]], **of: Any) -> list[TrialResult]:
    """Trials of a case with several tests, each with a value for each repeat."""
    made = [trials(case, system, found, **of) for found in values.values()]
    return [
        replace(
            repeat[0],
            tests=tuple(replace(one.tests[0], test=name) for name, one in zip(values, repeat, strict=True)),
        )
        for repeat in zip(*made, strict=True)
    ]


def answers_with_tests(*cases: Sequence[TrialResult]) -> list[Answer]:
    summaries = [
        summary([replace(trial, tests=(trial.tests[number],)) for trial in case])
        for case in cases
        for number in range(len(case[0].tests))
    ]
    return list(answers_of(run_of([trial for case in cases for trial in case], summaries)))


def test_first_sentence_is_of_the_test_with_the_largest_effect() -> None:
    route = with_tests("c01", "route", {"up": [950.0, 951.0, 949.0], "rr": [1000.0, 1001.0, 999.0], "down": [1.0] * 3})
    tunnel = with_tests(
        "c02", "wireguard", {"up": [911.0, 912.0, 910.0], "rr": [410.0, 411.0, 409.0], "down": [0.7] * 3}
    )
    _, answer = answers_with_tests(route, tunnel)
    assert answer.lead == "rr" and "41.0 %" in answer.sentence


def test_speed_up_is_an_effect_as_well() -> None:
    route = with_tests("c01", "route", {"up": [100.0] * 3, "rr": [100.0] * 3})
    _, answer = answers_with_tests(route, with_tests("c02", "wireguard", {"up": [60.0] * 3, "rr": [300.0] * 3}))
    assert answer.lead == "rr"


def test_bound_counts_by_what_it_says_for_sure() -> None:
    """At least 20 % may be 100 %: that is no effect. At most 50 % is one."""
    bounded = trials("c02", "openvpn", [190.0], **DISTURBED, bound=Bound.LEAST)
    exact = trials("c02", "openvpn", [80.0])
    tunnel = [replace(exact[0], tests=(replace(bounded[0].tests[0], test="up"), replace(exact[0].tests[0], test="rr")))]
    _, answer = answers_with_tests(with_tests("c01", "route", {"up": [950.0], "rr": [100.0]}), tunnel)
    assert answer.lead == "rr"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([911.0, 911.2, 910.8], "slightly less than the plain route in load, 95.9 %"),
        ([981.0, 981.2, 980.8], "slightly more than the plain route in load, 103.3 %"),
        ([950.0, 950.4, 949.6], "as much as the plain route in load, 100.0 %"),
        ([949.9, 950.0, 949.8], "as much as the plain route in load, 100.0 %"),
    ],
)
def test_words_within_the_margin_agree_with_the_interval(values: list[float], words: str) -> None:
    route = trials("c01", "route", [950.0, 950.2, 949.8])
    _, tunnel = answers(route, trials("c02", "wireguard", values))
    assert tunnel.sentence.startswith(f"WireGuard carries {words}"), tunnel.sentence


def test_advice_follows_the_named_limit() -> None:
    clause = "the tunnel's socket on gateway is the limit: it drops 5.1 %"
    sockets = Limit(LimitedBy.GATEWAY, "sockets on gateway dropped 5.1 %", clause, "look first at the tunnel's socket")
    [tunnel] = answers(trials("c01", "openvpn", [200 * MBIT], limit=sockets))
    assert clause in tunnel.sentence and tunnel.next_step == "look first at the tunnel's socket"


def test_limits_of_one_part_are_shared_only_if_they_are_the_same() -> None:
    kernel = Limit(
        LimitedBy.GATEWAY, "one CPU of gateway was 91 % in soft interrupts", "the kernel is the limit at 91 %"
    )
    _, tunnel = answers(
        trials("c01", "route", [950.0], limit=kernel), trials("c02", "openvpn", [200.0], limit=OF_GATEWAY)
    )
    assert "as it is for" not in tunnel.sentence
    again = replace(OF_GATEWAY, clause="its single thread is the limit at 98 % of a core")
    _, tunnel = answers(
        trials("c01", "route", [950.0], limit=again), trials("c02", "openvpn", [200.0], limit=OF_GATEWAY)
    )
    assert tunnel.sentence.endswith("its single thread is the limit at 100 % of a core, as it is for the plain route.")


def test_two_bounds_of_a_time_are_not_set_against_each_other() -> None:
    def late(value: float) -> dict[str, Metric]:
        return {"latency_p99_us": metric(value, "us", **DISTURBED, bound=Bound.MOST)}

    paced: dict[str, Any] = {"kind": "http", "leading": "requests_per_s", "unit": "1/s", "limit": OFFERED}
    _, tunnel = answers(
        trials("c01", "route", [1000.0], others=late(6100.0), **paced),
        trials("c02", "openvpn", [1000.0], others=late(11500.0), **paced),
    )
    assert tunnel.sentence.endswith(
        "the p99 of the latency is at most 11.5 ms (at most 6.10 ms for the plain route)."
    ), tunnel.sentence


def test_cost_whose_side_is_not_known_is_about() -> None:
    cost = {
        "gateway_cpu_percent": metric(9.0, "%"),
        "gateway_cpu_percent_per_gbps": metric(190.0, "%", bound=Bound.MOST, verdict=Verdict.DISTURBED),
        "gateway_cpu_percent_per_client": metric(9.0, "%", bound=Bound.NONE, verdict=Verdict.DISTURBED),
    }
    [tunnel] = answers(trials("c01", "openvpn", [200 * MBIT], others=cost))
    assert tunnel.tests[0].cost == (
        "The gateway spends at most 190 % of a core per Gbit/s and about 9.00 % of a core in all."
    )


@pytest.mark.parametrize(
    ("code", "bound"), [(UNSEEN, Bound.MOST), (UNSEEN, Bound.NONE), (SHARED, Bound.NONE), (SHARED, Bound.MOST)]
)
def test_all_of_a_machines_busy_time_is_no_cost_in_a_sentence(code: str, bound: Bound) -> None:
    of = {"verdict": Verdict.UNDETERMINED, "reasons": (code,), "bound": bound}
    cost = {f"gateway_cpu_percent{of_what}": metric(200.0, "%", **of) for of_what in ("", "_per_client")}
    [route] = answers(trials("c01", "route", [200 * MBIT], others=cost))
    says = (code, bound) == (SHARED, Bound.MOST)
    assert route.tests[0].cost == ("The gateway spends at most 200 % of a core in all." if says else None)


def test_margin_is_the_plans() -> None:
    """Tables and sentences have the same words for the same ratio."""
    cases = trials("c01", "route", [950.0, 950.2, 949.8]), trials("c02", "wireguard", [911.0, 911.2, 910.8])
    run = run_of([trial for case in cases for trial in case], [summary(case) for case in cases])
    assert "slightly less than" in answers_of(run)[1].sentence
    assert answers_of(run, 0.02)[1].sentence.startswith("WireGuard carries 95.9 % of what the plain route carries")
