"""The search for the highest rate that holds, as a key of a test: `search: {metric: rate, until: CONDITIONS}`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field
from pydantic_core import PydanticCustomError

from leadline.errors import PlanError
from leadline.plan.base_test import BaseTest, Conflict
from leadline.plan.field_types import PlanModel, Share, validation_error
from leadline.plan.source import Mark, Node
from leadline.plan.targets import Target, read_target

_AND = re.compile(r"(?:^|\s)\s*and(?=\s|$)", re.IGNORECASE)
EXPECTED_TRIALS = 8
"""Deciding trials that a search of a steady system takes."""
_SHORT_MS = 10_000
"""The shorter trials before them, together."""


class RateSearch(PlanModel):
    """The highest rate at which all conditions hold, by MLRsearch (RFC 9971), instead of one rate."""

    metric: Literal["rate"] = "rate"
    """What is searched: the rate of the load."""
    until: str
    """The conditions: METRIC < VALUE, joined by `and`."""
    width: Annotated[Share, Field(gt=0, le=0.5)] = 0.02
    """The distance of the two rates at the end, as a share of the higher one."""


def read_conditions(text: str, test: str, kind: str) -> tuple[Target, ...]:
    """The conditions of a search.

    Raises:
        PlanError: a part is not a target, or names a figure that the kind does not have.
    """
    parts = [part.strip() for part in _AND.split(text.strip())]
    return tuple(read_target(Node(part, Mark("search.until", None)), {test: kind}) for part in parts)


def search_conflicts(test: BaseTest, search: RateSearch | None, rate: object, number: int | None) -> Iterator[Conflict]:
    """Conflicts of a search with other keys of its test: the key, the mistake, and the advice."""
    if search is None:
        return
    if rate is not None:
        yield "rate", "a search chooses the rate itself", "leave it out, or leave out search"
    if number is not None:
        yield "number", "the trials of a search end with their duration", "leave it out"
    try:
        read_conditions(search.until, test.name, test.kind)
    except PlanError as error:
        yield "search", error.message.removeprefix("target "), error.hint


def search_errors(
    test: BaseTest, search: RateSearch | None, rate: object, number: int | None
) -> Iterator[PydanticCustomError]:
    """Yield the conflicts of a search as errors of a model."""
    for key, text, hint in search_conflicts(test, search, rate, number):
        yield validation_error(text, at=(key,), hint=hint)


def expected_ms(duration_ms: int) -> int:
    """Estimated length of a search whose deciding trials have this length."""
    return _SHORT_MS + EXPECTED_TRIALS * duration_ms
