"""The records of a search for the highest rate that holds: its trials, and what it found. Records only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Trial:
    """One trial of a search."""

    rate_per_s: float
    """The offered rate."""
    duration_s: float
    """Length of the trial without warm-up."""
    holds: bool
    """Whether every condition held, every request that was due was sent, and the figures are complete."""
    generator_limited: bool
    """Whether the generator was at its limit or late, or may have been. A trial that does not hold then says nothing
    about the server."""
    answered_share: float
    """Answered share of the requests that were due; at most 1."""
    why: str
    """The reason of the judgement, for the user."""
    metrics: dict[str, float | None]
    """The figures in the conditions, and the answered rate."""
    connections_busy: bool = False
    """Whether many requests waited for a free connection. More connections may reach a higher rate."""
    disturbed: bool = False
    """Whether something else used the machine: without it the trial might have held."""
    few_samples: bool = False
    """Whether a percentile of too few samples decided, whose interval does not miss its condition. A trial that does
    not hold then says nothing about the server."""
    further: tuple[Trial, ...] = ()
    """The same trial as further conditions judge it, from the strictest to the weakest."""

    @property
    def by_condition(self) -> tuple[Trial, ...]:
        """The trial as each of the search's conditions judges it."""
        return (self, *self.further)

    @property
    def is_no_bound(self) -> bool:
        """Whether it says nothing about the server if it does not hold."""
        return self.generator_limited or self.few_samples


@dataclass(frozen=True, slots=True)
class SearchFindings:
    """What the search of a plan's test found. Rates are operations per second of all clients."""

    conditions: str  # What has to hold, as the plan has it.
    ending: str
    """found, generator-limited, few-samples, all-held, none-held, budget, interrupted or failed."""
    low_per_s: float | None
    """The highest rate at which the conditions held, below every rate that failed."""
    high_per_s: float | None
    """The lowest rate at which they did not hold; None if it is unknown."""
    decided_s: float | None
    """Length of the trials behind both rates."""
    reached_per_s: float | None
    """The rate of the load without a rate, before the first trial."""
    trials: tuple[Trial, ...] = ()  # The trials, in order.
    further: tuple[SearchFindings, ...] = ()
    """What the same trials found for further conditions, from the strictest to the weakest."""
