"""The base model of all plan models, and the types of their fields, which parse units on input.

A field's name contains its unit (`duration_ms`), its YAML key does not (`duration: 10s`). Code creates models by
field names and whole numbers; `validate_input` creates them from a plan, by keys. `validation_error` makes errors
about several fields.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from types import FunctionType
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError

from leadline.plan import units
from leadline.plan.external_inputs import ExternalReader
from leadline.plan.percentiles import percentile_name
from leadline.quantities import bit_rate

Model = TypeVar("Model", bound=BaseModel)
Item = TypeVar("Item")
Rule = TypeVar("Rule", bound=Callable[[Any], Iterator[PydanticCustomError]])


class PlanModel(BaseModel):
    """The base model: frozen, strict (text is not a number), without unknown keys; attribute docstrings become the
    schema."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        validate_by_name=True,
        validate_by_alias=True,
        defer_build=True,
    )

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """The JSON Schema, with the attributes' docstrings as descriptions. Only a schema needs them, and reading
        them from the source takes a quarter of a short command's time."""
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for name, text in _attribute_docstrings(cls).items():
            key = cls.model_fields[name].validation_alias or name
            if isinstance(key, str) and key in properties:
                part = properties[key]
                # A model that says the same itself needs no second description.
                if handler.resolve_ref_schema(part).get("description") != text:
                    part["description"] = text
        return schema

    @model_validator(mode="after")
    def _obeys_its_rules(self) -> Self:
        found = [one for check in _rules(type(self)) for one in check(self)]
        if len(found) > 1:
            lines = [InitErrorDetails(type=one, loc=(), input=self) for one in found]
            raise ValidationError.from_exception_data(type(self).__name__, lines)
        if found:
            raise found[0]
        return self


def rule(check: Rule) -> Rule:
    """Marks a method of a `PlanModel` that yields an error for each conflict between its fields.

    All rules run, so that the user sees all errors; a pydantic validator would end at the first.
    """
    check.__dict__["is_rule"] = True
    return check


def _attribute_docstrings(model: type[BaseModel]) -> dict[str, str]:
    """The text under each field of a model and of those that it is derived from, whose own texts count less."""
    found: dict[str, str] = {}
    for one in reversed(model.__mro__):
        if not (issubclass(one, PlanModel) and one is not PlanModel):
            continue
        definition = _classes_of(one.__module__).get(one.__qualname__)
        # A class that was made by code has no source.
        for field, text in pairwise(definition.body if definition is not None else ()):
            match field, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(words))):
                    found[name] = inspect.cleandoc(words)
    return {name: words for name, words in found.items() if name in model.model_fields}


@cache
def _classes_of(module: str) -> dict[str, ast.ClassDef]:
    """The classes that a module defines, by their qualified names. `inspect` would parse the module for each of them
    again."""
    try:
        return dict(_classes_in(ast.parse(inspect.getsource(sys.modules[module])), ""))
    except (KeyError, OSError, TypeError):
        return {}


def _classes_in(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.ClassDef]]:
    for child in ast.iter_child_nodes(node):
        inside = prefix
        if isinstance(child, ast.ClassDef):
            yield prefix + child.name, child
            inside = f"{prefix}{child.name}."
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            inside = f"{prefix}{child.name}.<locals>."
        if isinstance(child, ast.stmt):
            yield from _classes_in(child, inside)


@cache
def _rules(model: type[BaseModel]) -> tuple[Callable[[BaseModel], Iterator[PydanticCustomError]], ...]:
    return tuple(
        check
        for parent in reversed(model.__mro__)
        for check in vars(parent).values()
        if isinstance(check, FunctionType) and "is_rule" in vars(check)
    )


def validate_input(model: type[Model], data: object, external: ExternalReader | None = None) -> Model:
    """Parse the user's input: only YAML keys are allowed, and a duration without a unit is in seconds.

    `external` reads the files and secrets that it refers to; without it, references are errors.

    Raises:
         pydantic.ValidationError: `leadline.plan.validation_errors` converts it to one line.
    """
    context = {**_WRITTEN_BY_A_USER, "external": external}
    return model.model_validate(data, context=context, by_alias=True, by_name=False)


def written_by_a_user(info: ValidationInfo) -> bool:
    """Whether `validate_input` parses the model, rather than code creating it."""
    return info.context is not None and info.context.get("written_by") == "user"


def validation_error(text: str, *, at: tuple[str | int, ...] = (), hint: str | None = None) -> PydanticCustomError:
    """An error for validators to raise; `at` is the place relative to the model."""
    return PydanticCustomError("plan", "{text}", {"text": text, "at": at, "hint": hint})


@dataclass(frozen=True, slots=True, kw_only=True)
class Within(AfterValidator):
    """Checks the limits of a field, and says what they are."""

    lowest: float
    highest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity(BeforeValidator):
    """Parses a quantity from text with its unit, and says how such text is written."""

    text: Callable[[int], str]
    """The text of a value, as a user would write it."""
    metavar: str
    """The word for such text in `--help`."""


def within(lowest: float, highest: float, unit: str, why: str = "") -> Within:
    """The limits of a field, with units in the message, which pydantic's lack; `why` names the source of the
    limits."""

    def check(value: Any) -> Any:
        reason = f" ({why})" if why else ""
        if value < lowest:
            raise ValueError(
                f"{_bounded_text(value, unit)} is too small; at least {_bounded_text(lowest, unit)}{reason}"
            )
        if value > highest:
            raise ValueError(
                f"{_bounded_text(value, unit)} is too large; at most {_bounded_text(highest, unit)}{reason}"
            )
        return value

    return Within(check, lowest=lowest, highest=highest)


