"""The parts of an HTTP request and its connection: header fields, one of many URLs, TLS, TCP, a proxy.

Owns their syntax and their limits. Pure.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    InstanceOf,
    PlainSerializer,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)

from leadline.masking import HIDDEN
from leadline.plan import units
from leadline.plan.external_inputs import (
    FileContent,
    FileInput,
    FileText,
    PlanText,
    Secret,
    SecretText,
    from_text,
    read_file_input,
    resolve_secret,
)
from leadline.plan.field_types import DurationMs, Items, PlanModel, SizeBytes, validation_error, within


def path_and_query(text: str) -> str:
    """A path with its query, checked to be valid in a request line."""
    if not text.startswith("/") or any(not "!" <= character <= "~" for character in text):
        raise ValueError(f"{text!r} is not a path; it starts with '/' and has no spaces (encode them as %20)")
    return text


def request_method(text: str) -> str:
    """A request method, checked to be one that can be measured."""
    if _TOKEN.fullmatch(text) is None:
        raise ValueError(f"{text!r} is not a request method; write one word such as GET")
    if text == "CONNECT":
        raise ValueError("CONNECT opens a tunnel and cannot be measured as a request")
    return text


def _header_name(text: str) -> str:
    if _TOKEN.fullmatch(text) is None:
        raise ValueError(f"{text!r} is not the name of a header field")
    if text.lower() in ("content-length", "transfer-encoding", "upgrade"):
        raise ValueError(f"{text} is set from the body and cannot be given")
    return text


def _header_value(text: str) -> str:
    if any((ord(character) < 32 and character != "\t") or ord(character) == 127 for character in text):
        raise ValueError("the value contains a line break or another control character")
    return text


class HttpHeader(PlanModel):
    """One header field of a request."""

    name: Annotated[str, AfterValidator(_header_name)]
    """Name of the field."""
    value: Annotated[str, AfterValidator(_header_value)] | None = None
    """Value of the field."""
    secret: SecretText | None = None
    """Value of the field if it is a secret: '@FILE' or '$VARIABLE' that contains it."""

    @model_validator(mode="after")
    def _has_one_value(self) -> Self:
        if (self.value is None) == (self.secret is None):
            raise validation_error(f"{self.name} needs either a value or a secret", at=("value",))
        return self

    @property
    def text(self) -> str:
        """The value as it is sent."""
        return self.secret.value if self.secret is not None else self.value or ""


class HttpEntry(PlanModel):
    """One of several requests that are sent in turn."""

    path: Annotated[str, AfterValidator(path_and_query)]
    """Path and query."""
    method: Annotated[str, AfterValidator(request_method)] | None = None
    """Request method; null: the test's."""
    weight: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    """How often it is sent relative to the others."""
    body: FileContent | None = None
    """Request body."""


def split_entry(text: str) -> tuple[int, str | None, str, str | None]:
    """Weight, method, URL or path, and body file of `[weight=N] [METHOD] URL [@BODYFILE]`.

    Raises:

        ValueError: the syntax is wrong; the message says how to write it.
    """
    match = _ENTRY.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text.strip()!r} is not '[weight=N] [METHOD] URL [@BODYFILE]'")
    weight, word, url, body = match.groups()
    return int(weight or 1), word, url, body


def _entry(value: str, info: ValidationInfo) -> HttpEntry:
    weight, word, path, body = split_entry(value)
    if not path.startswith("/"):
        raise ValueError(f"{path!r} is not a path of the run's own server; it starts with '/'")
    content = None if body is None else read_file_input(PlanText.beside(value, body), info)
    return HttpEntry(path=path, method=word, weight=weight, body=content)


