"""The model of a scenario in the native format, and its published JSON Schema.

Its parts are in `step_models`, `request_models` and `load_models`. The short form (a URL and a rate) is a scenario
with one group of users and one request. Records only.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from leadline.plan.field_types import Items, PlanModel, SomeItems, rule, validation_error
from leadline.scenario.load_models import AnyLoad
from leadline.scenario.request_models import Defaults, Header
from leadline.scenario.step_models import Step
from leadline.scenario.thresholds import read_threshold
from leadline.scenario.values import Name, Number, PlainText, Rate, Tags, Text, Time


class DataSource(PlanModel):
    """Rows whose columns become variables."""

    name: PlainText | None = None
    """Its name; default: the file's."""
    file: PlainText | None = None
    """Path of a CSV file, relative to this file."""
    rows: Items[Items[PlainText]] = ()
    """Rows, instead of a file."""
    columns: Items[Name] = ()
    """Variables that the columns set; default: the file's first line."""
    header: bool | None = None
    """Whether the file's first line has names. Default: if columns are not given."""
    separator: str = ","
    """Text between columns; `\\t` is a tab. Without quotation marks it may have several characters."""
    quoted: bool = True
    """Whether values may stand in quotation marks."""
    encoding: str = "utf-8"
    """The file's encoding."""
    share: Literal["all", "group", "user"] = "all"
    """Who takes rows from the same position."""
    order: Literal["sequential", "shuffled", "random", "unique"] = "sequential"
    """In which order rows are taken; unique: each user has rows of its own."""
    blank_lines: Literal["skip", "eof"] = "skip"
    """What a blank line of a file is: nothing, or a row with the text <EOF>, as in JMeter."""
    at_end: Literal["recycle", "stop-user", "stop-test", "eof"] = "recycle"
    """After the last row: the first one, the end of the user or of the test, or the text <EOF>."""
    advance: Literal["iteration", "explicit"] = "iteration"
    """When the next row is taken: in each iteration, or by a step `next`."""

    @rule
    def _has_rows(self) -> Iterator[PydanticCustomError]:
        if (self.file is None) == (not self.rows):
            yield validation_error("data has either file or rows", hint="as in file: users.csv")
        if self.rows and not self.columns:
            yield validation_error("rows need columns", at=("rows",), hint="as in columns: [user, password]")
        length = len(self.separator.replace("\\t", "\t"))
        if length == 0 or (self.quoted and length > 1):
            hint = "as in ';', or give quoted: false"
            yield validation_error("a separator is one character", at=("separator",), hint=hint)


class Group(PlanModel):
    """Users with the same flow."""

    name: PlainText
    """Its name, unique."""
    phase: Literal["setup", "main", "teardown"] = "main"
    """Whether it runs before, in or after the measured time."""
    after: Items[PlainText] = ()
    """Groups that must have ended before it begins."""
    tags: Tags = Field(default={})
    """Tags of all its requests and transactions."""
    load: AnyLoad | None = None
    """Its load; default: one user, one iteration; in `main` {users: 1, duration: 10s}."""
    base: Text | None = None
    """URL that its paths are below; default: the scenario's."""
    http: Defaults = Defaults()
    """What its requests have in common, beside the scenario's."""
    variables: dict[Name, Text] = Field(default={})
    """Variables that each user starts with."""
    on_error: Literal["continue", "next-iteration", "stop-user", "stop-test", "stop-test-now"] = "continue"
    """What a user does after a failed request."""
    new_user: bool = False
    """Whether each iteration is a new user, without variables, cookies and connections of the last one."""
    clear_cookies: bool = False
    """Whether each iteration begins with the cookies that the first one began with, those of `before`."""
    clear_cache: bool = False
    """Whether the cache is emptied when an iteration begins."""
    new_connections: bool = False
    """Whether connections are closed when an iteration begins."""
    after_stop: bool = True
    """With phase teardown: whether it also runs after the test was stopped."""
    before: Items[Step] = ()
    """Steps that a user executes once, before its first iteration."""
    flow: SomeItems[Step]
    """Steps of an iteration."""
    afterwards: Items[Step] = ()
    """Steps that a user executes once, after its last iteration."""


class ThresholdRule(PlanModel):
    """A threshold with k6's options."""

    threshold: str
    """As in p(95)<500."""
    abort_on_fail: bool = Field(default=False, validation_alias="abortOnFail")
    """Whether the test ends when it is missed."""
    delay_abort_eval: Time = Field(default=0, validation_alias="delayAbortEval")
    """Time before that may happen."""


def _threshold(value: object) -> object:
    return {"threshold": value} if isinstance(value, str) else value


def _thresholds(value: object) -> object:
    """The thresholds of each metric as a list: one text, one mapping, or several of these are given."""
    if not isinstance(value, dict):
        return value
    return {key: entry if isinstance(entry, list) else [entry] for key, entry in value.items()}


def _checked_host(text: str) -> str:
    if re.fullmatch(r"[^\s:/@]+(:[1-9]\d{0,4})?", text) is None:
        raise ValueError(f"{text!r} is not a host; write its name, as in shop.test or shop.test:8443")
    return text.lower()


def _checked_address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text.removeprefix("[").removesuffix("]")))
    except ValueError:
        raise ValueError(f"{text!r} is not an IP address") from None


HostName = Annotated[str, AfterValidator(_checked_host), WithJsonSchema({"type": "string"})]
IpAddress = Annotated[PlainText, AfterValidator(_checked_address), WithJsonSchema({"type": "string"})]


