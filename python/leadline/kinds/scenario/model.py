"""The parameters of the `scenario` test: a file and values for its parameters, as those of `leadline scenario`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    InstanceOf,
    PlainSerializer,
    ValidationInfo,
    WithJsonSchema,
    field_serializer,
    model_validator,
)
from pydantic_core import PydanticCustomError

from leadline.errors import InputError, PlanError
from leadline.kinds.scenario.users_test import LONGEST_MS, UsersTest
from leadline.masking import HIDDEN, is_secret_name
from leadline.plan.external_inputs import PlanText, from_text
from leadline.plan.field_types import DurationMs, Items, rule, validation_error
from leadline.plan.portions import Portion

if TYPE_CHECKING:
    from leadline.scenario.conversion import Conversion
    from leadline.scenario.lower_expressions import Lowered
    from leadline.scenario.lowering import LoweredScenario
    from leadline.scenario.native import ReadScenario

_IN_A_PLAN = {"server": "127.0.0.1", "port": "8080", "scheme": "http"}
"""Stand for the run's server while a plan is checked."""
_BETWEEN_SEEDS = 0x9E37_79B9_7F4A_7C15
"""Odd and without a pattern, so that no host's seeds are near another's."""


@dataclass(frozen=True, slots=True)
class LoadedScenario:
    """A scenario that was read from a file."""

    name: str
    """The name as the user wrote it; only this is shown."""
    read: ReadScenario = field(repr=False)
    read_file: Callable[[str], bytes] = field(repr=False)
    conversion: Conversion | None = field(default=None, repr=False)
    portion: Portion | None = None
    """What one of several hosts has of it; None for all of it."""
    is_split: bool = False
    """Whether the hosts share its users and rows."""

    def lowered(self, parameters: Mapping[str, str], *, is_traced: bool = False) -> LoweredScenario:
        """The scenario for an agent; traced, each request has a `traceparent`. Raises PlanError."""
        from leadline.scenario.lowering import lower
        from leadline.scenario.tracing import with_trace

        scenario = with_trace(self.read.scenario) if is_traced else self.read.scenario
        whole = lower(scenario, self.read.root, self.read_file, parameters)
        return whole if self.portion is None else replace(whole, plan=self._part_of(whole.plan, self.portion))

    def _part_of(self, plan: Lowered, portion: Portion) -> Lowered:
        from leadline.scenario.dealing import deal_plan, multiply_plan

        return deal_plan(plan, portion) if self.is_split else multiply_plan(plan, portion.clients)


def _read_in_plan(text: str, info: ValidationInfo, given: Mapping[str, Any]) -> LoadedScenario:
    """The scenario at a path, read by the plan's reader as the test's keys say; its own files lie in its folder or
    below."""
    from leadline.scenario.files import find_scenario
    from leadline.scenario.formats import FormatOptions, read_scenario

    external = (info.context or {}).get("external")
    if external is None:
        raise ValueError("files cannot be read here")
    folder = text.folder if isinstance(text, PlanText) else Path()
    try:
        path = find_scenario(folder / text)
    except PlanError as error:
        raise ValueError(str(error)) from None

    def read_file(name: str) -> bytes:
        named = path.parent / name.replace("\\", "/")
        if given.get("any_file") is not True and not named.resolve().is_relative_to(path.parent.resolve()):
            raise ValueError(f"{name} is outside of the scenario's folder; move it there, or write any_file: true")
        content: bytes = external.file(named)
        return content

    options = FormatOptions(
        parameters=_texts(given.get("params") or {}),
        skips_scripts=given.get("scripts") == "skip",
        only_hosts=_hosts(given.get("only_host")),
        correlates=given.get("correlate") is not False,
    )
    try:
        read, conversion = read_scenario((external.scenario or external.file)(path), str(path), options, read_file)
    except PlanError as error:
        more = f" ({len(error.others)} more: `leadline convert {path}` names them)" if error.others else ""
        raise ValueError(f"{error}{more}") from None
    return LoadedScenario(str(text), read, read_file, conversion)


def _read_by_field(text: str, info: ValidationInfo) -> LoadedScenario:
    return _read_in_plan(text, info, info.data)


def _hosts(value: object) -> tuple[str, ...]:
    return tuple(str(one) for one in value) if isinstance(value, list | tuple) else ()


def _texts(value: Any) -> Any:
    return {key: str(one) for key, one in value.items()} if isinstance(value, dict) else value