def _parsed(parse: Callable[[Any], int | float], metavar: str, text: Callable[[Any], str] = str) -> Quantity:
    def read(value: Any, info: ValidationInfo) -> int | float:
        in_code = not written_by_a_user(info)
        if in_code and isinstance(value, int | float) and not isinstance(value, bool):
            return value
        return parse(value)

    return Quantity(read, text=text, metavar=metavar)


def _figure(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"


def _bounded_text(value: float, unit: str) -> str:
    """A value that is out of its limits, or a limit; rates as people write them."""
    return bit_rate(value) if unit == _BIT_RATE else f"{_figure(value)}{unit}"


def _above_zero(what: str) -> AfterValidator:
    def check(value: Any) -> Any:
        if value <= 0:
            raise ValueError(f"{what} must be above 0")
        return value

    return AfterValidator(check)


def _as_tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _label(value: str) -> str:
    if "{" in value:
        raise validation_error(
            "the name of a test must be the same in every case", hint="tables show the axes beside it"
        )
    if _LABEL.fullmatch(value) is None:
        raise ValueError(
            f"{value!r} is not a name; use letters, digits, '-' and '_' (at most 64, a letter or digit first)"
        )
    return value


def _everyone(value: object) -> object:
    return None if value == "all" else value


def _quantity(pattern: str, number: str = "integer") -> dict[str, Any]:
    return {"anyOf": [{"type": number, "minimum": 0}, {"type": "string", "pattern": pattern}]}


_WRITTEN_BY_A_USER = {"written_by": "user"}
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", re.ASCII)
_BIT_RATE = " bit/s"
_RATE = r"^\d+(\.\d+)?\s*[kKmMgGtT]?([bB]it(/s|ps)?|b/s|bps)?$"
_SIZE = r"^\d+(\.\d+)?\s*([kKmMgGtT]?i?B)?$"
DURATION_PATTERN = r"^(\d+(\.\d+)?|(\d+(\.\d+)?\s*(us|µs|ms|min|s|m|h)\s*)+)$"
_SHARE = r"^\d+(\.\d+)?\s*%$"
_DURATION_SCHEMA: dict[str, Any] = {"type": ["number", "string"], "exclusiveMinimum": 0, "pattern": DURATION_PATTERN}
_DURATION_OR_ZERO_SCHEMA: dict[str, Any] = {"type": ["number", "string"], "minimum": 0, "pattern": DURATION_PATTERN}
_LONGEST_MS = 24 * 3600 * 1000

SizeBytes = Annotated[int, _parsed(units.size_bytes, "SIZE", units.size_text), WithJsonSchema(_quantity(_SIZE))]
SMALLEST_UDP_PAYLOAD_BYTES = 40
"""Size of the measurement header: session, flow, sequence number, due time and send time."""
LARGEST_UDP_PAYLOAD_BYTES = 65507
"""65535 minus the headers of IPv4 (20) and UDP (8)."""
UdpPayload = Annotated[
    SizeBytes,
    within(SMALLEST_UDP_PAYLOAD_BYTES, LARGEST_UDP_PAYLOAD_BYTES, " bytes", "by the measurement header and by UDP"),
]
RateBps = Annotated[
    int,
    _parsed(units.rate_bps, "RATE"),
    _above_zero("a rate"),
    within(0, 10**15, _BIT_RATE),
    WithJsonSchema(_quantity(_RATE, "number")),
]
DurationMs = Annotated[
    int,
    _parsed(units.duration_ms, "TIME", units.duration_text),
    _above_zero("a duration"),
    within(0, _LONGEST_MS, " ms", "one day"),
    WithJsonSchema(_DURATION_SCHEMA),
]
DurationOrZeroMs = Annotated[
    int,
    _parsed(units.duration_ms, "TIME", units.duration_text),
    within(0, _LONGEST_MS, " ms", "one day"),
    WithJsonSchema(_DURATION_OR_ZERO_SCHEMA),
]
PeriodMs = Annotated[
    int,
    _parsed(units.duration_ms, "TIME", units.duration_text),
    within(10, 60_000, " ms"),
    WithJsonSchema({**_DURATION_SCHEMA, "maximum": 60}),
]
DelayUs = Annotated[
    int,
    _parsed(units.duration_us, "TIME", "{}us".format),
    within(0, 10_000_000, " µs", "ten seconds"),
    WithJsonSchema(_DURATION_OR_ZERO_SCHEMA),
]
Share = Annotated[
    float,
    _parsed(units.fraction, "SHARE", units.share_text),
    Field(ge=0),
    WithJsonSchema({"anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": _SHARE}]}),
]
Count = Annotated[int, Field(ge=1, le=10_000)]
Total = Annotated[int, Field(ge=1, le=10**12)]
Label = Annotated[str, AfterValidator(_label), Field(json_schema_extra={"pattern": f"^{_LABEL.pattern}$"})]
Percentile = Annotated[
    str,
    BeforeValidator(percentile_name),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 100},
                {"type": "string", "pattern": r"^(p\d{1,9}|\d{1,2}(\.\d{1,7})?)$"},
            ]
        }
    ),
]
IpVersion = Literal[4, 6]
Clients = Annotated[
    Annotated[int, Field(ge=1)] | None,
    BeforeValidator(_everyone),
    WithJsonSchema({"anyOf": [{"enum": ["all", None]}, {"type": "integer", "minimum": 1}]}),
]
AS_TUPLE = BeforeValidator(_as_tuple)
"""Reads a list; a field with another parser is read from one text."""
Items = Annotated[tuple[Item, ...], AS_TUPLE]
SomeItems = Annotated[tuple[Item, ...], Field(min_length=1), AS_TUPLE]
