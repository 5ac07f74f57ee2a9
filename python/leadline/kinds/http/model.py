"""The parameters of the `http` test: requests, connections, rate. `leadline http` has the same ones as options.

`parts` has the models of which a request is made.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, ValidationInfo, field_serializer, field_validator, model_validator
from pydantic_core import PydanticCustomError

from leadline.kinds.http.parts import (
    Address,
    Cpus,
    HttpEntry,
    HttpHeader,
    HttpTcp,
    HttpTls,
    Proxy,
    ResolvedName,
    UrlLine,
    path_and_query,
    request_method,
)
from leadline.masking import HIDDEN, is_secret_name, mask_text, secret_values
from leadline.plan import rate
from leadline.plan.base_test import Conflict
from leadline.plan.external_inputs import MOST_BYTES, FileContent, FileInput, FileText, SecretText
from leadline.plan.field_types import (
    DurationMs,
    Items,
    Percentile,
    SizeBytes,
    Total,
    rule,
    validation_error,
    within,
    written_by_a_user,
)
from leadline.plan.portions import Portion
from leadline.plan.rate import PerSecondOrStages, Stages
from leadline.plan.rate_search import RateSearch, expected_ms, search_errors
from leadline.plan.spread_starts import SpreadTest

HttpTool = Literal["wrk", "ab", "h2load"]
"""The tools that can repeat a closed loop."""

_MOST_CONNECTIONS = 1_000_000
# Size of a request in the message to an agent, without the request's own text.
_AROUND_A_REQUEST_BYTES = 400


class HttpTest(SpreadTest):
    """HTTP/1.1 load: a closed loop over its connections, or an open loop if `rate` is set."""

    amounts = ("connections", "rate_per_s", "number")
    rates = ("rate_per_s",)
    is_divisible = True

    kind: Literal["http"] = "http"
    scheme: Literal["http", "https"] = "http"
    """URL scheme; https uses TLS."""
    path: Annotated[str, AfterValidator(path_and_query)] = "/"
    """Path and query of each request."""
    size_bytes: Annotated[SizeBytes, within(0, 2**30, " bytes")] | None = Field(default=None, validation_alias="size")
    """Size of each response body, requested with `?size=`; null: the responder's default."""
    urls: Items[UrlLine] = ()
    """Requests that are sent in turn, each as '[weight=N] [METHOD] /PATH [@BODYFILE]'; instead of path."""
    script: FileText | None = None
    """Lua script for wrk that makes the requests."""
    script_args: Items[str] = ()
    """Arguments of the script's init()."""
    connections: Annotated[int, within(1, _MOST_CONNECTIONS, "")] = 1
    """Connections per client; with a rate, the maximum."""
    rate_per_s: PerSecondOrStages | None = Field(default=None, validation_alias="rate")
    """Requests per second and client, or stages (0:1000/10s,1000/60s). Each request is timed from when it was due.
    Null: a closed loop."""
    number: Total | None = None
    """Requests per client; the test ends after them, even before its duration."""
    percentiles: Items[Percentile] = ()
    """Percentiles of latency and service time to report in addition to the usual ones: 25, 99.95 or p9995."""
    method: Annotated[str, AfterValidator(request_method)] = "GET"
    """Request method."""
    headers: Items[HttpHeader] = ()
    """Additional header fields, in order."""
    keep_headers: Items[str] = ()
    """Names of header fields and parameters whose values are shown although the names are those of secrets."""
    body: str | None = Field(default=None, repr=False)
    """Request body."""
    body_file: FileContent | None = None
    """File with the request body."""
    basic: SecretText | None = None
    """USER:PASSWORD for basic authentication, from '@FILE' or '$VARIABLE'."""
    bearer: SecretText | None = None
    """Token for bearer authentication, from '@FILE' or '$VARIABLE'."""
    keep_alive: bool = True
    """Whether a connection carries more than one request."""
    requests_per_connection: Total | None = None
    """Number of requests after which a connection is closed and replaced."""
    timeout_ms: DurationMs = Field(default=5_000, validation_alias="timeout")
    """A request without an answer after this time counts as an error."""
    connect_timeout_ms: DurationMs = Field(default=5_000, validation_alias="connect_timeout")
    """A connection that is not open after this time (TCP, proxy and TLS, each) counts as an error."""
    redirects: Annotated[int, Field(ge=0, le=100)] = 0
    """Maximum number of redirects to follow within the origin; 0 counts a redirect as the answer."""
    bind: Items[Address] = ()
    """Local addresses that the connections use in turn."""
    resolve: Items[ResolvedName] = ()
    """Addresses to use instead of DNS: HOST:PORT:ADDRESS."""
    dns: Literal["run", "connection"] = "run"
    """Whether names are resolved once per run, or for each connection."""
    unix_socket: str | None = None
    """Path of a Unix socket to connect to instead of the server's address."""
    proxy: Proxy | None = None
    """Proxy, http://HOST:PORT; with credentials, '@FILE' or '$VARIABLE' that contains the URL."""
    tcp: HttpTcp | None = None
    """Options of each TCP socket."""
    tls: HttpTls | None = None
    """TLS options, for https."""
    cpus: Cpus = ()
    """CPUs to which the threads are pinned, in turn: 0,2-3."""
    search: RateSearch | None = None
    """Search for the highest rate that holds; `duration` is then the length of the deciding trials."""
    cross_check: HttpTool | None = None
    """A second tool that repeats the test, on the same hosts; null: none."""

    @property
    def second_tool(self) -> str | None:
        """The tool of the cross-check."""
        return self.cross_check

    @property
    def searched(self) -> RateSearch | None:
        """The search, if there is one."""
        return self.search

    @property
    def expected_ms(self) -> int:
        """A search takes several trials."""
        return self.duration_ms if self.search is None else expected_ms(self.duration_ms)

    @model_validator(mode="before")
    @classmethod
    def _stages_say_how_long(cls, given: Any, info: ValidationInfo) -> Any:
        if not isinstance(given, dict):
            return given
        try:
            stages = rate.read_rate(given.get("rate", given.get("rate_per_s")))
        except ValueError:
            return given  # no rate, or an invalid one, which its own field reports
        if not isinstance(stages, tuple):
            return given
        total_ms = rate.total_ms(stages)
        if not written_by_a_user(info):
            return {"duration_ms": total_ms, **given}
        if "duration" in given:
            raise validation_error(
                f"the rate's stages last {total_ms / 1000:g} s: the duration must be the same",
                at=("duration",),
                hint="leave it out",
            )
        return {**given, "duration": f"{total_ms}ms"}

    @field_validator("unix_socket")
    @classmethod
    def _is_a_path(cls, path: str | None) -> str | None:
        # sun_path has 108 bytes, including the NUL at its end.
        if path is not None and not 0 < len(path.encode()) < 108:
            raise ValueError("the path of a Unix socket must have 1 to 107 bytes")
        return path

    @rule
    def _agrees_with_itself(self) -> Iterator[PydanticCustomError]:
        for at, text, hint in _conflicts(self):
            yield validation_error(text, at=(at,), hint=hint)
        yield from _exposed_headers(self)
        yield from search_errors(self, self.search, self.rate_per_s, self.number)
        if self.start_spread_ms and isinstance(self.rate_per_s, tuple):
            text = "a client that starts later would begin in the middle of a stage"
            yield validation_error(text, at=("start_spread",), hint="use one rate, or leave it out")
        for text, hint in _second_tool_conflicts(self):
            yield validation_error(f"{self.cross_check} cannot repeat it: {text}", at=("cross_check",), hint=hint)

    @field_serializer("body")
    def _body_is_not_shown(self, body: str | None) -> str | None:
        return body and HIDDEN

    @field_serializer("path")
    def _masked_path(self, path: str) -> str:
        return mask_text(path, self.keep_headers)

    @field_serializer("urls")
    def _masked_urls(self, urls: Items[HttpEntry]) -> list[dict[str, Any]]:
        return [{**entry.model_dump(), "path": self._masked_path(entry.path)} for entry in urls]

    @field_serializer("script_args")
    def _masked_arguments(self, script_args: Items[str]) -> list[str]:
        return [mask_text(argument, self.keep_headers) for argument in script_args]

    @field_serializer("headers")
    def _masked_headers(self, headers: Items[HttpHeader]) -> list[dict[str, Any]]:
        return [
            header.model_dump() if self.is_hidden(header.name) else {"name": header.name, "value": header.text}
            for header in headers
        ]

    def is_hidden(self, name: str) -> bool:
        """Whether the secret value of a header field of this name is hidden."""
        return name.casefold() not in {kept.casefold() for kept in self.keep_headers}

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """The fields, with secrets masked."""
        for name, value in super().__repr_args__():
            is_masked = name in ("path", "urls", "script_args")
            yield name, mask_text(repr(value), self.keep_headers) if is_masked else value

    def dealt(self, portion: Portion, totals: frozenset[str]) -> Self:
        """The test of one host, with at most a thread for each connection."""
        own = super().dealt(portion, totals)
        return own.model_copy(update={"threads": min(own.threads, own.connections)})

    @property
    def request_target(self) -> str:
        """Path and query as sent, including the size."""
        return self.path if self.size_bytes is None else f"{self.path}?size={self.size_bytes}"

    @property
    def stages(self) -> Stages:
        """The rate as stages that fill the duration; empty for a closed loop."""
        if self.rate_per_s is None or isinstance(self.rate_per_s, tuple):
            return self.rate_per_s or ()
        constant = rate.RateStage(from_per_s=self.rate_per_s, to_per_s=self.rate_per_s, duration_ms=self.duration_ms)
        return (constant,)

    @property
    def entries(self) -> tuple[HttpEntry, ...]:
        """The requests: `urls`, or the single request of path, method and body."""
        if self.urls:
            return self.urls
        body = self.body_file if self.body is None else FileInput(HIDDEN, self.body.encode())
        return (HttpEntry(path=self.request_target, method=self.method, body=body),)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Texts that must not be written to any file."""
        headers = (header.secret for header in self.headers if self.is_hidden(header.name))
        secrets = (self.basic, self.bearer, self.proxy, *headers)
        hidden = (secret.value for secret in secrets if secret is not None and secret.value != secret.shown)
        targets = (self.path, *(entry.path for entry in self.urls), *self.script_args)
        return (*hidden, self.body or "", *secret_values(targets, self.keep_headers))

    @property
    def kept_names(self) -> tuple[str, ...]:
        """Names of header fields and parameters that are shown all the same."""
        return self.keep_headers

    @property
    def needs_https(self) -> bool:
        """Whether the scheme is https."""
        return self.scheme == "https"

    def server_conflicts(self) -> Iterator[Conflict]:
        """The certificate of the run's server is not signed by an authority."""
        if self.scheme == "https" and (self.tls is None or self.tls.verify):
            text = "the certificate of the run's server is made for the run, and no authority signs it"
            yield "scheme", text, "write tls: {verify: false}"


