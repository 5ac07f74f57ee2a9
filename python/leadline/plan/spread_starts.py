"""Tests whose clients start one after another, as users do, and end together. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self

from pydantic import Field
from pydantic_core import PydanticCustomError

from leadline.plan.base_test import BaseTest, Conflict
from leadline.plan.field_types import DurationOrZeroMs, rule, validation_error

LONGEST_MS = 240_000
"""A responder gives a session up that has not begun five minutes after its flows opened."""


class SpreadTest(BaseTest):
    """A test whose clients may start at different times."""

    start_spread_ms: DurationOrZeroMs = Field(default=0, validation_alias="start_spread")
    """The first part of the test, over which the clients' starts are spread evenly; all end together. Default: all
    start at once."""

    @rule
    def _spread_leaves_time(self) -> Iterator[PydanticCustomError]:
        if self.start_spread_ms > LONGEST_MS:
            yield validation_error(
                f"{self.start_spread_ms} ms is more than {LONGEST_MS} ms: then a server gives a client up",
                at=("start_spread",),
            )
        elif self.start_spread_ms and self.warmup_ms + self.start_spread_ms >= self.duration_ms:
            yield validation_error(
                f"starts over {self.start_spread_ms} ms and {self.warmup_ms} ms of warm-up leave no time of "
                f"{self.duration_ms} ms in which all clients run",
                at=("start_spread",),
                hint="raise duration",
            )
        elif self.start_spread_ms and (self.searched is not None or self.second_tool is not None):
            what = "search" if self.searched is not None else "cross-check"
            yield validation_error(f"the clients of a {what} start at once", at=("start_spread",), hint="leave it out")

    def delayed(self, delay_ms: int) -> Self:
        """The test of a client that starts later by this much, and ends with the others."""
        return self.model_copy(update={"duration_ms": self.duration_ms - delay_ms})


def spread_conflicts(test: SpreadTest) -> Iterator[Conflict]:
    """Conflicts of a test that a fleet carries in its tunnels."""
    if test.start_spread_ms:
        yield "start_spread", "the clients of a fleet start their traffic together", "use clients that are hosts"


def starts_ms(test: BaseTest, clients: Sequence[str]) -> dict[str, int]:
    """When each client starts, ms after the first one: of N clients, number n after n/N of the spread."""
    spread_ms = test.start_spread_ms if isinstance(test, SpreadTest) else 0
    return {client: spread_ms * number // len(clients) for number, client in enumerate(clients)}
