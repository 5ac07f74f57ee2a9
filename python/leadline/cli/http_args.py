"""From what stands on the command line of `leadline http` to the test that a plan would hold.

Owns how options are written: headers, URL files, secrets, socket and TLS options. Which values exclude each other is
left to `leadline.plan.http`, whose errors are reported by the options' names.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import SplitResult, urlsplit

from pydantic import ValidationError

from leadline.cli.single_args import listed
from leadline.errors import InputError
from leadline.plan.external_inputs import HIDDEN, MOST_BYTES, FileInput, Secret, one_line
from leadline.plan.http_parts import (
    HttpEntry,
    HttpHeader,
    checked_proxy,
    is_secret_header,
    path_and_query,
    proxy_secret,
    split_entry,
)

T = TypeVar("T")

OptionValues = Mapping[str, Any]
"""The options by their names in `leadline.cli.http.command`."""

OPTIONS = {
    "script_args": "script",
    "rate_per_s": "rate",
    "basic": "basic",
    "headers": "header",
    "tls.verify": "insecure",
    "tls.versions": "tls",
    "tls.cert": "cert",
    "tls.key": "key",
    "tls.ca": "ca",
    "tls.ciphers": "ciphers",
    "tls.alpn": "alpn",
    "tls.server_name": "server-name",
    "tls.resume": "resume",
    "tls.early_data": "early-data",
}
"""Options that have another name than the plan's key."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a URL leads."""

    scheme: Literal["http", "https"]
    host: str
    """Name or address, IPv6 without brackets."""
    port: int | None
    """The scheme's own where None."""
    path: str
    """Path and query; empty where the URL has none."""

    @property
    def effective_port(self) -> int:
        """The port that is connected to."""
        return self.port or (443 if self.scheme == "https" else 80)

    def is_at(self, other: Origin) -> bool:
        """Whether both are one scheme, host and port."""
        mine, theirs = ((one.scheme, one.host.lower(), one.effective_port) for one in (self, other))
        return mine == theirs


def parse_origin(url: str) -> Origin:
    """Read a URL. Raises InputError."""
    hint = "write http://HOST[:PORT]/PATH"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise InputError(f"{_without_credentials(url)} is not a URL: {error}", hint=hint) from None
    if parts.scheme not in ("http", "https") or not host:
        raise InputError(f"{_without_credentials(url)} is not an http:// or https:// URL", hint=hint)
    if "@" in parts.netloc:
        raise InputError(f"{_without_credentials(url)} holds credentials", hint="give them with --basic")
    if not host.isascii():
        raise InputError(f"{host} is not a host name in ASCII", hint="write it as xn--...")
    scheme: Literal["http", "https"] = "https" if parts.scheme == "https" else "http"
    return Origin(scheme, host, port, _target(parts))


def test_values(options: OptionValues, origin: Origin) -> dict[str, Any]:
    """The test's keys and values, as `single_args.parse` takes them. Raises InputError for what cannot be read."""
    entries = _entries(options["urls"], origin) if options["urls"] is not None else None
    if entries is not None and origin.path not in ("", "/"):
        raise InputError("--urls beside a URL with a path", hint="every line has its own; write http://HOST[:PORT]")
    proxy = _proxy(options["proxy"])
    if options["resolve"]:
        _check_names(options["resolve"], origin, proxy)
    same = (
        "duration", "warmup", "number", "connections", "threads", "rate", "method", "timeout", "connect_timeout",
        "redirects", "keep_alive", "requests_per_connection", "bind", "resolve", "dns", "unix_socket", "cpus", "body",
    )  # fmt: skip
    return {
        "name": "http",
        "scheme": origin.scheme,
        "path": None if entries is not None else origin.path or "/",
        "urls": entries,
        "script": _file(options["script"], "--script"),
        "script_args": options["rest"] or None,
        "headers": [_header(text) for text in options["header"] or []],
        "body_file": _body_file(options["body_file"]),
        "basic": _secret(options["basic"], "--basic"),
        "bearer": _secret(options["bearer"], "--bearer"),
        "proxy": proxy,
        "tcp": _tcp(options["tcp"]),
        "tls": _tls(options, origin),
        "percentiles": listed(options["percentiles"]),
        **{key: options[key] for key in same},
    }


def _target(parts: SplitResult) -> str:
    """Path and query; a fragment never goes to a server."""
    query = f"?{parts.query}" if parts.query else ""
    path = parts.path or ("/" if query else "")
    return _or_input_error(lambda: path_and_query(path + query), "the URL") if path else ""


def _header(text: str) -> HttpHeader:
    name, colon, value = text.partition(":")
    name, value = name.strip(), value.strip()
    if not colon or not name:
        raise InputError(f"--header {text!r} has no name and colon", hint="write 'Name: value'")
    if value and is_secret_header(name):
        held = Secret(HIDDEN, _or_input_error(lambda: one_line(value, name), "--header"))
        return _or_input_error(lambda: HttpHeader(name=name, secret=held), "--header")
    return _or_input_error(lambda: HttpHeader(name=name, value=value), "--header")


