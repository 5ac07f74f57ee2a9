"""The search for the highest rate that holds, as a key of a test: `search: {metric: rate, until: CONDITIONS}`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from leadline.errors import PlanError
from leadline.plan.base_test import BaseTest, Conflict
from leadline.plan.field_types import Items, PlanModel, Share, validation_error
from leadline.plan.source import Mark, Node
from leadline.plan.targets import Target, read_target

_AND = re.compile(r"(?:^|\s)\s*and(?=\s|$)", re.IGNORECASE)
MAX_CONDITIONS = 2
"""Rates that one search of datagrams or packets may find, as NDR and PDR."""
EXPECTED_TRIALS = 8
"""Deciding trials that a search of a steady system takes."""
_SHORT_MS = 10_000
"""The shorter trials before them, together."""


_Conditions = Annotated[
    Items[str],
    BeforeValidator(lambda value: [value] if isinstance(value, str) else value, json_schema_input_type=str | list[str]),
]


class RateSearch(PlanModel):
    """The highest rate at which all conditions hold, by MLRsearch (RFC 9971), instead of one rate."""

    metric: Literal["rate"] = "rate"
    """What is searched: the rate of the load."""
    until: _Conditions
    """The conditions: METRIC < VALUE, joined by `and`. Of two, the second a weaker form of the first, one search finds
    both rates: [lost_ratio <= 0, lost_ratio <= 0.5%] are NDR and PDR."""
    width: Annotated[Share, Field(gt=0, le=0.5)] = 0.02
    """The distance of the two rates at the end, as a share of the higher one."""


def read_conditions(text: str, test: str, kind: str) -> tuple[Target, ...]:
    """The conditions of a search.

    Raises:
        PlanError: a part is not a target, or names a figure that the kind does not have.
    """
    parts = [part.strip() for part in _AND.split(text.strip())]
    return tuple(read_target(Node(part, Mark("search.until", None)), {test: kind}) for part in parts)


def strictness(target: Target) -> float:
    """What grows as a target becomes weaker."""
    return -target.value if target.op in (">", ">=") else target.value


def is_weaker(weaker: Sequence[Target], stricter: Sequence[Target]) -> bool:
    """Whether everything that meets the stricter conditions meets the weaker ones, and not the reverse: conditions of
    the same figures, in the same order."""
    pairs = list(zip(weaker, stricter, strict=False))
    has_same = len(weaker) == len(stricter) and all(
        (own.metric, own.op) == (its.metric, its.op) and own.op != "==" for own, its in pairs
    )
    differences = [strictness(own) - strictness(its) for own, its in pairs] if has_same else []
    return has_same and min(differences) >= 0 and max(differences) > 0


def search_conflicts(
    test: BaseTest, search: RateSearch | None, rate: object, number: int | None, most: int = 1
) -> Iterator[Conflict]:
    """Conflicts of a search with other keys of its test: the key, the mistake, and the advice. `most` is how many
    conditions, and so rates, a search of this kind may have."""
    if search is None:
        return
    if rate is not None:
        yield "rate", "a search chooses the rate itself", "leave it out, or leave out search"
    if number is not None:
        yield "number", "the trials of a search end with their duration", "leave it out"
    try:
        read = [read_conditions(text, test.name, test.kind) for text in search.until]
    except PlanError as error:
        yield "search", error.message.removeprefix("target "), error.hint
        return
    if not read or len(read) > most:
        rates = "one rate" if most == 1 else f"one or {most} rates"
        yield "search", f"a search of {test.kind} finds {rates}, not {len(read)}", "search others in tests of their own"
    elif not all(is_weaker(weaker, one) for one, weaker in pairwise(read)):
        hint = "as in [lost_ratio <= 0, lost_ratio <= 0.5%]"
        yield "search", "each condition of a search is a weaker form of the one before, of the same figures", hint


def search_errors(
    test: BaseTest, search: RateSearch | None, rate: object, number: int | None, most: int = 1
) -> Iterator[PydanticCustomError]:
    """Yield the conflicts of a search as errors of a model."""
    for key, text, hint in search_conflicts(test, search, rate, number, most):
        yield validation_error(text, at=(key,), hint=hint)


def expected_ms(duration_ms: int) -> int:
    """Estimated length of a search whose deciding trials have this length."""
    return _SHORT_MS + EXPECTED_TRIALS * duration_ms
