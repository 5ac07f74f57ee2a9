"""An open loop whose answers stop before its end: those that are waited for all come together, if they come."""

from __future__ import annotations

from made_journals import EPOCH_NS, MS, counters, finished, flow, histogram, outcome, progress, test_data

from leadline.analysis import TestSpec, analyse_test
from leadline.analysis.model import Metric

PER_MS = 2
LENGTH_MS = 10_000


def open_loop(stalls_ms: tuple[tuple[int, int], ...]) -> dict[str, Metric]:
    """2,000 requests a second that take 1 ms each, or until the end of a stall (from, to) of the server."""
    done, ages, times = [0] * (LENGTH_MS + 2), list[int](), list[int]()
    for due_ms in range(LENGTH_MS):
        end_ms = next((end for begin, end in stalls_ms if begin <= due_ms < end), due_ms + 1)
        if end_ms > LENGTH_MS:
            ages += [(LENGTH_MS - due_ms) * MS] * PER_MS
        else:
            times += [(end_ms - due_ms) * MS] * PER_MS
            done[end_ms] += PER_MS
    data, answered = test_data(), 0
    data.spec = TestSpec.read(
        {"name": "t", "kind": "rr", "duration_ms": LENGTH_MS, "interval_ms": 100, "rate_per_s": 2000}
    )
    assert data.spec.paced and data.spec.steady
    for at_ms in range(100, LENGTH_MS + 1, 100):
        answered = sum(done[: at_ms + 1])
        row = counters(0, sent_units=PER_MS * at_ms, received_units=answered)
        data.add("client1", progress(EPOCH_NS + at_ms * MS, [row], side="local"))
    end_ns = EPOCH_NS + LENGTH_MS * MS
    report = flow(0, EPOCH_NS, end_ns, sent_units=PER_MS * LENGTH_MS, received_units=answered)
    made = [histogram("latency", times), *([histogram("latency_censored", ages)] if ages else [])]
    data.add("client1", finished(end_ns, outcome([report], histograms=made)))
    return analyse_test(data).metrics


def test_stall_at_the_end_leaves_high_percentiles_lower_bounds() -> None:
    """600 ms to the end, after one of 1.5 s: taken as independent, the ages would add their share to all that took
    longer in the first stall, and raise the p90. Whether they end at once or in a second is not known."""
    found = open_loop(((2000, 3500), (9400, 12_000)))
    p90, p50 = found["latency_p90_us"], found["latency_p50_us"]
    assert p90.value is not None and p90.censored
    # 2,100 of 10,000 wait, for 1 to 1,500 ms or 1 to 600 ms by now: for more than 550 ms, 1,000 of them.
    assert 540_000 < p90.value < 560_000
    assert p50.value is not None and not p50.censored and p50.high is not None


def test_load_that_answers_to_its_end_is_no_stall() -> None:
    """What is in flight at any end, here for 50 ms, is estimated as before."""
    for stalls_ms in (((2000, 3500),), ((2000, 3500), (9950, 12_000))):
        assert not open_loop(stalls_ms)["latency_p90_us"].censored
