"""The parameters that every test of a plan has: name, clients, duration. Each kind adds its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

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
from leadline.plan.portions import Portion, deal_amounts, most_hosts

RESERVED_NAMES = frozenset({"setup", "build", "bring-up", "tear-down"})
"""Phases of a trial; a test with such a name could not be distinguished from the phase in a journal."""


Conflict = tuple[str, str, str | None]
"""A key of a test, the mistake, and the advice."""


class BaseTest(PlanModel):
    """The parameters that every kind of test has. A kind adds its own, and overrides what differs."""

    if TYPE_CHECKING:
        kind: str  # Declared by each kind's model, after the fields of this one.

    amounts: ClassVar[tuple[str, ...]] = ()
    """The fields that say how much load a client makes."""
    rates: ClassVar[tuple[str, ...]] = ()
    """Those of the amounts that are rates."""
    is_divisible: ClassVar[bool] = False
    """Whether its load can be divided among hosts, and one host can carry that of several clients."""

    name: Label
    """Name of the test in tables, in targets and in `--set tests.NAME.key=value`."""
    clients: Clients = None
    """Number of clients that take part; null or `all`: every client."""
    ip: IpVersion = 4
    """IP version of the load itself, in the tunnel if there is one."""
    duration_ms: DurationMs = Field(default=10_000, validation_alias="duration")
    """Length of the test, warm-up included."""
    warmup_ms: DurationOrZeroMs = Field(default=0, validation_alias="warmup")
    """Time at the start whose samples are kept but not counted."""
    interval_ms: PeriodMs = Field(default=100, validation_alias="interval")
    """Time between progress figures; default: the plan's `interval`."""
    threads: Annotated[int, Field(ge=1, le=256)] = 1
    """Number of load threads per client host."""
    split: bool = False
    """Whether its rate, numbers, connections, flows, users and rows of data are those of all clients together, which
    share them. What the test does not give remains each client's own."""

    @property
    def expected_ms(self) -> int:
        """Estimated duration, as far as it is known in advance."""
        return self.duration_ms

    @property
    def longest_ms(self) -> int:
        """Maximum duration."""
        return self.duration_ms

    @property
    def searched(self) -> Any:
        """The search for the highest rate that the test stands for; None for a test at one rate."""
        return None

    @property
    def second_tool(self) -> str | None:
        """The program that repeats the test for a cross-check; None without one."""
        return None

    @property
    def secrets(self) -> tuple[str, ...]:
        """Texts that must not be written to any file."""
        return ()

    @property
    def kept_names(self) -> tuple[str, ...]:
        """Names of secrets whose values may be written all the same."""
        return ()

    @property
    def needs_https(self) -> bool:
        """Whether the run's server must answer this test over TLS."""
        return False

    @property
    def own_targets(self) -> tuple[str, ...]:
        """Targets that its own files give, beside those of the plan."""
        return ()

    @property
    def needs_fleet(self) -> bool:
        """Whether only a fleet's clients can run it."""
        return False

    def with_fleet(self, clients: int) -> Self:
        """The test for a fleet of this number of clients, unless the test itself has the number."""
        return self

    def fleet_conflicts(self, clients: int) -> Iterator[Conflict]:
        """Keys that a fleet of this number of clients does not support."""
        yield "kind", f"a fleet's clients cannot carry {self.kind} tests", "use tunnel, udp or tcp"

    @property
    def totals(self) -> frozenset[str]:
        """Its amounts that all clients share."""
        return frozenset(self.amounts) & self.model_fields_set if self.split else frozenset()

    @property
    def rate_units(self) -> Mapping[str, int]:
        """The units in which its rates are shared, by field, where they are not 1 per second."""
        return {}

    @property
    def most_hosts(self) -> int | None:
        """The largest number of hosts of which each has a share of every total; None for any number."""
        return most_hosts({name: getattr(self, name) for name in self.totals}, self.rate_units)

    def dealt(self, portion: Portion, totals: frozenset[str]) -> Self:
        """The test of one host, given which of the amounts are totals of all hosts."""
        amounts = {name: getattr(self, name) for name in self.amounts}
        return self.model_copy(update=deal_amounts(amounts, totals, self.rate_units, portion))

    def given_host_conflicts(self) -> Iterator[Conflict]:
        """Conflicts of its keys on given hosts."""
        yield from ()

    def server_conflicts(self) -> Iterator[Conflict]:
        """Keys that the run's own server does not support."""
        yield from ()

    @rule
    def _fits(self) -> Iterator[PydanticCustomError]:
        if self.name in RESERVED_NAMES:
            yield validation_error(
                f"{self.name!r} is reserved for a phase of the trial", at=("name",), hint="choose another name"
            )
        if self.warmup_ms >= self.duration_ms:
            yield validation_error(
                f"{self.warmup_ms} ms of warm-up leave no time of {self.duration_ms} ms",
                at=("warmup",),
                hint="the duration includes the warm-up",
            )

    @rule
    def _split_is_possible(self) -> Iterator[PydanticCustomError]:
        if not self.split:
            return
        if not self.is_divisible:
            hint = "leave it out: each client has the test's load"
            yield validation_error(f"a {self.kind} test cannot be split among its clients", at=("split",), hint=hint)
        if self.second_tool is not None:
            text = f"{self.second_tool} would repeat the whole load on every client"
            yield validation_error(text, at=("split",), hint="leave out cross_check, or split")


def carried_conflicts(test: BaseTest, flows: int) -> Iterator[Conflict]:
    """Conflicts of a test that a fleet carries in its tunnels: each client has one flow."""
    if test.clients is not None:
        yield "clients", "all clients of a fleet take part", "leave it out"
    if test.split:
        yield "split", "the clients of a fleet have a load each", "leave it out"
    if flows != 1:
        yield "flows", "each client of a fleet has one flow", "leave it out, and give the fleet more clients"
