"""Finds values that one answer gave and a later request sends, and takes them from the answer instead. Pure.

Only texts that look like tokens are considered: long enough, with digits and letters mixed or many digits, and given
by exactly one earlier answer before any request sent them. Each is listed as a proposal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import quote, quote_plus, unquote, unquote_plus

from leadline.scenario.conversion import Conversion, Made

MOST_BODY_CHARACTERS = 2_000_000
SHORTEST = 8
LONGEST = 4096
MOST_VALUES = 2_000
MOST_DEPTH = 60


@dataclass(slots=True)
class Exchange:
    """A request and its answer."""

    what: str
    request: Made
    start_ms: float
    end_ms: float
    body: str
    headers: list[tuple[str, str]]
    cookies: list[str] = field(default_factory=list)
    """Values of Set-Cookie."""
    url: str = ""
    """Where redirects have led; empty without one."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value was given."""

    exchange: int
    name: str
    """What it is called there."""
    extractor: tuple[tuple[str, Any], ...]
    is_encoded: bool = False
    """Whether what is extracted is percent-encoded, unlike the value."""


_Given: TypeAlias = tuple[str, str, tuple[tuple[str, Any], ...]]
"""A value, its name, and the extractor."""


def correlate(exchanges: list[Exchange], conversion: Conversion) -> list[set[int]]:
    """Replace values in requests with variables, and extract these from the answers that gave them.

    Returns for each exchange the indexes of those whose answers it needs.
    """
    origins: dict[str, Origin] = {}
    sent: set[str] = set()
    variables: dict[str, str] = {}
    taken: dict[str, int] = {}
    pending = sorted(range(len(exchanges)), key=lambda index: exchanges[index].end_ms)
    givers: list[set[int]] = []
    for exchange in exchanges:
        givers.append(set())
        while pending and exchanges[pending[0]].end_ms <= exchange.start_ms:
            _learn(pending.pop(0), exchanges, origins, sent)
        candidates = _values_sent(exchange.request)
        for value in sorted(candidates, key=len, reverse=True):
            origin = origins.get(value)
            if origin is not None:
                giver = exchanges[origin.exchange]
                if value not in variables:
                    variables[value] = _extract(origin, _free_name(origin, taken), giver, conversion)
                name = variables[value]
                _replace(exchange.request, value, f"url_decode({name})" if origin.is_encoded else name)
                givers[-1].add(origin.exchange)
                conversion.changed(exchange.what, None, f"{_short(value)} is the {name} of {giver.what}")
        sent |= candidates
    return givers


def _learn(index: int, exchanges: list[Exchange], origins: dict[str, Origin], sent: set[str]) -> None:
    """Remember the values of an answer that were never sent before; of several answers the first one counts."""
    if len(origins) > MOST_VALUES * 10:
        return
    exchange = exchanges[index]
    for value, name, extractor in _values_given(exchange):
        if value not in sent and value not in origins:
            origins[value] = Origin(index, name, extractor)
    for text, name, extractor in _encoded_given(exchange):
        value = unquote(text)
        # What is extracted is decoded as a form is, where a plus is a space.
        if is_token(value) and value not in sent and value not in origins and (value == text or "+" not in text):
            origins[value] = Origin(index, name, extractor, is_encoded=value != text)


def _free_name(origin: Origin, taken: dict[str, int]) -> str:
    """A name for an origin's variable; `taken` has all names, each with the last number of those that begin with it."""
    base = re.sub(r"[^A-Za-z0-9_]+", "_", origin.name).strip("_").lower() or "value"
    base = f"v_{base}" if base[0].isdigit() else base[:60]
    name = base
    while name in taken:
        taken[base] += 1
        name = f"{base}_{taken[base]}"
    taken[name] = 1
    return name


def _extract(origin: Origin, name: str, giver: Exchange, conversion: Conversion) -> str:
    """Take a variable from the answer that gives it."""
    giver.request.setdefault("extract", {})[name] = dict(origin.extractor)
    conversion.changed(giver.what, None, f"{name} is taken from its answer (correlation)")
    return name


def _values_given(exchange: Exchange) -> Iterator[_Given]:
    """Values of an answer with a name and the extractor: from JSON, hidden fields and meta tags of HTML, headers."""
    for name, text in exchange.headers:
        if name.lower() not in _USUAL_HEADERS and is_token(text):
            yield text, name, (("header", name),)
    body = exchange.body
    if not body or len(body) > MOST_BODY_CHARACTERS:
        return
    if body.lstrip()[:1] in ("{", "["):
        try:
            document = json.loads(body)
        except (ValueError, RecursionError):
            return
        yield from _of_json(document, "$", "value", 0)
    elif "<" in body[:2000]:
        yield from _of_html(body)


def _encoded_given(exchange: Exchange) -> Iterator[_Given]:
    """Values that may be percent-encoded: cookies, and parameters of the URLs that an answer leads to."""
    for line in exchange.cookies:
        name, _, text = line.partition(";")[0].strip().partition("=")
        if _COOKIE.fullmatch(name):
            yield text.strip('"'), name, (("cookie", name),)
    locations = [("(?i)location:.*", text, "headers") for name, text in exchange.headers if name.lower() == "location"]
    for before, url, source in [("", exchange.url, "url"), *locations]:
        for name, text in re.findall(r"[?&]([\w.\-]+)=([^&#\s]+)", url)[:MOST_VALUES]:
            yield text, name, (("regex", f"{before}[?&]{re.escape(name)}=([^&#\\s]+)"), ("from", source))


