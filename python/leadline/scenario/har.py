"""Reads HAR 1.2 files of Chrome, Firefox and mitmproxy as scenarios: which entries are sent, and their requests.

Owns the format. Cookies come from the jar and not from the file. `har_flow` arranges the requests in pages, parallel
requests and pauses; `correlation` finds values that one answer gave and a later request sends. Pure.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urldefrag, urljoin, urlsplit

from leadline.errors import PlanError
from leadline.plan.source import Node
from leadline.scenario.conversion import Conversion, Made, hoist, ordered, tree
from leadline.scenario.correlation import Exchange, correlate
from leadline.scenario.har_bodies import add_body
from leadline.scenario.har_flow import Entry, flow_of
from leadline.scenario.har_values import (
    is_wanted_host,
    literal,
    lower_pairs_of,
    mapping_of,
    one_line,
    pairs_of,
)

MOST_ENTRIES = 20_000
MAX_REDIRECT_GAP_MS = 2000
"""From the end of an answer that redirects to the beginning of its target; one that begins later is a visit."""


def read_har(
    content: bytes, file: str, *, only_hosts: Sequence[str] = (), correlates: bool = True
) -> tuple[Node, Conversion]:
    """The scenario of a HAR file, and what became of its entries.

    Raises:
        PlanError: it is no HAR file, or has no request that can be sent.
    """
    log = _log(content, file)
    conversion = Conversion(file)
    raw = log["entries"]
    if len(raw) > MOST_ENTRIES:
        raise PlanError(file, None, f"more than {MOST_ENTRIES} entries are too many")
    entries = [entry for index, one in enumerate(raw) if (entry := _entry(index + 1, one, conversion)) is not None]
    entries.sort(key=lambda entry: entry.start_ms)
    entries = list(_sendable(entries, only_hosts, conversion))
    if not entries:
        reasons = Counter(item.why for item in conversion.items).most_common(1)
        why = f": {reasons[0][1]} x {reasons[0][0]}" if reasons else ": it has no entries"
        raise PlanError(file, None, f"no entry of it can be sent{why}", hint="see --only-host, or record again")
    for entry in entries:
        entry.made = _request(entry, conversion)
    if correlates:
        givers = correlate([_exchange(entry) for entry in entries], conversion)
        for entry, indexes in zip(entries, givers, strict=True):
            entry.needs = {entries[index].number for index in indexes}
    _codings(entries, conversion)
    titles = {page: literal(title) for page, title in _titles(log).items()}
    flow = flow_of(entries, titles, conversion)
    document: dict[str, Any] = {"name": _name(file), "load": {"users": 1, "iterations": 1}, "flow": flow}
    if only_hosts:
        document["targets"] = _origins(entries)
    hoist(document)
    return tree(ordered(document, ("name", "base", "targets", "http", "load", "flow")), file, None), conversion


def _log(content: bytes, file: str) -> dict[str, Any]:
    hint = "export it as HAR 1.2"
    try:
        document = json.loads(content.decode("utf-8-sig"), parse_constant=lambda word: None)
    except UnicodeDecodeError:
        raise PlanError(file, None, "this is not text in UTF-8", hint=hint) from None
    except json.JSONDecodeError as error:
        raise PlanError(file, error.lineno, f"not JSON: {error.msg}", hint=hint) from None
    except (RecursionError, ValueError) as error:
        words = "nested too deeply" if isinstance(error, RecursionError) else "a number has too many digits"
        raise PlanError(file, None, f"not JSON: {words}", hint=hint) from None
    log = document.get("log") if isinstance(document, dict) else None
    if not isinstance(log, dict) or not isinstance(log.get("entries"), list):
        raise PlanError(file, 1, "not a HAR file: it has no log with entries", hint=hint)
    return log


def _entry(number: int, one: Any, conversion: Conversion) -> Entry | None:
    """An entry with its times; None if it lacks what a request needs."""
    request = mapping_of(mapping_of(one).get("request"))
    method, url = request.get("method"), request.get("url")
    start_ms = _instant_ms(mapping_of(one).get("startedDateTime"))
    if not isinstance(method, str) or not isinstance(url, str) or start_ms is None or not _TOKEN.fullmatch(method):
        lacks = "method" if not isinstance(method, str) else "URL" if not isinstance(url, str) else "time"
        conversion.dropped(
            f"entry {number}", None, f"it has no {lacks}" if start_ms is None else "it has no method or URL"
        )
        return None
    page = one.get("pageref")
    length_ms = _length_ms(one)
    queued_ms = _known_ms(mapping_of(one.get("timings")).get("blocked"))
    response = mapping_of(one.get("response"))
    cache = one.get("_fromCache")
    return Entry(
        number, page if isinstance(page, str) else None, start_ms, start_ms + min(queued_ms, length_ms),
        start_ms + length_ms, method.upper(), url, request, response,
        cache if isinstance(cache, str) else "",
    )  # fmt: skip


def _length_ms(one: dict[str, Any]) -> float:
    """The time of an entry, with what it waited in the browser's queue; -1 is not applicable."""
    timings = mapping_of(one.get("timings"))
    # By the specification ssl is inside of connect, so it is not added.
    known_ms = sum(_known_ms(timings.get(key)) for key in ("blocked", "dns", "connect", "send", "wait", "receive"))
    total = one.get("time")
    return _known_ms(total) if total == 0 or _known_ms(total) else known_ms


