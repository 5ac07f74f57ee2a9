"""Figures of latency under load, from the tasks of its phases."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pytest
from made_journals import EPOCH_NS, S, finished, flow, histogram, outcome, progress, test_data
from pydantic import ValidationError

from leadline.analysis.model import Bound, TestResult
from leadline.analysis.test_analysis import analyse_test
from leadline.contract.models import RrWorkload, TcpWorkload
from leadline.kinds.load_latency import LoadLatencyTest
from leadline.kinds.load_latency.figures import sentence, summary_rows
from leadline.plan.field_types import validate_input
from leadline.trial.workloads import PhasedWorkload, Server, workload

MS = 1_000_000
PHASE_NS = 2_000 * MS


def probe(latency_us: int) -> dict[str, object]:
    return histogram("latency", [latency_us * 1000] * 100)


def analysed(latencies_us: dict[str, int], unanswered: Collection[str] = ()) -> TestResult:
    """In `unanswered` phases a twentieth of the requests has no answer within a second."""
    data = test_data("load-latency", duration_ms=8000, warmup_ms=500)
    for number, (phase, latency_us) in enumerate(latencies_us.items()):
        begin_ns = EPOCH_NS + number * PHASE_NS
        end_ns = begin_ns + PHASE_NS
        row = flow(0, begin_ns, end_ns, sent_bytes=6400, received_bytes=6400)
        late = [histogram("latency_censored", [S] * 5)] if phase in unanswered else []
        made = outcome([row], histograms=[probe(latency_us), *late])
        data.add("client1", finished(end_ns, made, task=f"{phase}.probe"))
        if phase != "idle":
            rows = [
                flow(0, begin_ns, end_ns, sent_bytes=2_000_000, received_bytes=2_000_000, direction=direction)
                for direction in ("up", "down")
                if phase in (direction, "both")
            ]
            data.add("client1", finished(end_ns, outcome(rows), task=f"{phase}.bulk"))
    return analyse_test(data)


def test_increase_is_the_largest_of_the_loads() -> None:
    result = analysed({"idle": 1000, "up": 31_000, "down": 5000, "both": 21_000})
    metrics = {name: metric.value for name, metric in result.metrics.items()}
    assert metrics["latency_increase_us"] == pytest.approx(30_000, rel=0.01)
    assert metrics["increase_down_p99_us"] == pytest.approx(4000, rel=0.01)
    assert metrics["bulk_up_bps"] == pytest.approx(8e6)
    assert metrics["bulk_both_down_bps"] == pytest.approx(8e6)
    assert {curve.metric for curve in result.percentiles} == {"idle", "up", "down", "both"}
    assert {line.label for line in result.series} == {"throughput up", "throughput down"}
    assert sentence(result).startswith("yes: load adds 30")


def test_increase_lies_between_what_the_extremes_of_both_phases_leave() -> None:
    metrics = analysed({"idle": 1000, "up": 31_000, "down": 5000, "both": 21_000}).metrics
    for name, low, high in (
        ("latency_increase_us", 30_000, 30_000),
        ("latency_up_p50_us", 31_000, 31_000),
    ):
        assert metrics[name].low == pytest.approx(low, rel=0.01)
        assert metrics[name].high == pytest.approx(high, rel=0.01)
    p99 = metrics["increase_up_p99_us"]
    assert p99.low is None and "too few values lie beyond" in (p99.unbounded or "")


@pytest.mark.parametrize(
    ("unanswered", "bound"),
    [(("idle",), Bound.MOST), (("up",), None), (("idle", "up"), Bound.NONE)],
    ids=["idle", "up", "both"],
)
def test_increase_over_an_idle_latency_that_is_a_lower_bound(unanswered: Sequence[str], bound: Bound | None) -> None:
    metrics = analysed({"idle": 1000, "up": 31_000}, unanswered).metrics
    assert metrics["increase_up_p99_us"].bound is bound
    assert metrics["increase_up_p99_us"].censored == ("up" in unanswered)
    assert metrics["increase_up_p50_us"].bound is None


def test_increase_is_unknown_where_the_latency_of_one_phase_is() -> None:
    result = analysed({"idle": 20_000, "up": 21_000, "down": 90_000})
    assert result.metrics["latency_both_p50_us"].value is None
    increase = result.metrics["latency_increase_us"]
    assert (increase.value, increase.unknown) == (None, "the latency of a phase is not known (both)")
    assert result.metrics["increase_down_p50_us"].value == pytest.approx(70_000, rel=0.01)
    assert sentence(result) == "unknown: a phase has no latency"
    assert analysed({"idle": 20_000, "up": 21_000}).metrics["bulk_down_bps"].value is None


def test_small_increase_is_none() -> None:
    assert sentence(analysed(dict.fromkeys(("idle", "up", "down", "both"), 20_000))).startswith("none: load adds")
    result = analysed({"idle": 20_000, "up": 18_000, "down": 19_000, "both": 18_500})
    assert result.metrics["latency_increase_us"].value == pytest.approx(-1000, rel=0.02)
    assert sentence(result).startswith("none: under load latency is 999 µs shorter")
    assert sentence(analysed({"up": 1})) == "unknown: a phase has no latency"


def test_each_class_has_its_own_latency_and_no_part_in_the_others() -> None:
    data = test_data("load-latency", duration_ms=8000, warmup_ms=500)
    for number, (task, latency_us) in enumerate({"idle.probe": 1000, "idle.voice": 2000, "up.voice": 3000}.items()):
        end_ns = EPOCH_NS + PHASE_NS
        row = flow(0, EPOCH_NS, end_ns, sent_bytes=64, received_bytes=64)
        data.add("client1", progress(EPOCH_NS + PHASE_NS // 2, [], task=task, histograms=[probe(latency_us)]))
        data.add("client1", finished(end_ns + number, outcome([row], histograms=[probe(latency_us)]), task=task))
    result = analyse_test(data)
    metrics = {name: metric.value for name, metric in result.metrics.items()}
    assert metrics["latency_idle_p50_us"] == pytest.approx(1000, rel=0.01)
    assert metrics["latency_idle_voice_p50_us"] == pytest.approx(2000, rel=0.01)
    assert metrics["latency_up_voice_p99_us"] == pytest.approx(3000, rel=0.01)
    assert metrics["latency_up_p50_us"] is None
    assert "latency_idle_video_p50_us" not in metrics
    lines = {line.label: line.values for line in result.series}
    assert set(lines) == {"idle", "voice"}
    assert summary_rows(result, ("idle", "up"), ("voice", "video"))[-1][0] == "voice"


def test_line_of_a_class_is_broken_between_phases() -> None:
    data = test_data("load-latency", duration_ms=8000)
    for number, phase in enumerate(("idle", "up")):
        begin_ns = EPOCH_NS + 2 * number * PHASE_NS
        row = flow(0, begin_ns, begin_ns + PHASE_NS, sent_bytes=64, received_bytes=64)
        for part in (1, 2):
            at_ns = begin_ns + part * PHASE_NS // 2
            data.add("client1", progress(at_ns, [], task=f"{phase}.voice", histograms=[probe(1000)]))
        data.add("client1", finished(begin_ns + PHASE_NS, outcome([row]), task=f"{phase}.voice"))
    (line,) = (line for line in analyse_test(data).series if line.label == "voice")
    assert [value is None for value in line.values] == [False, False, True, False, False]
    assert list(line.t_s) == sorted(line.t_s)


def test_classes_are_probes_with_their_code_points() -> None:
    test = validate_input(LoadLatencyTest, {"name": "l", "classes": ["voice", "background"], "duration": "8s"})
    made = workload(test, Server("10.82.0.2"))
    assert isinstance(made, PhasedWorkload)
    idle, *loaded = made.phases
    assert {name: getattr(work, "dscp", None) for name, work in idle.items()} == {
        "idle.probe": None,
        "idle.voice": 46,
        "idle.background": 8,
    }
    for name, phase in zip(("up", "down", "both"), loaded, strict=True):
        assert {task: work.dscp for task, work in phase.items() if isinstance(work, RrWorkload)} == {
            f"{name}.probe": None,
            f"{name}.voice": 46,
            f"{name}.background": 8,
        }


def test_load_of_each_class_has_its_code_point_in_each_direction() -> None:
    every = {"name": "l", "classes": ["background", "video", "voice"], "duration": "8s"}
    for flows, counts in ((4, (1, 1, 1, 1)), (6, (2, 2, 1, 1))):
        made = workload(validate_input(LoadLatencyTest, {**every, "flows": flows}), Server("10.82.0.2"))
        assert isinstance(made, PhasedWorkload)
        idle, *loaded = made.phases
        assert not [task for task, work in idle.items() if isinstance(work, TcpWorkload)]
        for name, phase in zip(("up", "down", "both"), loaded, strict=True):
            bulk = {task: work for task, work in phase.items() if isinstance(work, TcpWorkload)}
            assert {task: work.options and work.options.dscp for task, work in bulk.items()} == {
                f"{name}.bulk": None,
                f"{name}.bulk.background": 8,
                f"{name}.bulk.video": 40,
                f"{name}.bulk.voice": 46,
            }
            assert tuple(work.flows for work in bulk.values()) == counts
            assert {work.direction for work in bulk.values()} == {name}


def test_class_without_a_connection_is_refused() -> None:
    with pytest.raises(ValidationError, match="3 flows are too few for best effort and 3 classes"):
        validate_input(LoadLatencyTest, {"name": "l", "classes": ["background", "video", "voice"], "flows": 3})


def test_throughput_is_that_of_all_classes_and_each_has_its_part() -> None:
    data = test_data("load-latency", duration_ms=8000, warmup_ms=500)
    end_ns = EPOCH_NS + PHASE_NS
    for task, sent_bytes in {"up.bulk": 2_000_000, "up.bulk.voice": 1_000_000}.items():
        made = outcome([flow(0, EPOCH_NS, end_ns, sent_bytes=sent_bytes, received_bytes=sent_bytes, direction="up")])
        data.add("client1", finished(end_ns, made, task=task))
    result = analyse_test(data)
    metrics = {name: metric.value for name, metric in result.metrics.items()}
    assert metrics["bulk_up_bps"] == pytest.approx(12e6)
    assert metrics["bulk_up_voice_bps"] == pytest.approx(4e6)
    assert "bulk_up_video_bps" not in metrics and "bulk_down_voice_bps" not in metrics
