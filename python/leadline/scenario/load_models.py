"""The models of a load: in the native format's short form, and in the terms of k6, Gatling and JMeter.

Records only; `arrivals` gives them their meaning. Numbers and times may hold `${param('users', 10)}`, which is
computed before the test begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, Union

from pydantic import BeforeValidator, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

from leadline.plan.field_types import Items, PlanModel, SomeItems, rule, validation_error
from leadline.plan.validation_errors import UNION_TAG
from leadline.scenario.values import Number, NumberOrForever, Rate, SingleRate, Time


class UserTarget(PlanModel):
    """A stage in which the number of users changes linearly."""

    to: Number
    """Users at its end."""
    over: Time
    """Its duration; 0: at once."""


class RateTarget(PlanModel):
    """A stage in which the rate of iterations changes linearly."""

    to: SingleRate
    """Iterations per second at its end, as 100/s, 30/m or ${rate}/m."""
    over: Time
    """Its duration; 0: at once."""
    spacing: Literal["even", "poisson"] | None = None
    """How its iterations are spaced; default: as the load's."""


class Load(PlanModel):
    """A number of users, or a rate of iterations."""

    users: Number | None = None
    """Number of users. With stages: at the start. With a rate: users that exist at the start. Default: 1; with
    stages 0; with a rate 10."""
    stages: Items[UserTarget] = ()
    """Stages of the number of users, as [{to: 20, over: 30s}]."""
    rate: Rate | None = None
    """Iterations per second, or stages, as 100/s, 30/m or 0:100/10s,100/60s."""
    rate_stages: Items[RateTarget] = ()
    """Stages of the rate, which is 0 at first, as [{to: 100/s, over: 30s}]."""
    spacing: Literal["even", "poisson"] = "even"
    """With a rate: how iterations are spaced."""
    most_users: Number | None = None
    """With a rate: users at most; default: no limit."""
    iterations: Number | None = None
    """Iterations of each user. Default: as many as there is time for."""
    total_iterations: Number | None = None
    """Iterations of all users together."""
    duration: Time | None = None
    """Time after which no iteration begins. Default: 10s, unless the number of iterations is given."""
    ramp: Time = 0
    """Time over which the users start, evenly."""
    delay: Time = 0
    """Time before the first one starts."""
    ends: Literal["iteration", "request"] = "iteration"
    """How users end, also where stages have fewer users: with their iteration, or before their next request."""
    grace: Time = "30s"
    """Time that running iterations then have; with `ends: request`, that running requests have."""

    @property
    def has_rate(self) -> bool:
        """Whether iterations are due by a rate."""
        return self.rate is not None or bool(self.rate_stages)

    @rule
    def _fits(self) -> Iterator[PydanticCustomError]:
        if self.rate is not None and self.rate_stages:
            yield validation_error("rate and rate_stages exclude each other", at=("rate_stages",), hint="remove one")
        if self.has_rate:
            if self.iterations is not None or self.total_iterations is not None:
                at = "rate" if self.rate is not None else "rate_stages"
                yield validation_error("a rate and iterations exclude each other", at=(at,), hint="give duration")
            if self.stages:
                yield validation_error("a rate has no stages of users", at=("stages",), hint="give users: N")
        elif self.most_users is not None:
            yield validation_error("most_users needs a rate", at=("most_users",), hint="add rate, or use users")
        if self.iterations is not None and self.total_iterations is not None:
            yield validation_error("iterations and total_iterations exclude each other", at=("total_iterations",))


class K6Stage(PlanModel):
    """A stage of k6."""

    target: Number
    """Users, or iterations per timeUnit, at its end."""
    duration: Time
    """Its duration."""


