"""A constant rate, or one that changes in stages: `1000`, `1000/s`, `0:1000/10s,1000/60s`.

Owns the syntax of a rate of operations and the sum of its stages. Pure.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from leadline.plan import units
from leadline.plan.field_types import PlanModel

_MOST_PER_S = 10**9
_MOST_STAGES = 1000


class RateStage(PlanModel):
    """A stage, in which the rate changes linearly."""

    from_per_s: float
    """At its beginning."""
    to_per_s: float
    """At its end."""
    duration_ms: int
    """Length of the stage."""


Stages = tuple[RateStage, ...]


def read_rate(value: object) -> float | Stages:
    """A number per second, or stages from their text or from a list of such texts.

    Raises:
        ValueError: the part that cannot be read, and the right syntax.
    """
    if isinstance(value, list | tuple):
        return _checked(tuple(part if isinstance(part, RateStage) else _stage(part) for part in value))
    if isinstance(value, str) and ("," in value or _STAGE.fullmatch(value.strip())):
        return _checked(tuple(_stage(part) for part in value.split(",")))
    rate = _per_second(value)
    if rate == 0:
        raise ValueError("a rate must be above 0")
    return rate


def read_constant_rate(value: Any) -> float:
    """A rate without stages. Raises ValueError."""
    rate = read_rate(value)
    if isinstance(rate, tuple):
        raise ValueError("this test has one rate, not stages")
    return rate


def total_ms(stages: Stages) -> int:
    """The total length of the stages."""
    return sum(stage.duration_ms for stage in stages)


def peak_per_s(rate: float | Stages) -> float:
    """The highest rate."""
    if isinstance(rate, tuple):
        return max(max(stage.from_per_s, stage.to_per_s) for stage in rate)
    return rate


def _stage(text: object) -> RateStage:
    match = _STAGE.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"{text!r} is not a stage; write 0:1000/10s (from 0 to 1000 a second) or 1000/60s")
    first, last, duration = match.groups()
    duration_ms = units.duration_ms(duration)
    if duration_ms == 0:
        raise ValueError(f"{text!r}: a duration must be above 0")
    to_per_s = _per_second(last)
    return RateStage(
        from_per_s=to_per_s if first is None else _per_second(first), to_per_s=to_per_s, duration_ms=duration_ms
    )


def _per_second(value: Any) -> float:
    rate = float(units.per_second(value))
    if rate < 0:
        raise ValueError(f"{rate:g} is negative; a rate is not")
    if rate > _MOST_PER_S:
        raise ValueError(f"{rate:g} per second is too large; at most {_MOST_PER_S:g} per second")
    return rate


def _checked(stages: Stages) -> Stages:
    if not stages or peak_per_s(stages) == 0:
        raise ValueError("a rate must be above 0 in some stage")
    if len(stages) > _MOST_STAGES:
        raise ValueError(f"{len(stages)} stages are too many; at most {_MOST_STAGES}")
    return stages


_NUMBER = r"\d+(?:\.\d+)?\s*[kKmM]?"
_STAGE = re.compile(rf"(?:({_NUMBER})\s*:)?\s*({_NUMBER})\s*/\s*(\d.*)", re.ASCII)
_STAGES_PATTERN = rf"^((({_NUMBER})\s*:)?\s*({_NUMBER})\s*/\s*\d[^,]*,?\s*)+$"

_PER_SECOND_SCHEMA = (
    {"type": "number", "exclusiveMinimum": 0},
    {"type": "string", "pattern": r"^\d+(\.\d+)?\s*[kKmM]?(/s)?$"},
)
PerSecond = Annotated[float, BeforeValidator(read_constant_rate), WithJsonSchema({"anyOf": list(_PER_SECOND_SCHEMA)})]
PerSecondOrStages = Annotated[
    float | Stages,
    BeforeValidator(read_rate),
    WithJsonSchema(
        {
            "anyOf": [
                *_PER_SECOND_SCHEMA,
                {"type": "string", "pattern": _STAGES_PATTERN},
                {"type": "array", "minItems": 1, "items": {"type": "string", "pattern": _STAGES_PATTERN}},
            ]
        }
    ),
]
