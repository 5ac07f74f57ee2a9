"""Which rates a capacity search tries, and what it is sure of: MLRsearch's controller between two callables.

Owns the goal (durations, width, majority) and what the bounds mean. Knows no agent and no clock: a trial is a function
of rate and duration, so that tests give it a server whose capacity is known. Read docs/search.md first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from MLRsearch import AbstractMeasurer, Config, MeasurementResult, MultipleLossRatioSearch, SearchGoal

from leadline.analysis.capacity import Trial

WIDTH = 0.02
"""How far the bounds may be apart at the end, as a share of the upper one."""
MAJORITY_OF = 3
"""Trials of the final duration that a bound would take if they disagreed; two that agree settle it."""
INITIAL_S = 1.0
"""Shortest trials, which find the neighbourhood."""
HEADROOM = 2.0
"""The highest rate that is tried, in terms of what a closed loop over the same connections reaches. At no rate more
requests are under way than in the closed loop, so more than noise above it cannot be answered."""
RANGE = 1000.0
"""From the lowest to the highest rate."""
BUDGET_TRIALS = 30
"""Trials of either duration that a search may take; one of a quiet server takes a third."""

# Coarser goals that come before the final one: each has twice the width and a fraction of the time.
_PRECEDING = 2


@dataclass(frozen=True, slots=True)
class Limits:
    """Where a search looks, how long a trial is, and when it gives up. Rates are requests per second."""

    lowest_per_s: float
    highest_per_s: float
    initial_s: float
    final_s: float
    budget_s: float
    """The sum of all trials' durations after which no further one is begun."""
    width: float = WIDTH

    @classmethod
    def around(cls, reached_per_s: float, final_s: float, headroom: float = HEADROOM) -> Limits:
        """From the rate that the load reached without one, and the duration of the trials that decide."""
        highest = headroom * reached_per_s
        initial_s = min(INITIAL_S, final_s)
        # A trial without a single request would say nothing.
        lowest = min(max(highest / RANGE, 1.0 / initial_s), highest / 10)
        return cls(lowest, highest, initial_s, final_s, BUDGET_TRIALS * (initial_s + final_s))


class Ending(StrEnum):
    """Why a search ended."""

    FOUND = "found"
    GENERATOR_LIMITED = "generator-limited"
    ALL_HELD = "all-held"
    NONE_HELD = "none-held"
    BUDGET = "budget"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What is known at the end, requests per second."""

    ending: Ending
    low_per_s: float | None
    """The highest rate below every one that failed at which the conditions held."""
    high_per_s: float | None
    """The lowest rate at which they did not, by the server's doing; None where that is not known. With
    `GENERATOR_LIMITED` the rates between the bounds are those that the generator could not offer."""
    decided_s: float | None
    """Duration of the trials that both bounds rest on: shorter than the final one where the search was cut short, or
    where only a short trial bounds the rate from above."""


class Stopped(Exception):
    """Raised by a trial to end the search with what is known."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.value)
        self.ending = ending


def search(measure: Callable[[float, float], Trial], limits: Limits) -> SearchResult:
    """Find the highest rate that holds. `measure` takes a rate per second and a duration in seconds.

    A rate holds where the majority of its trials does; one that fails below another that held counts, so the figure is
    the careful one. What `measure` raises ends it; `Stopped` ends it with what is known.
    """
    goal = SearchGoal(
        loss_ratio=0.0,
        exceed_ratio=0.5,
        relative_width=limits.width,
        initial_trial_duration=limits.initial_s,
        final_trial_duration=limits.final_s,
        duration_sum=MAJORITY_OF * limits.final_s,
        preceding_targets=_PRECEDING,
        fail_fast=False,
    )
    config = Config(
        goals=[goal],
        min_load=limits.lowest_per_s,
        max_load=limits.highest_per_s,
        # Its own limit is one of the clock's time; ours is in `_Measurer`.
        search_duration_max=math.inf,
        warmup_duration=None,
    )
    controller = MultipleLossRatioSearch(config=config)
    measurer = _Measurer(measure, limits)
    ending = Ending.FOUND
    try:
        controller.search(measurer=measurer, debug=lambda _: None)
    except Stopped as stopped:
        ending = stopped.ending
    return _conclude(controller, goal, measurer, limits, ending)


