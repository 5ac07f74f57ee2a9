"""How often a plan runs each case: a number of times, or until its figures are known well enough. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

from leadline.plan.field_types import DurationMs, PlanModel, Share, rule, validation_error

MOST_REPEATS = 1000


class RepeatUntil(PlanModel):
    """More rounds for the cases whose figures are not known well enough. Disturbed trials do not count."""

    min: Annotated[int, Field(ge=3, le=MOST_REPEATS)] = 3
    """Undisturbed trials of each case at least; of fewer than three the interval says little."""
    max: Annotated[int, Field(ge=3, le=MOST_REPEATS)] = 15
    """Trials of each case at most, disturbed ones included."""
    until: Annotated[Share, Field(gt=0, le=1)] = 0.03
    """A case is done if half of the 95 % interval of each test's leading figure, and of each figure in a target, is at
    most this share of its mean."""
    within_ms: DurationMs | None = Field(default=None, validation_alias="within")
    """No further round begins that would end later than this after the run's begin; None for no limit. The first `min`
    rounds are run whatever they take."""

    @rule
    def _bounds_are_in_order(self) -> Iterator[PydanticCustomError]:
        if self.max < self.min:
            yield validation_error(f"{self.max} is less than min ({self.min})", at=("max",), hint="raise max")


@dataclass(frozen=True, slots=True)
class PrecisionGoal:
    """How well a single command is to know its figures."""

    confidence: float = 0.95
    """Share of such intervals that contain the truth."""
    width: float = 0.05
    """Half of the interval is to be at most this share of the mean."""
    least: int = 3
    """Undisturbed repeats at least."""
    most: int = 15
    """Repeats at most, disturbed ones included."""


def _tag(value: Any) -> str:
    return _UNTIL if isinstance(value, dict | RepeatUntil) else _FIXED


_FIXED, _UNTIL = "a number of repeats", "repeats until a precision"
REPEAT_TAGS = frozenset({_FIXED, _UNTIL})
"""pydantic's names for the two forms in the locations of its errors; they are not keys of a plan."""
PlanRepeat = Annotated[
    Annotated[int, Field(ge=1, le=MOST_REPEATS), Tag(_FIXED)] | Annotated[RepeatUntil, Tag(_UNTIL)],
    Discriminator(_tag),
]