def _known_ms(value: Any) -> float:
    """A time of the file; 0 if it is missing, not applicable or absurd."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 < value < 1e8 else 0.0


def _sendable(entries: list[Entry], only_hosts: Sequence[str], conversion: Conversion) -> Iterable[Entry]:
    """The entries that are sent; the others are reported."""
    redirects = _Redirects(only_hosts)
    for entry in entries:
        reason = _why_not_sent(entry, only_hosts)
        if reason is not None:
            conversion.dropped(entry.what, None, reason)
        elif (first := redirects.take(entry)) is not None:
            first.hops.append(entry)
            first.end_ms = max(first.end_ms, entry.end_ms)
            conversion.dropped(entry.what, None, "a redirect that is followed")
            redirects.note(first, entry)
        else:
            if _status(entry) == 0:
                conversion.changed(entry.what, None, "it had no answer when it was recorded")
            yield entry
            redirects.note(entry, entry)
            if entry.follows is not None:
                why = "its redirect is not followed: it leads to a host that is not one of --only-host"
                conversion.changed(entry.what, None, why)


def _why_not_sent(entry: Entry, only_hosts: Sequence[str]) -> str | None:
    """Why an entry is no request of its own; None if it is one."""
    try:
        parts = urlsplit(entry.url)
        host = parts.hostname
    except ValueError:
        parts, host = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not host:
        return "a URL in the page itself" if parts.scheme in ("data", "blob", "about") else "no URL for HTTP"
    if not is_wanted_host(host, only_hosts):
        return "its host is not one of --only-host"
    if entry.from_cache:
        return f"from the browser's cache ({entry.from_cache}): it was not sent"
    if _is_websocket(entry):
        return "a WebSocket"
    return "a tunnel through a proxy" if entry.method == "CONNECT" else None


class _Redirects:
    """The targets of answers that redirect: their entries follow at once, and must not be sent twice."""

    def __init__(self, only_hosts: Sequence[str]) -> None:
        self._only_hosts = only_hosts
        self._targets: dict[str, list[tuple[Entry, float]]] = {}

    def take(self, entry: Entry) -> Entry | None:
        """The entry whose redirect leads to this one; None if it is a visit of its own."""
        waiting = self._targets.get(urldefrag(entry.url).url, [])
        while waiting:
            first, ended_ms = waiting.pop(0)
            if entry.start_ms - ended_ms <= MAX_REDIRECT_GAP_MS:
                return first
        return None

    def note(self, first: Entry, hop: Entry) -> None:
        """Note where an answer redirects to. One to an unwanted host is not followed."""
        target = hop.response.get("redirectURL") or dict(lower_pairs_of(hop.response.get("headers"))).get("location")
        if _status(hop) not in (301, 302, 303, 307, 308) or not isinstance(target, str) or not target:
            return
        try:
            joined = urldefrag(urljoin(hop.url, target)).url
            host = urlsplit(joined).hostname or ""
        except ValueError:
            return
        if not is_wanted_host(host, self._only_hosts):
            first.follows = len(first.hops)
            return
        self._targets.setdefault(joined, []).append((first, hop.end_ms))


def _origins(entries: list[Entry]) -> list[str]:
    """The origins of all requests, and their hosts at the usual ports, to which a redirect may lead."""
    found: dict[str, None] = {}
    for entry in entries:
        for one in (entry, *entry.hops):
            parts = urlsplit(one.url)
            host = _host(parts.hostname or "")
            found[f"{parts.scheme}://{parts.netloc.rpartition('@')[2].lower()}"] = None
            found |= {f"http://{host}": None, f"https://{host}": None}
    return list(found)


def _is_websocket(entry: Entry) -> bool:
    upgrade = next((value for name, value in pairs_of(entry.request.get("headers")) if name.lower() == "upgrade"), "")
    return upgrade.lower() == "websocket" or _status(entry) == 101


def _status(entry: Entry) -> int:
    status = entry.response.get("status")
    return status if isinstance(status, int) and not isinstance(status, bool) else 0


def _request(entry: Entry, conversion: Conversion) -> Made:
    """The native request of an entry."""
    parts = urlsplit(entry.url)
    try:
        port = parts.port
    except ValueError:
        port = None
    base = f"{parts.scheme}://{literal(_host(parts.hostname or ''))}" + (f":{port}" if port else "")
    path = literal((parts.path or "/") + (f"?{parts.query}" if parts.query else ""))
    key = entry.method.lower() if entry.method in _METHODS else "url"
    made = Made(None, {key: path})
    if key == "url":
        made["method"] = entry.method
    made["name"] = literal(f"{entry.method} {parts.path or '/'}")
    _headers(entry, made)
    add_body(entry, made, conversion)
    status = _status(entry.last)
    if status >= 400:
        made["ok"] = f"200-399,{status}"
        conversion.changed(entry.what, None, f"its status was {status}: this is no failure")
    if entry.follows is not None:
        made["follow"] = entry.follows
    made["_request"], made["_base"] = key, base
    conversion.kept(entry.what, None)
    return made


def _host(name: str) -> str:
    return f"[{name}]" if ":" in name else name


def _headers(entry: Entry, made: Made) -> None:
    """The headers that a user of the same browser would send: cookies come from the jar, validators from a cache."""
    found: dict[str, tuple[str, str]] = {}
    for name, value in pairs_of(entry.request.get("headers")):
        lower = name.lower()
        if name.startswith(":") or lower in _NOT_SENT or not _TOKEN.fullmatch(name):
            continue
        found[lower] = (name, f"{found[lower][1]}, {value}" if lower in found else value)
    headers = {name: literal(one_line(value)) for name, value in found.values()}
    if headers:
        made["headers"] = headers


def _codings(entries: list[Entry], conversion: Conversion) -> None:
    """Leave out the codings of which a request's values cannot be read."""
    left_out: dict[str, int] = {}
    for entry in entries:
        headers = entry.made.get("headers", {})
        name = next((name for name in headers if name.lower() == "accept-encoding"), None)
        extractors = entry.made.get("extract", {}).values()
        reads_body = any({"json", "css", "regex"} & one.keys() and "from" not in one for one in extractors)
        if name is None or not reads_body:
            continue
        codings = [coding.strip() for coding in headers[name].split(",")]
        read = [coding for coding in codings if coding.partition(";")[0].strip().lower() in _READ_CODINGS]
        for coding in codings:
            if coding not in read:
                left_out[coding] = left_out.get(coding, 0) + 1
        entry.made["headers"] = {**headers, name: ", ".join(read) or "identity"}
    for coding, count in left_out.items():
        whose = f"{count} request{'s' if count > 1 else ''} from whose answers values are taken"
        conversion.changed(f"Accept-Encoding {coding}", None, f"{whose} ask for other codings: this one is not read")