class K6Load(PlanModel):
    """A load by k6's options; their meaning is k6's."""

    executor: Literal[
        "shared-iterations",
        "per-vu-iterations",
        "constant-vus",
        "ramping-vus",
        "constant-arrival-rate",
        "ramping-arrival-rate",
    ]
    """k6's executor."""
    vus: Number = 1
    """Users."""
    iterations: Number = 1
    """Iterations, of all users or of each."""
    max_duration: Time = Field(default="10m", validation_alias="maxDuration")
    """Time limit of the iterations."""
    duration: Time | None = None
    """Duration."""
    stages: Items[K6Stage] = ()
    """Stages."""
    start_vus: Number = Field(default=1, validation_alias="startVUs")
    """Users at the start."""
    rate: Number | None = None
    """Iterations per timeUnit."""
    start_rate: Number = Field(default=0, validation_alias="startRate")
    """The same, at the start."""
    time_unit: Time = Field(default="1s", validation_alias="timeUnit")
    """The time that the rate is for."""
    pre_allocated_vus: Number | None = Field(default=None, validation_alias="preAllocatedVUs")
    """Users that exist at the start."""
    max_vus: Number | None = Field(default=None, validation_alias="maxVUs")
    """Users at most; default: preAllocatedVUs."""
    graceful_stop: Time = Field(default="30s", validation_alias="gracefulStop")
    """Time that running iterations have at the end."""
    graceful_ramp_down: Time = Field(default="30s", validation_alias="gracefulRampDown")
    """Time that iterations of removed users have."""
    start_time: Time = Field(default="0s", validation_alias="startTime")
    """Time before it starts."""

    @rule
    def _has_what_it_needs(self) -> Iterator[PydanticCustomError]:
        for key in _NEEDED_BY_K6.get(self.executor, ()):
            if getattr(self, key) in (None, ()):
                name = {"pre_allocated_vus": "preAllocatedVUs"}.get(key, key)
                yield validation_error(f"{self.executor} needs '{name}'", hint=f"add {name}")


_NEEDED_BY_K6 = {
    "constant-vus": ("duration",),
    "ramping-vus": ("stages",),
    "constant-arrival-rate": ("duration", "rate", "pre_allocated_vus"),
    "ramping-arrival-rate": ("stages", "pre_allocated_vus"),
}


class Injection(PlanModel):
    """One step of a Gatling injection profile."""

    at_once_users: Number | None = None
    """This many users at once."""
    ramp_users: Number | None = None
    """This many users, evenly during a time."""
    constant_users_per_sec: Number | None = None
    """Users per second."""
    ramp_users_per_sec: Number | None = None
    """Users per second at its start; `to` at its end."""
    stress_peak_users: Number | None = None
    """This many users, by a smooth step function."""
    nothing_for: Time | None = None
    """A pause."""
    constant_concurrent_users: Number | None = None
    """This many users at the same time (closed)."""
    ramp_concurrent_users: Number | None = None
    """Users at the same time at its start; `to` at its end (closed)."""
    increment_users_per_sec: Number | None = None
    """Stairs of users per second: added at each level."""
    increment_concurrent_users: Number | None = None
    """Stairs of users at the same time: added at each level (closed)."""
    times: Number | None = None
    """Stairs: number of levels."""
    each_level_lasting: Time | None = None
    """Stairs: duration of each level."""
    separated_by_ramps_lasting: Time = 0
    """Stairs: duration of the ramps between levels."""
    starting_from: Number = 0
    """Stairs: the first level; 0: the first level is one increment."""
    to: Number | None = None
    """The figure at its end."""
    during: Time | None = None
    """Its duration."""
    randomized: bool = False
    """Whether users arrive at random instants."""

    @property
    def is_closed(self) -> bool:
        """Whether it is about users at the same time."""
        closed = (self.constant_concurrent_users, self.ramp_concurrent_users, self.increment_concurrent_users)
        return any(one is not None for one in closed)

    @rule
    def _is_one(self) -> Iterator[PydanticCustomError]:
        given = [key for key in INJECTIONS if getattr(self, key) is not None]
        if len(given) != 1:
            yield validation_error("a step has one kind of injection", hint=f"use one of {', '.join(INJECTIONS)}")
        elif given[0] in STAIRS:
            for key in ("times", "each_level_lasting"):
                if getattr(self, key) is None:
                    yield validation_error(f"{given[0]} needs '{key}'", at=(given[0],), hint=f"add {key}")
        elif given[0] not in ("at_once_users", "nothing_for") and self.during is None:
            yield validation_error(f"{given[0]} needs 'during'", at=(given[0],), hint="as in during: 10s")
        elif given[0].startswith("ramp_") and given[0] != "ramp_users" and self.to is None:
            yield validation_error(f"{given[0]} needs 'to'", at=(given[0],), hint="the figure at its end")