class HttpTcp(PlanModel):
    """Options of each TCP socket; options that are not given keep the system's default."""

    delay: bool = False
    """Whether Nagle's algorithm delays small segments (TCP_NODELAY is not set)."""
    congestion: Annotated[str, Field(min_length=1, max_length=15)] | None = None
    """Congestion control, by the kernel's name."""
    send_buffer_bytes: Annotated[SizeBytes, within(1, 2**30, " bytes")] | None = Field(
        default=None, validation_alias="send_buffer"
    )
    """Size of the send buffer (SO_SNDBUF)."""
    receive_buffer_bytes: Annotated[SizeBytes, within(1, 2**30, " bytes")] | None = Field(
        default=None, validation_alias="receive_buffer"
    )
    """Size of the receive buffer (SO_RCVBUF)."""
    segment_bytes: Annotated[SizeBytes, within(88, 32767, " bytes", "by the kernel")] | None = Field(
        default=None, validation_alias="segment"
    )
    """Largest segment (TCP_MAXSEG)."""
    dscp: Annotated[int, within(0, 63, "")] | None = None
    """Differentiated services code point."""
    user_timeout_ms: DurationMs | None = Field(default=None, validation_alias="user_timeout")
    """Time that sent bytes may stay unacknowledged (TCP_USER_TIMEOUT)."""
    fast_open: bool = False
    """Whether the first request may be sent with the SYN (TCP_FASTOPEN_CONNECT)."""


def _versions(value: object) -> object:
    """The versions as text: YAML reads 1.2 and 1.3 as numbers."""
    return f"{value}" if isinstance(value, float) else value


def _cipher(text: str) -> str:
    if re.fullmatch(r"TLS_[A-Z0-9_]+", text, re.ASCII) is None:
        raise ValueError(f"{text!r} is not a cipher suite's IANA name, as in TLS_AES_128_GCM_SHA256")
    return text


def _protocol(text: str) -> str:
    if text in ("h2", "h3"):
        raise ValueError(f"{text} cannot be offered: the load is HTTP/1.1")
    if not 0 < len(text.encode()) < 256:
        raise ValueError("the name of a protocol must have 1 to 255 bytes")
    return text


class TlsTrust(PlanModel):
    """Which certificates of servers are accepted, and the client's own."""

    verify: bool = True
    """Whether the server's certificate is checked."""
    ca: FileText | None = None
    """File with the certificates to trust, PEM; null: those of the host."""
    cert: FileText | None = None
    """File with the client's certificate and its intermediate certificates, PEM."""
    key: FileText | None = None
    """File with the private key of the certificate, PEM."""

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if (self.cert is None) != (self.key is None):
            missing = "key" if self.key is None else "cert"
            raise validation_error(f"{missing} is missing", at=(missing,), hint="give both or neither")
        if self.ca is not None and not self.verify:
            raise validation_error("there is a CA, but verify is false", at=("ca",), hint="leave one of them out")
        return self


class HttpTls(TlsTrust):
    """TLS options of the client."""

    versions: Annotated[
        Literal["1.2", "1.3", "1.2-1.3"],
        BeforeValidator(_versions),
        WithJsonSchema({"enum": ["1.2", "1.3", "1.2-1.3", 1.2, 1.3]}),
    ] = "1.2-1.3"
    """Versions to offer."""
    ciphers: Items[Annotated[str, AfterValidator(_cipher)]] = ()
    """Cipher suites to offer, by their IANA names; empty: all that are considered safe."""
    alpn: Items[Annotated[str, AfterValidator(_protocol)]] = ("http/1.1",)
    """Protocols to offer, in order; an empty list omits the extension."""
    server_name: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    """Server name to request (SNI) and to verify; null: the server's."""
    resume: bool = True
    """Whether connections after the first one resume its session."""
    early_data: bool = False
    """Whether the first request of a resumed connection is sent before the end of the handshake (0-RTT)."""

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        if self.early_data and self.versions == "1.2":
            raise validation_error("early data needs TLS 1.3", at=("early_data",), hint="offer 1.3 too")
        if self.early_data and not self.resume:
            raise validation_error(
                "early data needs resumed sessions", at=("early_data",), hint="leave one of them out"
            )
        for name in ("ca", "cert", "key"):
            file: FileInput | None = getattr(self, name)
            if file is not None and b"-----BEGIN " not in file.content:
                raise validation_error(f"{file.name} is not PEM", at=(name,), hint="it begins with -----BEGIN")
        return self


