"""The search against servers whose capacity is known, in virtual time: bounds, number of trials, noise, whose limit."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import brentq

from leadline.analysis.search_findings import Trial
from leadline.trial.capacity_search import (
    MAJORITY_OF,
    WIDTH,
    Ending,
    Limits,
    SearchResult,
    Stopped,
)
from leadline.trial.mlr_search import _next_limit, search

FINAL_S = 10.0
Holds = Callable[[float, float], bool]


class Server:
    """Says of each trial whether it holds; keeps what it was asked."""

    def __init__(self, holds: Holds, capacity: float = math.inf, generator: float = math.inf) -> None:
        self.holds = holds
        self.capacity = capacity
        self.generator = generator
        self.asked: list[Trial] = []

    def __call__(self, rate_per_s: float, duration_s: float) -> Trial:
        limited = rate_per_s > self.generator
        held = not limited and self.holds(rate_per_s, duration_s)
        answered = min(1.0, min(self.capacity, self.generator) / rate_per_s)
        self.asked.append(Trial(rate_per_s, duration_s, held, limited, answered, "", {}))
        return self.asked[-1]

    @property
    def spent_s(self) -> float:
        return sum(trial.duration_s for trial in self.asked)


def hard(capacity: float) -> Server:
    return Server(lambda rate, _: rate <= capacity, capacity)


def known(found: SearchResult) -> tuple[float, float]:
    assert found.low_per_s is not None and found.high_per_s is not None, found
    return found.low_per_s, found.high_per_s


def decided(server: Server, rate: float, duration_s: float = FINAL_S) -> list[bool]:
    return [trial.holds for trial in server.asked if trial.rate_per_s == rate and trial.duration_s == duration_s]


# --- Capacities that are exact --------------------------------------------------------------------------------------


@pytest.mark.parametrize("capacity", [3.7, 45.0, 1000.0, 38_400.5, 1e6])
@pytest.mark.parametrize("closed_loop", [0.55, 0.95, 1.0, 1.1, 3.0, 40.0])
@pytest.mark.parametrize("final_s", [0.3, 1.0, FINAL_S])
def test_the_interval_contains_the_truth_and_is_narrow(capacity: float, closed_loop: float, final_s: float) -> None:
    server = hard(capacity)
    found = search(server, Limits.around(closed_loop * capacity, final_s))
    low, high = known(found)
    assert found.ending is Ending.FOUND
    assert low <= capacity < high
    assert high - low <= WIDTH * high
    assert found.decided_s == final_s
    assert decided(server, low, final_s).count(True) >= 2 > MAJORITY_OF / 2
    # A shorter trial that failed at the same rate speaks against it as well.
    failed_s = sum(trial.duration_s for trial in server.asked if trial.rate_per_s == high and not trial.holds)
    assert False in decided(server, high, final_s) and failed_s > MAJORITY_OF * final_s / 2
    assert len(server.asked) <= 20


def test_it_takes_a_minute_for_trials_of_ten_seconds() -> None:
    server = hard(1000.0)
    search(server, Limits.around(1050.0, FINAL_S))
    assert len(server.asked) <= 10 and server.spent_s <= 60


def test_a_server_that_answers_all_of_it_late_is_found_as_well() -> None:
    """Nothing is lost where only the latency tells: the next rate has no hint but the width."""
    server = Server(lambda rate, _: rate <= 100.0)
    low, high = known(search(server, Limits.around(1100.0, FINAL_S)))
    assert low <= 100.0 < high and high - low <= WIDTH * high
    assert len(server.asked) <= 25


# --- A queue --------------------------------------------------------------------------------------------------------


def test_a_queue_whose_percentiles_are_known() -> None:
    """Even arrivals at one server of exponential service: the time in the system is exponential as well (D/M/1)."""
    served_per_s, allowed_s = 1000.0, 0.020

    def p99_s(rate_per_s: float) -> float:
        def excess(share: float) -> float:
            return share - math.exp(-served_per_s * (1 - share) / rate_per_s)

        share: float = brentq(excess, 0.0, 1.0 - 1e-6)
        return math.log(100.0) / (served_per_s * (1 - share))

    truth = brentq(lambda rate: p99_s(rate) - allowed_s, 100.0, 990.0)
    chance = np.random.default_rng(1)

    def holds(rate_per_s: float, duration_s: float) -> bool:
        number = max(1, round(rate_per_s * duration_s))
        service_s = chance.exponential(1.0 / served_per_s, number)
        waited, latencies_s = 0.0, np.empty(number)
        for index, own_s in enumerate(service_s):
            latencies_s[index] = waited + own_s
            waited = max(0.0, latencies_s[index] - 1.0 / rate_per_s)
        return bool(np.quantile(latencies_s, 0.99) < allowed_s)

    server = Server(holds, served_per_s)
    low, high = known(search(server, Limits.around(served_per_s, FINAL_S)))
    # A percentile of 10 s of correlated waits varies: the rate at which it crosses the limit by some percent.
    assert 0.92 * truth <= low < high <= 1.08 * truth


# --- Noise ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("spread", [0.01, 0.03, 0.1])
def test_noise_moves_the_bounds_by_no_more_than_itself(spread: float, seed: int) -> None:
    chance = random.Random(seed)
    server = Server(lambda rate, _: rate <= 1000.0 * (1 + chance.gauss(0, spread)), 1000.0)
    limits = Limits.around(1100.0, FINAL_S)
    found = search(server, limits)
    assert found.low_per_s is not None
    assert 1000.0 * (1 - WIDTH - 3 * spread) <= found.low_per_s <= 1000.0 * (1 + WIDTH + 3 * spread)
    assert server.spent_s <= limits.budget_s


def test_one_bad_trial_does_not_decide() -> None:
    """Each final trial that would settle a rate below the capacity fails once, for a reason of its own."""
    blamed: set[float] = set()

    def holds(rate: float, duration_s: float) -> bool:
        first = duration_s == FINAL_S and rate not in blamed
        if first:
            blamed.add(rate)
        return rate <= 1000.0 and not first

    server = Server(holds, 1000.0)
    low, high = known(search(server, Limits.around(1050.0, FINAL_S)))
    assert low <= 1000.0 < high and high - low <= WIDTH * high
    assert sorted(decided(server, low)) == [False, True, True]


def test_of_two_regions_that_hold_the_bounds_are_of_one() -> None:
    """Between 400/s and 500/s it fails as well: whatever edge was found, it is one."""

    def holds(rate: float, _: float) -> bool:
        return rate <= 400.0 or 500.0 <= rate <= 1000.0

    for closed_loop in (600.0, 1000.0, 5000.0):
        low, high = known(search(Server(holds, 1000.0), Limits.around(closed_loop, FINAL_S)))
        assert holds(low, FINAL_S) and not holds(high, FINAL_S)
        assert high - low <= WIDTH * high


def test_a_server_without_a_capacity_ends_with_the_budget() -> None:
    chance = random.Random(7)
    for _ in range(20):
        server = Server(lambda rate, duration_s: chance.random() < 0.5, 1000.0)
        limits = Limits.around(1000.0, FINAL_S)
        found = search(server, limits)
        assert server.spent_s <= limits.budget_s
        assert found.ending in (Ending.FOUND, Ending.BUDGET, Ending.NONE_HELD, Ending.ALL_HELD)


# --- Whose limit ----------------------------------------------------------------------------------------------------


def test_the_generators_limit_is_not_the_servers() -> None:
    found = search(Server(lambda rate, _: True, generator=900.0), Limits.around(1000.0, FINAL_S))
    assert found.ending is Ending.GENERATOR_LIMITED
    assert found.high_per_s is None
    assert found.low_per_s is not None and 900.0 * (1 - 2 * WIDTH) <= found.low_per_s <= 900.0


def test_server_that_failed_above_the_generators_limit_bounds_the_rate() -> None:
    """The generator is late around the server's capacity and keeps up above it: what failed there is the server's."""
    server = hard(1000.0)

    def take(rate: float, duration_s: float) -> Trial:
        trial = server(rate, duration_s)
        return replace(trial, generator_limited=not trial.holds and rate < 1030.0)

    found = search(take, Limits.around(1050.0, FINAL_S))
    low, high = known(found)
    assert found.ending is Ending.GENERATOR_LIMITED
    assert low <= 1000.0 and high == min(trial.rate_per_s for trial in server.asked if trial.rate_per_s >= 1030.0)
    assert found.decided_s == max(trial.duration_s for trial in server.asked if trial.rate_per_s == high)


def test_rate_that_held_as_often_as_it_failed_bounds_nothing() -> None:
    """Above the generator's limit one rate fails in one of two trials of the same length: that is no majority."""
    failed = Trial(1100.0, 1.0, False, False, 0.9, "", {})
    trials = [
        (1100.0, failed),
        (1100.0, replace(failed, holds=True)),
        (1200.0, replace(failed, rate_per_s=1200.0)),
    ]
    assert _next_limit(trials, 1000.0) == 1200.0
    trials[2] = (1200.0, replace(failed, rate_per_s=1200.0, generator_limited=True))
    assert _next_limit(trials, 1000.0) is None