def _conflicts(test: HttpTest) -> Iterator[Conflict]:
    """Conflicts between keys: the key, the mistake, and the advice."""
    given = {name for name in test.model_fields_set if getattr(test, name) != type(test).model_fields[name].default}
    for first, others, hint in _EXCLUSIVE:
        other = next((name for name in others if name in given), None)
        if first in given and other is not None:
            yield first.removesuffix("_bytes"), f"not possible together with {_words(other)}", hint
    if "size_bytes" in given and "?" in test.path:
        yield "size", "the size is sent in the query, but path already has a query", "give only one of them"
    if test.tls is not None and test.scheme == "http":
        yield "tls", "there are TLS options, but the scheme is http", "use https, or leave them out"
    if test.script_args and test.script is None:
        yield "script_args", "there are arguments for a script, but no script", "give the script too"
    if test.threads > test.connections:
        yield (
            "threads",
            f"{test.threads} threads for {test.connections} connections",
            "use at least one connection per thread",
        )
    if not test.keep_alive and test.requests_per_connection not in (None, 1):
        yield "requests_per_connection", "without keep-alive each connection has one request", "leave one of them out"
    authorizing = any(header.name.lower() == "authorization" for header in test.headers)
    if authorizing and (test.basic or test.bearer):
        yield "headers", "an Authorization header and basic or bearer exclude each other", "give only one of them"
    if test.basic is not None and ":" not in test.basic.value:
        yield "basic", "it has no colon", "write USER:PASSWORD"
    names = [f"{name.host.lower()}:{name.port}" for name in test.resolve]
    if len(set(names)) < len(names):
        yield "resolve", "a name has two addresses", "give one of them"
    size = _message_bytes(test)
    if size > MOST_BYTES:
        mebi = f"{size / 2**20:.1f} MiB"
        yield "urls" if test.urls else "body", f"the requests take {mebi}", f"at most {MOST_BYTES // 2**20} MiB"


