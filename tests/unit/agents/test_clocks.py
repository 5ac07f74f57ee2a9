"""The arithmetic of clock comparison: what is proved holds for every path."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline.agents.clocks import ClockComparison, Exchange, compare, start_instant

DELAYS = st.integers(min_value=0, max_value=10**9)
OFFSETS = st.integers(min_value=-(10**15), max_value=10**15)


def exchange(sent_ns: int, out_ns: int, inside_ns: int, back_ns: int, offset_ns: int) -> Exchange:
    arrived = sent_ns + out_ns
    answered = arrived + inside_ns
    return Exchange(sent_ns, arrived + offset_ns, answered + offset_ns, answered + back_ns)


@given(OFFSETS, st.lists(st.tuples(DELAYS, DELAYS, DELAYS, DELAYS), min_size=1, max_size=40))
def test_the_true_offset_is_always_inside(offset_ns: int, delays: list[tuple[int, int, int, int]]) -> None:
    exchanges = [exchange(*delay, offset_ns) for delay in delays]
    found = compare("h", exchanges, same_boot=False)
    assert found.steady
    assert found.offset_ns - found.bound_ns <= offset_ns <= found.offset_ns + found.bound_ns


@given(OFFSETS, st.lists(st.tuples(DELAYS, DELAYS, DELAYS, DELAYS), min_size=1, max_size=40))
def test_more_exchanges_never_widen_the_bound(offset_ns: int, delays: list[tuple[int, int, int, int]]) -> None:
    exchanges = [exchange(*delay, offset_ns) for delay in delays]
    best_alone = min(one.round_trip_ns for one in exchanges)
    assert 2 * compare("h", exchanges, same_boot=False).bound_ns <= best_alone + 1


@given(DELAYS, DELAYS, DELAYS)
def test_one_kernel_means_no_offset_at_all(out_ns: int, inside_ns: int, back_ns: int) -> None:
    found = compare("h", [exchange(0, out_ns, inside_ns, back_ns, 0)], same_boot=True)
    assert (found.same_clock, found.offset_ns, found.bound_ns) == (True, 0, 0)


def test_one_kernel_with_a_time_namespace_is_not_one_clock() -> None:
    found = compare("h", [exchange(0, 10, 10, 10, 5000)], same_boot=True)
    assert not found.same_clock
    assert (found.offset_ns, found.bound_ns) == (5000, 10)


def test_equal_delays_give_the_exact_offset() -> None:
    found = compare("h", [exchange(0, 100, 7, 100, -250), exchange(0, 400, 7, 400, -250)], same_boot=False)
    assert (found.offset_ns, found.bound_ns, found.longest_round_trip_ns) == (-250, 100, 800)


def test_a_stepped_clock_is_reported_and_the_tightest_exchange_counts() -> None:
    found = compare("h", [exchange(0, 10, 0, 10, 0), exchange(0, 4, 0, 4, 1000)], same_boot=True)
    assert not found.steady
    assert (found.offset_ns, found.bound_ns, found.same_clock) == (1000, 4, False)


@pytest.mark.parametrize("exchanges", [[], [Exchange(100, 0, 500, 90)]])
def test_impossible_clock_exchanges_are_refused(exchanges: list[Exchange]) -> None:
    with pytest.raises(ValueError, match="exchange"):
        compare("h", exchanges, same_boot=False)


@given(st.dictionaries(st.sampled_from("abcdef"), OFFSETS, min_size=1), st.integers(min_value=0, max_value=10**18))
def test_all_hosts_start_at_one_instant(offsets: dict[str, int], now_ns: int) -> None:
    comparisons = {
        host: ClockComparison(host, offset, 3, 32, 500_000, 1_000, False, True) for host, offset in offsets.items()
    }
    instants = start_instant(comparisons, now_ns=now_ns)
    on_our_clock = {instants[host] - offset for host, offset in offsets.items()}
    assert len(on_our_clock) == 1
    assert on_our_clock.pop() >= now_ns + 100_000_000


def test_a_given_lead_is_kept() -> None:
    comparison = ClockComparison("a", 7, 0, 32, 0, 0, False, True)
    assert start_instant({"a": comparison}, now_ns=1000, ahead_ms=2.5) == {"a": 2_501_007}
