"""Drifts and starts: the truth lies within what is published, whatever path the comparisons took."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from made_journals import flow, outcome

from leadline.agents.clocks import Exchange, compare
from leadline.analysis import analyse
from leadline.analysis.clock_model import HostClock
from leadline.analysis.host_clocks import bound_ns_of, drift_of, is_stepped
from leadline.analysis.model import TestResult
from leadline.analysis.test_data import ClockCheck

SECOND = 1_000_000_000
DELAYS = st.integers(min_value=1_000, max_value=2_000_000)


def compared(at_ns: int, offset_ns: int, ppm: float, delays: list[tuple[int, int]]) -> ClockCheck:
    """A comparison at this time, with a clock that is ahead and drifts, over paths with these delays."""

    def ahead(now_ns: int) -> int:
        return now_ns + offset_ns + round(now_ns * ppm / 1e6)

    exchanges, now_ns = [], at_ns
    for there_ns, back_ns in delays:
        arrives_ns = now_ns + there_ns
        answered_ns = arrives_ns + 5_000
        exchanges.append(Exchange(now_ns, ahead(arrives_ns), ahead(answered_ns), answered_ns + back_ns))
        now_ns = answered_ns + back_ns
    found = compare("c", exchanges, same_boot=False)
    return ClockCheck(now_ns, found.offset_ns, found.bound_ns)


@given(
    st.integers(min_value=-(10**15), max_value=10**15),
    st.floats(min_value=-200, max_value=200),
    st.lists(st.lists(st.tuples(DELAYS, DELAYS), min_size=4, max_size=16), min_size=2, max_size=6),
)
def test_true_drift_lies_within_its_bound(offset_ns: int, ppm: float, paths: list[list[tuple[int, int]]]) -> None:
    checks = [compared((5 * number + 1) * SECOND, offset_ns, ppm, path) for number, path in enumerate(paths)]
    drift = drift_of(checks)
    assert drift is not None
    # Within one comparison the clock moves too: by the drift times its length, at most 64 ms of 5 s.
    assert abs(drift.ppm - ppm) <= drift.bound_ppm + 200 * 0.064 / 5 + 1


def test_one_comparison_tells_no_drift() -> None:
    assert drift_of([ClockCheck(0, 0, 10)]) is None
    assert drift_of([ClockCheck(7, 0, 10), ClockCheck(7, 0, 10)]) is None


def test_a_clock_that_wanders_has_its_mean_drift_and_was_not_set() -> None:
    """As a temperature changes it: by 0.3 ppm in an hour, which no single drift explains."""
    wandering = [
        ClockCheck(minute * 60 * SECOND, round(1e6 * minute * 60 * (5 + 0.3 * minute / 60) / 1e3), 5_000)
        for minute in range(61)
    ]
    drift = drift_of(wandering)
    assert drift is not None and abs(drift.ppm - 5.3) < 0.01
    assert not is_stepped(wandering)


def test_a_clock_that_was_set_is_noticed() -> None:
    stepped = [ClockCheck(0, 0, 10), ClockCheck(SECOND, 0, 10), ClockCheck(2 * SECOND, 10**7, 10)]
    assert is_stepped(stepped)
    assert bound_ns_of(stepped) == 10**7 + 10


def test_many_comparisons_are_thinned() -> None:
    """A day of them, each 5 s: the drift is known as well as two of them say at least."""
    day = [ClockCheck(5 * SECOND * number, 50_000 * number, 40_000) for number in range(17_280)]
    drift = drift_of(day)
    assert drift is not None and abs(drift.ppm - 10) <= drift.bound_ppm < 0.001


def test_what_a_clock_moves_widens_the_bound_of_instants() -> None:
    # By the loose one in the middle 530 are seen; the drift that all allow proves less.
    assert bound_ns_of([ClockCheck(0, 100, 20), ClockCheck(SECOND, -400, 800), ClockCheck(2 * SECOND, 50, 10)]) == 100


def run_with(late_ns: dict[str, int], offsets_ns: dict[str, int], length_ms: int = 2000) -> TestResult:
    """A trial on hosts whose flows began this late, with clocks that are ahead by these."""
    begin_ns = 10 * SECOND
    entries: list[dict[str, object]] = [{"record": "trial-begin", "at_ns": 1, "trial": "c/1", "case": "c", "repeat": 1}]
    label = "c/1/t"
    for host, offset_ns in offsets_ns.items():
        clock = {"host": host, "offset_ns": offset_ns, "bound_ns": 50_000}
        entries += [
            {"record": "clock-check", "at_ns": 2, "label": label, **clock},
            {"record": "clock", "at_ns": 2, **clock},
        ]
    test = {"name": "t", "kind": "tcp", "duration_ms": length_ms}
    entries.append(
        {"record": "test-begin", "at_ns": 3, "label": label, "test": test, "hosts": [*late_ns], "start_at_ns": begin_ns}
    )
    for host, late in late_ns.items():
        due_ns = begin_ns + offsets_ns.get(host, 0)
        started = {"type": "started", "trial": label, "task": "load", "due_ns": due_ns, "t_ns": due_ns}
        entries.append({"host": host, "at_ns": begin_ns, "event": started})
        entries.append({"host": host, "at_ns": begin_ns, "event": finished(label, due_ns + late, length_ms)})
    entries += [
        {"record": "test-end", "at_ns": 4, "label": label, "status": "done", "error": None},
        {"record": "trial-end", "at_ns": 5, "trial": "c/1", "status": "done"},
    ]
    (trial,) = analyse({"cases": [{"id": "c", "parameters": {}}]}, entries).trials
    return trial.tests[0]


def finished(label: str, start_ns: int, length_ms: int) -> dict[str, object]:
    end_ns = start_ns + length_ms * 10**6
    one = flow(0, start_ns, end_ns, due_ns=start_ns, sent_bytes=1000, received_bytes=1000)
    return {"type": "finished", "trial": label, "task": "load", "t_ns": end_ns, "outcome": outcome([one])}


def starts_of(result: TestResult) -> dict[str, float | None]:
    clocks: tuple[HostClock, ...] = result.clocks
    return {clock.host: clock.start_late_us for clock in clocks}


def test_starts_are_published_per_host_on_one_clock() -> None:
    result = run_with({"client1": 200_000, "client2": 1_700_000}, {"client1": -(10**12), "client2": 7 * 10**9})
    assert starts_of(result) == {"client1": 200.0, "client2": 1700.0}
    assert {clock.start_bound_us for clock in result.clocks} == {50.0}
    assert "start-skew" not in {reason.code for reason in result.validity.notes}


def test_a_skew_beyond_a_hundredth_of_the_test_is_reported() -> None:
    result = run_with({"client1": 0, "client2": 25_000_000}, {"client1": 0, "client2": 7 * 10**9})
    [text] = [reason.text for reason in result.validity.notes if reason.code == "start-skew"]
    assert text.startswith("the load did not begin everywhere at once: client2 at least 24.9 ms after client1")
    assert "at most 1.3 % of the test" in text


def test_a_skew_that_only_the_clocks_allow_is_not_claimed() -> None:
    result = run_with({"client1": 0, "client2": 19_950_000}, {"client1": 0, "client2": 7 * 10**9})
    [text] = [reason.text for reason in result.validity.notes if reason.code == "start-skew"]
    assert text.startswith("client2 may have begun up to 20.1 ms after client1, 1 % of the test")


def test_hosts_on_one_clock_have_no_table_of_clocks() -> None:
    assert run_with({"client1": 0, "client2": 0}, {}).clocks == ()
