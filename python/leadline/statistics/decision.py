"""Whether a target is met, decided on an interval."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Literal

Operator = Literal["<", "<=", ">", ">=", "=="]


class Decision(StrEnum):
    """What an interval says of a target."""

    MET = "met"
    MISSED = "missed"
    UNDECIDED = "undecided"


def decide(operator: Operator, limit: float, low: float | None, high: float | None) -> Decision:
    """Met where every value of the interval meets the target, missed where none does, otherwise undecided.

    `low` and `high` are in the unit of `limit`; a side that is not bounded is None, and may be as far away as it likes.
    A figure that is counted and not estimated (no packet was lost) is an interval from itself to itself.

    Raises:
        ValueError: the operator is unknown, or `low` is above `high`.
    """
    least, most = -math.inf if low is None else low, math.inf if high is None else high
    if least > most:
        raise ValueError(f"no value lies between {low} and {high}")
    match operator:
        case "<":
            return _decision(most < limit, least >= limit)
        case "<=":
            return _decision(most <= limit, least > limit)
        case ">":
            return _decision(least > limit, most <= limit)
        case ">=":
            return _decision(least >= limit, most < limit)
        case "==":
            return _decision(least == limit == most, limit < least or limit > most)
        case _:
            raise ValueError(f"unknown operator {operator!r}")


def _decision(is_met: bool, is_missed: bool) -> Decision:
    return Decision.MET if is_met else Decision.MISSED if is_missed else Decision.UNDECIDED
