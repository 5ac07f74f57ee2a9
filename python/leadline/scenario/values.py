"""The types of the native format's fields: templates, times and numbers that may hold `${...}`, conditions. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

from leadline.plan import units
from leadline.plan.rate import read_rate
from leadline.scenario import functions
from leadline.scenario.expressions import Call, Expression, Literal, joined

_TAG_NAME = re.compile(r"^[A-Za-z_][\w.-]{0,99}$", re.ASCII)
LONGEST_TIME = 300


def duration(text: str | int | float) -> int | Expression:
    """Microseconds of `1s` or 1; of `${think}ms` an expression in microseconds; a bare `${...}` is in seconds.

    Raises:
        ValueError: it is neither.
    """
    match = _TIME.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        if isinstance(text, str) and len(text) > LONGEST_TIME:
            raise ValueError(f"a time of {len(text)} characters is too long; write it as in 1s")
        return units.duration_us(text)
    value = joined(functions.template(match[1]))
    if isinstance(value, Literal):
        raise ValueError(f"{text!r} is not a duration; write 1s, or ${{think}}ms")
    return Call("multiply", (value, Literal(_MICROSECONDS[match[2] or "s"])))


def number(text: str | int | float) -> int | float | Expression:
    """A number, or the expression of `${...}`. Raises ValueError."""
    if not isinstance(text, str):
        return text
    value = joined(functions.template(text))
    if isinstance(value, Literal):
        return float(str(value.value)) if "." in str(value.value) else int(str(value.value))
    return value


def condition(text: str | bool) -> Expression:
    """The expression of a condition: `count < 3`, or `${count < 3}`. Raises ValueError."""
    if isinstance(text, bool):
        return Literal(text)
    stripped = text.strip()
    if stripped.startswith("${"):
        return joined(functions.template(stripped))
    return functions.expression(stripped)


def _checked_tag_name(text: str) -> str:
    if _TAG_NAME.fullmatch(text) is None:
        raise ValueError(f"{text!r} is not the name of a tag; write letters, digits, '_', '.' and '-', as in team")
    if text in ("name", "check"):
        raise ValueError(
            f"'{text}' is a tag that each {'check' if text == 'check' else 'request'} has; use another one"
        )
    return text


def _checked_tag(text: str) -> str:
    if "${" in text:
        raise ValueError(f"{text!r} is not the same for all requests; a tag has no variables")
    if not text or any(character in "{}," or not character.isprintable() for character in text):
        raise ValueError(f"{text!r} is not the value of a tag; write a text in one line, without braces and commas")
    return text


def _is_text(value: object) -> object:
    """Numbers and booleans are texts too, as YAML users expect of `user: 1`."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


def _checked_template(text: str) -> str:
    functions.template(text)
    return text


def _checked_duration(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError("this is not a duration; write 1s, or ${think}ms")
    duration(value)
    return value


def _checked_number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError("this is not a number; write 3, or ${count}")
    try:
        number(value)
    except ValueError as error:
        text = str(error)
        plain = "could not convert" in text or "invalid literal" in text
        raise ValueError(f"{value!r} is not a number; write 3, or ${{count}}" if plain else text) from None
    return value


def _number_or(*words: str) -> Any:
    """The type of a number that may also be one of these words."""

    def check(value: Any) -> Any:
        return value if value in words else _checked_number(value)

    schema = WithJsonSchema({"anyOf": [{"enum": list(words)}, {"type": ["string", "number"]}]})
    return Annotated[Any, AfterValidator(check), schema]


def rate_text(text: str | int | float) -> tuple[str, int]:
    """A rate's number, which may be `${...}`, and the seconds that it is for: `100/s`, `30/m`, `${rate}`.

    Raises:
        ValueError: it is none.
    """
    match = _RATE.fullmatch(str(text).strip())
    if match is None:
        raise ValueError(f"{text!r} is not a rate; write 100/s, 30/m, or 0:100/10s,100/60s")
    return match[1], {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600}[match[2] or ""]


def _checked_rate(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, str | int | float | list | tuple):
        raise ValueError("this is not a rate; write 100/s")
    if isinstance(value, list | tuple) or (isinstance(value, str) and _STAGES.search(value)):
        read_rate(value)
    else:
        number(rate_text(value)[0])
        if not isinstance(value, str) and value <= 0:
            raise ValueError("a rate must be above 0")
    return value


def _checked_single_rate(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError("this is not a rate; write 100/s")
    number(rate_text(value)[0])
    return value


def has_stages(value: Any) -> bool:
    """Whether a rate changes."""
    return isinstance(value, list | tuple) or (isinstance(value, str) and _STAGES.search(value) is not None)


def _checked_condition(value: Any) -> Any:
    if not isinstance(value, str | bool):
        raise ValueError("this is not a condition; write it as in: count < 3")
    condition(value)
    return value


def _checked_name(text: str) -> str:
    if VARIABLE.fullmatch(text) is None:
        raise ValueError(f"{text!r} is not a variable's name; write a text of one line without braces")
    return text


_TIME = re.compile(r"(\$\{.*\})\s*(us|µs|ms|s|min|m|h)?", re.S)
_MICROSECONDS = {
    "us": 1,
    "µs": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
}
VARIABLE = re.compile(r"[^\x00-\x1f\x7f{}]{1,200}")
_RATE = re.compile(r"(\d+(?:\.\d+)?|\$\{.*\})\s*(?:/\s*(s|m|min|h))?", re.S)
_STAGES = re.compile(r"^[^$]*/\s*\d")
_SCALAR = {"type": ["string", "number", "boolean"]}

Text = Annotated[str, BeforeValidator(_is_text), AfterValidator(_checked_template), WithJsonSchema(_SCALAR)]
"""A template."""
PlainText = Annotated[str, BeforeValidator(_is_text), WithJsonSchema(_SCALAR)]
"""A text without placeholders."""
Tags = dict[
    Annotated[str, AfterValidator(_checked_tag_name), WithJsonSchema({"type": "string", "pattern": _TAG_NAME.pattern})],
    Annotated[PlainText, AfterValidator(_checked_tag)],
]
"""Values by the names of tags, by which thresholds and figures choose requests."""
Time = Annotated[Any, AfterValidator(_checked_duration), WithJsonSchema({"type": ["string", "number"]})]
"""A duration: 1s, 500ms, or ${think}ms."""
Number = Annotated[Any, AfterValidator(_checked_number), WithJsonSchema({"type": ["string", "number"]})]
Condition = Annotated[Any, AfterValidator(_checked_condition), WithJsonSchema({"type": ["string", "boolean"]})]
Rate = Annotated[Any, AfterValidator(_checked_rate), WithJsonSchema({"type": ["string", "number", "array"]})]
"""Events per second: 100/s, 30/m, or stages as 0:100/10s,100/60s."""
SingleRate = Annotated[Any, AfterValidator(_checked_single_rate), WithJsonSchema({"type": ["string", "number"]})]
"""A rate without stages."""
Name = Annotated[str, AfterValidator(_checked_name), WithJsonSchema({"type": "string"})]
"""A variable's name."""
if TYPE_CHECKING:
    NumberOrForever: TypeAlias = Any
    MatchNumber: TypeAlias = Any
else:
    NumberOrForever = _number_or("forever")
    MatchNumber = _number_or("all", "random", "last", "count")
