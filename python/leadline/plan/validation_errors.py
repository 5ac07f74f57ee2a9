"""Converts pydantic's errors to lines for the user: file and line of the plan, the mistake, and the advice.

All errors are reported except those that another one explains: a key that is missing because it is misspelt, a list
that is too short because its only item is wrong. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from leadline.errors import PlanError
from leadline.plan.clients import CLIENTS_TAGS
from leadline.plan.open_union import OpenUnion
from leadline.plan.repeats import REPEAT_TAGS
from leadline.plan.source import Location, Mark, Node, did_you_mean, name_of, nearest, walk

UNION_TAG = "@"
"""Begins the tag of a union's member that has no `kind`; the model's name follows."""


def plan_errors(
    error: ValidationError, model: type[BaseModel], root: Node, *, meant: Iterable[str] = (), is_partial: bool = False
) -> list[PlanError]:
    """All errors of a validation of `root` against `model`, unknown keys first.

    `meant` are keys of the root that the user has misspelt; they are not reported as missing. A partial root may lack
    keys, and its placeholders have unknown values, so only errors that do not depend on these are reported.
    """
    findings = [_Finding(details, model, root) for details in error.errors(include_url=False)]
    explained = {((), key) for key in meant} | {(one.path, one.meant) for one in findings}
    faulty = [one.path for one in findings if one.type != "too_short"]
    shown = [
        one
        for one in findings
        if not (one.type == "missing" and (one.path, one.key) in explained)
        and not (one.type == "too_short" and any(path[: len(one.place)] == one.place for path in faulty))
        and not (is_partial and one.needs_the_whole)
    ]
    return [one.as_plan_error() for one in sorted(shown, key=lambda one: one.type != "extra_forbidden")]


def keys_of(model: type[BaseModel]) -> list[str]:
    """The YAML keys of a model."""
    return [str(field.validation_alias or name) for name, field in model.model_fields.items()]


def value_error_text(details: Any) -> tuple[str, str | None] | None:
    """What is wrong with a value of the wrong type or beyond a limit, and the advice; None for any other mistake."""
    shown, context = _shown(details["input"]), details.get("ctx", {})
    if details["type"] in _KINDS_OF_VALUE:
        return f"{shown} is not {_KINDS_OF_VALUE[details['type']]}", None
    for name, words in _LIMITS.items():
        if name in context:
            return f"{shown} is not possible", f"{words} {context[name]}"
    return None


class _Finding:
    """One of pydantic's errors, located in the tree and in the models."""

    def __init__(self, details: Any, model: type[BaseModel], root: Node) -> None:
        self._details = details
        self.type: str = details["type"]
        self.input: Any = details["input"]
        self.context: dict[str, Any] = details.get("ctx", {})
        self.message: str = details["msg"]
        location: Location = (*details["loc"], *self.context.get("at", ()))
        self.path, self.key, self.keys = _place(location, model, root)
        self.node = root.at(self.place)
        self.label = _label(self.place, root)
        self.parent = _label(self.path, root)

    @property
    def place(self) -> Location:
        """The full path of the error."""
        return (*self.path, self.key) if self.key is not None else self.path

    @property
    def meant(self) -> str | None:
        """The key that an unknown one was probably meant to be."""
        return nearest(str(self.key), self.keys) if self.type == "extra_forbidden" else None

    @property
    def needs_the_whole(self) -> bool:
        """Whether values from axes could make this valid."""
        return self.type in _OF_THE_WHOLE or any("{" in str(below.value) for below in walk(self.node))

    def as_plan_error(self) -> PlanError:
        mark: Mark = self.node.mark
        if self.type == "extra_forbidden":
            within = f" in {self.parent}" if self.parent else ""
            return mark.error(
                f"unknown key '{_one_line(str(self.key))}'{within}", hint=did_you_mean(str(self.key), self.keys)
            )
        if self.type == "union_tag_not_found" and (misspelt := _near_kind(self.node)) is not None:
            entry = self.node.mapping[misspelt]
            return entry.mark.error(f"unknown key '{misspelt}' in {self.label}", hint="did you mean 'kind'?")
        if self.type == "missing":
            return mark.error(f"{self.parent}: '{self.key}' is missing" if self.parent else f"'{self.key}' is missing")
        text, hint = self._words()
        return mark.error(f"{self.label}: {text}" if self.label else text, hint=hint)

    def _words(self) -> tuple[str, str | None]:
        """The mistake and the advice."""
        shown = _shown(self.input)
        options = _options(self.context, self.keys)
        match self.type:
            case "plan":
                words = self.context["text"], self.context["hint"]
            case "value_error":
                words = str(self.context["error"]), None
            case "union_tag_not_found":
                words = "'kind' is missing", f"there is {', '.join(options)}"
            case "union_tag_invalid":
                words = (
                    f"unknown kind '{_one_line(str(self.context['tag']))}'",
                    did_you_mean(str(self.context["tag"]), options),
                )
            case "literal_error":
                words = f"{shown} is not possible", did_you_mean(str(self.input), options)
            case "too_short":
                words = "the list is empty", "give it at least one item, or remove it"
            case "tuple_type" if not isinstance(self.input, dict):
                words = f"{shown} is not a list", f"write [{shown}]"
            case _:
                words = value_error_text(self._details) or (self.message, None)
        return words


