"""The range of a capacity search, its result, and why it ended. `mlr_search` chooses the rates.

Owns the goal's numbers (durations, width, majority) and the meaning of the bounds. Read docs/search.md first.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

WIDTH = 0.02
"""The maximum distance of the bounds at the end, as a share of the upper one."""
MAJORITY_OF = 3
"""Number of trials of the final duration per bound if they disagree; two that agree are enough."""
INITIAL_S = 1.0
"""Length of the shortest trials, which find the approximate rate."""
HEADROOM = 2.0
"""The highest rate to try, as a multiple of the rate of a closed loop over the same connections. At a rate, never
more requests are in flight than in the closed loop, so the server cannot answer a rate far above it."""
RANGE = 1e6
"""The ratio of the highest to the lowest rate: floods of batched datagrams are far above what a slow link carries."""
MAX_LENGTHENED_S = 60.0
"""A trial that has too few samples for its conditions runs longer, up to this length."""
LOW_SHARE = 0.1
"""Of the rate of a load without a rate: a search whose trials run longer has the time for trials at this rate."""
BUDGET_TRIALS = 30
"""Maximum number of trials of a search; a search of a stable server needs a third."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The range of a search, the length of its trials, and when it gives up. Rates are requests per second."""

    lowest_per_s: float
    highest_per_s: float
    initial_s: float
    final_s: float
    budget_s: float
    """When the sum of all trials' durations would exceed this, no further trial begins."""
    width: float = WIDTH
    samples: int = 0
    """How many operations the conditions need in each trial."""

    @classmethod
    def around(
        cls,
        reached_per_s: float,
        final_s: float,
        headroom: float = HEADROOM,
        width: float = WIDTH,
        *,
        samples: int = 0,
        goals: int = 1,
    ) -> Limits:
        """The limits for the rate that the load reached without a rate, and the duration of the deciding trials; of a
        search for this number of rates at once."""
        highest = headroom * reached_per_s
        initial_s = min(INITIAL_S, final_s)
        # A trial without any request gives no information, and one that cannot have its samples not enough.
        lowest = min(max(highest / RANGE, 1.0 / initial_s, samples / MAX_LENGTHENED_S), highest / 10)
        # Conditions on percentiles are often met far below what a load without a rate reaches.
        longest_s = max(final_s, _lengthened_s(samples, max(lowest, LOW_SHARE * reached_per_s)))
        budget_s = goals * BUDGET_TRIALS * (initial_s + longest_s)
        return cls(lowest, highest, initial_s, final_s, budget_s, width, samples)

    def lengthened_s(self, rate_per_s: float) -> float:
        """How long a trial at this rate lasts until it has its samples, at most `MAX_LENGTHENED_S`."""
        return _lengthened_s(self.samples, rate_per_s)


def _lengthened_s(samples: int, rate_per_s: float) -> float:
    return min(samples / rate_per_s, MAX_LENGTHENED_S)


class Ending(StrEnum):
    """Why a search ended."""

    FOUND = "found"
    GENERATOR_LIMITED = "generator-limited"
    FEW_SAMPLES = "few-samples"
    ALL_HELD = "all-held"
    NONE_HELD = "none-held"
    BUDGET = "budget"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The result of a search, requests per second."""

    ending: Ending
    low_per_s: float | None
    """The highest rate at which the conditions held, below every rate that failed."""
    high_per_s: float | None
    """The lowest rate at which the conditions failed because of the server; None if it is unknown. With
    `GENERATOR_LIMITED`, the generator could not offer the rates between the bounds; with `FEW_SAMPLES`, the trials at
    them had too few samples to fail."""
    decided_s: float | None
    """Duration of the trials behind both bounds. It is shorter than the final one if the search was interrupted, or
    if only a short trial gives the upper bound."""
    further: tuple[SearchResult, ...] = ()
    """The results for further conditions, from the strictest to the weakest."""


class Stopped(Exception):
    """Raised by a trial to end the search with the current result."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.value)
        self.ending = ending
