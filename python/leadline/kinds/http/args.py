"""Parses the values of the options of `leadline http` into a test's parameters.

Owns the syntax of options: headers, URL files, secrets, socket and TLS options. `leadline.kinds.http.model` decides
which values exclude each other; its errors name the options.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import SplitResult, urlsplit

from pydantic import ValidationError

from leadline.errors import InputError
from leadline.kinds.http.parts import (
    HttpEntry,
    HttpHeader,
    checked_proxy,
    path_and_query,
    proxy_secret,
    split_entry,
)
from leadline.masking import HIDDEN, is_secret_name, mask_text
from leadline.plan.external_inputs import MOST_BYTES, FileInput, Secret, one_line

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Origin:
    """The server and path that a URL names."""

    scheme: Literal["http", "https"]
    host: str
    """Name or address, IPv6 without brackets."""
    port: int | None
    """None for the scheme's default port."""
    path: str
    """Path and query; empty if the URL has none."""

    @property
    def effective_port(self) -> int:
        """The port to connect to."""
        return self.port or (443 if self.scheme == "https" else 80)

    @property
    def url(self) -> str:
        """The URL that names it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}{'' if self.port is None else f':{self.port}'}{self.path}"

    def is_at(self, other: Origin) -> bool:
        """Whether both have the same scheme, host and port."""
        mine, theirs = ((one.scheme, one.host.lower(), one.effective_port) for one in (self, other))
        return mine == theirs


def parse_origin(url: str) -> Origin:
    """Parse a URL. Raises InputError."""
    hint = "write http://HOST[:PORT]/PATH"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise InputError(f"{_without_credentials(url)} is not a URL: {error}", hint=hint) from None
    if parts.scheme not in ("http", "https") or not host:
        raise InputError(f"{_without_credentials(url)} is not an http:// or https:// URL", hint=hint)
    if "@" in parts.netloc:
        raise InputError(f"{_without_credentials(url)} contains credentials", hint="give them with --basic")
    if not host.isascii():
        raise InputError(f"{host} is not a host name in ASCII", hint="write it as xn--...")
    scheme: Literal["http", "https"] = "https" if parts.scheme == "https" else "http"
    return Origin(scheme, host, port, _target(parts))


def _target(parts: SplitResult) -> str:
    """Path and query, without the fragment, which is never sent to a server."""
    query = f"?{parts.query}" if parts.query else ""
    path = parts.path or ("/" if query else "")
    return _or_input_error(lambda: path_and_query(path + query), "the URL") if path else ""


def headers(texts: list[str]) -> list[HttpHeader]:
    """Parse each `Name: value`. Raises InputError."""
    return [_header(text) for text in texts]


def _header(text: str) -> HttpHeader:
    name, colon, value = text.partition(":")
    name, value = name.strip(), value.strip()
    if not colon or not name:
        shown = f"{text.split(maxsplit=1)[0]} {HIDDEN}" if is_secret_name(text) and " " in text.strip() else text
        raise InputError(f"--header {shown!r} is not 'NAME: VALUE'", hint="write 'Name: value'")
    if value and is_secret_name(name):
        held = Secret(HIDDEN, _or_input_error(lambda: one_line(value, name), "--header"))
        return _or_input_error(lambda: HttpHeader(name=name, secret=held), "--header")
    return _or_input_error(lambda: HttpHeader(name=name, value=value), "--header")


def entries(name: str, origin: Origin) -> list[HttpEntry]:
    """The requests of a URL file, in order."""
    text = _or_input_error(FileInput(name, _bytes(name, "--urls")).text, "--urls")
    entries = []
    for number, line in enumerate(text.splitlines(), 1):
        content = line.partition("#")[0] if line.lstrip().startswith("#") else line.partition(" #")[0]
        if content.strip():
            entries.append(_entry(content, origin, f"{name}:{number}", Path(name).parent))
    if not entries:
        raise InputError(f"{name} has no requests", hint="write one per line: [weight=N] [METHOD] URL [@BODYFILE]")
    return entries


def _entry(line: str, origin: Origin, where: str, folder: Path) -> HttpEntry:
    weight, method, url, body = _or_input_error(lambda: split_entry(line), where)
    path = url
    if not url.startswith("/"):
        try:
            other = parse_origin(url)
        except InputError as error:
            raise InputError(f"{where}: {error.message}", hint=error.hint) from None
        if not other.is_at(origin):
            raise InputError(f"{where}: {url} is on another server than the URL", hint="all requests go to one server")
        path = other.path or "/"
    content = None if body is None else FileInput(body, _bytes(str(folder / body), where))
    return _or_input_error(lambda: HttpEntry(path=path, method=method, weight=weight, body=content), where)


def check_names(names: Iterable[str], origin: Origin, proxy: Secret | None) -> None:
    """Refuse a name that no connection resolves. With a proxy, connections resolve only the proxy's name. Raises
    InputError."""
    host, port = origin.host, origin.effective_port
    if proxy is not None:
        parts = urlsplit(proxy.value)
        host, port = parts.hostname or host, parts.port or port
    for name in names:
        own, _, rest = name.partition(":")
        if rest.partition(":")[0].isdigit() and (own.lower(), rest.partition(":")[0]) != (host.lower(), str(port)):
            whose = "the URL's" if proxy is None else "the proxy's"
            raise InputError(f"--resolve {name}: the name is not {whose}", hint=f"write {host}:{port}:ADDRESS")


def secret(text: str | None, option: str) -> Secret | None:
    """The secret itself, or the content of `@FILE`."""
    if text is None:
        return None
    if text.startswith("@"):
        value = _or_input_error(FileInput(text, _bytes(text[1:], option)).text, option)
        return Secret(text, _or_input_error(lambda: one_line(value, text), option))
    return Secret(HIDDEN, _or_input_error(lambda: one_line(text, "it"), option))


def proxy(text: str | None) -> Secret | None:
    """A proxy's URL, or the URL in `@FILE`. Raises InputError."""
    given = secret(text, "--proxy") if text is None or text.startswith("@") else proxy_secret(text)
    return None if given is None else _or_input_error(lambda: checked_proxy(given), "--proxy")