def _entries(name: str, origin: Origin) -> list[HttpEntry]:
    """The requests of a file, in order."""
    text = _or_input_error(FileInput(name, _bytes(name, "--urls")).text, "--urls")
    entries = []
    for number, line in enumerate(text.splitlines(), 1):
        content = line.partition("#")[0] if line.lstrip().startswith("#") else line.partition(" #")[0]
        if content.strip():
            entries.append(_entry(content, origin, f"{name}:{number}", Path(name).parent))
    if not entries:
        raise InputError(f"{name} has no requests", hint="one a line: [weight=N] [METHOD] URL [@BODYFILE]")
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
            raise InputError(f"{where}: {url} is not on the server of the URL", hint="all requests go to one server")
        path = other.path or "/"
    content = None if body is None else FileInput(body, _bytes(str(folder / body), where))
    return _or_input_error(lambda: HttpEntry(path=path, method=method, weight=weight, body=content), where)


def _check_names(names: Iterable[str], origin: Origin, proxy: Secret | None) -> None:
    """A name that nobody asks for is a mistake; connections go to the proxy where there is one."""
    host, port = origin.host, origin.effective_port
    if proxy is not None:
        parts = urlsplit(proxy.value)
        host, port = parts.hostname or host, parts.port or port
    for name in names:
        own, _, rest = name.partition(":")
        if rest.partition(":")[0].isdigit() and (own.lower(), rest.partition(":")[0]) != (host.lower(), str(port)):
            whose = "the URL's" if proxy is None else "the proxy's"
            raise InputError(f"--resolve {name}: that is not {whose} name", hint=f"write {host}:{port}:ADDRESS")


def _secret(text: str | None, option: str) -> Secret | None:
    """What was given itself, or stands in `@FILE`."""
    if text is None:
        return None
    if text.startswith("@"):
        value = _or_input_error(FileInput(text, _bytes(text[1:], option)).text, option)
        return Secret(text, _or_input_error(lambda: one_line(value, text), option))
    return Secret(HIDDEN, _or_input_error(lambda: one_line(text, "it"), option))


def _proxy(text: str | None) -> Secret | None:
    secret = _secret(text, "--proxy") if text is None or text.startswith("@") else proxy_secret(text)
    return None if secret is None else _or_input_error(lambda: checked_proxy(secret), "--proxy")


def _body_file(name: str | None) -> FileInput | None:
    if name != "-":
        return _file(name, "--body-file")
    content = sys.stdin.buffer.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise InputError("--body-file -: stdin holds too much", hint=f"at most {MOST_BYTES // 2**20} MiB")
    return FileInput(name, content)


def _file(name: str | None, option: str) -> FileInput | None:
    return None if name is None else FileInput(name, _bytes(name, option))


def _bytes(name: str, option: str) -> bytes:
    from leadline.plan.load import read_external_file

    return _or_input_error(lambda: read_external_file(Path(name), may_be_pipe=True), option)


def _tcp(texts: list[str] | None) -> dict[str, Any] | None:
    """`delay`, `send-buffer=64KiB`, as the plan's keys."""
    if not texts:
        return None
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if name not in _TCP_FLAGS | _TCP_VALUES:
            hint = f"there is {', '.join(sorted(_TCP_FLAGS | _TCP_VALUES))}"
            raise InputError(f"--tcp {name}: unknown socket option", hint=hint)
        if (name in _TCP_FLAGS) == bool(equals) or (equals and not value):
            example = name if name in _TCP_FLAGS else f"{name}=VALUE"
            raise InputError(f"--tcp {text}: not how it is written", hint=f"write --tcp {example}")
        key = name.replace("-", "_")
        if key in found:
            raise InputError(f"--tcp {name}: given twice", hint="give it once")
        if name == "dscp" and not (value.isascii() and value.isdecimal()):
            raise InputError(f"--tcp {text}: not a code point", hint="write a number from 0 to 63")
        found[key] = int(value) if name == "dscp" else value or True
    return found


def _tls(options: OptionValues, origin: Origin) -> dict[str, Any] | None:
    """What was asked for of TLS; None where nothing was, so that an http URL has none to complain about."""
    asked = {
        "verify": False if options["insecure"] else None,
        "ca": _file(options["ca"], "--ca"),
        "cert": _file(options["cert"], "--cert"),
        "key": _file(options["key"], "--key"),
        "versions": options["tls"],
        "ciphers": _names(options["ciphers"]),
        "alpn": _names(options["alpn"]),
        "server_name": options["server_name"],
        "resume": options["resume"],
        "early_data": options["early_data"] or None,
    }
    found = {key: value for key, value in asked.items() if value is not None}
    if found and origin.scheme == "http":
        option = OPTIONS[f"tls.{next(iter(found))}"]
        raise InputError(f"--{option} with an http:// URL", hint="TLS is for https:// URLs")
    return found or None


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _or_input_error(read: Callable[[], T], where: str) -> T:
    """What `read` returns; its error becomes one about `where`."""
    try:
        return read()
    except ValueError as error:
        text = str(error)
        if isinstance(error, ValidationError):
            text = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise InputError(f"{where}: {text}") from None


def _without_credentials(url: str) -> str:
    """A URL for a message, without credentials."""
    return url if "@" not in url else f"{url.partition('://')[0]}://{HIDDEN}@{url.rpartition('@')[2]}"


_TCP_FLAGS = frozenset({"delay", "fast-open"})
_TCP_VALUES = frozenset({"congestion", "send-buffer", "receive-buffer", "segment", "dscp", "user-timeout"})
