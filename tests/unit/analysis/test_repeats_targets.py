"""Means with t-intervals, disagreeing repeats, and targets: met, missed, undecided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from made_journals import steady_test

from leadline.analysis import analyse_test, judge, parse_targets
from leadline.analysis.model import Bound, Metric, Reason, Summary, Validity, Verdict
from leadline.analysis.model import TestResult as Result
from leadline.analysis.repeats import mean_with_interval, summarise
from leadline.analysis.scope import judge_figures
from leadline.analysis.targets import judge_summaries, missed_so_far
from leadline.errors import PlanError
from leadline.plan.kinds import plan_kinds
from leadline.plan.targets import Target

KINDS = {"bulk": "tcp", "call": "rr"}


def test_the_interval_is_students_t() -> None:
    # 2, 4, 4, 4, 6: mean 4, s = sqrt(2), t(0.975, 4) = 2.776445.
    mean = mean_with_interval(Metric(value, "us") for value in (2.0, 4.0, 4.0, 4.0, 6.0))
    assert (mean.value, mean.unit) == (4.0, "us")
    assert mean.low == pytest.approx(4 - 2.776445105 * (2 / 5) ** 0.5, rel=1e-8)
    assert mean.high == pytest.approx(4 + 2.776445105 * (2 / 5) ** 0.5, rel=1e-8)


def test_a_single_repeat_has_no_interval_and_unknown_values_are_left_out() -> None:
    alone = Metric(3.0, "us", unbounded="one repeat has no interval: two or more are needed")
    assert mean_with_interval([Metric(3.0, "us")]) == alone
    assert mean_with_interval([Metric(3.0, "us"), Metric(None, "us"), None]) == alone
    assert mean_with_interval([Metric(None, "us")]) == Metric(None, "us")
    same = mean_with_interval([Metric(3.0, "us"), Metric(3.0, "us")])
    assert (same.low, same.high) == (3.0, 3.0)


def repeats(*bytes_per_s: float) -> list[Result]:
    return [analyse_test(steady_test("tcp", rate)) for rate in bytes_per_s]


def summary(results: Sequence[Result], planned: int | None = None, limit: float = 0.1) -> Summary:
    return summarise(
        results, planned=planned or len(results), limit=limit, case="c01", test="t", kind="tcp", parameters={"n": 1}
    )


def test_repeats_that_agree_and_that_do_not() -> None:
    agreeing = summary(repeats(1e6, 1.02e6, 1.04e6))
    assert agreeing.metrics["throughput_bps"].value == pytest.approx(8.16e6)
    assert agreeing.metrics["throughput_bps"].low is not None
    assert agreeing.validity == Validity(Verdict.VALID)
    assert (agreeing.repeats, agreeing.failed) == (3, 0)
    apart = summary(repeats(1e6, 1.2e6))
    assert apart.validity.verdict is Verdict.UNSTABLE
    assert [reason.code for reason in apart.validity.reasons] == ["repeats-disagree"]
    assert summary(repeats(1e6, 1.2e6), limit=0.5).validity.verdict is Verdict.VALID


def test_disturbed_repeats_are_left_out_where_two_others_are_left() -> None:
    good, bad = repeats(1e6, 1e6), repeats(0.5e6)
    bad = [replace(one, validity=Validity(Verdict.DISTURBED)) for one in bad]
    found = summary([*good, *bad])
    assert (found.repeats, found.failed) == (2, 0)
    assert found.metrics["throughput_bps"].value == pytest.approx(8e6)
    assert [note.text for note in found.validity.notes] == ["1 of 3 repeats were disturbed: left out"]
    alone = summary([*good[:1], *bad])
    assert (alone.repeats, alone.validity.verdict) == (2, Verdict.DISTURBED)


def test_incomplete_repeats_are_left_out_where_they_are_the_fewer() -> None:
    reason = Reason("clients-missing", "3 of 4 clients connected", Verdict.INCOMPLETE)
    bad = [replace(one, validity=Validity(Verdict.INCOMPLETE, (reason,))) for one in repeats(0.5e6, 0.6e6)]
    found = summary([*repeats(1e6, 1e6), *bad[:1]])
    assert (found.repeats, found.validity.verdict) == (2, Verdict.VALID)
    assert found.metrics["throughput_bps"].value == pytest.approx(8e6)
    assert [note.text for note in found.validity.notes] == [
        "1 of 3 repeats were incomplete: left out (3 of 4 clients connected)"
    ]
    # Half of the repeats are no exception, and one that is left tells nothing of repeats.
    assert summary([*repeats(1e6, 1e6), *bad]).validity.verdict is Verdict.INCOMPLETE
    assert summary([*repeats(1e6), *bad[:1]]).validity.verdict is Verdict.INCOMPLETE


@pytest.mark.parametrize("verdict", [Verdict.GENERATOR_LIMITED, Verdict.RECEIVER_LIMITED])
@pytest.mark.parametrize(
    ("limited", "of", "expected"), [(1, 3, "valid"), (2, 5, "valid"), (2, 4, None), (2, 3, None), (1, 2, None)]
)
def test_limit_of_few_repeats_is_a_note(verdict: Verdict, limited: int, of: int, expected: str | None) -> None:
    done = repeats(*[1e6 * (1 + 0.001 * number) for number in range(of)])
    reason = Reason("thread-saturated", "a thread was busy", verdict)
    for number, one in enumerate(done[:limited]):
        metrics = {name: metric.doubted(verdict, reason.code, Bound.LEAST) for name, metric in one.metrics.items()}
        done[number] = replace(one, metrics=metrics, validity=Validity(verdict, (reason,)))
    found = summary(done)
    assert found.repeats == of
    assert found.validity.verdict.value == (expected or verdict.value)
    noted = found.validity.notes if expected else found.validity.reasons
    assert [(one.code, one.text) for one in noted] == [
        ("thread-saturated", f"a thread was busy (in {limited} of {of} repeats)")
    ]
    assert (found.metrics["throughput_bps"].bound is None) == bool(expected)


def test_rare_losses_that_meet_their_target_are_not_unstable() -> None:
    targets = parse_targets(["lost_ratio < 0.001"], {"t": "udp"})
    done = []
    for lost in (1, 0, 2, 0, 1):
        data = steady_test("udp", 1e6)
        data.outcomes[0].outcome["flows"][0] |= {"sent_units": 100_000, "received_units": 100_000 - lost, "lost": lost}
        done.append(analyse_test(data))

    def over(asked: Sequence[Target]) -> Summary:
        return summarise(
            done,
            planned=5,
            limit=0.1,
            case="c01",
            test="t",
            kind="udp",
            parameters={},
            named=["lost_ratio"],
            targets=asked,
        )

    assert over(()).validity.verdict is Verdict.UNSTABLE
    assert over(targets).validity.verdict is Verdict.VALID
    assert judge(targets[0], "c01", [over(targets)]).outcome == "met"
    strict = parse_targets(["lost_ratio < 0.00001"], {"t": "udp"})
    assert over(strict).validity.verdict is Verdict.UNSTABLE


def test_reasons_stay_in_the_order_of_their_verdicts() -> None:
    reasons = (Reason("other-work", "a", Verdict.DISTURBED), Reason("thread-starved", "b", Verdict.GENERATOR_LIMITED))
    both = [replace(one, validity=Validity(Verdict.DISTURBED, reasons)) for one in repeats(1e6, 1e6)]
    assert summary(both).validity.reasons == reasons


@pytest.mark.parametrize("code", ["intervals-disagree", "precision-unknown", "change-point"])
def test_uneven_repeats_that_agree_are_not_doubted(code: str) -> None:
    """One of three whose parts differ is in the interval over the three; two repeats have none to speak of."""
    rates = 1e6, 1.01e6, 0.99e6
    assert [summary(doubted(rates, code, times)).validity.verdict.value for times in (0, 1)] == ["valid", "valid"]
    found = summary(doubted(rates, code, 1))
    assert found.metrics["throughput_bps"].verdict is Verdict.VALID and found.validity.reasons == ()
    every = summary(doubted(rates, code, 3)).validity.verdict
    assert every is (Verdict.UNSTABLE if code == "change-point" else Verdict.VALID)
    assert summary(doubted(rates[:2], code, 1)).validity.verdict is Verdict.UNSTABLE
    apart = summary(doubted((1e6, 1.4e6, 0.7e6), code, 1))
    assert [reason.code for reason in apart.validity.reasons] == ["repeats-disagree"]


def doubted(rates: Sequence[float], code: str, times: int) -> list[Result]:
    """Repeats, the first ones of which were uneven by themselves."""
    reason = Reason(code, "uneven", Verdict.UNSTABLE)
    found = repeats(*rates)
    for number, one in enumerate(found[:times]):
        metrics = {name: metric.doubted(Verdict.UNSTABLE, code, Bound.NONE) for name, metric in one.metrics.items()}
        found[number] = replace(one, metrics=metrics, validity=Validity(Verdict.UNSTABLE, (reason,)))
    return found


def test_failed_repeats_are_counted_and_not_averaged() -> None:
    found = summary(repeats(1e6), planned=3)
    assert (found.repeats, found.failed) == (1, 2)
    assert found.metrics["throughput_bps"].value == pytest.approx(8e6)
    assert [reason.code for reason in found.validity.reasons] == ["repeats-failed"]
    assert found.validity.reasons[0].text == "2 of 3 repeats did not complete"
    [cut] = summary([replace(repeats(1e6)[0], status="interrupted")], planned=1).validity.reasons
    assert cut.text == "1 of 1 repeat did not complete"
    disturbed = replace(repeats(1e6)[0], validity=Validity(Verdict.DISTURBED))
    [some] = summary([*repeats(1e6, 1e6), disturbed], planned=4).validity.reasons
    assert some.text == "1 of 4 repeats did not complete", "one that is left out began too"
    none = summary([], planned=2)
    assert (none.repeats, none.failed, none.metrics) == (0, 2, {})
    assert none.validity.verdict is Verdict.INCOMPLETE


def result(value: float | None, verdict: Verdict = Verdict.VALID, test: str = "bulk", kind: str = "tcp") -> Summary:
    metric = "throughput_bps" if kind == "tcp" else "latency_p99_us"
    code = _CODES.get(verdict)
    against = [] if code is None else [(verdict, Reason(code, "y"))]
    # Of repeats that agree: the interval is the value itself.
    judged = judge_figures(
        {metric: Metric(value, "", value, value)}, against, (), primary=metric, decisive=(), delivered=None
    )
    return Summary("c01", test, kind, {}, 1, 0, judged.metrics, judged.validity)


_CODES = {
    Verdict.GENERATOR_LIMITED: "thread-saturated",
    Verdict.RECEIVER_LIMITED: "thread-saturated",
    Verdict.UNSTABLE: "change-point",
    Verdict.UNDETERMINED: "no-generator-figures",
    Verdict.INCOMPLETE: "ended-early",
}


LIMITED = Verdict.GENERATOR_LIMITED


@pytest.mark.parametrize(
    ("target", "value", "verdict", "outcome"),
    [
        ("bulk.throughput_bps > 100mbit", 2e8, Verdict.VALID, "met"),
        ("bulk.throughput_bps > 100mbit", 1e8, Verdict.VALID, "missed"),
        ("bulk.throughput_bps >= 100mbit", 1e8, Verdict.VALID, "met"),
        ("bulk.throughput_bps > 100mbit", 2e8, LIMITED, "met"),
        ("bulk.throughput_bps > 100mbit", 0.5e8, LIMITED, "undecided"),
        ("bulk.throughput_bps < 100mbit", 2e8, LIMITED, "missed"),
        ("bulk.throughput_bps < 100mbit", 0.5e8, LIMITED, "undecided"),
        ("bulk.throughput_bps == 100mbit", 1e8, LIMITED, "undecided"),
        ("bulk.throughput_bps > 100mbit", 2e8, Verdict.RECEIVER_LIMITED, "met"),
        ("bulk.throughput_bps > 100mbit", 2e8, Verdict.UNSTABLE, "undecided"),
        ("bulk.throughput_bps > 100mbit", 2e8, Verdict.INCOMPLETE, "undecided"),
        ("bulk.throughput_bps > 100mbit", 2e8, Verdict.UNDETERMINED, "undecided"),
        ("bulk.throughput_bps > 100mbit", None, Verdict.VALID, "undecided"),
        ("throughput_bps > 100mbit", 2e8, Verdict.VALID, "met"),
    ],
)
def test_a_target(target: str, value: float | None, verdict: Verdict, outcome: str) -> None:
    (parsed,) = parse_targets([target], KINDS)
    judged = judge(parsed, "c01", [result(value, verdict)])
    assert (judged.outcome, judged.value, judged.target, judged.case) == (outcome, value, target, "c01")
    assert judged.reason


def test_a_limited_generator_can_only_have_made_a_latency_longer() -> None:
    (parsed,) = parse_targets(["call.latency_p99_us < 1ms"], KINDS)
    for value, verdict, outcome in (
        (500.0, LIMITED, "met"),
        (1500.0, LIMITED, "undecided"),
        (500.0, Verdict.VALID, "met"),
        (500.0, Verdict.UNSTABLE, "undecided"),
    ):
        assert judge(parsed, "c01", [result(value, verdict, "call", "rr")]).outcome == outcome


@pytest.mark.parametrize(
    ("target", "low", "high", "outcome"),
    [
        ("latency_p99_us < 2ms", -4980.0, 8647.0, "undecided"),
        ("latency_p99_us < 2ms", 1700.0, 1999.0, "met"),
        ("latency_p99_us < 2ms", 1700.0, 2000.0, "undecided"),
        ("latency_p99_us <= 2ms", 1700.0, 2000.0, "met"),
        ("latency_p99_us < 2ms", 2000.0, 2100.0, "missed"),
        ("latency_p99_us > 1ms", 900.0, 2700.0, "undecided"),
        ("latency_p99_us > 1ms", 1001.0, 2700.0, "met"),
        ("latency_p99_us == 1833", 1800.0, 1866.0, "undecided"),
        ("latency_p99_us == 1833", 1833.0, 1833.0, "met"),
        ("latency_p99_us == 1ms", 1800.0, 1866.0, "missed"),
    ],
)
def test_the_whole_interval_decides(target: str, low: float, high: float, outcome: str) -> None:
    (parsed,) = parse_targets([f"call.{target}"], KINDS)
    value = (low + high) / 2
    found = replace(result(0.0, test="call", kind="rr"), metrics={"latency_p99_us": Metric(value, "us", low, high)})
    assert judge(parsed, "c01", [found]).outcome == outcome


@pytest.mark.parametrize(
    ("target", "ends", "bound", "outcome"),
    [
        # A generator at its limit: the rate is at least the interval's low end.
        ("throughput_bps > 195mbit", (1.8e8, 2.2e8), Bound.LEAST, "undecided"),
        ("throughput_bps > 175mbit", (1.8e8, 2.2e8), Bound.LEAST, "met"),
        ("throughput_bps < 195mbit", (1.8e8, 2.2e8), Bound.LEAST, "undecided"),
        ("throughput_bps < 175mbit", (1.8e8, 2.2e8), Bound.LEAST, "missed"),
        ("throughput_bps > 195mbit", (None, None), Bound.LEAST, "undecided"),
        ("throughput_bps < 205mbit", (1.8e8, 2.2e8), Bound.MOST, "undecided"),
        ("throughput_bps < 225mbit", (1.8e8, 2.2e8), Bound.MOST, "met"),
        ("throughput_bps > 225mbit", (1.8e8, 2.2e8), Bound.MOST, "missed"),
        ("throughput_bps < 225mbit", (1.8e8, None), Bound.MOST, "undecided"),
    ],
)
def test_bound_holds_for_the_end_of_the_interval(
    target: str, ends: tuple[float | None, float | None], bound: Bound, outcome: str
) -> None:
    (parsed,) = parse_targets([f"bulk.{target}"], KINDS)
    metric = Metric(2e8, "bit/s", *ends).doubted(LIMITED, "thread-saturated", bound)
    judged = judge(parsed, "c01", [replace(result(2e8), metrics={"throughput_bps": metric})])
    assert judged.outcome == outcome
    assert judged.reason.startswith("known only to be at " if outcome == "undecided" else "at ")


@pytest.mark.parametrize(
    ("kind", "target", "metric", "outcome"),
    [
        ("tcp", "throughput_bps > 100mbit", Metric(2e8, "bit/s", unbounded="too short"), "undecided"),
        ("tcp", "throughput_bps > 100mbit", Metric(2e8, "bit/s", low=1.5e8, unbounded="no end"), "met"),
        ("tcp", "throughput_bps < 300mbit", Metric(2e8, "bit/s", low=1.5e8, unbounded="no end"), "undecided"),
        ("rr", "latency_p99_us < 1ms", Metric(10.0, "us", unbounded="too few"), "undecided"),
        # What a test counted, its extremes, and a fleet whose clients all tried are no estimates.
        ("tcp", "retransmits < 10", Metric(3.0, "count", unbounded="of the whole"), "met"),
        ("tcp", "retransmits < 10", Metric(30.0, "count", unbounded="of the whole"), "missed"),
        ("rr", "latency_max_us < 1ms", Metric(10.0, "us", unbounded="of the whole"), "met"),
        ("tunnel", "failed_ratio < 10%", Metric(0.02, "ratio", unbounded="of the whole"), "met"),
        ("udp", "lost_ratio == 0", Metric(0.0, "ratio", 0.0, 0.01), "met"),
        ("tcp", "gateway_memory_bytes < 1GiB", Metric(1e6, "bytes", unbounded="too short"), "undecided"),
    ],
)
def test_figure_without_an_interval_decides_nothing_unless_it_is_exact(
    kind: str, target: str, metric: Metric, outcome: str
) -> None:
    (parsed,) = parse_targets([target], {"t": kind})
    found = replace(result(0.0), test="t", kind=kind, metrics={parsed.metric: metric})
    judged = judge(parsed, "c01", [found])
    assert judged.outcome == outcome
    if outcome == "undecided" and metric.low is None:
        assert judged.reason.endswith(f"but it has no interval: {metric.unbounded}")


def lossless(sent: int, times: int) -> Summary:
    """Repeats that each lost none of this many datagrams."""
    done = []
    for _ in range(times):
        data = steady_test("udp", 1e6)
        data.outcomes[0].outcome["flows"][0] |= {"sent_units": sent, "received_units": sent, "lost": 0}
        done.append(analyse_test(data))
    return summarise(done, planned=times, limit=0.1, case="c01", test="t", kind="udp", parameters={})


@pytest.mark.parametrize(
    ("sent", "times", "outcome"), [(500, 1, "undecided"), (500, 4, "undecided"), (500, 8, "met"), (4000, 1, "met")]
)
def test_none_lost_of_few_is_no_certainty(sent: int, times: int, outcome: str) -> None:
    """Of 3,688 datagrams and more, of which none was lost, the true share is below 0.1 % with 97.5 %."""
    (parsed,) = parse_targets(["lost_ratio < 0.001"], {"t": "udp"})
    found = lossless(sent, times)
    ratio = found.metrics["lost_ratio"]
    assert (ratio.value, ratio.low) == (0, 0)
    assert ratio.high == pytest.approx(1 - 0.025 ** (1 / sent / times))
    assert judge(parsed, "c01", [found]).outcome == outcome
    (equal,) = parse_targets(["lost_ratio == 0"], {"t": "udp"})
    assert judge(equal, "c01", [found]).outcome == "met"


def test_interval_over_repeats_ends_where_its_figure_does() -> None:
    def over(name: str, unit: str, *values: float) -> Metric:
        done = [
            replace(one, metrics={name: Metric(value, unit)}) for one, value in zip(repeats(1, 1), values, strict=True)
        ]
        return summary(done).metrics[name]

    assert over("lost_ratio", "ratio", 0.0, 0.1).low == 0
    assert over("checks_ratio", "ratio", 0.9, 1.0).high == 1
    assert over("latency_mean_us", "us", 1.0, 9.0).low == 0
    assert (over("buffer_delay_ratio", "ratio", 0.5, 1.0).high or 0) > 1
    assert (over("latency_increase_us", "us", 1.0, 9.0).low or 0) < 0


RATIOS = [(kind.name, one.name) for kind in plan_kinds() for one in kind.metrics if one.unit == "ratio"]


@pytest.mark.parametrize(("kind", "name"), RATIOS)
def test_interval_of_a_ratio_holds_its_mean(kind: str, name: str) -> None:
    """A time or a use of the line by what the line allows is no share, and may be above 1."""
    shares = ("buffer_delay", "transfer_time", "line_use")
    for values in ((1.20, 1.21, 1.22), (0.98, 1.0, 1.0)):
        done = [
            replace(one, kind=kind, metrics={name: Metric(value, "ratio")})
            for one, value in zip(repeats(1, 1, 1), values, strict=True)
        ]
        found = summarise(done, planned=3, limit=0.1, case="c01", test="t", kind=kind, parameters={})
        mean = found.metrics[name]
        assert mean.value is not None and mean.low is not None and mean.high is not None
        assert mean.low <= mean.value <= mean.high
        assert (mean.high > max(1, mean.value)) == name.startswith(shares)


def test_target_on_a_ratio_above_1_is_decided() -> None:
    done = [
        replace(one, metrics={"transfer_time_up_ratio": Metric(value, "ratio")})
        for one, value in zip(repeats(1, 1, 1), (1.20, 1.21, 1.22), strict=True)
    ]
    for target, outcome in (("< 1.5", "met"), ("< 1.1", "missed"), ("< 1.21", "undecided")):
        (parsed,) = parse_targets([f"transfer_time_up_ratio {target}"], {"t": "tcp"})
        assert judge(parsed, "c01", [summary(done)]).outcome == outcome


def test_repeats_that_disagree_decide_a_target_by_their_interval() -> None:
    apart = summary(repeats(1e6, 1.3e6, 1.6e6))
    assert apart.metrics["throughput_bps"].verdict is Verdict.UNSTABLE
    for value, outcome in (("1kbit", "met"), ("10mbit", "undecided"), ("1gbit", "missed")):
        (parsed,) = parse_targets([f"throughput_bps > {value}"], {"t": "tcp"})
        assert judge(parsed, "c01", [apart]).outcome == outcome


@pytest.mark.parametrize(
    ("rates", "verdict", "words"),
    [
        ((1e6, 1.06e6, 0.94e6), Verdict.UNDETERMINED, "3 repeats are too few to tell how certain throughput_bps is"),
        ((1e6, 1.3e6, 0.7e6), Verdict.UNSTABLE, "3 repeats leave throughput_bps uncertain by ±74.5 % of the mean"),
        ((1e6, 1.06e6, 0.94e6, 1.06e6, 0.94e6), Verdict.VALID, ""),
    ],
)
def test_few_repeats_that_agree_are_too_few_and_not_unstable(
    rates: tuple[float, ...], verdict: Verdict, words: str
) -> None:
    """Three repeats within 6 % of their mean have an interval of 15 %, since t has two degrees of freedom."""
    found = summary(repeats(*rates))
    assert found.validity.verdict is verdict
    assert "".join(reason.text for reason in found.validity.reasons).startswith(words)


def test_messages_have_the_unit_of_the_metric() -> None:
    result = analyse_test(steady_test("tcp", 1e6))
    metrics = {
        "throughput_bps": Metric(8e6, "bit/s", 7e6, 9e6),
        "latency_p99_us": Metric(7123.4, "us", 7000.0, 7200.0),
        "lost_ratio": Metric(0.0021, "ratio", 0.002, 0.0022),
        "gateway_cpu_percent": Metric(97.0, "percent", 96.0, 98.0),
        "retransmits": Metric(3.0, "count"),
        "gateway_memory_bytes": Metric(9e9, "bytes", 8e9, 9.5e9),
    }
    made = replace(result, kind="udp", metrics=metrics)
    said = {
        "throughput_bps > 7500000": "8 Mbit/s > 7.5 Mbit/s, but the 95 % interval 7 Mbit/s to 9 Mbit/s leaves it open",
        "latency_p99_us < 5000": "7123.4 µs is not < 5000 µs",
        "lost_ratio < 0.001": "0.21 % is not < 0.1 %",
        "gateway_cpu_percent < 90": "97 % is not < 90 %",
        "retransmits == 3": "3 == 3",
        "gateway_memory_bytes < 1GiB": "9000000000 B is not < 1073741824 B",
    }
    for target, words in said.items():
        kind = "rr" if "latency" in target else "tcp" if "retransmits" in target else "udp"
        (parsed,) = parse_targets([target], {"t": kind})
        assert judge(parsed, "c01", [replace(made, kind=kind)]).reason == words


def test_target_on_a_gateway_that_a_case_does_not_have_is_answered_by_one_line() -> None:
    """A site-to-site case has gateways a and b; a remote-access case has one, called gateway."""
    remote = replace(summary(repeats(1e6)), case="c01", metrics={"gateway_cpu_percent": Metric(50.0, "percent")})
    ends = {f"gateway_{end}_cpu_percent": Metric(50.0, "percent", 49.0, 51.0) for end in "ab"}
    both = replace(remote, case="c02", metrics=ends)
    targets = parse_targets(["gateway_a_cpu_percent < 90"], {"t": "tcp"})
    (alone,) = judge_summaries(targets, [remote])
    assert (alone.case, alone.outcome) == ("c01", "undecided")
    assert alone.reason == "this case has no gateway called 'gateway-a'; its own is gateway_cpu_percent"
    assert [(one.case, one.outcome) for one in judge_summaries(targets, [remote, both])] == [("c02", "met")]
    (other,) = judge_summaries(parse_targets(["gateway_cpu_percent < 90"], {"t": "tcp"}), [both])
    assert other.reason == (
        "this case has no gateway called 'gateway'; its own is gateway_a_cpu_percent or gateway_b_cpu_percent"
    )


@pytest.mark.parametrize("number", [2, 3, 5, 10, 30])
def test_a_spread_of_three_percent_is_stable_whatever_the_number_of_repeats(number: int) -> None:
    # The standard deviation is 3 % of the mean: half of them lie above, half below.
    offsets = [(-1.0) ** place * 0.03 * ((number - 1) / number) ** 0.5 for place in range(number - number % 2)]
    rates = [1e6 * (1 + offset) for offset in (*offsets, *([0.0] if number % 2 else []))]
    assert summary(repeats(*rates)).validity.verdict is Verdict.VALID


@pytest.mark.parametrize(
    ("target", "outcome"),
    [
        ("latency_p99_us < 1ms", "missed"),
        ("latency_p99_us <= 2ms", "undecided"),
        ("latency_p99_us < 5ms", "undecided"),
        ("latency_p99_us > 1ms", "met"),
        ("latency_p99_us >= 2ms", "met"),
        ("latency_p99_us > 5ms", "undecided"),
        ("latency_p99_us == 1ms", "missed"),
        ("latency_p99_us == 2ms", "undecided"),
        ("latency_p99_us == 5ms", "undecided"),
    ],
)
def test_a_lower_bound_decides_only_what_it_can(target: str, outcome: str) -> None:
    (parsed,) = parse_targets([f"call.{target}"], KINDS)
    bound = {"latency_p99_us": Metric(2000.0, "us", censored=True)}
    limited = {"latency_p99_us": bound["latency_p99_us"].doubted(LIMITED, "thread-saturated", Bound.MOST)}
    for metrics, expected in ((bound, outcome), (limited, "undecided")):
        judged = judge(parsed, "c01", [replace(result(None, test="call", kind="rr"), metrics=metrics)])
        assert judged.outcome == expected
    assert "at least" in judge(parsed, "c01", [replace(result(None, test="call", kind="rr"), metrics=bound)]).reason
    running = missed_so_far(parsed, "call", bound, generator_limited=False)
    assert (running is not None) == (outcome == "missed")


def test_a_mean_of_repeats_with_a_lower_bound_is_one() -> None:
    found = mean_with_interval([Metric(1.0, "us"), Metric(3.0, "us", censored=True)])
    assert found == Metric(2.0, "us", censored=True, unbounded="some repeats are lower bounds")
    at_most = Metric(3.0, "us", verdict=Verdict.GENERATOR_LIMITED, reasons=("sends-late",), bound=Bound.MOST)
    assert mean_with_interval([at_most, at_most]).bound is Bound.MOST
    assert mean_with_interval([Metric(1.0, "us", censored=True), at_most]).bound is Bound.NONE, "neither side is known"


def test_a_target_without_a_test_takes_the_worst_result() -> None:
    (parsed,) = parse_targets(["throughput_bps > 100mbit"], {"bulk": "tcp", "more": "tcp"})
    good, bad = result(2e8), result(1e6, test="more")
    open_ = result(None, test="more")
    assert judge(parsed, "c01", [good, bad]).outcome == "missed"
    assert judge(parsed, "c01", [good, open_]).outcome == "undecided"


def test_a_target_without_a_result_is_undecided() -> None:
    (parsed,) = parse_targets(["bulk.throughput_bps > 1"], KINDS)
    assert judge(parsed, "c01", []).outcome == "undecided"
    assert [found.case for found in judge_summaries([parsed], [result(2.0), result(3.0, test="call")])] == ["c01"]


def test_target_of_an_unknown_metric_is_refused() -> None:
    with pytest.raises(PlanError):
        parse_targets(["bulk.nothing < 3"], KINDS)


def test_a_mean_without_one_of_its_repeats_decides_nothing() -> None:
    known, unknown = (
        replace(found, metrics={"throughput_bps": Metric(value, "bit/s")})
        for found, value in zip(repeats(1e6, 1e6), (2e8, None), strict=True)
    )
    found = summary([known, unknown])
    assert found.gaps == {"throughput_bps": 1}
    (parsed,) = parse_targets(["throughput_bps > 100mbit"], {"t": "tcp"})
    judged = judge(parsed, "c01", [found])
    assert (judged.outcome, judged.reason) == ("undecided", "the figure is unknown in 1 of the repeats")


@pytest.mark.parametrize(
    ("target", "metric", "missed"),
    [
        ("latency_p99_us < 2000", Metric(2001.0, "us"), True),
        ("latency_p99_us < 2000", Metric(1999.0, "us"), False),
        # No sample so far: neither met nor missed.
        ("latency_p99_us < 2000", Metric(None, "us"), False),
        # A maximum and a count only grow, a minimum only shrinks: what the end may still meet is not missed.
        ("latency_max_us > 2000", Metric(100.0, "us"), False),
        ("latency_max_us < 2000", Metric(2100.0, "us"), True),
        ("latency_min_us < 20", Metric(100.0, "us"), False),
        ("latency_min_us > 200", Metric(100.0, "us"), True),
        ("requests >= 1000", Metric(10.0, "count"), False),
        ("requests < 1000", Metric(1000.0, "count"), True),
        ("status_5xx == 0", Metric(1.0, "count"), True),
        ("requests == 100", Metric(99.0, "count"), False),
        ("error_ratio < 0.001", Metric(0.01, "ratio"), True),
        # The end of the interval that is nearer to the target decides, if there is one.
        ("latency_p99_us < 2000", Metric(2050.0, "us", 2001.0, 2200.0), True),
        ("latency_p99_us < 2000", Metric(2050.0, "us", 2001.0), True),
        ("latency_p99_us < 2000", Metric(2050.0, "us", 1999.0, 2200.0), False),
        ("latency_p99_us < 2000", Metric(2050.0, "us", None, 2200.0), True),
        ("latency_p99_us < 2000", Metric(1990.0, "us", 1980.0, 2010.0), False),
        ("latency_p99_us < 2000", Metric(2050.0, "us", 1990.0, None, censored=True), False),
        ("requests_per_s > 5000", Metric(4000.0, "1/s", 3900.0, 4100.0), True),
        ("requests_per_s > 5000", Metric(4900.0, "1/s", 4700.0, 5100.0), False),
        ("error_ratio < 0.001", Metric(0.01, "ratio", 0.0005, 0.03), False),
    ],
)
def test_what_a_running_load_has_missed(target: str, metric: Metric, missed: bool) -> None:
    (parsed,) = parse_targets([target], {"http": "http"})
    found = missed_so_far(parsed, "http", {parsed.metric: metric}, generator_limited=False)
    assert (found is not None) == missed
    if found is not None:
        assert (found.outcome, found.target, found.value) == ("missed", target, metric.value)


def test_a_generator_at_its_limit_misses_no_rate_from_below() -> None:
    (above, below) = parse_targets(["requests_per_s > 5000", "requests_per_s < 5000"], {"http": "http"})
    slow, quick = ({"requests_per_s": Metric(value, "1/s")} for value in (4000.0, 6000.0))
    assert missed_so_far(above, "http", slow, generator_limited=True) is None
    assert missed_so_far(above, "http", slow, generator_limited=False) is not None
    assert missed_so_far(below, "http", quick, generator_limited=True) is not None


def test_another_tests_target_is_not_looked_at() -> None:
    (parsed,) = parse_targets(["other.latency_p99_us < 1"], {"other": "http"})
    assert missed_so_far(parsed, "http", {"latency_p99_us": Metric(5.0, "us")}, generator_limited=False) is None