def _exchange(entry: Entry) -> Exchange:
    """A request with its answer; of one that is redirected the last answer, but the cookies of all."""
    content = mapping_of(entry.last.response.get("content"))
    text = content.get("text")
    body = text if isinstance(text, str) else ""
    if content.get("encoding") == "base64":
        try:
            body = base64.b64decode(body).decode("utf-8")
        except (binascii.Error, UnicodeDecodeError, ValueError):
            body = ""
    headers = pairs_of(entry.last.response.get("headers"))
    given = [pair for hop in (entry, *entry.hops) for pair in lower_pairs_of(hop.response.get("headers"))]
    # Browsers put several fields of one name in one value, a line each.
    cookies = [line for name, value in given if name == "set-cookie" for line in value.split("\n")]
    url = entry.last.url if entry.hops else ""
    return Exchange(entry.what, entry.made, entry.start_ms, entry.end_ms, body, headers, cookies, url)


def _titles(log: dict[str, Any]) -> dict[str, str]:
    pages = log.get("pages")
    return {
        str(page.get("id")): str(page.get("title") or page.get("id"))
        for page in (pages if isinstance(pages, list) else [])
        if isinstance(page, dict)
    }


def _instant_ms(text: Any) -> float | None:
    if not isinstance(text, str):
        return None
    # Python reads six digits of a second; some browsers write nine.
    shortened = re.sub(r"(\.\d{6})\d+", r"\1", text.strip()).replace("Z", "+00:00")
    try:
        found = datetime.fromisoformat(shortened)
    except ValueError:
        return None
    try:
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000
    except (OverflowError, ValueError):
        return None


def _name(file: str) -> str:
    stem = file.replace("\\", "/").rpartition("/")[2].rpartition(".")[0]
    return stem or "recording"


_METHODS = frozenset({"GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"})
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}")
_READ_CODINGS = frozenset({"gzip", "x-gzip", "deflate", "identity"})
"""Codings of bodies that extractors read."""
_NOT_SENT = frozenset({
    "host", "content-length", "cookie", "connection", "proxy-connection", "keep-alive", "transfer-encoding", "te",
    "upgrade", "if-none-match", "if-modified-since", "if-match", "if-unmodified-since", "if-range", "expect",
    "content-transfer-encoding", "alt-used", "priority",
})  # fmt: skip
"""Headers that belong to a connection, to the jar or to a cache, and would be wrong in another session."""
