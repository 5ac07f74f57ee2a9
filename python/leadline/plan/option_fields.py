"""The type, the limits and the default of an option, from the field of the model that it sets. Pure.

A field's value is text on a command line if its type parses text; a flag, a choice or a number otherwise. Options name
their fields by a plan's keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from leadline.plan.field_types import AS_TUPLE, Quantity

LARGEST_SHOWN_LIMIT = 10_000
"""A larger limit only catches mistakes, which the model does; in `--help` it would be noise."""


@dataclass(frozen=True, slots=True)
class OptionField:
    """What a field says about the option that sets it."""

    type: Any
    """`str`, `int`, `float`, `bool`, `list`, or the words of a choice."""
    default: Any
    """The default on a command line; None if the field has none, or an empty one."""
    least: int | None
    most: int | None
    metavar: str | None
    """The word for the value; None: that of its type."""


def option_field(model: type[BaseModel], key: str) -> OptionField:
    """What the field at a plan's key says, with dots for nested sections: `tls.verify`.

    Raises:
        KeyError: the model has no such key.
    """
    field = field_at(model, key)
    inner, metadata = _unwrapped(field.annotation, tuple(field.metadata))
    quantity = next((one for one in metadata if isinstance(one, Quantity)), None)
    kind = _type(inner, metadata)
    least, most = _limits(metadata) if kind is int else (None, None)
    return OptionField(kind, _default(field, quantity), least, most, None if quantity is None else quantity.metavar)


def field_at(model: type[BaseModel], key: str) -> FieldInfo:
    """The field at a plan's key. Raises KeyError."""
    first, _, rest = key.partition(".")
    field = {one.validation_alias or name: one for name, one in model.model_fields.items()}[first]
    if not rest:
        return field
    section, _ = _unwrapped(field.annotation, ())
    return field_at(section, rest)


def _unwrapped(annotation: Any, metadata: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """The type without None and the layers around it, and what they say of it."""
    if get_origin(annotation) is Annotated:
        inner, *more = get_args(annotation)
        return _unwrapped(inner, (*metadata, *_flat(more)))
    if get_origin(annotation) in (Union, UnionType):
        others = [one for one in get_args(annotation) if one is not NoneType]
        if len(others) == 1:
            return _unwrapped(others[0], metadata)
    return annotation, metadata


def _flat(metadata: list[Any]) -> Iterator[Any]:
    """The parts of metadata; those of a `Field(...)` are its own."""
    for one in metadata:
        yield from one.metadata if isinstance(one, FieldInfo) else (one,)


def _type(inner: Any, metadata: tuple[Any, ...]) -> Any:
    if get_origin(inner) is Literal:
        return get_args(inner)
    if AS_TUPLE in metadata:
        return list
    parses = any(isinstance(one, BeforeValidator) for one in metadata)
    return inner if inner in (bool, int, float) and not parses else str


def _limits(metadata: tuple[Any, ...]) -> tuple[int | None, int | None]:
    """The least and the largest whole number that a field takes, by `within` and by pydantic's limits; None without."""

    def known(name: str, step: int = 0) -> list[int]:
        return [limit + step for one in metadata if (limit := getattr(one, name, None)) is not None]

    least = max([*known("lowest"), *known("ge"), *known("gt", 1)], default=None)
    largest = min([*known("highest"), *known("le"), *known("lt", -1)], default=None)
    return least, largest if largest is None or largest <= LARGEST_SHOWN_LIMIT else None


def _default(field: FieldInfo, quantity: Quantity | None) -> Any:
    default = field.default
    if default in (PydanticUndefined, None, ()) or isinstance(default, BaseModel):
        return None
    return default if quantity is None else quantity.text(default)