def test_a_generator_that_is_late_once_is_no_reason() -> None:
    """Two clean trials at the upper bound outweigh one in which the generator was late."""
    server = hard(1000.0)
    late = iter([True])

    def take(rate: float, duration_s: float) -> Trial:
        trial = server(rate, duration_s)
        if duration_s < FINAL_S or trial.holds or not next(late, False):
            return trial
        return Trial(rate, duration_s, True, True, 1.0, "", {})

    found = search(take, Limits.around(1050.0, FINAL_S))
    low, high = known(found)
    assert found.ending is Ending.FOUND and low <= 1000.0 < high


def test_limits_of_the_range() -> None:
    limits = Limits.around(1000.0, FINAL_S)
    above = search(Server(lambda rate, _: True), limits)
    assert (above.ending, above.low_per_s, above.high_per_s) == (Ending.ALL_HELD, limits.highest_per_s, None)
    below = search(Server(lambda rate, _: False, 0.001), limits)
    assert (below.ending, below.low_per_s) == (Ending.NONE_HELD, None)
    assert below.high_per_s == pytest.approx(limits.lowest_per_s)


@pytest.mark.parametrize("closed_loop", [0.01, 0.8, 5.0, 1e7])
def test_the_range_is_sound_for_any_rate(closed_loop: float) -> None:
    limits = Limits.around(closed_loop, 2.0)
    assert 0 < limits.lowest_per_s <= limits.highest_per_s / 10
    search(Server(lambda rate, _: rate <= closed_loop, closed_loop), limits)