STAIRS = ("increment_users_per_sec", "increment_concurrent_users")
INJECTIONS = (
    "at_once_users", "ramp_users", "constant_users_per_sec", "ramp_users_per_sec", "stress_peak_users", "nothing_for",
    "constant_concurrent_users", "ramp_concurrent_users", "increment_users_per_sec", "increment_concurrent_users",
)  # fmt: skip


class GatlingLoad(PlanModel):
    """A load by Gatling's injection steps."""

    inject: SomeItems[Injection]
    """The steps, one after another; all open, or all closed."""
    grace: Time = "30s"
    """Time that running iterations have at the end."""

    @rule
    def _is_open_or_closed(self) -> Iterator[PydanticCustomError]:
        closed = [one.is_closed for one in self.inject if one.nothing_for is None]
        if any(closed) and not all(closed):
            yield validation_error("open and closed steps exclude each other", at=("inject",), hint="use two groups")


class ThreadLoad(PlanModel):
    """A load by the terms of JMeter's thread group."""

    threads: Number
    """Users."""
    ramp: Time = 0
    """User i of N starts after i/N of this time."""
    loops: NumberOrForever = 1
    """Iterations of each user."""
    delay: Time = 0
    """Time before the first one starts."""
    duration: Time | None = None
    """Time after which users end; their running requests are awaited."""


class ScheduleLoad(PlanModel):
    """Users by a schedule of several ramps, as JMeter's ultimate thread group has it."""

    schedule: SomeItems[ScheduleRow]
    """Rows, whose users add."""


class ScheduleRow(PlanModel):
    """One ramp up, hold and ramp down."""

    users: Number
    """Users."""
    delay: Time = 0
    """Time before its first user starts."""
    ramp: Time = 0
    """Time over which they start."""
    hold: Time
    """Time at the full number."""
    ramp_down: Time = 0
    """Time over which they end."""


class DueLoad(PlanModel):
    """Iterations at given times."""

    due: SomeItems[Time]
    """When each iteration is due, after the start, in ascending order."""
    users: Number = 10
    """Users that exist at the start."""
    most_users: Number | None = None
    """Users at most; default: no limit."""
    grace: Time = "30s"
    """Time that running iterations have at the end."""


_BY_KEY: dict[str, type[PlanModel]] = {
    "executor": K6Load,
    "inject": GatlingLoad,
    "threads": ThreadLoad,
    "schedule": ScheduleLoad,
    "due": DueLoad,
}


def _tag_of(value: Any) -> str:
    if isinstance(value, PlanModel):
        return f"{UNION_TAG}{type(value).__name__}"
    model = next((model for key, model in _BY_KEY.items() if isinstance(value, dict) and key in value), Load)
    return f"{UNION_TAG}{model.__name__}"


def _mapping(value: object) -> object:
    if not isinstance(value, dict | PlanModel):
        raise validation_error("this is not a load", hint="write it as in {users: 10, duration: 30s} or {rate: 100/s}")
    return value


ScheduleLoad.model_rebuild()
if TYPE_CHECKING:
    AnyLoad: TypeAlias = Any
else:
    AnyLoad = Annotated[
        Union[tuple(Annotated[model, Tag(f"{UNION_TAG}{model.__name__}")] for model in (Load, *_BY_KEY.values()))],  # noqa: UP007
        Discriminator(_tag_of),
        BeforeValidator(_mapping),
    ]
