"""Reads HAR 1.2 files of Chrome, Firefox and mitmproxy as scenarios: pages as transactions, overlap, pauses.

Owns the format. A pause is the time from the end of what came before to the start of the next request; requests of a
page that overlap are fetched in parallel. Cookies come from the jar and not from the file. `correlation` finds values
that one answer gave and a later request sends. Pure.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, unquote_plus, urljoin, urlsplit

from leadline.errors import PlanError
from leadline.plan.source import Node
from leadline.scenario.conversion import Conversion, Made, hoist, ordered, tree
from leadline.scenario.correlation import Exchange, correlate

SHORTEST_PAUSE_MS = 1
LONGEST_PAUSE_MS = 600_000
MOST_ENTRIES = 20_000


@dataclass(slots=True)
class Entry:
    """One request of the file."""

    number: int
    page: str | None
    start_ms: float
    end_ms: float
    method: str
    url: str
    request: dict[str, Any]
    response: dict[str, Any]
    made: Made = field(default_factory=lambda: Made(None))

    @property
    def what(self) -> str:
        """Its name in reports: the number from 1, and what it asks for."""
        return f"entry {self.number} {self.method} {self.url[:80]}"


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
    entries = list(_sendable(entries, only_hosts, conversion))
    if not entries:
        raise PlanError(file, None, "no entry of it can be sent", hint="see --only-host, or record again")
    entries.sort(key=lambda entry: entry.start_ms)
    for entry in entries:
        entry.made = _request(entry, conversion)
    if correlates:
        correlate([_exchange(entry) for entry in entries], conversion)
    flow = _pages(entries, _titles(log), conversion)
    document: dict[str, Any] = {"name": _name(file), "load": {"users": 1, "iterations": 1}, "flow": flow}
    hoist(document)
    return tree(ordered(document, ("name", "base", "http", "load", "flow")), file, None), conversion


def _log(content: bytes, file: str) -> dict[str, Any]:
    hint = "export it as HAR 1.2"
    try:
        document = json.loads(content.decode("utf-8-sig"), parse_constant=lambda word: None)
    except UnicodeDecodeError:
        raise PlanError(file, None, "this is not text in UTF-8", hint=hint) from None
    except json.JSONDecodeError as error:
        raise PlanError(file, error.lineno, f"not JSON: {error.msg}", hint=hint) from None
    except (RecursionError, ValueError) as error:
        words = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise PlanError(file, None, f"not JSON: {words}", hint=hint) from None
    log = document.get("log") if isinstance(document, dict) else None
    if not isinstance(log, dict) or not isinstance(log.get("entries"), list):
        raise PlanError(file, 1, "not a HAR file: it has no log with entries", hint=hint)
    return log


def _entry(number: int, one: Any, conversion: Conversion) -> Entry | None:
    """An entry with its times; None if it lacks what a request needs."""
    request = _mapping(_mapping(one).get("request"))
    method, url = request.get("method"), request.get("url")
    start_ms = _instant_ms(_mapping(one).get("startedDateTime"))
    if not isinstance(method, str) or not isinstance(url, str) or start_ms is None or not _TOKEN.fullmatch(method):
        conversion.dropped(f"entry {number}", None, "it has no method, URL or time")
        return None
    page = one.get("pageref")
    length_ms = _length_ms(one)
    response = _mapping(one.get("response"))
    return Entry(
        number, page if isinstance(page, str) else None, start_ms, start_ms + length_ms, method.upper(), url, request,
        response,
    )  # fmt: skip


def _length_ms(one: dict[str, Any]) -> float:
    """The time of an entry, without what it waited in the browser's queue; -1 is not applicable."""
    timings = _mapping(one.get("timings"))
    # By the specification ssl is inside of connect, so it is not added.
    parts = [timings.get(key) for key in ("blocked", "dns", "connect", "send", "wait", "receive")]
    known = [part for part in parts if isinstance(part, int | float) and not isinstance(part, bool) and 0 < part < 1e8]
    total = one.get("time")
    if isinstance(total, int | float) and not isinstance(total, bool) and 0 <= total < 1e8:
        return float(total)
    return float(sum(known))


def _sendable(entries: list[Entry], only_hosts: Sequence[str], conversion: Conversion) -> Iterable[Entry]:
    """The entries that are sent; the others are reported."""
    targets: dict[str, int] = {}
    for entry in entries:
        try:
            parts = urlsplit(entry.url)
            host = parts.hostname
        except ValueError:
            parts, host = urlsplit(""), None
        if parts.scheme not in ("http", "https") or not host:
            what = "a URL in the page itself" if parts.scheme in ("data", "blob", "about") else "no URL for HTTP"
            conversion.dropped(entry.what, None, what)
        elif only_hosts and not any(host == one or host.endswith("." + one) for one in only_hosts):
            conversion.dropped(entry.what, None, "its host is not one of --only-host")
        elif _is_websocket(entry):
            conversion.dropped(entry.what, None, "a WebSocket")
        elif entry.method == "CONNECT":
            conversion.dropped(entry.what, None, "a tunnel through a proxy")
        elif entry.url in targets and targets[entry.url] > 0:
            targets[entry.url] -= 1
            conversion.dropped(entry.what, None, "a redirect that is followed")
        else:
            if _status(entry) == 0:
                conversion.changed(entry.what, None, "it had no answer when it was recorded")
            yield entry
        _count_redirect(entry, targets)