@dataclass
class _Measurer(AbstractMeasurer):  # type: ignore[misc]  # the library is not typed
    """Takes a trial for each that the controller asks for, within the budget, and keeps what it said."""

    take: Callable[[float, float], Trial]
    limits: Limits
    spent_s: float = 0.0
    trials: list[tuple[float, Trial]] = field(default_factory=list)
    """Each with the load as the controller calls it."""

    def measure(self, intended_duration: float, intended_load: float) -> MeasurementResult:
        if self.spent_s + intended_duration > self.limits.budget_s:
            raise Stopped(Ending.BUDGET)
        trial = self.take(intended_load, intended_duration)
        self.spent_s += intended_duration
        self.trials.append((intended_load, trial))
        # A trial that holds has no loss, one that does not has some, be all answered: that is what decides. How much is
        # a hint at the next rate: what an overloaded server has answered is about what it can.
        offered = max(1, round(intended_load * intended_duration))
        lost = 0 if trial.holds else max(1, offered - math.floor(trial.answered_share * offered))
        return MeasurementResult(
            intended_duration=intended_duration, intended_load=intended_load, offered_count=offered, loss_count=lost
        )


def _conclude(
    controller: MultipleLossRatioSearch, goal: SearchGoal, measurer: _Measurer, limits: Limits, ending: Ending
) -> SearchResult:
    low, high, decided_s = _bounds(controller, goal)
    if ending is Ending.FOUND:
        if low is None:
            ending = Ending.NONE_HELD
        elif high is None:
            ending = Ending.ALL_HELD
    if high is not None and not _servers_doing(measurer, high):
        high = _next_limit(measurer, high)
        if high is not None and decided_s is not None:
            decided_s = min(decided_s, max(trial.duration_s for load, trial in measurer.trials if load == high))
        if ending in (Ending.FOUND, Ending.NONE_HELD):
            ending = Ending.GENERATOR_LIMITED
    return SearchResult(ending, low, high, decided_s)


def _bounds(controller: MultipleLossRatioSearch, goal: SearchGoal) -> tuple[float | None, float | None, float | None]:
    """The bounds by the final trials, or by the longest that there were of each; and how long the shorter lasted."""
    low: float | None = None
    high: float | None = None
    decided_s: float | None = None
    # Both are there from the first trial on, which `search` of the controller is asked for before anything can stop it.
    target = controller.scaling.goal_to_final_target[goal]
    while target is not None and (low is None or high is None):
        bounds = controller.database.get_relevant_bounds(target=target)
        if low is None and bounds.clo and (high is None or float(bounds.clo) < high):
            low, decided_s = float(bounds.clo), target.trial_duration
        if high is None and bounds.chi and (low is None or float(bounds.chi) > low):
            high, decided_s = float(bounds.chi), target.trial_duration
        target = target.preceding
    return low, high, decided_s


def _next_limit(measurer: _Measurer, above: float) -> float | None:
    """The lowest rate above one that the generator could not offer at which most of the time failed by the server's
    doing, in trials of any length."""
    for load in sorted({load for load, _ in measurer.trials if load > above}):
        trials = [trial for asked, trial in measurer.trials if asked == load]
        failed_s = sum(trial.duration_s for trial in trials if not trial.holds and not trial.generator_limited)
        if 2 * failed_s > sum(trial.duration_s for trial in trials):
            return load
    return None


def _servers_doing(measurer: _Measurer, load: float) -> bool:
    """Whether more of the time that failed at a rate failed with a generator that kept up."""
    failed = [trial for asked, trial in measurer.trials if asked == load and not trial.holds]
    limited_s = sum(trial.duration_s for trial in failed if trial.generator_limited)
    return sum(trial.duration_s for trial in failed) > 2 * limited_s
