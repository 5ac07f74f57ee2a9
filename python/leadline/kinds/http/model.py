"""The `http` test: what is asked for, over which connections, at which rate. Parameters only; `leadline http` has the
same ones as options. What a request is made of is in `parts`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

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
from leadline.plan import rate
from leadline.plan.base_test import BaseTest, Conflict
from leadline.plan.external_inputs import HIDDEN, MOST_BYTES, FileContent, FileInput, FileText, SecretText
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
from leadline.plan.rate import PerSecondOrStages, Stages

_MOST_CONNECTIONS = 1_000_000
# Beside its own text, what a request takes in the message to an agent.
_AROUND_A_REQUEST_BYTES = 400


class HttpTest(BaseTest):
    """HTTP/1.1: a closed loop over its connections, or an open one where `rate` is set."""

    kind: Literal["http"] = "http"
    scheme: Literal["http", "https"] = "http"
    """https for TLS."""
    path: Annotated[str, AfterValidator(path_and_query)] = "/"
    """Path and query of each request."""
    size_bytes: Annotated[SizeBytes, within(0, 2**30, " bytes")] | None = Field(default=None, validation_alias="size")
    """Body that each response shall have, asked for as `?size=`; the responder's default where null."""
    urls: Items[UrlLine] = ()
    """Requests that take turns, each as '[weight=N] [METHOD] /PATH [@BODYFILE]'; instead of path."""
    script: FileText | None = None
    """A script for wrk (Lua), which makes the requests."""
    script_args: Items[str] = ()
    """What the script's init() gets."""
    connections: Annotated[int, within(1, _MOST_CONNECTIONS, "")] = 1
    """Connections per client; with a rate as many at most."""
    rate_per_s: PerSecondOrStages | None = Field(default=None, validation_alias="rate")
    """Requests per second and client, or stages of it (0:1000/10s,1000/60s), each request timed from when it was due;
    closed loop where null."""
    number: Total | None = None
    """Requests per client, after which the test ends before its duration does."""
    percentiles: Items[Percentile] = ()
    """Percentiles of latency and service time beside the usual ones: 25, 99.95 or p9995."""
    method: Annotated[str, AfterValidator(request_method)] = "GET"
    """Request method."""
    headers: Items[HttpHeader] = ()
    """Extra header fields, in order."""
    body: str | None = Field(default=None, repr=False)
    """Request body."""
    body_file: FileContent | None = None
    """File with the request body."""
    basic: SecretText | None = None
    """USER:PASSWORD for basic authentication: '@FILE' or '$VARIABLE' that holds it."""
    bearer: SecretText | None = None
    """Token for bearer authentication: '@FILE' or '$VARIABLE' that holds it."""
    keep_alive: bool = True
    """Whether connections carry more than one request."""
    requests_per_connection: Total | None = None
    """Requests after which a connection is closed and reopened."""
    timeout_ms: DurationMs = Field(default=5_000, validation_alias="timeout")
    """After this a request counts as an error."""
    connect_timeout_ms: DurationMs = Field(default=5_000, validation_alias="connect_timeout")
    """After this a connection that is not open (TCP, proxy, TLS) counts as an error."""
    redirects: Annotated[int, Field(ge=0, le=100)] = 0
    """How often a redirect to the same origin is followed; 0 takes it for the answer."""
    bind: Items[Address] = ()
    """Local addresses that connections take in turn."""
    resolve: Items[ResolvedName] = ()
    """Addresses of names that are not asked for: HOST:PORT:ADDRESS."""
    dns: Literal["run", "connection"] = "run"
    """Whether names are asked for once, or for each connection."""
    unix_socket: str | None = None
    """Path of a Unix socket to connect to instead of the server's address."""
    proxy: Proxy | None = None
    """http://HOST:PORT of a proxy; with credentials as '@FILE' or '$VARIABLE' that holds the URL."""
    tcp: HttpTcp | None = None
    """Options of each TCP socket."""
    tls: HttpTls | None = None
    """TLS, for https."""
    cpus: Cpus = ()
    """CPUs that the threads are pinned to, in turn: 0,2-3."""

    @model_validator(mode="before")
    @classmethod
    def _stages_say_how_long(cls, given: Any, info: ValidationInfo) -> Any:
        if not isinstance(given, dict):
            return given
        try:
            stages = rate.read_rate(given.get("rate", given.get("rate_per_s")))
        except ValueError:
            return given  # no rate, or one that its own field complains about
        if not isinstance(stages, tuple):
            return given
        total_ms = rate.total_ms(stages)
        if not written_by_a_user(info):
            return {"duration_ms": total_ms, **given}
        if "duration" in given:
            raise validation_error(
                f"the rate's stages last {total_ms / 1000:g} s; no other duration is possible",
                at=("duration",),
                hint="leave it out",
            )
        return {**given, "duration": f"{total_ms}ms"}

    @field_validator("unix_socket")
    @classmethod
    def _is_a_path(cls, path: str | None) -> str | None:
        # sun_path has 108 bytes, the NUL at its end included.
        if path is not None and not 0 < len(path.encode()) < 108:
            raise ValueError("a Unix socket's path has 1 to 107 bytes")
        return path

    @rule
    def _agrees_with_itself(self) -> Iterator[PydanticCustomError]:
        for at, text, hint in _conflicts(self):
            yield validation_error(text, at=(at,), hint=hint)

    @field_serializer("body")
    def _body_is_not_shown(self, body: str | None) -> str | None:
        return body and HIDDEN

    @property
    def request_target(self) -> str:
        """Path and query as sent, the size included."""
        return self.path if self.size_bytes is None else f"{self.path}?size={self.size_bytes}"

    @property
    def stages(self) -> Stages:
        """The rate as stages that fill the duration; none for a closed loop."""
        if self.rate_per_s is None or isinstance(self.rate_per_s, tuple):
            return self.rate_per_s or ()
        constant = rate.RateStage(from_per_s=self.rate_per_s, to_per_s=self.rate_per_s, duration_ms=self.duration_ms)
        return (constant,)

    @property
    def entries(self) -> tuple[HttpEntry, ...]:
        """What is asked for: `urls`, or the one request that path, method and body describe."""
        if self.urls:
            return self.urls
        body = self.body_file if self.body is None else FileInput(HIDDEN, self.body.encode())
        return (HttpEntry(path=self.request_target, method=self.method, body=body),)

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must stand in nothing that is kept."""
        secrets = (self.basic, self.bearer, self.proxy, *(header.secret for header in self.headers))
        hidden = (secret.value for secret in secrets if secret is not None and secret.value != secret.shown)
        return (*hidden, self.body or "")

    @property
    def needs_https(self) -> bool:
        """Whether the scheme is https."""
        return self.scheme == "https"

    def server_conflicts(self) -> Iterator[Conflict]:
        """No authority signed the certificate of the run's server."""
        if self.scheme == "https" and (self.tls is None or self.tls.verify):
            text = "the run's own server has a certificate that was made for the run, and no authority vouches for it"
            yield "scheme", text, "say so: tls: {verify: false}"