def _count_redirect(entry: Entry, targets: dict[str, int]) -> None:
    """An answer that redirects is followed by the entry of its target, which must not be sent twice."""
    target = entry.response.get("redirectURL")
    if _status(entry) in (301, 302, 303, 307, 308) and isinstance(target, str) and target:
        try:
            joined = urljoin(entry.url, target)
        except ValueError:
            return
        targets[joined] = targets.get(joined, 0) + 1


def _is_websocket(entry: Entry) -> bool:
    upgrade = next((value for name, value in _pairs(entry.request.get("headers")) if name.lower() == "upgrade"), "")
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
    base = f"{parts.scheme}://{_literal(_host(parts.hostname or ''))}" + (f":{port}" if port else "")
    path = _literal((parts.path or "/") + (f"?{parts.query}" if parts.query else ""))
    key = entry.method.lower() if entry.method in _METHODS else "url"
    made = Made(None, {key: path})
    if key == "url":
        made["method"] = entry.method
    made["name"] = _literal(f"{entry.method} {parts.path or '/'}")
    _headers(entry, made)
    _body(entry, made, conversion)
    status = _status(entry)
    if status >= 400:
        made["ok"] = f"200-399,{status}"
        conversion.changed(entry.what, None, f"its status was {status}: this is no failure")
    made["_request"], made["_base"] = key, base
    conversion.kept(entry.what, None)
    return made


def _host(name: str) -> str:
    return f"[{name}]" if ":" in name else name


def _headers(entry: Entry, made: Made) -> None:
    """The headers that a user of the same browser would send: cookies come from the jar, validators from a cache."""
    found: dict[str, tuple[str, str]] = {}
    for name, value in _pairs(entry.request.get("headers")):
        lower = name.lower()
        if name.startswith(":") or lower in _NOT_SENT or not _TOKEN.fullmatch(name):
            continue
        found[lower] = (name, f"{found[lower][1]}, {value}" if lower in found else value)
    headers = {name: _literal(_one_line(value)) for name, value in found.values()}
    if headers:
        made["headers"] = headers


def _body(entry: Entry, made: Made, conversion: Conversion) -> None:
    data = _mapping(entry.request.get("postData"))
    text, params = data.get("text"), data.get("params")
    mime = data.get("mimeType") if isinstance(data.get("mimeType"), str) else ""
    kind = str(mime).partition(";")[0].strip().lower()
    if isinstance(params, list) and params and (not text or kind == "multipart/form-data"):
        _params(made, kind, [one for one in params if isinstance(one, dict)], entry, conversion)
        return
    if not isinstance(text, str) or not text:
        if _body_size(entry) > 0:
            conversion.changed(entry.what, None, "its body is missing in the file")
        return
    if data.get("encoding") == "base64":
        try:
            text = base64.b64decode(text, validate=True).decode("utf-8")
        except (binascii.Error, UnicodeDecodeError, ValueError):
            conversion.changed(entry.what, None, "its body is binary: it is left out")
            return
    if kind == "application/x-www-form-urlencoded" and _is_form(text):
        made["form"] = _form(text)
        return
    made["body"] = _literal(text)
    if mime and "content-type" not in {name.lower() for name in made.get("headers", {})}:
        made.setdefault("headers", {})["Content-Type"] = _literal(_one_line(str(mime)))


def _body_size(entry: Entry) -> int:
    size = entry.request.get("bodySize")
    return size if isinstance(size, int) else 0


def _is_form(text: str) -> bool:
    """Whether a form's text is the same after it was taken apart and put together."""
    pairs = parse_qsl(text, keep_blank_values=True)
    return (
        len(pairs) == len(text.split("&"))
        and len({name for name, _ in pairs}) == len(pairs)
        and all("=" in part for part in text.split("&"))
    )


def _form(text: str) -> dict[str, str]:
    return {_literal(name): _literal(value) for name, value in parse_qsl(text, keep_blank_values=True)}


def _params(made: Made, kind: str, params: list[dict[str, Any]], entry: Entry, conversion: Conversion) -> None:
    if kind == "multipart/form-data":
        parts = []
        for one in params:
            part = {"name": _literal(str(one.get("name", ""))), "value": _literal(str(one.get("value") or ""))}
            if one.get("fileName"):
                part["file_name"] = _literal(str(one["fileName"]))
                conversion.changed(entry.what, None, f"the content of the file {one['fileName']} is as in the HAR file")
            if one.get("contentType"):
                part["type"] = _literal(str(one["contentType"]))
            parts.append(part)
        made["multipart"] = parts
        headers = made.get("headers", {})
        made["headers"] = {name: value for name, value in headers.items() if name.lower() != "content-type"}
        if not made["headers"]:
            del made["headers"]
        return
    # Browsers give params percent-encoded or not; both are decoded here, and encoded when they are sent.
    rows = [(unquote_plus(str(one.get("name", ""))), unquote_plus(str(one.get("value") or ""))) for one in params]
    if len({name for name, _ in rows}) == len(rows):
        made["form"] = {_literal(name): _literal(value) for name, value in rows}
    else:
        made["form"] = [{"name": _literal(name), "value": _literal(value)} for name, value in rows]