def _of_json(value: Any, path: str, name: str, depth: int) -> Iterator[_Given]:
    if depth > MOST_DEPTH:
        return
    if isinstance(value, dict):
        for key, entry in list(value.items())[:MOST_VALUES]:
            step = f".{key}" if re.fullmatch(r"[A-Za-z_]\w*", key, re.ASCII) else f"[{json.dumps(key)}]"
            yield from _of_json(entry, path + step, key, depth + 1)
    elif isinstance(value, list):
        for index, entry in enumerate(value[:50]):
            yield from _of_json(entry, f"{path}[{index}]", name, depth + 1)
    elif isinstance(value, str | int) and is_token(str(value)) and "${" not in path:
        yield str(value), name, (("json", path),)


def _of_html(body: str) -> Iterator[_Given]:
    """Values of input fields and of meta tags, by their names."""
    for tag in re.findall(r"<(?:input|meta)\b[^<>]{1,2000}>", body, re.IGNORECASE)[:MOST_VALUES]:
        attributes = {key.lower(): value or other for key, value, other in _ATTRIBUTE.findall(tag)}
        name = attributes.get("name", "")
        key = "value" if tag[1:2].lower() == "i" else "content"
        value = attributes.get(key, "")
        if re.fullmatch(r"[\w.\-:\[\]]{1,100}", name) and is_token(value):
            is_first = re.search(rf"\b{key}\s*=", tag).start() < re.search(r"\bname\s*=", tag).start()  # type: ignore[union-attr]
            named, given = f"name=[\"']{re.escape(name)}[\"']", f"{key}=[\"']([^\"']*)[\"']"
            pattern = f"{given}[^<>]*{named}" if is_first else f"{named}[^<>]*{given}"
            yield value, name, (("regex", f"(?i)<{tag[1:].split()[0].lower()}\\b[^<>]*{pattern}"),)


def _values_sent(request: Made) -> set[str]:
    """Texts of a request that may be values: in its URL, headers and body."""
    found: set[str] = set()
    for text in _texts(request):
        for part in re.findall(r"[^\s?&=;,/\"'<>{}\[\]()]{8,4096}", text)[:MOST_VALUES]:
            for value in (part, unquote_plus(part)):
                if is_token(value):
                    found.add(value)
        if is_token(text):
            found.add(text)
        bearer = re.fullmatch(r"(?:Bearer|Token|Basic)\s+(\S+)", text)
        if bearer and is_token(bearer[1]):
            found.add(bearer[1])
    return found


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, entry in value.items():
            if key not in ("name", "extract", "_base", "_request", "ok", "method"):
                yield from _texts(entry)
            elif key == "name" and "value" in value:
                continue
    elif isinstance(value, list):
        for entry in value:
            yield from _texts(entry)
    elif isinstance(value, str):
        yield value


def is_token(text: str) -> bool:
    """Whether a text looks like something that an answer gave: no word, and no small number."""
    if not SHORTEST <= len(text) <= LONGEST or "${" in text or any(character.isspace() for character in text):
        return False
    digits = sum(character.isdigit() for character in text)
    letters = sum(character.isalpha() for character in text)
    if text.startswith(("http://", "https://")) or (re.fullmatch(r"[\d.:/\-T]+Z?", text) and not text.isdecimal()):
        return False
    return (
        (digits >= 2 and letters >= 2)
        or (digits == len(text))
        or (len(text) >= 20 and letters >= 16 and "." not in text)
    )


def _replace(request: Made, value: str, name: str) -> None:
    """Put the variable in the value's place, also where the value is percent-encoded."""
    for key in ("get", "post", "put", "delete", "patch", "head", "options", "url"):
        if key in request:
            request[key] = _in_url(request[key], value, name)
    for key in ("headers", "form", "multipart", "body"):
        if key in request:
            request[key] = _in_value(request[key], value, f"${{{name}}}")


def _in_url(url: str, value: str, name: str) -> str:
    encoded = [form for form in (quote(value, safe=""), quote_plus(value)) if form != value]
    for form in encoded:
        url = url.replace(form, f"${{url_encode({name})}}")
    return url.replace(value, f"${{{name}}}")


def _in_value(entry: Any, value: str, variable: str) -> Any:
    if isinstance(entry, dict):
        return {
            key: _in_value(one, value, variable) if key != "name" or "value" not in entry else one
            for key, one in entry.items()
        }
    if isinstance(entry, list):
        return [_in_value(one, value, variable) for one in entry]
    return entry.replace(value, variable) if isinstance(entry, str) else entry


def _short(value: str) -> str:
    return value if len(value) <= 24 else f"{value[:21]}..."


_ATTRIBUTE = re.compile(r"([\w\-]+)\s*=\s*(?:\"([^\"]*)\"|'([^']*)')")
_COOKIE = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_USUAL_HEADERS = frozenset({
    "date", "etag", "last-modified", "content-length", "content-type", "server", "age", "expires", "cache-control",
    "set-cookie", "location", "x-request-id", "x-trace-id", "cf-ray", "via", "x-cache", "strict-transport-security",
    "vary",
    "content-security-policy", "alt-svc", "report-to", "nel", "p3p", "link", "content-encoding", "accept-ranges",
    "content-md5", "digest", "permissions-policy", "access-control-allow-headers", "x-powered-by", "x-amz-cf-id",
})  # fmt: skip
"""Headers whose values are no values of the application."""
