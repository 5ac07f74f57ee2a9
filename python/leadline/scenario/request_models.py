"""The models of a request in the native format: its parts, what is taken from its answer, and what is checked.

`RequestFields` has what a request has beside its steps; `Defaults` what a scenario or a group sets for all of its
requests. Records only.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from leadline.plan.field_types import Items, PlanModel, rule, validation_error
from leadline.scenario.values import Condition, MatchNumber, Name, Number, PlainText, Text, Time

ELEMENTS = ("link", "image", "submit")
"""Keys of a request of an element of the last page."""
METHODS = ("get", "post", "put", "delete", "patch", "head", "options")
"""Methods that are keys of a request; any other one is the value of `method`."""


def _checked_source(text: str) -> str:
    if text not in _SOURCES and not text.startswith("variable:"):
        raise ValueError(f"{text!r} is not a part of an answer; use {', '.join(_SOURCES)} or variable:NAME")
    return text


_SOURCES = ("body", "answer", "headers", "request_headers", "request_body", "url", "status", "message")


Source = Annotated[
    str,
    AfterValidator(_checked_source),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": "^(body|answer|headers|request_headers|request_body|url|status|message|variable:.+)$",
        }
    ),
]


def _checked_follow(value: Any) -> Any:
    if value is None or isinstance(value, bool) or (isinstance(value, int) and 0 <= value <= 20):
        return value
    raise ValueError(f"{value!r} is not possible; write true, false, or a number of redirects up to 20")


def _checked_size(value: Any) -> Any:
    if value is None or _SIZE.fullmatch(str(value)) is not None:
        return value
    raise ValueError(f"{value!r} is not a size; write it as in 100, or '> 100'")


_SIZE = re.compile(r"\s*(==|!=|<=|>=|<|>)?\s*\d+\s*")
_FOLLOW = WithJsonSchema({"type": ["boolean", "integer", "null"], "minimum": 0, "maximum": 20})
_SIZE_SCHEMA = WithJsonSchema({"type": ["string", "integer", "null"]})


class WaitSpec(PlanModel):
    """A distribution of times."""

    constant: Time | None = None
    """Always this time."""
    uniform: Items[Time] = ()
    """From the first time to the second one."""
    normal: Items[Time] = ()
    """Mean and standard deviation; a negative time is taken without its sign."""
    poisson: Time | None = None
    """A Poisson distribution of whole milliseconds with this mean."""
    exponential: Time | None = None
    """An exponential distribution with this mean."""
    plus: Time | None = None
    """Added to each time."""

    @rule
    def _is_one(self) -> Iterator[PydanticCustomError]:
        given = [key for key in _DISTRIBUTIONS if getattr(self, key) not in (None, ())]
        if len(given) != 1:
            yield validation_error("a wait has one distribution", hint=f"use one of {', '.join(_DISTRIBUTIONS)}")
        for key in ("uniform", "normal"):
            if given == [key] and len(getattr(self, key)) != 2:
                yield validation_error("two times are needed", at=(key,), hint=f"as in {{{key}: [2s, 500ms]}}")


_DISTRIBUTIONS = ("constant", "uniform", "normal", "poisson", "exponential")


def _wait(value: object) -> object:
    return value if isinstance(value, dict | WaitSpec) else {"constant": value}


_OR_SCALAR = {"anyOf": [{"type": ["string", "number"]}, {"type": "object"}]}
Wait = Annotated[WaitSpec, BeforeValidator(_wait), WithJsonSchema(_OR_SCALAR)]


Scope = Literal["user", "group", "all", "group-share", "all-share"]
"""Each user alone; the users of a group or of the test one after another; or each user its share of their rate."""


class RateTarget(PlanModel):
    """A stage in which the rate changes linearly."""

    to: Number
    """Passes per minute at its end."""
    over: Time
    """Its duration; 0: at once."""


class TimerThroughput(PlanModel):
    """A wait that limits how often something happens."""

    throughput: Number
    """Per minute; with stages: at the start."""
    stages: Items[RateTarget] = ()
    """How the rate changes since the test's start, as [{to: 600, over: 30s}]; it stays after the last stage."""
    name: PlainText | None = None
    """Limits of one name count together."""
    scope: Scope = "user"
    """Whose passes count."""
    spacing: Literal["even", "poisson"] = "even"
    """How it is spread."""


class TimerMeet(PlanModel):
    """A wait for other users."""

    meet: PlainText
    """Name of the place."""
    users: Number = 0
    """Number of users; 0: all of the group."""
    timeout: Time = 0
    """Longest wait; 0: for ever."""


