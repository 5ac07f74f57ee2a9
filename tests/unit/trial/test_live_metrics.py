"""Live figures and the watch on targets, from events with known figures; the clock is the events' own."""

# Figures are compared with pytest.approx within tuples.
# mypy: disable-error-code=comparison-overlap
from __future__ import annotations

import asyncio
import time
from typing import Any, Literal, cast

import pytest
from hdrh.histogram import HdrHistogram

from leadline.analysis import TestSpec, parse_targets
from leadline.analysis.histograms import decode, merge
from leadline.analysis.intervals import MOST_PARTS
from leadline.contract.models import (
    FlowProgress,
    HistogramReport,
    HttpCounts,
    NoCounts,
    Progress,
    Standing,
    Started,
    ThreadReport,
    TunnelCounts,
)
from leadline.dataset.machine_rules import MACHINE_RULES_VARIABLE, OFF
from leadline.registry import KINDS
from leadline.trial import Interrupt, LiveFigures, Notification, TargetOpen, TargetWatch
from leadline.trial.event_log import EntryList, EventLog
from leadline.trial.live_metrics import BusyThreads, LiveMetrics
from leadline.trial.watch import Follower, _Durations

LABEL, S = "c01/1/http", 1_000_000_000
BEGAN_NS = 100 * S


def histogram(metric: str, values_ns: list[int]) -> HistogramReport:
    made = HdrHistogram(1, 3_600_000_000_000, 3)
    for value in values_ns:
        made.record_value(value)
    return HistogramReport(metric=metric, count=len(values_ns), hdr_v2=made.encode().decode("ascii"))


def standing(used_s: float, wall_s: float, spun_s: float | None = None, **counts: int) -> Standing:
    errors = {"timeout": counts.pop("timeouts", 0)}
    half_s = used_s / 2
    row = ThreadReport(
        name="http-0", user_s=half_s, system_s=half_s, runnable_wait_s=None, spun_s=spun_s, wall_s=wall_s
    )
    return Standing(counts=counts_of(**counts), errors=errors, threads=[row])


def counts_of(**counts: int) -> TunnelCounts | HttpCounts | NoCounts:
    """Of the kind that has counters of these names, with 0 for the others that it always has."""
    if not counts:
        return NoCounts()
    kind = TunnelCounts if "configured" in counts else HttpCounts
    return kind(**{name: 0 for name, field in kind.model_fields.items() if field.is_required()} | counts)


def progress(t_ns: int, answered: int, *reports: HistogramReport, stands: Standing | None = None) -> Progress:
    row = FlowProgress(
        flow=0, sent_bytes=answered, received_bytes=answered * 100, sent_units=answered, received_units=answered
    )
    return Progress(
        trial=LABEL, task="load", t_ns=t_ns, side="local", flows=[row], histograms=list(reports), standing=stands
    )


def live_metrics(kind: str, hosts: int, shown: list[Notification]) -> LiveMetrics:
    began_ns, event_log = time.monotonic_ns() - 3600 * S, EventLog(EntryList([]), (shown.append,))
    return LiveMetrics(LABEL, KINDS.get(kind), began_ns, hosts=hosts, event_log=event_log, longest_s=3700.0)


def live_figures(*events: Progress, hosts: int = 1, kind: str = "http") -> LiveFigures:
    """The figures after the last of these events, half a second after a start in the past."""
    shown: list[Notification] = []
    live = live_metrics(kind, hosts, shown)
    for event in events:
        live._sent_s = 0.0
        live.on_event("here", event)
    (*_, last) = shown
    assert isinstance(last, LiveFigures)
    return last