# --- Cut short ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trials", range(9))
@pytest.mark.parametrize("ending", [Ending.INTERRUPTED, Ending.FAILED])
def test_what_is_known_when_it_is_stopped(trials: int, ending: Ending) -> None:
    server = hard(1000.0)

    def take(rate: float, duration_s: float) -> Trial:
        if len(server.asked) == trials:
            raise Stopped(ending)
        return server(rate, duration_s)

    found = search(take, Limits.around(1050.0, FINAL_S))
    assert found.ending is ending
    held = [trial.rate_per_s for trial in server.asked if trial.holds]
    failed = [trial.rate_per_s for trial in server.asked if not trial.holds]
    assert found.low_per_s is None or found.low_per_s in held
    assert found.high_per_s is None or found.high_per_s in failed
    assert (found.decided_s is None) == (trials == 0)
    if trials >= 2:
        low, high = known(found)
        assert low <= 1000.0 < high


def test_what_a_trial_raises_comes_out() -> None:
    def take(rate: float, duration_s: float) -> Trial:
        raise OSError("no more files")

    with pytest.raises(OSError, match="no more files"):
        search(take, Limits.around(1000.0, FINAL_S))


# --- Several rates in one search --------------------------------------------------------------------------------


class Path:
    """Loses packets from one rate on, and more than `ALLOWED` of them from a higher one on."""

    ALLOWED = 0.005

    def __init__(self, clean: float, full: float) -> None:
        self.clean, self.full = clean, full
        self.asked = 0

    def __call__(self, rate_per_s: float, duration_s: float) -> Trial:
        self.asked += 1
        slope = self.ALLOWED / (self.full - self.clean)
        lost = max(0.0, (rate_per_s - self.clean) * slope)
        weaker = Trial(rate_per_s, duration_s, lost <= self.ALLOWED, False, 1.0 - lost, "", {})
        return replace(weaker, holds=lost == 0.0, further=(weaker,))


@pytest.mark.parametrize("clean", [800.0, 999.0])
@pytest.mark.parametrize("reached", [900.0, 1100.0, 5000.0])
def test_one_search_finds_both_rates_in_fewer_trials_than_two(clean: float, reached: float) -> None:
    path, limits = Path(clean, 1000.0), Limits.around(reached, FINAL_S, goals=2)
    found = search(path, limits, (Path.ALLOWED,))
    (weaker,) = found.further
    assert (found.ending, weaker.ending) == (Ending.FOUND, Ending.FOUND)
    for one, truth in ((found, clean), (weaker, 1000.0)):
        low, high = known(one)
        assert low <= truth < high
        assert high - low <= WIDTH * high
    alone = Path(clean, 1000.0)
    search(lambda rate, duration_s: replace(alone(rate, duration_s), further=()), limits)
    search(lambda rate, duration_s: alone(rate, duration_s).further[0], limits)
    assert path.asked < alone.asked


def test_condition_that_no_rate_meets_leaves_the_other_with_its_rate() -> None:
    """Some packets are lost at every rate: there is no NDR, and still a PDR."""
    path = Path(0.0, 1000.0)
    found = search(path, Limits.around(1100.0, FINAL_S, goals=2), (Path.ALLOWED,))
    assert (found.ending, found.low_per_s) == (Ending.NONE_HELD, None)
    low, high = known(found.further[0])
    assert low <= 1000.0 < high