def _checked_thresholds(value: dict[str, Any]) -> dict[str, Any]:
    for metric, rules in value.items():
        for one in rules:
            read_threshold(metric, one.threshold)
    return value


class Scenario(PlanModel):
    """Virtual users: what they do, with which data, and how many."""

    name: PlainText = "scenario"
    """Name in results."""
    description: str = ""
    """Description for people."""
    get: Text | None = None
    """URL of a scenario of one GET request."""
    post: Text | None = None
    """URL of a scenario of one POST request, with `body`."""
    body: Text | None = None
    """Body of `post`."""
    headers: dict[str, Header] = Field(default={})
    """Header fields of all requests; the same as http.headers."""
    rate: Rate | None = None
    """Iterations per second; the same as load.rate."""
    users: Number | None = None
    """Users; the same as load.users."""
    iterations: Number | None = None
    """Iterations of each user; the same as load.iterations."""
    duration: Time | None = None
    """Duration; the same as load.duration."""
    base: Text | None = None
    """URL that paths are below."""
    targets: Items[PlainText] = ()
    """Origins that requests may go to; default: any. The base's is always allowed."""
    hosts: dict[HostName, IpAddress] = Field(default={})
    """Addresses by NAME or NAME:PORT, which are used instead of DNS."""
    variables: dict[Name, Text | None] = Field(default={})
    """Variables, computed once when the test begins. Values of those named password, secret or token are masked."""
    secrets: Items[Name] = ()
    """Further variables whose values are masked."""
    http: Defaults = Defaults()
    """What all requests have in common."""
    tags: Tags = Field(default={})
    """Tags of all requests and transactions; the innermost one of a name counts."""
    data: Items[DataSource] = ()
    """Data sources."""
    load: AnyLoad | None = None
    """The load of `flow`."""
    flow: Items[Step] = ()
    """Steps of an iteration."""
    groups: Items[Group] = ()
    """Groups of users, instead of `flow`."""
    serial: bool = False
    """Whether groups run one after another."""
    unset_variables: Literal["fail", "keep"] = "fail"
    """What an unset variable does: the request fails, or its placeholder stays as text, as in JMeter."""
    thresholds: Annotated[
        dict[str, Items[Annotated[ThresholdRule, BeforeValidator(_threshold)]]],
        BeforeValidator(_thresholds),
        AfterValidator(_checked_thresholds),
    ] = Field(default={})
    """Limits by metric, as http_req_duration: p(95)<500."""

    @rule
    def _has_one_flow(self) -> Iterator[PydanticCustomError]:
        ways = [key for key in ("get", "post", "flow", "groups") if getattr(self, key) not in (None, ())]
        if not ways:
            yield validation_error("nothing is asked for", hint="give get: URL, or flow: [...]")
        if len(ways) > 1:
            yield validation_error(f"{ways[0]} and {ways[1]} exclude each other", at=(ways[1],), hint="remove one")
        if self.body is not None and self.post is None:
            yield validation_error("body needs post", at=("body",), hint="as in post: URL")

    @rule
    def _has_one_load(self) -> Iterator[PydanticCustomError]:
        short = [key for key in ("rate", "users", "iterations", "duration") if getattr(self, key) is not None]
        if short and self.load is not None:
            yield validation_error(f"{short[0]} and load exclude each other", at=(short[0],), hint="move it into load")
        if self.groups and (short or self.load is not None):
            at = "load" if self.load is not None else short[0]
            yield validation_error("with groups, each group has its load", at=(at,), hint="move it into a group")
        seen: set[str] = set()
        for index, group in enumerate(self.groups):
            if group.name in seen:
                yield validation_error(
                    f"two groups are called '{group.name}'", at=("groups", index, "name"), hint="rename one"
                )
            seen.add(group.name)


def scenario_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of a scenario's YAML, for editors and checks."""
    schema = Scenario.model_json_schema(by_alias=True, mode="validation")
    definitions: dict[str, Any] = schema["$defs"]
    for definition in (schema, *definitions.values()):
        for key, value in definition.get("properties", {}).items():
            if key in _SINGLE_ALLOWED and value.get("type") == "array":
                definition["properties"][key] = _or_single(value)
    rules = schema["properties"]["thresholds"]
    one = {"anyOf": [{"type": "string"}, rules["additionalProperties"]["items"]]}
    rules["additionalProperties"] = _or_single({"items": one})
    schema["title"] = "Leadline scenario"
    found: dict[str, Any] = _with_any({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})
    return found


def _or_single(value: dict[str, Any]) -> dict[str, Any]:
    """A list, or one of its items; a status is a check."""
    items: dict[str, Any] = {"anyOf": [value["items"], {"type": "integer"}]}
    shown: dict[str, Any] = {key: value[key] for key in ("title", "description", "default") if key in value}
    return {**shown, "anyOf": [{"type": "array", "items": items}, items]}


def _with_any(value: Any) -> Any:
    """`anyOf` for `oneOf`: which step a mapping is depends on the order in which keys are looked for."""
    if isinstance(value, dict):
        return {
            "anyOf" if key == "oneOf" else key: _with_any(entry)
            for key, entry in value.items()
            if key != "discriminator"
        }
    return [_with_any(entry) for entry in value] if isinstance(value, list) else value


_SINGLE_ALLOWED = frozenset({"check", "waits", "contains", "matches", "contains_match", "equals"})
