"""The models of a scenario's steps in the native format, and which key makes a mapping which step.

Steps nest; `Step` is their union. Records only: `lowering` gives them their meaning for the agent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, Union

from pydantic import BeforeValidator, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

from leadline.plan.field_types import Items, PlanModel, SomeItems, rule, validation_error
from leadline.plan.source import did_you_mean, nearest
from leadline.plan.validation_errors import UNION_TAG
from leadline.scenario.request_models import ELEMENTS, METHODS, RateTarget, RequestFields, Scope, Wait
from leadline.scenario.values import Condition, Name, Number, NumberOrForever, PlainText, Tags, Text, Time


class BaseStep(PlanModel):
    """What every step can have."""

    name: Text | None = None
    """Its name in results and in messages."""
    tags: Tags = Field(default={})
    """Tags of the requests and transactions in it, for thresholds and results, as in {team: shop}."""


class RequestStep(RequestFields):
    """One HTTP request: `get: /path`, or `url` and `method`."""

    name: Text | None = None
    """Its name in results; default: method and path."""
    tags: Tags = Field(default={})
    """Its tags, for thresholds and results, as in {team: shop}."""
    before: Items[Step] = ()
    """Steps without requests (set, count, next, cookie, lua) just before it is sent."""
    after: Items[Step] = ()
    """Such steps after its answer was read and its values were extracted."""


class SequenceStep(BaseStep):
    """Steps in order, under one name."""

    steps: Items[Step]
    """The steps."""


class ParallelStep(BaseStep):
    """Requests that are sent at the same time, as browsers do."""

    parallel: SomeItems[Step]
    """The requests."""
    connections: Annotated[int, Field(ge=1, le=256)] = 6
    """Requests in flight at most."""


class TransactionStep(BaseStep):
    """Steps that are timed together."""

    transaction: Text
    """Its name in results."""
    steps: Items[Step] = ()
    """The steps."""
    with_waits: bool = False
    """Whether its time contains its waits."""
    hide_requests: bool = False
    """Whether results show only the transaction and not its requests."""


class RepeatStep(BaseStep):
    """Steps that are repeated a number of times, or for ever."""

    repeat: NumberOrForever
    """The number of passes, or `forever`."""
    steps: Items[Step]
    """The steps."""
    index: Name | None = None
    """Variable with the number of the pass, from 0."""


class WhileStep(BaseStep):
    """Steps that are repeated as long as a condition holds; it is tested before each pass."""

    while_: Condition = Field(validation_alias="while")
    """The condition, as in: token == '' && tries < 5."""
    steps: Items[Step]
    """The steps."""
    index: Name | None = None
    """Variable with the number of the pass, from 0."""


class DuringStep(BaseStep):
    """Steps that are repeated for a time."""

    during: Time
    """The time after which no further pass begins."""
    steps: Items[Step]
    """The steps."""
    index: Name | None = None
    """Variable with the number of the pass, from 0."""


class ForEachStep(BaseStep):
    """Steps for each value of a list: the variables LIST_1, LIST_2 ... that an extractor has set."""

    for_each: Name
    """Name of the list."""
    as_: Name = Field(validation_alias="as")
    """Variable that has the value."""
    steps: Items[Step]
    """The steps."""
    start: Number = 0
    """Number before the first one."""
    end: Number | None = None
    """Number of the last one; null: until one is missing."""
    underscore: bool = True
    """Whether '_' stands between the list's name and the number."""
    index: Name | None = None
    """Variable with the number of the pass, from 0."""


class IfStep(BaseStep):
    """Steps for a condition that holds, and others if it does not."""

    if_: Condition = Field(validation_alias="if")
    """The condition, as in: status == 200 || user != 'guest'."""
    then: Items[Step]
    """Steps if it holds."""
    else_: Items[Step] = Field(default=(), validation_alias="else")
    """Steps if it does not hold."""


class SwitchStep(BaseStep):
    """The steps of the case that a text names."""

    switch: Text
    """The text: a case's name, or its number from 0."""
    cases: dict[str, Items[Step]]
    """Steps by name."""
    default: Items[Step] = ()
    """Steps if no case has the name."""


class WeightedPart(PlanModel):
    """One of several alternatives."""

    weight: Annotated[float, Field(gt=0)] = 1.0
    """Its weight beside the others' weights."""
    name: Text | None = None
    """Its name."""
    steps: Items[Step]
    """The steps."""


class WeightedStep(BaseStep):
    """One of several alternatives, at random by weight."""

    weighted: SomeItems[WeightedPart]
    """The alternatives."""


class RandomOneStep(BaseStep):
    """One of its steps, at random."""

    random_one: SomeItems[Step]
    """The alternatives."""


class RandomOrderStep(BaseStep):
    """All of its steps, in random order."""

    random_order: SomeItems[Step]
    """The steps."""


class InterleaveStep(BaseStep):
    """One of its steps in each pass, in turn."""

    interleave: SomeItems[Step]
    """The alternatives."""
    shared: bool = False
    """Whether all users share the turn."""


class OnceStep(BaseStep):
    """Steps in the first pass of the loop around it only: once per user, outside of other loops."""

    once: Items[Step]
    """The steps."""


class QuotaStep(BaseStep):
    """Steps in a share of the passes, spread evenly, or in a number of them."""

    percent: Number | None = None
    """Share of the passes in percent."""
    at_most: Number | None = None
    """Number of passes."""
    steps: Items[Step]
    """The steps."""
    per_user: bool = False
    """Whether each user counts alone."""

    @rule
    def _has_one(self) -> Iterator[PydanticCustomError]:
        if self.percent is not None and self.at_most is not None:
            yield validation_error("percent and at_most exclude each other", at=("at_most",), hint="remove one")