class Resolve(PlanModel):
    """An address to use for a name instead of DNS."""

    host: str
    """The URL's host."""
    port: Annotated[int, Field(ge=1, le=65535)]
    """The URL's port."""
    address: str
    """The address to connect to."""


def address(text: str) -> str:
    """An IP address without brackets, from IPv6 with or without them."""
    bare = text.removeprefix("[").removesuffix("]") if text.startswith("[") else text
    try:
        return str(ipaddress.ip_address(bare))
    except ValueError:
        raise ValueError(f"{text!r} is not an IP address") from None


def _resolve(value: str, _: ValidationInfo) -> Resolve:
    match = _RESOLVE.fullmatch(value)
    if match is None:
        raise ValueError(
            f"{value!r} is not HOST:PORT:ADDRESS, as in example.org:443:192.0.2.7 or example.org:443:[::1]"
        )
    host, port, bare = match.groups()
    if not 1 <= int(port) <= 65535:
        raise ValueError(f"{port} is not a port; write a number from 1 to 65535")
    return Resolve(host=host, port=int(port), address=address(bare))


def proxy_secret(url: str) -> Secret:
    """A proxy's URL. Its credentials, which end at the last `@`, are hidden."""
    return Secret(re.sub(r"//[^/]*@", f"//{HIDDEN}@", url), url)


def _proxy(value: str, info: ValidationInfo) -> Secret:
    if value[:1] in ("@", "$"):
        return resolve_secret(value, info)
    if "@" in value:
        raise ValueError("a proxy's password must not be in a plan; write '@FILE' or '$NAME' that contains its URL")
    return proxy_secret(value)


def checked_proxy(proxy: Secret) -> Secret:
    """Return the proxy, checked to be a proxy's URL."""
    try:
        parts = urlsplit(proxy.value)
        right = parts.scheme == "http" and parts.hostname and parts.port and parts.path in ("", "/")
        right = right and not parts.query and not parts.fragment
    except ValueError:
        right = False
    if not right:
        raise ValueError("this is not the URL of a proxy: http://[USER:PASSWORD@]HOST:PORT")
    return proxy


_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
_ENTRY = re.compile(
    r"(?:weight=([1-9]\d{0,6})\s+)?(?:([!#$%&'*+.^_`|~0-9A-Za-z-]+)\s+)?((?:/|https?://)\S*)(?:\s+@(\S.*))?",
    re.ASCII | re.IGNORECASE,
)
_RESOLVE = re.compile(r"([^\s:\[\]]+):(\d{1,5}):(\[[^\]]+\]|[^:]+)", re.ASCII)

UrlLine = Annotated[
    InstanceOf[HttpEntry],
    from_text(HttpEntry, _entry),
    PlainSerializer(lambda entry: entry.model_dump()),
    WithJsonSchema({"type": "string", "pattern": r"^(weight=[1-9]\d*\s+)?(\S+\s+)?/"}),
]
Address = Annotated[str, AfterValidator(address)]
ResolvedName = Annotated[
    InstanceOf[Resolve],
    from_text(Resolve, _resolve),
    PlainSerializer(lambda name: name.model_dump()),
    WithJsonSchema({"type": "string", "pattern": r"^[^\s:\[\]]+:\d+:\S+$"}),
]
Proxy = Annotated[
    InstanceOf[Secret],
    from_text(Secret, _proxy),
    AfterValidator(checked_proxy),
    PlainSerializer(lambda secret: secret.shown, return_type=str),
    WithJsonSchema({"type": "string"}),
]
Cpus = Annotated[
    tuple[int, ...],
    BeforeValidator(units.cpu_list),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0},
                {"type": "string", "pattern": r"^\s*\d+(-\d+)?(\s*,\s*\d+(-\d+)?)*\s*$"},
                {"type": "array", "items": {"type": "integer", "minimum": 0}},
            ]
        }
    ),
]
