"""The parameters of the `replay` test: a source of recorded requests, their target and their times."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, WithJsonSchema
from pydantic_core import PydanticCustomError

from leadline.errors import InputError
from leadline.kinds.http.args import parse_origin
from leadline.kinds.scenario.users_test import LONGEST_MS, UsersTest
from leadline.plan import units
from leadline.plan.external_inputs import PlanText
from leadline.plan.field_types import DurationMs, Items, rule, validation_error
from leadline.plan.rate import PerSecond

MAX_SOURCE_LENGTH = 4096
STDIN = "-"


def _source(value: object, info: ValidationInfo) -> object:
    """A path in a plan is relative to the plan."""
    if isinstance(value, PlanText) and value != STDIN:
        return str(value.folder / value)
    return value


def _url(text: str) -> str:
    try:
        return parse_origin(text).url
    except InputError as error:
        raise ValueError(str(error)) from None


def _host_map(text: str) -> str:
    host, equals, target = text.partition("=")
    if not equals or not host or not target:
        raise ValueError("this is not HOST=ADDR, as in www.shop.test=10.0.0.1:8080")
    return text


def _instant(value: object) -> str:
    """A time of the source as its user writes it."""
    text = str(value)
    read_instant(text)
    return text


def read_instant(text: str) -> tuple[Literal["at", "after"], int]:
    """An instant of the source: at this ms since 1970, or this many ms after its first request.

    Raises ValueError.
    """
    if units.looks_like_a_time(text) or re.fullmatch(r"\d+(\.\d+)?", text):
        return "after", units.duration_ms(text)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"'{text}' is no time of the source: write 2026-03-01T10:00:00 (UTC, or with +01:00), or 5m after its begin"
        ) from None
    return "at", round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


Url = Annotated[str, AfterValidator(_url)]
HostMap = Annotated[str, AfterValidator(_host_map)]
Instant = Annotated[str, BeforeValidator(_instant), WithJsonSchema({"type": "string"})]
Source = Annotated[str, BeforeValidator(_source), Field(min_length=1, max_length=MAX_SOURCE_LENGTH)]


class ReplayTest(UsersTest):
    """Recorded requests that are sent again, at their own times."""

    kind: Literal["replay"] = "replay"
    source: Source | None = None
    """The recording: an access log, a .gor file, a capture, a HAR or a JTL file; relative to this file. It is read on
    the client's host."""
    url: Url | None = None
    """Where the requests go; default: the run's server."""
    against: Url | None = None
    """A second target that every request goes to too; the answers of both are compared."""
    format: str | None = Field(default=None, min_length=1, max_length=4096)
    """Format of the recording: a name, or the format string of the daemon that wrote it; default: recognised."""
    capture: Annotated[str, Field(min_length=1, max_length=15)] | None = None
    """Interface of the client's host whose requests to `port` are sent as they come, in place of a recording."""
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """Of a capture: the server's port; default: any."""
    speed: Annotated[float, Field(gt=0, le=1e6)] = 1.0
    """How much faster than recorded."""
    rate_per_s: PerSecond | None = Field(default=None, validation_alias="rate")
    """Requests per second, in place of their own times."""
    copies: Annotated[int, Field(ge=1, le=1000)] = 1
    """How often each session is sent at once, each copy as a user of its own."""
    begin: Instant | None = Field(default=None, validation_alias="from")
    """First time of the recording: a date, or a duration after its begin."""
    end: Instant | None = Field(default=None, validation_alias="to")
    """End of the part of the recording, as `from`."""
    only: Items[str] = ()
    """Patterns of requests to send: `GET /api/*` or `/api/*`."""
    map: Items[HostMap] = ()
    """Where requests to a recorded host go: HOST=ADDR."""
    writes: bool = False
    """Whether methods that change something are sent too: all but GET, HEAD and OPTIONS."""
    noise: bool = False
    """Whether each request is sent twice: what differs between both answers is left out of the differences."""
    compare: bool = True
    """Whether answers are compared with recorded ones, where the recording has them."""
    correlate: bool = True
    """Whether values that recorded answers gave are replaced by those of the new answers."""
    follow: bool = False
    """Whether the recording is still being written: each request is sent as soon as it is read."""
    duration_ms: DurationMs = Field(default=LONGEST_MS, validation_alias="duration")
    """Longest time; default: the recording's own."""
    timeout_ms: DurationMs = Field(default=60_000, validation_alias="timeout")
    """Longest time for an answer."""
    connect_timeout_ms: DurationMs = Field(default=10_000, validation_alias="connect_timeout")
    """Longest time to connect."""

    @rule
    def _has_one_source(self) -> Iterator[PydanticCustomError]:
        if (self.source is None) == (self.capture is None):
            yield validation_error("a replay has one source", at=("source",), hint="name a recording, or capture")
        if self.capture is not None and self.port is None:
            yield validation_error("a capture needs the server's port", at=("port",), hint="as in port: 80")

    @rule
    def _has_one_pace(self) -> Iterator[PydanticCustomError]:
        if self.rate_per_s is not None and self.speed != 1.0:
            yield validation_error("rate and speed exclude each other", at=("rate",), hint="leave one out")
        if self.begin is not None and self.end is not None:
            begin, end = read_instant(self.begin), read_instant(self.end)
            if begin[0] == end[0] and begin[1] >= end[1]:
                yield validation_error("the part of the recording ends before it begins", at=("to",))
