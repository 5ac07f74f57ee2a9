"""Intervals of a test's figures: they contain the truth, and each figure without one says why."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from made_fleets import client, fleet
from made_journals import (
    EPOCH_NS,
    MS,
    S,
    counters,
    finished,
    flow,
    histogram,
    outcome,
    progress,
    steady_test,
    test_data,
)

from leadline.analysis import TestData, analyse_test
from leadline.analysis.flows import Curve
from leadline.analysis.intervals import rate_estimate
from leadline.analysis.model import Metric, Summary, Verdict, Window
from leadline.analysis.repeats import summarise
from leadline.analysis.targets import judge, parse_targets
from leadline.analysis.test_analysis import analyse_repeat
from leadline.report.verdicts import VALID_ROUGHLY, sentence_of
from synthetic import contains

KINDS = ("tcp", "udp", "rr", "http")


def window(length_s: float) -> Window:
    end_ns = EPOCH_NS + round(length_s * S)
    return Window(EPOCH_NS, EPOCH_NS, end_ns, end_ns)


def curve(per_interval: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Curve:
    """A counter that was read every 100 ms."""
    instants = np.asarray(EPOCH_NS + np.arange(len(per_interval) + 1) * 100.0 * MS, dtype=np.float64)
    return Curve(instants, np.concatenate(([0.0], np.cumsum(per_interval)), dtype=np.float64))


def answered(seconds: int, generator: np.random.Generator) -> TestData:
    """An rr test of 1,000 transactions a second whose latencies are exponential with a mean of 1 ms."""
    data, everything = test_data("rr", duration_ms=seconds * 1000), []
    for second in range(1, seconds + 1):
        times_ns = generator.exponential(1e6, 1000).astype(int) + 1
        everything += times_ns.tolist()
        t_ns, units = EPOCH_NS + second * S, 1000 * second
        row = counters(0, sent_units=units, received_units=units)
        data.add("client1", progress(t_ns, [row], side="local", histograms=[histogram("latency", times_ns.tolist())]))
    end_ns, units = EPOCH_NS + seconds * S, 1000 * seconds
    report = flow(0, EPOCH_NS, end_ns, sent_units=units, received_units=units)
    data.add("client1", finished(end_ns, outcome([report], histograms=[histogram("latency", everything)])))
    return data


def test_interval_of_a_noisy_rate_contains_the_truth() -> None:
    """10 s of a counter that grows by 100 in 100 ms, with noise that resembles its neighbours."""
    generator = np.random.default_rng(1)
    contained = []
    for _ in range(300):
        noise = np.empty(100)
        noise[0] = generator.standard_normal()
        for index in range(1, 100):
            noise[index] = 0.5 * noise[index - 1] + math.sqrt(0.75) * generator.standard_normal()
        found = rate_estimate([curve(100 + 10 * noise)], window(10), 100 * MS)
        assert found is not None and found.low is not None and found.high is not None
        contained.append(found.low <= 1000 <= found.high)
    assert 0.92 <= sum(contained) / len(contained) <= 0.98


def test_counters_of_many_flows_are_added_up_before_the_interval_is_made() -> None:
    """Flows that take from each other: each is noisy, their sum is not."""
    share = np.random.default_rng(2).uniform(0, 100, 100)
    found = rate_estimate([curve(share), curve(100 - share)], window(10), 100 * MS)
    assert found is not None and found.half_width_ratio == pytest.approx(0, abs=1e-9)


def test_even_rate_has_a_narrow_interval_around_itself() -> None:
    rate = analyse_test(steady_test("tcp", 1e6)).metrics["throughput_bps"]
    assert rate.unbounded is None
    assert rate.low is not None and rate.high is not None and rate.value is not None
    assert rate.low <= rate.value <= rate.high
    assert rate.high - rate.low < 1e-3 * rate.value


def test_rate_that_is_known_from_totals_has_no_interval() -> None:
    data = test_data("tcp")
    end_ns = EPOCH_NS + 10 * S
    report = flow(0, EPOCH_NS, end_ns, sent_bytes=1000, received_bytes=1000)
    data.add("client1", finished(end_ns, outcome([report])))
    rate = analyse_test(data).metrics["throughput_bps"]
    assert (rate.low, rate.high) == (None, None)
    assert rate.unbounded == "only totals are known, no intervals of time"


def test_rate_in_stages_has_no_interval() -> None:
    data = steady_test("http")
    data.spec = replace(data.spec, steady=False)
    assert analyse_test(data).metrics["requests_per_s"].unbounded == "the rate changes by plan"


def test_short_test_has_no_interval() -> None:
    found = rate_estimate([curve(np.full(9, 7.0))], window(0.9), 100 * MS)
    assert found is not None and found.low is None
    assert found.reason == "9 intervals are too few: 10 are needed"


def test_percentiles_have_intervals_that_contain_the_truth() -> None:
    generator = np.random.default_rng(3)
    contained: dict[str, list[bool]] = {"latency_p50_us": [], "latency_p99_us": []}
    for _ in range(40):
        metrics = analyse_test(answered(12, generator)).metrics
        for name, share in (("latency_p50_us", 0.5), ("latency_p99_us", 0.99)):
            found = metrics[name]
            low, high = found.low or 0.0, math.inf if found.high is None else found.high
            assert found.value is not None and low <= found.value <= high
            contained[name].append(low <= -1000 * math.log(1 - share) <= high)
    assert all(sum(found) >= 36 for found in contained.values()), contained


def test_percentile_of_few_seconds_is_bounded_by_ranks_and_by_how_certain_the_level_is() -> None:
    metrics = analyse_test(answered(4, np.random.default_rng(4))).metrics
    found = metrics["latency_p99_us"]
    assert found.low is not None and found.high is not None and found.unbounded is None
    assert found.low < -1000 * math.log(0.01) < found.high < 2 * found.low
    rare = metrics["latency_p999_us"]
    assert rare.low is not None and rare.high is None
    assert rare.unbounded is not None and rare.unbounded.startswith("the seconds of the test are too few")


def test_each_operation_in_flight_counts_as_a_rank() -> None:
    """99 transactions of 1 µs, and some that had waited for 1 s: of 200 or more, which one was in the middle?"""
    for in_flight, bounds in ((1, (1.0, 1.0)), (100, (None, None))):
        waiting = histogram("latency_censored", [10**9] * in_flight)
        data = steady_test("rr", histograms=[histogram("latency", [1000] * 99), waiting])
        found = analyse_test(data).metrics["latency_p50_us"]
        assert found.value is not None
        assert (found.low, found.high) == bounds


@pytest.mark.parametrize("kind", KINDS)
def test_each_known_figure_has_both_bounds_or_says_why_not(kind: str) -> None:
    for name, metric in analyse_test(steady_test(kind)).metrics.items():
        is_bounded = metric.low is not None and metric.high is not None
        assert (metric.value is None and metric.unbounded is None) or is_bounded == (metric.unbounded is None), name


def test_mean_latency_has_an_interval_that_contains_the_truth() -> None:
    generator, contained, bounded = np.random.default_rng(6), list[bool](), 0
    for _ in range(20):
        found = analyse_test(answered(12, generator)).metrics["latency_mean_us"]
        contained.append(contains(found.low, found.high, 1000))
        bounded += found.low is not None
    assert sum(contained) >= 18 and bounded >= 15
    short = analyse_test(answered(6, generator)).metrics["latency_mean_us"]
    assert short.unbounded == "6 seconds are too few: 10 are needed"


def test_rates_of_both_directions_and_of_transfer_have_intervals() -> None:
    assert analyse_test(steady_test("http")).metrics["transfer_bps"].low is not None
    data = test_data("tcp", direction="both")
    end_ns, reports = EPOCH_NS + 10 * S, []
    for number, (direction, side) in enumerate((("up", "peer"), ("down", "local"))):
        for step in range(1, 101):
            moved = 10_000 * step * (number + 1)
            data.add("client1", progress(EPOCH_NS + step * 100 * MS, [counters(number, moved, moved)], side=side))
        reports.append(flow(number, EPOCH_NS, end_ns, direction=direction, sent_bytes=moved, received_bytes=moved))
    data.add("client1", finished(end_ns, outcome(reports)))
    metrics = analyse_test(data).metrics
    for name, truth in (("throughput_up_bps", 8e5), ("throughput_down_bps", 16e5), ("throughput_bps", 24e5)):
        low, high = metrics[name].low, metrics[name].high
        assert low is not None and high is not None
        assert low * 0.999 <= truth <= high * 1.001


def test_steps_of_vpn_clients_have_intervals_over_clients() -> None:
    """400 clients that took 10 to 409 ms."""
    metrics = analyse_test(fleet([client(number) for number in range(400)])).metrics
    for name, truth in (("connect_p50_ms", 209), ("connect_p99_ms", 405)):
        low, high = metrics[name].low, metrics[name].high
        assert low is not None and high is not None and low <= truth <= high
    for name, metric in metrics.items():
        is_bounded = metric.low is not None and metric.high is not None
        assert metric.value is None or is_bounded == (metric.unbounded is None), name


def repeats_of(data: Sequence[TestData]) -> Summary:
    """Tests of one case, through analysis and summary."""
    results, histograms = [], {}
    for number, one in enumerate(data, start=1):
        one.case, one.repeat = "c01", number
        result, found = analyse_repeat(one)
        results.append(result)
        histograms["c01", number, result.test] = found
    first = results[0]
    return summarise(
        results,
        planned=len(results),
        limit=0.1,
        case="c01",
        test=first.test,
        kind=first.kind,
        parameters={},
        histograms=histograms,
    )


def test_percentile_over_repeats_is_that_of_the_merged_histograms() -> None:
    """Two repeats of 990 values of 1 ms and 10 of 9 ms, and one with 200 of 9 ms: their p99s are 1, 1 and 9 ms, and 220
    of 3,000 values are 9 ms."""
    slow = [[histogram("latency", [10**6] * (1000 - n) + [9 * 10**6] * n)] for n in (10, 10, 200)]
    found = repeats_of([steady_test("rr", histograms=one) for one in slow]).metrics
    p99, p90 = found["latency_p99_us"], found["latency_p90_us"]
    assert p99.value == pytest.approx(9000, rel=1e-3)
    assert p99.low is not None and p99.high is not None and p99.low <= 9000 <= p99.high
    assert p90.value == pytest.approx(1000, rel=1e-3)
    assert found["latency_mean_us"].value == pytest.approx((1080 + 1080 + 2600) / 3, rel=1e-3)


def test_one_repeat_has_the_interval_of_its_test_and_says_so() -> None:
    data = answered(12, np.random.default_rng(7))
    alone, summary = analyse_test(data).metrics, repeats_of([data])
    assert alone["latency_p99_us"].low is not None
    assert summary.metrics["latency_p99_us"] == alone["latency_p99_us"]
    assert [note.code for note in summary.validity.notes] == ["interval-within-test"]


@pytest.mark.parametrize("repeats", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_each_figure_over_repeats_has_both_bounds_or_says_why_not(kind: str, repeats: int) -> None:
    for name, metric in repeats_of([steady_test(kind) for _ in range(repeats)]).metrics.items():
        is_bounded = metric.low is not None and metric.high is not None
        assert metric.value is None or is_bounded == (metric.unbounded is None), name


def test_target_is_decided_by_the_interval_of_a_single_test() -> None:
    generator = np.random.default_rng(8)
    data = answered(12, generator)
    found = analyse_test(data)
    p99 = found.metrics["latency_p99_us"].value
    assert p99 is not None
    outcomes = [
        judge(parse_targets([f"latency_p99_us < {limit}"], {"t": "rr"})[0], "c01", [found]).outcome
        for limit in (p99 * 0.5, p99 * 1.001, p99 * 2)
    ]
    assert outcomes == ["missed", "undecided", "met"]


def test_figure_that_is_known_less_well_than_the_limit_has_a_word_of_its_own() -> None:
    """The p99 of 12,000 exponential times is known to a few percent."""
    data = answered(12, np.random.default_rng(9))
    for limit, has_note, sentence in ((0.03, True, VALID_ROUGHLY), (0.2, False, "These figures can be believed.")):
        data.stability_spread = limit
        found = analyse_test(data).validity
        assert found.verdict is Verdict.VALID
        named = [note.metrics for note in found.notes if note.code == "roughly-known"]
        assert [("latency_p99_us" in metrics) for metrics in named] == [True] * has_note
        assert sentence_of(found) == sentence


def test_repeats_decide_which_figures_are_known_roughly() -> None:
    """Each repeat knows its p99 roughly; ten together know it well."""
    generator = np.random.default_rng(10)
    repeats = [answered(2, generator) for _ in range(10)]
    assert [note for note in analyse_test(repeats[0]).validity.notes if note.code == "roughly-known"]
    notes = repeats_of(repeats).validity.notes
    assert not [note for note in notes if note.code == "roughly-known"]


def losing(missing: Sequence[int], *, at_the_end: int = 0, dies_after: int | None = None) -> TestData:
    """A udp test of 100 datagrams in each 100 ms, of which these are missing; none arrives after some intervals."""
    data, lost, steps = test_data("udp", duration_ms=100 * len(missing)), 0, len(missing)
    for interval, count in enumerate(missing, 1):
        step = min(interval, dies_after or interval)
        lost += count
        row = counters(0, received_units=100 * step - lost)
        data.add("client1", progress(EPOCH_NS + interval * 100 * MS, [{**row, "missing_units": lost}]))
    at_the_end += 100 * (steps - (dies_after or steps))
    end_ns, arrived = EPOCH_NS + steps * 100 * MS, 100 * (dies_after or steps) - lost
    units = {"sent_units": arrived + lost + at_the_end, "received_units": arrived, "lost": lost + at_the_end}
    data.add("client1", finished(end_ns, outcome([flow(0, EPOCH_NS, end_ns, **units)])))
    return data


def test_share_of_lost_datagrams_has_an_interval_around_it() -> None:
    found = analyse_test(losing([1, 0, 2, 1, 0, 3, 0, 1] * 10)).metrics["lost_ratio"]
    assert found.value == pytest.approx(0.01) and found.unbounded is None
    assert found.low is not None and found.high is not None
    assert 0.006 < found.low < 0.01 < found.high < 0.016


def test_losses_in_bursts_leave_their_share_less_certain() -> None:
    even = analyse_test(losing([1] * 60)).metrics["lost_ratio"]
    bursts = analyse_test(losing([0] * 20 + [20, 20] + [0] * 18 + [20] + [0] * 19)).metrics["lost_ratio"]
    assert even.low is not None and bursts.low is not None and even.high is not None and bursts.high is not None
    assert bursts.value == even.value == pytest.approx(0.01)
    assert bursts.high - bursts.low > 5 * (even.high - even.low)


def test_no_loss_is_bounded_by_how_many_were_sent() -> None:
    found = analyse_test(losing([0] * 60)).metrics
    sent, ratio = found["sent"].value or 0, found["lost_ratio"]
    assert sent > 0 and (ratio.value, ratio.low, ratio.unbounded) == (0, 0, None)
    assert ratio.high == pytest.approx(1 - 0.025 ** (1 / sent))


def test_all_lost_is_bounded_by_how_many_were_sent() -> None:
    found = analyse_test(losing([100] * 60)).metrics
    sent, ratio = found["sent"].value or 0, found["lost_ratio"]
    assert sent > 0 and (ratio.value, ratio.high, ratio.unbounded) == (1, 1, None)
    assert ratio.low == pytest.approx(0.025 ** (1 / sent))
    assert loss_below(1, losing([100] * 60)) == "missed"


def loss_below(percent: float, data: TestData) -> str:
    """The outcome of a target on the loss."""
    found = analyse_test(data)
    [target] = parse_targets([f"lost_ratio < {percent}%"], {found.test: "udp"})
    return judge(target, "c01", [found]).outcome


def test_loss_at_the_end_alone_has_an_interval_too() -> None:
    """The receiving side knows of a loss by a later datagram."""
    found = analyse_test(losing([0] * 60, at_the_end=3)).metrics["lost_ratio"]
    assert found.value == pytest.approx(3 / 6003) and found.low is not None and found.high is not None
    assert 0 < found.low < 3 / 6003 < found.high < 0.05


def test_path_that_dies_has_lost_what_came_after() -> None:
    data = losing([0] * 60, dies_after=40)
    found = analyse_test(data).metrics["lost_ratio"]
    assert found.value == pytest.approx(1 / 3) and found.low is not None and found.high is not None
    assert found.low < 1 / 3 < found.high
    # It died once: how often that happens, one test does not tell.
    assert (loss_below(0.1, data), loss_below(30, data)) == ("missed", "undecided")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (losing([1] * 8), "8 intervals are too few: 10 are needed"),
        (steady_test("udp"), "only totals are known"),
    ],
)
def test_share_of_lost_datagrams_says_why_it_has_no_interval(data: TestData, reason: str) -> None:
    if reason == "only totals are known":
        data.outcomes[0].outcome["flows"][0]["lost"] = 7
    found = analyse_test(data).metrics["lost_ratio"]
    assert found.value is not None
    assert (found.low, found.high) == (None, None)
    assert found.unbounded is not None and found.unbounded.startswith(reason)


def test_unknown_figure_has_neither_interval_nor_reason() -> None:
    found = analyse_test(steady_test("rr")).metrics["latency_p99_us"]
    assert found == Metric(None, "us")