def _exposed_headers(test: HttpTest) -> Iterator[PydanticCustomError]:
    """Secret headers whose values a plan would show."""
    for index, header in enumerate(test.headers):
        if header.value and is_secret_name(header.name, test.keep_headers):
            yield validation_error(
                f"{header.name} is a secret and must not be in a plan",
                at=("headers", index, "value"),
                hint="write secret: '@FILE' or '$VARIABLE' instead of value, or its name in keep_headers",
            )


def _second_tool_conflicts(test: HttpTest) -> Iterator[tuple[str, str]]:
    """Why the second tool cannot send the same load: the mistake, and the advice."""
    if test.cross_check is None:
        return
    given = {name for name in test.model_fields_set if getattr(test, name) != type(test).model_fields[name].default}
    for name in sorted(given & _NOT_REPEATED):
        yield f"the test has {_words(name)}", f"leave out {_words(name)}, or cross_check"
    if any(header.secret is not None and test.is_hidden(header.name) for header in test.headers):
        yield "a command line would show the secret header", "leave it out, or leave out cross_check"
    if any(secret_values([test.path], test.keep_headers)):
        yield "a command line would show the secret parameter", "leave it out, or leave out cross_check"
    if test.tls not in (None, HttpTls(), HttpTls(verify=False)):
        yield "the test has TLS options", "leave them out, except verify: false, or leave out cross_check"
    if test.cross_check == "ab" and test.threads > 1:
        yield f"ab has one thread, the test {test.threads}", "set threads: 1, or use wrk or h2load"


