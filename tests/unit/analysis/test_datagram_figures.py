"""Bursts of loss, reordering extents and one-way delays from the reports of flows."""

from __future__ import annotations

from typing import Any

import pytest
from made_journals import EPOCH_NS, S, counters, finished, flow, outcome, progress, steady_test, test_data

from leadline.analysis import analyse_test
from leadline.analysis.model import Bound, TestResult


def measured(*reports: dict[str, Any] | None) -> tuple[dict[str, float | None], list[str]]:
    result = judged(*reports)
    return {name: metric.value for name, metric in result.metrics.items()}, [one.code for one in result.validity.notes]


def judged(*reports: dict[str, Any] | None, lost: int = 0) -> TestResult:
    data = steady_test("udp")
    flows: list[Any] = data.load_outcomes()[0].outcome["flows"]
    made = [{**flows[0], "flow": number} for number in range(len(reports))]
    for one, report in zip(made, reports, strict=True):
        one["start_ns"], one["end_ns"] = EPOCH_NS, EPOCH_NS + 10 * S
        one["lost"] = lost
        if report is not None:
            one["datagrams"] = report
    flows[:] = made
    return analyse_test(data)


def lengths(count: int, total: int, longest: int) -> dict[str, Any]:
    return {"count": count, "sum": total, "longest": longest, "by_doubling": []}


def report(**changes: Any) -> dict[str, Any]:
    made = {
        "loss_bursts": lengths(2, 10, 8),
        "reorder_extents": lengths(4, 8, 5),
        "unknown_extents": 0,
        "one_way_delay": {"min_us": 90.0, "mean_us": 100.0, "max_us": 400.0, "bound_us": 0.0},
    }
    return {**made, **changes}


def test_lengths_of_all_flows_are_combined() -> None:
    found, _ = measured(report(), report(loss_bursts=lengths(1, 2, 2), reorder_extents=lengths(0, 0, 0)))
    assert (found["loss_bursts"], found["loss_burst_mean"], found["loss_burst_max"]) == (3, 4.0, 8)
    assert (found["reorder_extent_mean"], found["reorder_extent_max"]) == (2.0, 5)


def test_receiver_that_waited_to_the_end_has_nothing_outstanding() -> None:
    result = judged(report(is_cut_off=False), lost=10)
    assert result.metrics["outstanding"].value == 0 and result.metrics["loss_bursts"].value == 2
    assert result.metrics["lost"].bound is None


def test_receiver_that_was_cut_off_knows_no_exact_loss() -> None:
    result = judged(report(is_cut_off=True), report(is_cut_off=False), lost=40)
    assert (result.metrics["outstanding"].value, result.metrics["lost"].value) == (40, 80)
    for name in ("lost", "lost_ratio"):
        assert (result.metrics[name].bound, result.metrics[name].reasons) == (Bound.MOST, ("still-arriving",)), name
    # Whether those that are outstanding make the bursts longer, or more, is not known either.
    assert result.metrics["loss_bursts"].value is None
    [reason] = (reason for reason in result.validity.reasons if reason.code == "still-arriving")
    assert reason.text.startswith("40 of ") and "they are late or lost" in reason.text
    assert not result.metrics["throughput_bps"].reasons


def test_receiver_of_an_earlier_agent_does_not_say_what_was_outstanding() -> None:
    result = judged(report(), lost=40)
    assert result.metrics["outstanding"].value is None and result.metrics["lost"].bound is None


def test_without_loss_the_mean_burst_is_unknown() -> None:
    found, _ = measured(report(loss_bursts=lengths(0, 0, 0)))
    assert (found["loss_bursts"], found["loss_burst_mean"], found["loss_burst_max"]) == (0, None, 0)


def test_flow_without_report_leaves_the_figures_unknown() -> None:
    found, _ = measured(report(), None)
    assert found["loss_bursts"] is None and found["one_way_delay_mean_us"] is None


def test_forgotten_gap_leaves_the_extents_unknown() -> None:
    found, _ = measured(report(unknown_extents=1))
    assert found["reorder_extent_max"] is None and found["loss_bursts"] == 2


@pytest.mark.parametrize(("bound_us", "known"), [(0.0, True), (10.0, True), (10.1, False), (None, False)])
def test_delay_is_known_if_the_clocks_allow_it(bound_us: float | None, known: bool) -> None:
    delay = {"min_us": 90.0, "mean_us": 100.0, "max_us": 400.0, "bound_us": bound_us}
    found, _ = measured(report(one_way_delay=delay))
    names = [f"one_way_delay_{name}_us" for name in ("min", "mean", "max")]
    assert [found[name] for name in names] == ([90.0, 100.0, 400.0] if known else [None] * 3)
    assert found["one_way_delay_bound_us"] == bound_us


@pytest.mark.parametrize(("changes", "noted"), [({}, False), ({"segmented": True}, True), ({"coalesced": 7}, True)])
def test_batches_are_noted(changes: dict[str, Any], noted: bool) -> None:
    _, notes = measured(report(**changes))
    assert ("batched-datagrams" in notes) is noted


@pytest.mark.parametrize(("received", "known"), [(0, False), (1, True)])
def test_rate_is_unknown_if_all_datagrams_came_after_their_window(received: int, known: bool) -> None:
    """A rate of 0 would deny what arrived; one datagram within the window makes it a rate."""
    data = test_data("udp")
    halfway = counters(0, 500_000, 1000 * received, sent_units=500, received_units=received)
    data.add("client1", progress(EPOCH_NS + 5 * S, [halfway]))
    units = {"sent_units": 1000, "received_units": 1000}
    whole = flow(0, EPOCH_NS, EPOCH_NS + 10 * S, sent_bytes=1_000_000, received_bytes=1_000_000, **units)
    data.add("client1", finished(EPOCH_NS + 20 * S, outcome([whole])))
    found = analyse_test(data).metrics
    assert found["received"].value == 1000
    for name in ("throughput_bps", "packets_per_s"):
        assert ((found[name].value or 0) > 0, found[name].value is None) == (known, not known), name
