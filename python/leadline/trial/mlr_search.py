"""Chooses the rates that a capacity search tries, and derives the bounds: MLRsearch's controller between two
callables.

Knows no agent and no clock: a trial is a function of rate and duration, so tests can use a server with a known
capacity. Its library is dear to import: `search_thread` imports it for searches alone. Read docs/search.md first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from MLRsearch import AbstractMeasurer, Config, MeasurementResult, MultipleLossRatioSearch, SearchGoal

from leadline.analysis.search_findings import Trial
from leadline.trial.capacity_search import MAJORITY_OF, Ending, Limits, SearchResult, Stopped

# Number of coarser goals before the final one: each has twice the width and a fraction of the time.
_PRECEDING = 2
# By how much finer than one operation a loss is written for several goals.
_PARTS = 1_000_000

Judged = Sequence[tuple[float, Trial]]
"""Trials as one goal's conditions judge them, with the load as the controller names it."""


def search(measure: Callable[[float, float], Trial], limits: Limits, further: Sequence[float] = ()) -> SearchResult:
    """Find the highest rate that holds. `measure` takes a rate per second and a duration in seconds.

    A rate holds if the majority of its trials hold. If a lower rate fails, higher rates that held do not count, so
    the result is conservative. An exception from `measure` ends the search; `Stopped` ends it with the current
    result.

    `further` are the shares of loss that further, ever weaker conditions allow, by which each trial was judged too
    (`Trial.further`): one search with several goals, whose trials count for all of them. Their results are the
    result's `further`.
    """
    allowed = (0.0, *further)
    goals = [
        SearchGoal(
            loss_ratio=loss_ratio,
            exceed_ratio=0.5,
            relative_width=limits.width,
            initial_trial_duration=limits.initial_s,
            final_trial_duration=limits.final_s,
            duration_sum=MAJORITY_OF * limits.final_s,
            preceding_targets=_PRECEDING,
            fail_fast=False,
        )
        for loss_ratio in allowed
    ]
    config = Config(
        goals=goals,
        min_load=limits.lowest_per_s,
        max_load=limits.highest_per_s,
        # The controller's limit is wall-clock time; `_Measurer` has the limit that is used here.
        search_duration_max=math.inf,
        warmup_duration=None,
    )
    controller = MultipleLossRatioSearch(config=config)
    measurer = _Measurer(measure, limits, allowed)
    ending = Ending.FOUND
    try:
        controller.search(measurer=measurer, debug=lambda _: None)
    except Stopped as stopped:
        ending = stopped.ending
    first, *others = (_conclude(controller, goal, measurer.judged(number), ending) for number, goal in enumerate(goals))
    return replace(first, further=tuple(others))


@dataclass
class _Measurer(AbstractMeasurer):  # type: ignore[misc]  # the library is not typed
    """Runs a trial for each request of the controller, within the budget, and keeps the results."""

    take: Callable[[float, float], Trial]
    limits: Limits
    allowed: Sequence[float]
    """The shares of loss that the goals allow, in rising order."""
    spent_s: float = 0.0
    trials: list[tuple[float, Trial]] = field(default_factory=list)
    """Each trial, with the load as the controller names it."""

    def measure(self, intended_duration: float, intended_load: float) -> MeasurementResult:
        trial = self._take(intended_load, intended_duration)
        lengthened_s = self.limits.lengthened_s(intended_load)
        if any(one.few_samples for one in trial.by_condition) and lengthened_s > intended_duration:
            trial = self._take(intended_load, lengthened_s)
        self.trials.append((intended_load, trial))
        offered = max(1, round(intended_load * trial.duration_s))
        # Shares of loss of several goals are finer than one operation of a short trial.
        counted = offered if len(self.allowed) == 1 else offered * _PARTS
        lost = self._lost(trial, counted)
        # A lengthened trial counts as one of the final length at most: two of three trials decide at every rate.
        counted_s = max(intended_duration, min(trial.duration_s, self.limits.final_s))
        return MeasurementResult(
            intended_duration=counted_s, intended_load=intended_load, offered_count=counted, loss_count=lost
        )

    def _lost(self, trial: Trial, offered: int) -> int:
        """The loss by which exactly those goals hold whose conditions held: one that holds has no more than it allows,
        one that does not has more, even if all requests were answered. The amount is a hint at the next rate: an
        overloaded server answers about as much as it can."""
        lost = offered - math.floor(trial.answered_share * offered)
        for number, (judged, share) in enumerate(zip(trial.by_condition, self.allowed, strict=True)):
            if judged.holds:
                above = 0 if number == 0 else math.floor(self.allowed[number - 1] * offered) + 1
                return max(above, min(lost, math.floor(share * offered)))
        return max(lost, math.floor(self.allowed[-1] * offered) + 1)

    def judged(self, number: int) -> list[tuple[float, Trial]]:
        """Each trial as a goal's conditions judge it, with the load as the controller names it."""
        return [(load, trial.by_condition[number]) for load, trial in self.trials]

    def _take(self, rate_per_s: float, duration_s: float) -> Trial:
        if self.spent_s + duration_s > self.limits.budget_s:
            raise Stopped(Ending.BUDGET)
        self.spent_s += duration_s
        return self.take(rate_per_s, duration_s)