def test_latencies_are_the_last_seconds() -> None:
    shown = live_figures(
        progress(BEGAN_NS + 1 * S, 100, histogram("latency", [9_000_000] * 100)),
        progress(BEGAN_NS + 3 * S, 200, histogram("latency", [1_000_000] * 98 + [5_000_000] * 2)),
        progress(BEGAN_NS + 3 * S + S // 10, 210, histogram("late", [20_000])),
    )
    assert shown.latency_p50_us == pytest.approx(1000, rel=1e-3)
    assert shown.latency_p99_us == pytest.approx(5000, rel=1e-3)
    assert shown.late_p99_us == pytest.approx(20, rel=1e-3)


def test_live_latencies_say_where_they_are_lower_bounds() -> None:
    ages = histogram("latency_censored", [80_000_000] * 5)
    shown = live_figures(progress(BEGAN_NS + S, 95, histogram("latency", [1_000_000] * 95), ages))
    assert (shown.latency_p50_us, shown.latency_p50_censored) == (pytest.approx(1000, rel=1e-3), False)
    assert (shown.latency_p99_us, shown.latency_p99_censored) == (pytest.approx(80_000, rel=2e-3), True)


def test_latencies_of_a_server_that_stands_still_go_away() -> None:
    before = progress(BEGAN_NS + 1 * S, 100, histogram("latency", [9_000_000] * 100), histogram("late", [20_000]))
    still = live_figures(before, progress(BEGAN_NS + 2 * S, 100))
    assert (still.latency_p50_us, still.late_p99_us) == (pytest.approx(9000, rel=1e-3), pytest.approx(20, rel=1e-3))
    gone = live_figures(before, progress(BEGAN_NS + 2 * S, 100), progress(BEGAN_NS + 2 * S + S // 5, 100))
    assert (gone.latency_p50_us, gone.latency_p99_us, gone.late_p99_us) == (None, None, None)


def test_each_hosts_latencies_are_recent_by_its_own_clock() -> None:
    shown: list[Notification] = []
    live = live_metrics("http", 2, shown)
    live.on_event("here", progress(BEGAN_NS, 100, histogram("latency", [1_000_000])))
    live._sent_s = 0.0
    live.on_event("there", progress(BEGAN_NS + 900 * S, 100, histogram("latency", [3_000_000])))
    (*_, last) = shown
    assert isinstance(last, LiveFigures)
    assert last.latency_p50_us == pytest.approx(1000, rel=1e-3)
    assert last.latency_p99_us == pytest.approx(3000, rel=1e-3)


def test_errors_and_connections_are_as_of_now_and_the_thread_of_the_last_second() -> None:
    shown = live_figures(
        progress(BEGAN_NS + 1 * S, 100, stands=standing(0.9, 1.0, connections=10, timeouts=1)),
        progress(BEGAN_NS + 2 * S, 200, stands=standing(1.1, 2.0, connections=8, timeouts=3)),
    )
    assert (shown.errors, shown.connections) == (3, 8)
    assert shown.busiest_thread == pytest.approx(0.2)


def test_kernel_figures_are_of_the_flows_that_tell() -> None:
    def tell(flow: int, side: Literal["local", "peer"], **figures: int) -> Progress:
        row = FlowProgress(flow=flow, sent_bytes=1, received_bytes=1, **figures)
        return Progress(trial=LABEL, task="load", t_ns=BEGAN_NS, side=side, flows=[row], histograms=[])

    shown = live_figures(
        tell(0, "local", retransmits=3, rtt_us=100),
        tell(0, "peer"),
        tell(1, "peer", retransmits=4, rtt_us=300),
    )
    assert (shown.retransmits, shown.rtt_us, shown.lost_ratio) == (7, 200, None)
    lossy = live_figures(tell(0, "local", sent_units=99), tell(0, "peer", missing_units=10, received_units=30))
    assert (lossy.retransmits, lossy.rtt_us, lossy.lost_ratio) == (None, None, 0.25)


def test_a_fleets_clients_are_as_of_now() -> None:
    shown = live_figures(
        progress(BEGAN_NS + 1 * S, 0, stands=standing(0.1, 1.0, configured=3, connecting=7, failed=0)),
        progress(BEGAN_NS + 2 * S, 0, stands=standing(0.2, 2.0, configured=9, connecting=0, failed=1)),
        kind="tunnel",
    )
    assert shown.clients == {"configured": 9, "connecting": 0, "partial": 0, "failed": 1}
    assert live_figures(progress(BEGAN_NS, 0, stands=standing(0.1, 1.0)), kind="tunnel").clients is None


def test_waiting_clients_are_counted_by_state_with_a_time_limit() -> None:
    shown = live_figures(
        progress(BEGAN_NS, 0, stands=standing(0.1, 1.0, configured=3, connecting=7, unanswered=5, failed=2, resting=1)),
        kind="tunnel",
    )
    assert shown.waiting is not None
    assert shown.clients == {"configured": 3, "connecting": 7, "partial": 0, "failed": 2}
    assert (shown.waiting.unanswered, shown.waiting.others, shown.waiting.resting) == (5, 2, 1)
    # Of the 3700 s that it may take, an hour has gone.
    assert 90 < shown.waiting.most_s <= 100
    done = standing(0.1, 1.0, configured=9, connecting=0, failed=1)
    over = live_figures(progress(BEGAN_NS, 0, stands=done), kind="tunnel")
    assert over.waiting is None


def test_what_no_agent_tells_is_not_known() -> None:
    shown = live_figures(progress(BEGAN_NS + S, 100))
    unknown = (shown.latency_p50_us, shown.latency_p99_us, shown.late_p99_us, shown.errors, shown.connections)
    assert unknown == (None,) * 5 and shown.busiest_thread is None
    assert shown.units_per_s is not None


def test_of_many_hosts_the_histograms_are_not_read() -> None:
    shown = live_figures(progress(BEGAN_NS + S, 100, histogram("latency", [1_000])), hosts=20)
    assert shown.latency_p99_us is None


def test_each_threads_share_is_between_its_own_last_two_accounts() -> None:
    threads = BusyThreads()
    threads.take("here", Standing(counts=NoCounts(), errors={}, threads=[]))
    assert threads.busiest() is None
    threads.take("here", standing(0.5, 2.0))
    assert threads.busiest() == 0.25, "the first is since its start"
    threads.take("here", standing(0.5, 2.0))
    assert threads.busiest() == 0.25, "an account that is not new says nothing"
    threads.take("here", standing(0.55, 2.05))
    assert threads.busiest() == 0.25, "nor does one of a moment"
    threads.take("there", standing(0.9, 1.0))
    threads.take("here", standing(0.6, 3.0))
    assert threads.busiest() == 0.9
    threads.take("there", standing(1.9, 2.0, 0.25))
    assert threads.busiest() == pytest.approx(0.75), "waiting awake is no work"


async def follow(
    targets: list[str],
    *events: Progress,
    said: list[Notification] | None = None,
    delays_ms: dict[str, int] | None = None,
    **test: Any,
) -> tuple[TargetWatch, Interrupt]:
    watch = TargetWatch(parse_targets(targets, {"http": "http"}), "http", delays_ms=delays_ms or {})
    interrupt = Interrupt()
    spec = TestSpec.read({"name": "http", "kind": "http", "duration_ms": 60_000, "interval_ms": 100, **test})
    notify = (lambda _: None) if said is None else said.append
    follower = Follower(LABEL, spec, {"here": 0}, watch, interrupt, notify=notify)
    follower.on_event("here", Started(trial=LABEL, task="load", due_ns=BEGAN_NS, t_ns=BEGAN_NS))
    for event in events:
        follower.on_event("here", event)
        await asyncio.sleep(0)
    return watch, interrupt


SLOW = [histogram("latency", [5_000_000] * 100)]


def seconds(*marks: float, reports: list[HistogramReport] = SLOW) -> list[Progress]:
    return [progress(BEGAN_NS + round(mark * S), round(mark * 100), *reports) for mark in marks]


async def test_a_missed_target_asks_for_the_end_and_says_why() -> None:
    watch, interrupt = await follow(["latency_p99_us < 2000", "requests_per_s > 10"], *seconds(1, 2))
    assert [missed.target for missed in watch.missed] == ["latency_p99_us < 2000"]
    assert interrupt.asked.is_set()
    assert interrupt.why is not None
    assert interrupt.why.startswith("stopped after 2.0 s because a target was missed: latency_p99_us < 2000 (")


async def test_the_first_two_seconds_and_the_warm_up_decide_nothing() -> None:
    _, early = await follow(["latency_p99_us < 2000"], *seconds(0.5, 1, 1.9))
    _, warm = await follow(["latency_p99_us < 2000"], *seconds(1, 2, 4.9), warmup_ms=3000)
    assert not early.asked.is_set() and not warm.asked.is_set()


async def test_figures_are_cumulative() -> None:
    good, bad = histogram("latency", [1_000_000] * 1000), histogram("latency", [9_000_000] * 5)
    events = [*seconds(1, 2, reports=[good]), *seconds(3, reports=[bad])]
    watch, interrupt = await follow(["latency_p99_us < 2000"], *events)
    assert (watch.missed, interrupt.asked.is_set()) == ([], False)
    _, later = await follow(["latency_p99_us < 2000"], *events, *seconds(4, reports=[bad] * 10))
    assert later.asked.is_set()


@pytest.mark.parametrize(("slow", "is_missed"), [(20, True), (11, False)])
async def test_once_seconds_show_an_interval_all_of_it_has_to_miss_the_target(slow: int, is_missed: bool) -> None:
    """Of 1,000 requests a second 2 % are slow, which is surely more than 1 %, or 1.1 %, which may be 1 % in the end."""
    fast = histogram("latency", [1_000_000] * 1000)
    good = histogram("latency", [1_000_000] * (1000 - slow))
    few = [
        histogram("latency", [9_000_000 + 100_000 * (number + second) for number in range(slow)]) for second in (0, 1)
    ]
    # The first seconds are fast, so that no value misses the target before there is an interval.
    events = [one for second in range(1, 5) for one in seconds(second, reports=[fast])]
    events += [one for second in range(5, 60) for one in seconds(second, reports=[good, few[second % 2]])]
    watch, interrupt = await follow(["latency_p99_us < 2000"], *events)
    assert (bool(watch.missed), interrupt.asked.is_set()) == (is_missed, is_missed)


async def test_a_load_with_two_kinds_of_requests_ends() -> None:
    """Half of them take 1 ms and half 20 ms: the range of all times would hold a p95 of 5 ms for ever."""
    both = [histogram("latency", [1_000_000 + 1_000 * number for number in range(50)])]
    both += [histogram("latency", [20_000_000 + 10_000 * number for number in range(50)])]
    delayed = {"latency_p95_us < 5000": 8_000}
    for delays_ms in ({}, delayed):
        events = [one for second in range(1, 12) for one in seconds(second, reports=both)]
        _, interrupt = await follow(["latency_p95_us < 5000"], *events, delays_ms=delays_ms)
        assert interrupt.asked.is_set() and interrupt.why is not None
        assert interrupt.why.startswith(f"stopped after {8 if delays_ms else 2}.0 s"), interrupt.why


async def test_hosts_of_one_second_and_neighbours_of_a_long_test_are_joined() -> None:
    durations, one = _Durations(), decode(histogram("latency", [1_000_000] * 3).model_dump())
    for second in range(2 * MOST_PARTS):
        for _ in range(2):
            durations.add({"latency": one, "late": one}, second, {"latency"})
    parts = durations.parts.named("latency")
    assert len(parts) <= MOST_PARTS and durations.parts.named("late") == ()
    total = merge(parts)
    assert (total.count, durations.whole["latency"].count) == (12 * MOST_PARTS, 12 * MOST_PARTS)


async def test_a_target_without_a_sample_stops_nothing_and_is_not_met() -> None:
    watch, interrupt = await follow(["latency_p99_us < 2000"], *seconds(1, 2, 3, reports=[]))
    assert (watch.missed, interrupt.asked.is_set()) == ([], False)


async def test_errors_so_far_are_looked_at_too() -> None:
    stands = standing(0.1, 2.0, responses=90, timeouts=10)
    event = progress(BEGAN_NS + 2 * S, 90, stands=stands)
    watch, _ = await follow(["error_ratio < 1%"], event)
    assert [missed.value for missed in watch.missed] == [pytest.approx(0.1)]


async def test_a_busy_generator_misses_no_rate() -> None:
    event = progress(BEGAN_NS + 2 * S, 200, stands=standing(1.99, 2.0))
    watch, _ = await follow(["requests_per_s > 5000"], event)
    assert watch.missed == []
    idle = progress(BEGAN_NS + 2 * S, 200, stands=standing(0.2, 2.0))
    watch, _ = await follow(["requests_per_s > 5000"], idle)
    assert len(watch.missed) == 1


async def test_load_ends_on_a_busy_machine_where_the_rules_about_it_are_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MACHINE_RULES_VARIABLE, OFF)
    busy = progress(BEGAN_NS + 2 * S, 200, stands=standing(1.99, 2.0))
    watch, _ = await follow(["requests_per_s > 5000"], busy)
    assert len(watch.missed) == 1
    watch, interrupt = await follow(["latency_p99_us < 2000"], *seconds(1, 2, reports=LATE), rate_per_s=1000.0)
    assert (len(watch.missed), interrupt.asked.is_set()) == (1, True)


async def test_late_sends_are_the_generators_limit_as_at_the_end() -> None:
    late = [*SLOW, histogram("late", [2_000_000] * 100)]
    targets = ["latency_p99_us < 2000", "requests_per_s > 5000"]
    watch, _ = await follow(targets, *seconds(1, 2, reports=late), rate_per_s=1000.0)
    assert watch.missed == []
    # At ten requests a second a tenth of the gap is 10 ms; a closed loop is never late.
    unhindered: list[dict[str, Any]] = [{"rate_per_s": 10.0}, {}]
    for given in unhindered:
        watch, _ = await follow(targets, *seconds(1, 2, reports=late), **given)
        assert len(watch.missed) == 2, given


LATE = [*SLOW, histogram("late", [2_000_000] * 100)]
ON_TIME = [*SLOW, histogram("late", [10_000] * 100)]


async def test_a_late_second_does_not_keep_the_load_running() -> None:
    targets = ["latency_p99_us < 2000", "requests_per_s > 5000"]
    events = [*seconds(1, reports=LATE), *seconds(2, 3, reports=ON_TIME)]
    _, open_still = await follow(targets, *events, rate_per_s=1000.0)
    assert not open_still.asked.is_set(), "the second after a late one may hold its requests: one second is left"
    watch, interrupt = await follow(targets, *events, *seconds(4, reports=ON_TIME), rate_per_s=1000.0)
    assert [(missed.target, missed.value) for missed in watch.missed] == [
        ("latency_p99_us < 2000", pytest.approx(5000, rel=1e-3))
    ]
    assert interrupt.why is not None and "in the 2 s in which sends were on time" in interrupt.why


async def test_durations_of_late_seconds_miss_no_target() -> None:
    fast = [histogram("latency", [1_000_000] * 100), histogram("late", [10_000] * 100)]
    events = [*seconds(1, 2, 3, reports=LATE), *seconds(4, 5, 6, 7, reports=fast)]
    said: list[Notification] = []
    watch, interrupt = await follow(["latency_p99_us < 2000"], *events, said=said, rate_per_s=1000.0)
    assert (watch.missed, interrupt.asked.is_set()) == ([], False)


async def test_a_target_that_the_generator_keeps_open_is_named_once() -> None:
    said: list[Notification] = []
    await follow(["latency_p99_us < 2000"], *seconds(1, 2, 3, 4, reports=LATE), said=said, rate_per_s=1000.0)
    late = TargetOpen(
        LABEL,
        "latency_p99_us < 2000",
        "5001.22 µs is not < 2000 µs",
        "sends are 2.00 ms late at p99; the limit is 1.00 ms",
    )
    assert said == [late]
    busy = progress(BEGAN_NS + 2 * S, 200, *SLOW, stands=standing(1.99, 2.0))
    await follow(["latency_p99_us < 2000"], busy, said=said)
    assert cast(TargetOpen, said[1]).limit == "a thread of the generator is busy all the time"
    await follow(["latency_p99_us < 9000"], *seconds(1, 2, 3, reports=LATE), said=said, rate_per_s=1000.0)
    assert len(said) == 2, "a target that is met needs no word"


async def test_a_rate_in_stages_may_still_come() -> None:
    stages = [{"from_per_s": 0.0, "to_per_s": 5000.0, "duration_ms": 60_000}]
    watch, _ = await follow(["requests_per_s > 2000", "latency_p99_us < 2000"], *seconds(1, 2), rate=stages)
    assert [missed.target for missed in watch.missed] == ["latency_p99_us < 2000"]


async def test_another_loads_events_are_not_this_ones() -> None:
    other = progress(BEGAN_NS + 3 * S, 100, *SLOW).model_copy(update={"trial": "c01/1/other"})
    watch, interrupt = await follow(["latency_p99_us < 2000"], other)
    assert (watch.missed, interrupt.asked.is_set()) == ([], False)