def _timer(value: object) -> object:
    if isinstance(value, PlanModel):
        return value
    if isinstance(value, dict):
        model = TimerThroughput if "throughput" in value else TimerMeet if "meet" in value else WaitSpec
        return model.model_validate(value, context={"written_by": "user"}, by_alias=True, by_name=False)
    return WaitSpec.model_validate({"constant": value}, context={"written_by": "user"}, by_alias=True, by_name=False)


Timer = Annotated[
    Any,
    BeforeValidator(_timer),
    WithJsonSchema(_OR_SCALAR),
]


def _list(value: object) -> object:
    """A single value stands for a list of one."""
    return tuple(value) if isinstance(value, list | tuple) else (value,)


class Pair(PlanModel):
    """One field of a form or a query."""

    name: Text = ""
    """Its name; without one, the value stands alone."""
    value: Text = ""
    """Its value."""
    encode: bool = True
    """Whether characters are percent-encoded; false if the text already is."""


def _pairs(value: object) -> object:
    if isinstance(value, dict):
        return tuple({"name": key, "value": "" if entry is None else entry} for key, entry in value.items())
    return tuple(value) if isinstance(value, list) else value


Pairs = Annotated[
    tuple[Pair, ...],
    BeforeValidator(_pairs),
    WithJsonSchema({"type": ["object", "array"]}),
]


def _checked_base64(text: str) -> str:
    try:
        base64.b64decode(text, validate=True)
    except ValueError:
        raise ValueError("this is not base64; write the bytes as `base64 -w0 FILE` prints them") from None
    return text


Base64 = Annotated[str, AfterValidator(_checked_base64), WithJsonSchema({"type": "string", "format": "base64"})]


class Part(PlanModel):
    """One part of a multipart body."""

    name: Text
    """Its name."""
    value: Text | None = None
    """Its text."""
    file: Text | None = None
    """Path of a file with its content, relative to this file."""
    base64: Base64 | None = None
    """Its content, whose bytes are no text, in base64."""
    type: Text | None = None
    """Its content type."""
    file_name: Text | None = None
    """The name that is sent for the file; default: the file's."""

    @rule
    def _has_content(self) -> Iterator[PydanticCustomError]:
        if sum(content is not None for content in (self.value, self.file, self.base64)) != 1:
            yield validation_error("a part has either value, file or base64", hint="give one of them")


class Basic(PlanModel):
    """Name and password of basic authentication."""

    user: Text
    """Name."""
    password: Text = ""
    """Password."""


class Embedded(PlanModel):
    """The resources of an HTML answer, which are fetched as browsers do."""

    match: str | None = None
    """Regular expression of the URLs to fetch; null: all."""
    connections: Annotated[int, Field(ge=1, le=256)] = 6
    """Requests in flight at most."""
    may_fail: bool = False
    """Whether the request passes although a resource is missing."""


def _embedded(value: object) -> object:
    return {} if value is True else None if value is False else value


_EMBEDDED = WithJsonSchema({"type": ["boolean", "object", "null"]})


class Extractor(PlanModel):
    """How a value is taken from an answer."""

    json_path: str | None = Field(default=None, validation_alias="json")
    """JSONPath."""
    regex: str | None = None
    """Regular expression; its first group is taken, or what `template` says."""
    header: Text | None = None
    """Name of a response header."""
    cookie: Text | None = None
    """Name of a cookie in the jar."""
    css: str | None = None
    """CSS selector."""
    xpath: str | None = None
    """XPath."""
    between: Items[Text] = ()
    """The text before and the text after it."""
    attribute: str | None = None
    """With css: the attribute that is taken instead of the text."""
    template: str | None = None
    """With regex: text with $1$, $2$ for groups; default: $1$."""
    match: MatchNumber = 1
    """Which one: its number from 1, random, last, all (as NAME_1, NAME_2 ... and NAME_matchNr), or count: how many."""
    default: Text | None = None
    """The value if nothing is found; null: the variable keeps its old value."""
    source: Source = Field(default="body", validation_alias="from")
    """body, answer (header fields and body), headers, request_headers, request_body, url, status, message, or
    variable:NAME."""
    groups: bool = False
    """Whether NAME_g, NAME_g0, NAME_g1 ... are set too."""
    required: bool = False
    """Whether the request fails if nothing is found."""
    max_bytes: Annotated[int, Field(ge=1, lt=2**32)] | None = None
    """Size of a value at most; a longer one is not found. Default: no limit."""

    @rule
    def _is_one(self) -> Iterator[PydanticCustomError]:
        given = [key for key in _WAYS if getattr(self, "json_path" if key == "json" else key) not in (None, ())]
        if len(given) != 1:
            yield validation_error("an extractor has one way to find its value", hint=f"use one of {', '.join(_WAYS)}")
        if given == ["between"] and len(self.between) != 2:
            yield validation_error("two texts are needed", at=("between",), hint="as in between: ['id=\"', '\"']")
        if given == ["regex"]:
            yield from _regex_errors(self.regex or "", "regex")