def body_file(name: str | None) -> FileInput | None:
    """The content of a file; of stdin for `-`. Raises InputError."""
    if name != "-":
        return file(name, "--body-file")
    content = sys.stdin.buffer.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise InputError("--body-file -: stdin holds too much", hint=f"at most {MOST_BYTES // 2**20} MiB")
    return FileInput(name, content)


def file(name: str | None, option: str) -> FileInput | None:
    """The content of a file. Raises InputError."""
    return None if name is None else FileInput(name, _bytes(name, option))


def _bytes(name: str, option: str) -> bytes:
    from leadline.plan.load import read_external_file

    return _or_input_error(lambda: read_external_file(Path(name), may_be_pipe=True), option)


def tcp_options(texts: list[str] | None) -> dict[str, Any] | None:
    """Socket options, as `delay` or `send-buffer=64KiB`, by the plan's keys."""
    if not texts:
        return None
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if name not in _TCP_FLAGS | _TCP_VALUES:
            hint = f"use {', '.join(sorted(_TCP_FLAGS | _TCP_VALUES))}"
            raise InputError(f"--tcp {name}: unknown socket option", hint=hint)
        if (name in _TCP_FLAGS) == bool(equals) or (equals and not value):
            example = name if name in _TCP_FLAGS else f"{name}=VALUE"
            raise InputError(f"--tcp {text}: the syntax is wrong", hint=f"write --tcp {example}")
        key = name.replace("-", "_")
        if key in found:
            raise InputError(f"--tcp {name}: given twice", hint="give it once")
        if name == "dscp" and not (value.isascii() and value.isdecimal()):
            raise InputError(f"--tcp {text}: not a DSCP value", hint="write a number from 0 to 63")
        found[key] = int(value) if name == "dscp" else value or True
    return found


def names(text: str | None) -> list[str] | None:
    """The names in a comma-separated list."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _or_input_error(read: Callable[[], T], where: str) -> T:
    """The value that `read` returns; its error becomes an InputError about `where`."""
    try:
        return read()
    except ValueError as error:
        text = str(error)
        if isinstance(error, ValidationError):
            text = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise InputError(f"{where}: {text}") from None


def _without_credentials(url: str) -> str:
    """A URL without its credentials, for messages."""
    shown = url if "@" not in url else f"{url.partition('://')[0]}://{HIDDEN}@{url.rpartition('@')[2]}"
    return mask_text(shown)


_TCP_FLAGS = frozenset({"delay", "fast-open"})
_TCP_VALUES = frozenset({"congestion", "send-buffer", "receive-buffer", "segment", "dscp", "user-timeout"})
