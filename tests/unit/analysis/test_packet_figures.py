"""Counts and figures of generated frames, from made reports of generators and receivers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from made_journals import histogram, test_data

from leadline.analysis.flows import Curve, Flow
from leadline.analysis.head_and_tail import naive_rates
from leadline.analysis.histograms import decode
from leadline.analysis.model import Verdict, Window
from leadline.analysis.packet_figures import (
    PacketCounts,
    counter_findings,
    delay_metrics,
    findings_of,
    rate_metrics,
    refused_findings,
    unsent_findings,
)
from leadline.analysis.test_data import FlowKey


def sent(frames: int, **more: Any) -> dict[str, Any]:
    return {"sent": frames, "sent_bytes": 60 * frames, "unsent": 0, "interface": {"tx_packets": frames}, **more}


def received(frames: int, **more: Any) -> dict[str, Any]:
    none = {"duplicates": 0, "reordered": 0, "behind_window": 0, "beyond_flows": 0}
    counters = {"interface": {"rx_packets": frames}}
    return {"received": frames, "received_bytes": 60 * frames, **none, **counters, **more}


def test_lost_counts_distinct_frames_so_duplicates_hide_nothing() -> None:
    counts = PacketCounts.of([sent(1000)], [received(1000, duplicates=3, reordered=2)])
    assert (counts.lost, counts.duplicates, counts.reordered, counts.unsent) == (3, 3, 2, 0)
    assert counts.metrics()["lost_ratio"].value == 0.003


def test_counts_of_several_generators_and_receivers_are_summed() -> None:
    counts = PacketCounts.of([sent(10), sent(20)], [received(9), received(20)])
    assert (counts.sent, counts.received, counts.lost) == (30, 29, 1)


def test_unsent_frames_are_not_lost() -> None:
    counts = PacketCounts.of([sent(900, unsent=100)], [received(900)])
    assert (counts.lost, counts.unsent) == (0, 100)


@pytest.mark.parametrize("doubt", [{"beyond_flows": 1}, {"behind_window": 1}, {"overrun": 1}])
def test_loss_is_unknown_where_the_receiver_cannot_tell_frames_apart(doubt: dict[str, int]) -> None:
    counts = PacketCounts.of([sent(10)], [received(9, **doubt)])
    assert (counts.lost, counts.duplicates, counts.received) == (None, None, 9)
    assert counts.metrics()["lost_ratio"].value is None


@pytest.mark.parametrize(("generators", "receivers"), [([], [received(5)]), ([sent(5)], [])])
def test_loss_is_unknown_without_one_of_the_sides(
    generators: list[dict[str, Any]], receivers: list[dict[str, Any]]
) -> None:
    assert PacketCounts.of(generators, receivers).lost is None


def test_more_distinct_frames_than_were_sent_are_no_negative_loss() -> None:
    assert PacketCounts.of([sent(5)], [received(6)]).lost is None


def test_loss_of_packets_without_numbers_is_by_counts_alone() -> None:
    """Copies that pktgen makes of a packet have its number."""
    counts = PacketCounts.of([sent(10)], [received(9, duplicates=None, reordered=None)])
    assert (counts.lost, counts.duplicates, counts.reordered) == (1, None, None)
    assert PacketCounts.of([sent(10)], [received(9, duplicates=None, reordered=None, overrun=1)]).lost is None


def test_unknown_unsent_is_not_zero() -> None:
    assert PacketCounts.of([sent(5, unsent=None)], [received(5)]).unsent is None


def test_rates_of_a_full_gigabit_line() -> None:
    metrics = rate_metrics(1_488_095, 64 * 8 * 1_488_095, 1e9)
    assert metrics["line_rate_ratio"].value == pytest.approx(1.0, rel=1e-6)
    assert metrics["throughput_bps"].value == 1_488_095 * 64 * 8
    assert metrics["wire_bps"].value == 1_488_095 * 84 * 8


def test_share_of_an_unknown_line_and_unknown_frames_are_unknown() -> None:
    assert rate_metrics(10, 5120, None)["line_rate_ratio"].value is None
    assert {metric.value for metric in rate_metrics(None, None, 1e9).values()} == {None}


def test_delay_variation_is_against_the_least_delay() -> None:
    metrics = delay_metrics(decode(histogram("one_way_delay", [10_000] * 900 + [50_000] * 100)))
    least, high = metrics["one_way_delay_min_us"].value, metrics["one_way_delay_p99_9_us"].value
    assert least == pytest.approx(10, rel=0.01)
    assert high == pytest.approx(50, rel=0.01)
    assert metrics["delay_variation_us"].value == pytest.approx(40, rel=0.02)


def test_delays_that_were_not_measured_are_unknown() -> None:
    assert {metric.value for metric in delay_metrics(None).values()} == {None}


def test_interface_that_counted_fewer_frames_contradicts() -> None:
    ((verdict, reason),) = counter_findings([sent(10)], [received(10, interface={"rx_packets": 8})])
    assert verdict is Verdict.UNDETERMINED
    assert "the receiver counted 10 packets, its interface 8" in reason.text


@pytest.mark.parametrize("interface", [{"rx_packets": 12}, {"rx_packets": None}, {}])
def test_other_traffic_or_an_unreadable_counter_contradicts_nothing(interface: dict[str, Any]) -> None:
    assert not list(counter_findings([sent(10)], [received(10, interface=interface)]))


def test_frames_that_never_left_limit_the_figure() -> None:
    ((verdict, reason),) = unsent_findings([sent(900, unsent=100)])
    assert verdict is Verdict.GENERATOR_LIMITED
    assert "100 of 1,000 packets" in reason.text
    assert not list(unsent_findings([sent(100_000, unsent=1)]))
    assert not list(unsent_findings([sent(100, unsent=None)]))


def test_packets_that_the_own_interface_refused_say_nothing_of_the_path() -> None:
    ((verdict, reason),) = refused_findings([sent(1000, refused=5)])
    assert verdict is Verdict.GENERATOR_LIMITED
    assert "did not take 5 of 1,000 packets" in reason.text
    assert not list(refused_findings([sent(1_000_000, refused=1)]))
    assert not list(refused_findings([sent(1000, refused=None)]))


def test_delays_of_clocks_too_far_apart_are_unknown_and_their_variation_is_not() -> None:
    delays = decode(histogram("one_way_delay", [1000, 2000, 3000, 4000]))
    known, unknown = delay_metrics(delays, 0.01), delay_metrics(delays, 5.0)
    assert known["one_way_delay_p50_us"].value == pytest.approx(2.0, rel=0.01)
    assert {unknown[f"one_way_delay_{name}_us"].value for name in ("min", "p50", "p99")} == {None}
    assert unknown["delay_variation_us"].value == known["delay_variation_us"].value
    assert delay_metrics(delays, None)["one_way_delay_p50_us"].value is None


def test_round_trips_need_no_second_clock() -> None:
    delays = decode(histogram("one_way_delay", [1000, 2000, 3000, 4000]))
    assert delay_metrics(delays, name="round_trip")["round_trip_p50_us"].value == pytest.approx(2.0, rel=0.01)


def test_loss_is_known_by_size_and_by_flow() -> None:
    """Not by size where duplicates hide it, and not where the path changed the sizes."""
    flow = {"duplicates": 0, "reordered": 0}
    sizes = [{"bytes": 60, "frames": 70}, {"bytes": 1514, "frames": 30}]
    flows = [{"flow": 0, "frames": 50, "numbers": 50, **flow}, {"flow": 1, "frames": 50, "numbers": 50, **flow}]
    generator = sent(100, by_size=sizes, flows=flows)
    arrived: dict[str, Any] = {
        "by_size": [{"bytes": 60, "frames": 70}, {"bytes": 1514, "frames": 28}],
        "flows": [flows[0], {**flows[1], "frames": 49, "duplicates": 1, "reordered": 2}],
        "flows_seen": 2,
    }
    found = findings_of([generator], [received(98, **arrived)])
    assert found is not None
    assert [(part.number, part.lost) for part in found.sizes] == [(64, 0), (1518, 2)]
    assert [(part.lost, part.duplicates, part.reordered) for part in found.flows] == [(0, 0, 0), (2, 1, 2)]
    hidden = findings_of([generator], [received(98, duplicates=1, **arrived)])
    longer = {**arrived, "by_size": [{"bytes": 64, "frames": 70}, {"bytes": 1518, "frames": 28}]}
    changed = findings_of([generator], [received(98, **longer)])
    assert hidden is not None
    assert changed is not None
    assert {part.lost for one in (hidden, changed) for part in one.sizes} == {None}
    assert findings_of([], []) is None


def test_rate_made_of_other_curves_has_no_naive_average() -> None:
    """Bits of layer 2 are of bytes and frames together: no flow has that curve, so its own time is unknown."""
    t_ns = np.array([0.0, 1e9, 2e9])
    frames = Curve(t_ns, np.array([0.0, 1000.0, 2000.0]))
    octets = Curve(t_ns, 60 * frames.values)
    key = FlowKey("client1", "load", 0)
    flow = Flow(key, "up", 0, 0, 2_000_000_000, octets, frames, 120_000, 2000, "receiver", None)
    data = test_data("packets")
    window = Window(0, 0, 2_000_000_000, 2_000_000_000)
    metrics = {name: metric for name, metric in rate_metrics(1000, 64 * 8 * 1000, None).items() if metric.value}
    assert {"packets_per_s", "throughput_bps"} <= metrics.keys()
    assert naive_rates(data.spec, [flow], window, metrics) == {}