ScenarioFile = Annotated[
    InstanceOf[LoadedScenario],
    from_text(LoadedScenario, _read_by_field),
    PlainSerializer(lambda loaded: loaded.name, return_type=str),
    WithJsonSchema({"type": "string"}),
]


class ScenarioTest(UsersTest):
    """Virtual users that log in, think, fetch and post, by a scenario."""

    is_divisible = True

    kind: Literal["scenario"] = "scenario"
    # The file is read by the keys above it.
    params: Annotated[dict[str, str], BeforeValidator(_texts)] = Field(default={})
    """Values of its parameters. `server`, `port` and `scheme` are the run's server, or the stack under test, unless
    given."""
    scripts: Literal["stop", "skip"] = "stop"
    """What a part that cannot run does: stop, or be left out."""
    only_host: Items[str] = ()
    """HAR: requests to these hosts alone."""
    correlate: bool = True
    """HAR: whether values that an answer gave are taken from the answer."""
    any_file: bool = False
    """Whether files outside of the scenario's folder are read too."""
    file: ScenarioFile
    """Path of the scenario: YAML, a .jmx, .har, .usr or .lrs file, or the folder of a .usr, relative to this file."""
    duration_ms: DurationMs = Field(default=LONGEST_MS, validation_alias="duration")
    """Longest time, warm-up included; default: the scenario's own."""
    trace: bool = False
    """Whether each request has a `traceparent` of its own (W3C Trace Context), by which servers' logs name it."""

    @model_validator(mode="before")
    @classmethod
    def _as_long_as_the_scenario(cls, given: Any, info: ValidationInfo) -> Any:
        """Set a duration that is not given to that of the scenario."""
        if not isinstance(given, dict) or given.keys() & {"duration", "duration_ms"}:
            return given
        try:
            file = given.get("file")
            if not isinstance(file, str | LoadedScenario):
                return given
            loaded = file if isinstance(file, LoadedScenario) else _read_in_plan(file, info, given)
            length_ms = loaded.lowered({**_IN_A_PLAN, **(given.get("params") or {})}).longest_ms
        except (ValueError, PlanError):
            return given  # the field has the error
        key = "duration" if info.context else "duration_ms"
        shown = f"{length_ms}ms" if key == "duration" else length_ms
        return given if not length_ms else {**given, "file": loaded, key: shown}

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values of parameters and variables whose names are those of secrets."""
        named = (*self.file.read.scenario.variables.items(), *self.params.items())
        return tuple(text for name, text in named if text and self._is_secret(name))

    @field_serializer("params")
    def _without_secrets(self, params: dict[str, str]) -> dict[str, str]:
        return {name: HIDDEN if self._is_secret(name) else text for name, text in params.items()}

    def _is_secret(self, name: str) -> bool:
        return name in self.file.read.scenario.secrets or is_secret_name(name)

    @property
    def own_targets(self) -> tuple[str, ...]:
        """The scenario's thresholds."""
        from leadline.kinds.scenario.targets import targets_of

        return tuple(targets_of(self.checked().thresholds)[0])

    @property
    def most_hosts(self) -> int | None:
        """The largest number of hosts that can share the scenario's users and rows."""
        from leadline.scenario.dealing import most_hosts

        return most_hosts(self.checked().plan) if self.split else None

    def dealt(self, portion: Portion, totals: frozenset[str]) -> Self:
        """The test of one host. Users of different hosts draw different random values."""
        file = replace(self.file, portion=portion, is_split=self.split)
        seed = (self.seed + portion.index * _BETWEEN_SEEDS) % 2**63 if self.split else self.seed
        return self.model_copy(update={"file": file, "seed": seed})

    def checked(self) -> LoweredScenario:
        """The scenario with values in place of the run's server."""
        return self.file.lowered({**_IN_A_PLAN, **self.params})

    @rule
    def _has_a_meaning(self) -> Iterator[PydanticCustomError]:
        from leadline.kinds.scenario.targets import targets_of

        try:
            lowered = self.checked()
            targets_of(lowered.thresholds)
        except InputError as error:
            for one in (error, *error.others):
                yield validation_error(one.message, at=("file",), hint=one.hint)
            return
        if not lowered.has_end and self.duration_ms == LONGEST_MS:
            yield validation_error("the scenario has no end", at=("duration",), hint="give a duration, as in 1m")