_WAYS = ("json", "regex", "header", "cookie", "css", "xpath", "between")


def _regex_errors(pattern: str, key: str) -> Iterator[PydanticCustomError]:
    """A pattern that neither this language nor the agent's reads; what only the agent reads passes."""
    if "${" in pattern or len(pattern) > 20_000:
        return
    try:
        re.compile(_possessive(pattern))
    except (re.error, RecursionError, OverflowError) as error:
        if "unterminated" in str(error) or "unbalanced" in str(error) or "missing )" in str(error):
            yield validation_error(f"not a regular expression: {error}", at=(key,))


def _possessive(pattern: str) -> str:
    """The pattern without what Python of an older version does not know."""
    return re.sub(r"(?<!\\)([*+?}])\+", r"\1", pattern)


def _values(value: object) -> object:
    """A field that is given several times has a list."""
    return tuple(value) if isinstance(value, list | tuple) else value if value is None else (value,)


Header = Annotated[
    tuple[Text, ...] | None,
    BeforeValidator(_values),
    WithJsonSchema({"type": ["string", "number", "boolean", "array", "null"]}),
]


def _status(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


class Check(PlanModel):
    """What an answer must fulfil."""

    status: Annotated[str, BeforeValidator(_status)] | None = None
    """Status codes, as in 200, 200-299 or 200,302."""
    contains: Items[Text] = Field(default=())
    """Texts that it contains."""
    matches: Items[str] = ()
    """Regular expressions that match all of it."""
    contains_match: Items[str] = ()
    """Regular expressions that match a part of it."""
    equals: Items[Text] = ()
    """Texts that it is."""
    json_path: str | None = Field(default=None, validation_alias="json")
    """JSONPath that finds something."""
    xpath: str | None = None
    """XPath that finds something."""
    value: Text | None = None
    """With json: what is found."""
    regex: bool = False
    """With json: value is a regular expression."""
    is_null: bool = False
    """With json: what is found is null."""
    condition: Condition | None = None
    """A condition over variables, as in: token != ''."""
    duration: Time | None = None
    """The longest time until it is complete."""
    size: Annotated[Any, AfterValidator(_checked_size), _SIZE_SCHEMA] = None
    """Size in bytes, as in 100, '> 100', '<= 2000', '!= 0'."""
    source: Source = Field(default="body", validation_alias="from")
    """body, answer (header fields and body), headers, request_headers, request_body, url, status, message, or
    variable:NAME."""
    invert: bool = False
    """Whether it must not be so."""
    any: bool = False
    """Whether one of several texts is enough."""
    fails: bool = True
    """Whether the request fails if this is not so; false counts it only, as k6's checks do."""
    ignore_status: bool = False
    """Whether the status no longer makes the request fail."""
    name: Text | None = None
    """Its name in results."""

    @rule
    def _is_one(self) -> Iterator[PydanticCustomError]:
        given = [key for key in _CHECKS if getattr(self, "json_path" if key == "json" else key) not in (None, ())]
        if len(given) != 1:
            yield validation_error("a check has one condition", hint=f"use one of {', '.join(_CHECKS)}")
        if self.status is not None and _STATUSES.fullmatch(self.status) is None:
            yield validation_error(f"{self.status!r} is not a status", at=("status",), hint="as in 200 or 200-299,302")
        for key in ("matches", "contains_match"):
            for pattern in getattr(self, key):
                yield from _regex_errors(pattern, key)


_CHECKS = (
    "status",
    "contains",
    "matches",
    "contains_match",
    "equals",
    "json",
    "xpath",
    "duration",
    "size",
    "condition",
)
_STATUSES = re.compile(r"\s*\d{3}\s*(-\s*\d{3}\s*)?(,\s*\d{3}\s*(-\s*\d{3}\s*)?)*")


def _check(value: object) -> object:
    """`- 200` stands for a status, and a single text for a list of one."""
    if isinstance(value, int) and not isinstance(value, bool):
        return {"status": value}
    if isinstance(value, dict):
        return {
            key: [entry] if key in ("contains", "matches", "contains_match", "equals") and not isinstance(entry, list)
            else entry
            for key, entry in value.items()
        }  # fmt: skip
    return value


AnyCheck = Annotated[Check, BeforeValidator(_check)]


class Defaults(PlanModel):
    """What requests have in common."""

    headers: dict[str, Header] = Field(default={})
    """Header fields by name, a list for one that is sent several times; null removes one that is set further out."""
    basic: Basic | None = None
    """Basic authentication, sent with the first request."""
    follow: Annotated[Any, AfterValidator(_checked_follow), _FOLLOW] = None
    """Redirects that are followed at most; true: 20. Default: 10."""
    headers_elsewhere: Literal["all", "public"] | None = None
    """Header fields that redirects and resources of another scheme, host or port get. public: not Authorization, Cookie
    and Host. Default: public."""
    timeout: Time | None = None
    """Longest time for an answer. Default: 60s."""
    connect_timeout: Time | None = None
    """Longest time to connect."""
    cookies: bool | None = None
    """Whether cookies are kept and sent. Default: true."""
    cache: bool | None = None
    """Whether fresh answers are not asked for again. Default: false."""
    keep_alive: bool | None = None
    """Whether connections carry several requests. Default: true."""
    verify: bool | None = None
    """Whether certificates of servers are checked. Default: true."""
    embedded: Annotated[Embedded | None, BeforeValidator(_embedded), _EMBEDDED] = None
    """Whether resources of HTML answers are fetched: true, or {match, connections, may_fail}."""
    waits: Annotated[tuple[Timer, ...], BeforeValidator(_list)] = ()
    """Waits before each request; their times add."""
    ok: str | None = None
    """Statuses of answers that do not fail. Default: 200-399."""


class PageElement(PlanModel):
    """A link, an image or a form of the last page or of a page in its frames, by what it has."""

    text: Text | None = None
    """The text of a link, with single spaces."""
    name: Text | None = None
    """Its name."""
    id: Text | None = None
    """Its id."""
    action: Text | None = None
    """Where a form leads to: a URL, or the end of its path."""
    href: Text | None = None
    """Where a link leads to."""
    alt: Text | None = None
    """The text in place of an image."""
    src: Text | None = None
    """The URL of an image, or the end of its path."""
    fields: Items[Text] = ()
    """Names of fields that a form has."""
    number: Number = 1
    """Which of several, from 1."""


class RequestFields(Defaults):
    """A request without its steps."""

    link: PageElement | None = None
    """A link of the last page, which is followed: {text: Sign off}."""
    image: PageElement | None = None
    """An image in a link, or one that submits its form: {alt: Search}."""
    submit: PageElement | None = None
    """A form of the last page, sent with its own fields and those of `form`: {action: login.pl}."""

    get: Text | None = None
    """URL, or path below `base`, of a GET request."""
    post: Text | None = None
    """The same for POST."""
    put: Text | None = None
    """The same for PUT."""
    delete: Text | None = None
    """The same for DELETE."""
    patch: Text | None = None
    """The same for PATCH."""
    head: Text | None = None
    """The same for HEAD."""
    options: Text | None = None
    """The same for OPTIONS."""
    url: Text | None = None
    """URL, or path below `base`, of a request with `method`."""
    method: Text = "GET"
    """Method of `url`."""
    query: Pairs = ()
    """Fields that are added to the URL: a mapping, or a list of {name, value, encode}."""
    body: Text | None = None
    """Body."""
    body_base64: Base64 | None = None
    """Body whose bytes are no text, in base64."""
    body_file: Text | None = None
    """Path of a file with the body, relative to this file."""
    json_body: Any = Field(default=None, validation_alias="json")
    """A value that is sent as JSON; its texts are templates."""
    form: Pairs = ()
    """Fields of a form: a mapping, or a list of {name, value, encode}."""
    multipart: Items[Part] = ()
    """Parts of a multipart body."""
    extract: dict[Name, Extractor] = Field(default={})
    """Values that are taken from the answer, by variable."""
    check: Annotated[tuple[AnyCheck, ...], BeforeValidator(_list)] = ()
    """What the answer must fulfil, as in [200, {contains: Welcome}]."""

    @property
    def method_and_url(self) -> tuple[str, str]:
        """What is asked for."""
        for method in METHODS:
            url = getattr(self, method)
            if url is not None:
                return method.upper(), url
        return self.method, self.url or ""

    @property
    def element(self) -> tuple[str, PageElement] | None:
        """What of the last page is asked for: link, image or submit, and which one."""
        return next(((key, one) for key in ELEMENTS if (one := getattr(self, key)) is not None), None)

    @rule
    def _is_one(self) -> Iterator[PydanticCustomError]:
        given = [key for key in (*METHODS, "url", *ELEMENTS) if getattr(self, key) is not None]
        if len(given) > 1:
            yield validation_error(f"{given[0]} and {given[1]} exclude each other", at=(given[1],), hint="remove one")
        bodies = [
            key
            for key in ("body", "body_base64", "body_file", "form", "multipart")
            if getattr(self, key) not in (None, ())
        ]
        bodies += ["json"] if self.json_body is not None else []
        if len(bodies) > 1:
            yield validation_error(
                f"{bodies[0]} and {bodies[1]} exclude each other", at=(bodies[1],), hint="remove one"
            )