class WaitStep(BaseStep):
    """A pause: a time, or a distribution."""

    wait: Wait
    """The time, as in 1s, {uniform: [1s, 3s]}, {normal: [2s, 500ms]} or {poisson: 1s}."""


class PaceStep(BaseStep):
    """Waits until a time has passed since the user was last here, or since its iteration began."""

    pace: Time
    """The time."""


class ThroughputStep(BaseStep):
    """Waits so that passes through here are not more frequent than this."""

    throughput: Number
    """Passes per minute; with stages: at the start."""
    stages: Items[RateTarget] = ()
    """How the rate changes since the test's start, as [{to: 600, over: 30s}]; it stays after the last stage."""
    scope: Scope = "user"
    """Whose passes count."""
    spacing: Literal["even", "poisson"] = "even"
    """How the passes are spread."""


class MeetStep(BaseStep):
    """Waits until several users are here."""

    meet: PlainText
    """Name of the place."""
    users: Number = 0
    """Number of users; 0: all of the group."""
    timeout: Time = 0
    """Longest wait; 0: for ever."""


class SetStep(BaseStep):
    """Gives variables values."""

    set: dict[Name, Text | None]
    """Values by name; null removes one."""
    shared: bool = False
    """Whether all users share them."""


class CountStep(BaseStep):
    """Gives a variable the next number."""

    count: Name
    """The variable."""
    start: Number = 0
    """First number."""
    step: Number = 1
    """Added each time."""
    most: Number | None = None
    """After it the first one follows."""
    counter: PlainText | None = None
    """Steps with this name count together; default: the variable's."""
    format: str | None = None
    """Zeros for the least number of digits, as in 000."""
    per_user: bool = False
    """Whether each user counts alone."""


class NextStep(BaseStep):
    """Takes the next row of a data source whose `advance` is `explicit`."""

    next: PlainText
    """Name of the source."""


class StopStep(BaseStep):
    """Ends something."""

    stop: Literal["iteration", "loop", "pass", "user", "test", "test-now"]
    """iteration, loop (the innermost), pass (of the innermost loop), user, test, test-now (cuts requests)."""


class OutcomeStep(BaseStep):
    """Says that a transaction around it has passed or failed, whatever its requests did."""

    outcome: Literal["passed", "failed"]
    """What it says."""
    of: Text | None = None
    """Name of the transaction; default: the innermost one."""


class CookieStep(BaseStep):
    """Puts a cookie into the user's jar."""

    cookie: Text
    """Its name."""
    value: Text = ""
    """Its value; an empty one removes the cookie."""
    domain: Text
    """Its domain."""
    path: Text = "/"
    """Its path."""


class LuaStep(BaseStep):
    """A body in Lua, which reads and sets variables with vars.NAME."""

    lua: str
    """The text."""


_BY_KEY: dict[str, type[PlanModel]] = {
    **dict.fromkeys((*METHODS, "url", *ELEMENTS), RequestStep),
    "parallel": ParallelStep,
    "transaction": TransactionStep,
    "repeat": RepeatStep,
    "while": WhileStep,
    "during": DuringStep,
    "for_each": ForEachStep,
    "if": IfStep,
    "switch": SwitchStep,
    "weighted": WeightedStep,
    "random_one": RandomOneStep,
    "random_order": RandomOrderStep,
    "interleave": InterleaveStep,
    "once": OnceStep,
    "percent": QuotaStep,
    "at_most": QuotaStep,
    "wait": WaitStep,
    "pace": PaceStep,
    "throughput": ThroughputStep,
    "meet": MeetStep,
    "set": SetStep,
    "count": CountStep,
    "next": NextStep,
    "stop": StopStep,
    "outcome": OutcomeStep,
    "cookie": CookieStep,
    "lua": LuaStep,
    "steps": SequenceStep,
}
"""The key that makes a mapping a step of which kind, in the order in which they are looked for."""


def _with_known_key(value: object) -> object:
    if isinstance(value, PlanModel):
        return value
    if not isinstance(value, dict):
        raise validation_error("this is not a step", hint="write it as in '- get: /path' or '- wait: 1s'")
    if _tag_of(value) is None:
        word = next((key for key in value if nearest(str(key), _BY_KEY)), next(iter(value), ""))
        text = f"no known step has the key '{word}'" if word else "the step is empty"
        raise validation_error(text, hint=did_you_mean(str(word), _BY_KEY))
    return value


def _tag_of(value: Any) -> str | None:
    if isinstance(value, PlanModel):
        return f"{UNION_TAG}{type(value).__name__}"
    model = next((model for key, model in _BY_KEY.items() if key in value), None)
    return None if model is None else f"{UNION_TAG}{model.__name__}"


STEP_MODELS = tuple(dict.fromkeys(_BY_KEY.values()))
"""The models of all steps."""
if TYPE_CHECKING:
    Step: TypeAlias = Any
else:
    Step = Annotated[
        Union[tuple(Annotated[model, Tag(f"{UNION_TAG}{model.__name__}")] for model in STEP_MODELS)],  # noqa: UP007
        Discriminator(_tag_of),
        BeforeValidator(_with_known_key),
    ]

_REBUILT: tuple[type[PlanModel], ...] = (*STEP_MODELS, WeightedPart)
for _model in _REBUILT:
    _model.model_rebuild()