def _message_bytes(test: HttpTest) -> int:
    """The approximate size of the requests in the message to an agent, before base64."""
    headers = sum(len(header.name) + len(header.text) for header in test.headers)
    entries = test.entries
    bodies = sum(len(entry.body.content if entry.body else b"") + len(entry.path) for entry in entries)
    script = len(test.script.content) if test.script else 0
    return len(entries) * (_AROUND_A_REQUEST_BYTES + headers) + bodies + script


def _words(name: str) -> str:
    return name.removesuffix("_bytes").replace("_", " ")


_NOT_REPEATED = frozenset(
    {
        *("urls", "script", "rate_per_s", "number", "method", "body", "body_file", "basic", "bearer", "keep_alive"),
        *("requests_per_connection", "redirects", "bind", "resolve", "unix_socket", "proxy", "tcp", "cpus", "search"),
    }
)
"""Keys of tests that a second tool cannot repeat."""

_EXCLUSIVE: tuple[tuple[str, tuple[str, ...], str | None], ...] = (
    ("body_file", ("body",), "give only one of them"),
    ("bearer", ("basic",), "give only one of them"),
    ("urls", ("path", "size_bytes"), "every line of urls has its own path"),
    ("urls", ("body", "body_file"), "write '@FILE' at the end of a line"),
    ("script", ("urls", "size_bytes"), "the script makes the requests"),
    ("script", ("redirects",), "redirects of a script's requests cannot be followed"),
    ("unix_socket", ("proxy", "bind", "resolve", "dns", "tcp"), "a Unix socket has no addresses and does not use TCP"),
)