def _place(location: Location, model: type[BaseModel], root: Node) -> tuple[Location, str | int | None, list[str]]:
    """Split pydantic's location into the path of the parent and the last key, with the keys that the parent accepts.

    pydantic's locations contain the chosen member of a union, which is not a key of the YAML. Following the models
    beside the tree distinguishes such a part from a key.
    """
    path: list[str | int] = []
    known: type[BaseModel] | None = model
    choices: list[type[BaseModel]] = []
    keys: list[str] = []
    names_entry = False
    for part in location:
        if part in CLIENTS_TAGS | REPEAT_TAGS:
            continue
        chosen = next((option for option in choices if _tag_of(option) == part), None)
        if chosen is not None:
            known, choices = chosen, []
            continue
        path.append(part)
        if isinstance(part, int) or names_entry:
            names_entry = False
            continue
        keys = keys_of(known) if known else []
        field = _field(known, part) if known else None
        below = _models_of(field) if field else []
        names_entry = field is not None and get_origin(field.annotation) is dict
        known, choices = (below[0], []) if len(below) == 1 else (None, below)
    if choices:
        keys = [_tag_of(option) for option in choices]
    if not path:
        return (), None, keys_of(model)
    return tuple(path[:-1]), path[-1], keys


def _tag_of(option: type[BaseModel]) -> str:
    """The part of pydantic's locations that names a member of a union."""
    kind = option.model_fields.get("kind")
    return f"{UNION_TAG}{option.__name__}" if kind is None else str(kind.default)


def _field(model: type[BaseModel], key: str) -> Any:
    for name, field in model.model_fields.items():
        if key in (field.validation_alias, name):
            return field
    return None


def _models_of(field: FieldInfo) -> list[type[BaseModel]]:
    return _chosen_from(field.metadata) or _models_in(field.annotation)


def _models_in(annotation: object) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    arguments = get_args(annotation)
    return _chosen_from(arguments) or [model for argument in arguments for model in _models_in(argument)]


def _chosen_from(metadata: Iterable[object]) -> list[type[BaseModel]]:
    """The models of an open union in a type's metadata; empty without such a union."""
    return next((list(one.models()) for one in metadata if isinstance(one, OpenUnion)), [])


def _label(location: Location, root: Node) -> str:
    """A place as text: keys with dots, items by name or, counted from 1, by position."""
    words, node = "", root
    for part in location:
        below = node.child(part)
        if isinstance(part, int):
            name = name_of(below) if below is not None else None
            words += f".{_one_line(name)}" if name else f"[{part + 1}]"
        else:
            words += f".{_one_line(part)}" if words else _one_line(part)
        node = below if below is not None else Node(None, node.mark)
    return words


def _one_line(text: str) -> str:
    return text if text.isprintable() else ascii(text)[1:-1]


def _near_kind(node: Node) -> str | None:
    return next((key for key in node.mapping if nearest(key, ["kind"])), None)


def _options(context: dict[str, Any], kinds: list[str]) -> list[str]:
    listed = str(context.get("expected_tags") or context.get("expected") or "")
    return [word.strip(" '") for word in listed.replace(" or ", ",").split(",") if word.strip()] or kinds


def _shown(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    return repr(value)


_KINDS_OF_VALUE = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a number of this size",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "string_type": "text",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}
_OF_THE_WHOLE = frozenset({"missing", "plan", "union_tag_not_found", "too_short"})
_LIMITS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