def _conflicts(test: HttpTest) -> Iterator[Conflict]:
    """Keys that exclude each other: where, what, and what would be right."""
    given = {name for name in test.model_fields_set if getattr(test, name) != type(test).model_fields[name].default}
    for first, others, hint in _EXCLUSIVE:
        other = next((name for name in others if name in given), None)
        if first in given and other is not None:
            yield first.removesuffix("_bytes"), f"not together with {_words(other)}", hint
    if "size_bytes" in given and "?" in test.path:
        yield "size", "size is asked for in the query, and path has one", "give only one of them"
    if test.tls is not None and test.scheme == "http":
        yield "tls", "TLS options with a scheme of http", "use https, or leave them out"
    if test.script_args and test.script is None:
        yield "script_args", "arguments for a script, and no script", "give the script too"
    if test.threads > test.connections:
        yield "threads", f"{test.threads} threads for {test.connections} connections", "at least one for each thread"
    if not test.keep_alive and test.requests_per_connection not in (None, 1):
        yield "requests_per_connection", "without keep-alive each connection has one request", "leave one of them out"
    authorizing = any(header.name.lower() == "authorization" for header in test.headers)
    if authorizing and (test.basic or test.bearer):
        yield "headers", "an Authorization header beside basic or bearer", "give only one of them"
    if test.basic is not None and ":" not in test.basic.value:
        yield "basic", "there is no colon in it", "it is USER:PASSWORD"
    names = [f"{name.host.lower()}:{name.port}" for name in test.resolve]
    if len(set(names)) < len(names):
        yield "resolve", "a name has two addresses", "give one of them"
    size = _message_bytes(test)
    if size > MOST_BYTES:
        mebi = f"{size / 2**20:.1f} MiB"
        yield "urls" if test.urls else "body", f"the requests take {mebi}", f"at most {MOST_BYTES // 2**20} MiB"


def _message_bytes(test: HttpTest) -> int:
    """About what the requests take in the message to an agent, before base64."""
    headers = sum(len(header.name) + len(header.text) for header in test.headers)
    entries = test.entries
    bodies = sum(len(entry.body.content if entry.body else b"") + len(entry.path) for entry in entries)
    script = len(test.script.content) if test.script else 0
    return len(entries) * (_AROUND_A_REQUEST_BYTES + headers) + bodies + script


def _words(name: str) -> str:
    return name.removesuffix("_bytes").replace("_", " ")


_EXCLUSIVE: tuple[tuple[str, tuple[str, ...], str | None], ...] = (
    ("body_file", ("body",), "give only one of them"),
    ("bearer", ("basic",), "give only one of them"),
    ("urls", ("path", "size_bytes"), "every line has its own path"),
    ("urls", ("body", "body_file"), "write '@FILE' at the end of a line"),
    ("script", ("urls", "size_bytes"), "the script makes the requests"),
    ("script", ("redirects",), "redirects of a script's requests are not followed"),
    ("unix_socket", ("proxy", "bind", "resolve", "dns", "tcp"), "a Unix socket has no addresses and no TCP"),
)