def _conclude(controller: MultipleLossRatioSearch, goal: SearchGoal, trials: Judged, ending: Ending) -> SearchResult:
    low, high, decided_s = _bounds(controller, goal)
    if ending is Ending.FOUND:
        if low is None:
            ending = Ending.NONE_HELD
        elif high is None:
            ending = Ending.ALL_HELD
    if high is not None and not _is_servers_limit(trials, high):
        unbounded = Ending.GENERATOR_LIMITED if _is_generators_limit(trials, high) else Ending.FEW_SAMPLES
        high = _next_limit(trials, high)
        if high is not None and decided_s is not None:
            decided_s = min(decided_s, max(trial.duration_s for load, trial in trials if load == high))
        if ending in (Ending.FOUND, Ending.NONE_HELD):
            ending = unbounded
    return SearchResult(ending, low, high, decided_s)


def _bounds(controller: MultipleLossRatioSearch, goal: SearchGoal) -> tuple[float | None, float | None, float | None]:
    """The bounds by the final trials, or by the longest ones for each bound; and the length of the shorter ones."""
    low: float | None = None
    high: float | None = None
    decided_s: float | None = None
    # Both exist after the first trial, which the controller's `search` requests before anything can stop it.
    target = controller.scaling.goal_to_final_target[goal]
    while target is not None and (low is None or high is None):
        bounds = controller.database.get_relevant_bounds(target=target)
        if low is None and bounds.clo and (high is None or float(bounds.clo) < high):
            low, decided_s = float(bounds.clo), target.trial_duration
        if high is None and bounds.chi and (low is None or float(bounds.chi) > low):
            high, decided_s = float(bounds.chi), target.trial_duration
        target = target.preceding
    return low, high, decided_s


def _next_limit(judged: Judged, above: float) -> float | None:
    """The lowest rate above one that bounds nothing at which the server caused most of the failed time, in trials of
    any length."""
    for load in sorted({load for load, _ in judged if load > above}):
        trials = [trial for asked, trial in judged if asked == load]
        failed_s = sum(trial.duration_s for trial in trials if not trial.holds and not trial.is_no_bound)
        if 2 * failed_s > sum(trial.duration_s for trial in trials):
            return load
    return None


def _is_servers_limit(judged: Judged, load: float) -> bool:
    """Whether the generator kept up, and the samples were enough, in most of the time that failed at a rate."""
    failed = _failed_trials(judged, load)
    unknown_s = sum(trial.duration_s for trial in failed if trial.is_no_bound)
    return sum(trial.duration_s for trial in failed) > 2 * unknown_s


def _is_generators_limit(judged: Judged, load: float) -> bool:
    """Whether the generator was at its limit in any trial that failed at a rate."""
    return any(trial.generator_limited for trial in _failed_trials(judged, load))


def _failed_trials(judged: Judged, load: float) -> list[Trial]:
    return [trial for asked, trial in judged if asked == load and not trial.holds]
