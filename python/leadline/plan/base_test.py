"""What every test of a plan has: its name, its clients, its length. Each kind adds what it needs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field
from pydantic_core import PydanticCustomError

from leadline.plan.field_types import (
    Clients,
    DurationMs,
    DurationOrZeroMs,
    IpVersion,
    Label,
    PeriodMs,
    PlanModel,
    rule,
    validation_error,
)

RESERVED_NAMES = frozenset({"setup", "build", "bring-up", "tear-down"})
"""Phases of a trial; a test of the same name could not be told from one in a journal."""


class BaseTest(PlanModel):
    """The frame."""

    name: Label
    """Names the test in tables, targets and `--set tests.NAME.key=value`."""
    clients: Clients = None
    """How many clients take part; null or `all` means every one."""
    ip: IpVersion = 4
    """IP version of the load itself, inside the tunnel if there is one."""
    duration_ms: DurationMs = Field(default=10_000, validation_alias="duration")
    """How long, warm-up included."""
    warmup_ms: DurationOrZeroMs = Field(default=0, validation_alias="warmup")
    """Leading time whose figures are kept but flagged."""
    interval_ms: PeriodMs = Field(default=100, validation_alias="interval")
    """Time between progress figures; the plan's where it is not given."""
    threads: Annotated[int, Field(ge=1, le=256)] = 1
    """Generating threads per client."""

    @property
    def expected_ms(self) -> int:
        """How long it will take, as far as that can be told."""
        return self.duration_ms

    @property
    def longest_ms(self) -> int:
        """How long it may take."""
        return self.duration_ms

    @rule
    def _fits(self) -> Iterator[PydanticCustomError]:
        if self.name in RESERVED_NAMES:
            yield validation_error(
                f"{self.name!r} is the name of a trial's phase", at=("name",), hint="choose another name"
            )
        if self.warmup_ms >= self.duration_ms:
            yield validation_error(
                f"{self.warmup_ms} ms of warm-up leave nothing of {self.duration_ms} ms",
                at=("warmup",),
                hint="the duration includes the warm-up",
            )