def _pages(entries: list[Entry], titles: dict[str, str], conversion: Conversion) -> list[Any]:
    """Steps of all entries: pages as transactions, with the pauses between them."""
    groups: list[tuple[str | None, list[Entry]]] = []
    open_page: str | None = None
    for entry in entries:
        page = entry.page if entry.page is not None else open_page
        if groups and groups[-1][0] == page:
            groups[-1][1].append(entry)
        else:
            groups.append((page, [entry]))
        open_page = page
    flow: list[Any] = []
    last_ms: float | None = None
    for page, members in groups:
        flow += _pause(last_ms, members[0].start_ms, conversion)
        steps, last_ms = _steps(members, members[0].start_ms if last_ms is None else last_ms, conversion)
        if page is None:
            flow += steps
        else:
            flow.append(Made(None, transaction=_literal(titles.get(page) or page), steps=steps))
    return flow


def _steps(entries: list[Entry], before_ms: float, conversion: Conversion) -> tuple[list[Any], float]:
    """The steps of a page, and when its last answer ended."""
    steps: list[Any] = []
    end_ms = before_ms
    for batch in _batches(entries):
        if steps:
            steps += _pause(end_ms, batch[0].start_ms, conversion)
        requests = [entry.made for entry in batch]
        steps.append(requests[0] if len(requests) == 1 else Made(None, parallel=requests))
        end_ms = max(end_ms, *(entry.end_ms for entry in batch))
    return steps, end_ms


def _batches(entries: list[Entry]) -> Iterable[list[Entry]]:
    """Entries that overlap: each begins before all earlier ones have ended."""
    batch: list[Entry] = []
    end_ms = 0.0
    for entry in entries:
        if batch and entry.start_ms < end_ms:
            batch.append(entry)
            end_ms = max(end_ms, entry.end_ms)
            continue
        if batch:
            yield batch
        batch, end_ms = [entry], entry.end_ms
    if batch:
        yield batch


def _pause(end_ms: float | None, start_ms: float, conversion: Conversion) -> list[Any]:
    if end_ms is None or start_ms - end_ms < SHORTEST_PAUSE_MS:
        return []
    pause_ms = round(start_ms - end_ms)
    if pause_ms > LONGEST_PAUSE_MS:
        words = f"its {pause_ms / 3.6e6:.1f} h are cut to {LONGEST_PAUSE_MS // 60_000} min"
        conversion.changed("a pause between recordings", None, words)
        pause_ms = LONGEST_PAUSE_MS
    return [{"wait": f"{pause_ms // 1000}s" if pause_ms % 1000 == 0 else f"{pause_ms}ms"}]


def _exchange(entry: Entry) -> Exchange:
    content = _mapping(entry.response.get("content"))
    text = content.get("text")
    body = text if isinstance(text, str) else ""
    if content.get("encoding") == "base64":
        try:
            body = base64.b64decode(body).decode("utf-8")
        except (binascii.Error, UnicodeDecodeError, ValueError):
            body = ""
    headers = _pairs(entry.response.get("headers"))
    return Exchange(entry.what, entry.made, entry.start_ms, entry.end_ms, body, headers)


def _titles(log: dict[str, Any]) -> dict[str, str]:
    pages = log.get("pages")
    return {
        str(page.get("id")): str(page.get("title") or page.get("id"))
        for page in (pages if isinstance(pages, list) else [])
        if isinstance(page, dict)
    }


def _pairs(headers: Any) -> list[tuple[str, str]]:
    return [
        (str(one.get("name", "")), str(one.get("value", "")))
        for one in (headers if isinstance(headers, list) else [])
        if isinstance(one, dict)
    ]


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


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


def _literal(text: str) -> str:
    """A text whose placeholders are no placeholders."""
    return _whole(text).replace("${", "$${")


def _whole(text: str) -> str:
    return "".join("\ufffd" if "\ud800" <= character <= "\udfff" else character for character in text)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _name(file: str) -> str:
    stem = file.replace("\\", "/").rpartition("/")[2].rpartition(".")[0]
    return stem or "recording"


_METHODS = frozenset({"GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"})
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}")
_NOT_SENT = frozenset({
    "host", "content-length", "cookie", "connection", "proxy-connection", "keep-alive", "transfer-encoding", "te",
    "upgrade", "accept-encoding", "if-none-match", "if-modified-since", "if-match", "if-unmodified-since", "if-range",
    "expect", "content-transfer-encoding", "alt-used", "priority",
})  # fmt: skip
"""Headers that belong to a connection, to the jar or to a cache, and would be wrong in another session."""
