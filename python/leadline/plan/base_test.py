"""What every test of a plan has: its name, its clients, its length. Each kind adds what it needs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Self

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
"""Phases of a trial; a test of the same name could not be distinguished from one in a journal."""


Conflict = tuple[str, str, str | None]
"""A key of a test, what is wrong with it, and what would be right."""


class BaseTest(PlanModel):
    """The parameters that every kind of test has. A kind adds its own, and overrides what it does differently."""

    if TYPE_CHECKING:
        kind: str  # A field of each kind's model, behind those of this one.

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
        """Estimated duration, as far as it is known."""
        return self.duration_ms

    @property
    def longest_ms(self) -> int:
        """How long it may take."""
        return self.duration_ms

    @property
    def secrets(self) -> tuple[str, ...]:
        """Texts that stand in nothing that is kept."""
        return ()

    @property
    def needs_https(self) -> bool:
        """Whether the run's server answers this test over TLS."""
        return False

    @property
    def needs_fleet(self) -> bool:
        """Whether only a fleet's clients can do it."""
        return False

    def with_fleet(self, clients: int) -> Self:
        """The test of a fleet of this many clients, where the test itself does not give the number."""
        return self

    def fleet_conflicts(self, clients: int) -> Iterator[Conflict]:
        """Keys that a fleet of this many clients cannot obey."""
        yield "kind", f"a fleet's clients cannot carry {self.kind} tests", "use tunnel, udp or tcp"

    def server_conflicts(self) -> Iterator[Conflict]:
        """Keys that the run's own server cannot obey."""
        yield from ()

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


def carried_conflicts(test: BaseTest, flows: int) -> Iterator[Conflict]:
    """Keys of a test with flows that a fleet carries through its tunnels: each client has one flow."""
    if test.clients is not None:
        yield "clients", "a fleet's clients all take part", "leave it out"
    if flows != 1:
        yield "flows", "a fleet's clients have one flow each", "leave it out, and give the fleet more clients"
