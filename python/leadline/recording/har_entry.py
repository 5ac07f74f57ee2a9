"""One exchange that passed through the proxy as an entry of a HAR file: its times, header fields and bodies. Pure.

mitmproxy's flows are read by their attributes, so that this module needs no mitmproxy. All times of flows are seconds
since the epoch. Bodies come from a `BodyTap`, which sees them pass: the proxy delays none of them.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from leadline.recording.body_decoding import decode_body, text_of

MAX_CONNECT_GAP_S = 0.02
"""From a connection that is ready to the request that waited for it; one that waits longer was opened ahead of need, as
browsers do. That one is not a part of the request: it would seem to begin before what caused it.
"""
_HOP_FIELDS = frozenset({"proxy-connection", "proxy-authorization"})
"""Header fields that were meant for the proxy."""


@dataclass(slots=True)
class BodyTap:
    """Keeps a body that passes, unless it is longer than the limit, and counts its bytes."""

    limit: int
    size: int = 0
    _kept: bytearray = field(default_factory=bytearray)

    def __call__(self, chunk: bytes) -> bytes:
        """Take the next part, and pass it on unchanged."""
        self.size += len(chunk)
        if self.size <= self.limit:
            self._kept += chunk
        else:
            self._kept.clear()
        return chunk

    @property
    def content(self) -> bytes | None:
        """The whole body as it was sent; None if it is longer than the limit."""
        return bytes(self._kept) if self.size <= self.limit else None


@dataclass(frozen=True, slots=True)
class Times:
    """The times of an exchange, as a browser would have seen them, in seconds."""

    start_s: float
    """Since the epoch."""
    connect_s: float | None
    """With `ssl_s`; None without a new connection."""
    ssl_s: float | None
    send_s: float
    wait_s: float
    receive_s: float

    @property
    def length_s(self) -> float:
        """The sum of all parts."""
        return (self.connect_s or 0.0) + self.send_s + self.wait_s + self.receive_s


def har_entry(flow: Any, request: BodyTap, response: BodyTap, times: Times) -> dict[str, Any]:
    """The entry of one exchange, without a page."""
    destination = flow.request.headers.get("Sec-Fetch-Dest", "")
    entry = {
        "startedDateTime": datetime.fromtimestamp(times.start_s, UTC).isoformat(timespec="microseconds"),
        "time": _ms(times.length_s),
        "request": _request(flow.request, request),
        "response": _response(flow, response),
        "cache": {},
        "timings": {
            "blocked": -1,
            "dns": -1,
            "connect": _ms(times.connect_s),
            "ssl": _ms(times.ssl_s),
            "send": _ms(times.send_s),
            "wait": _ms(times.wait_s),
            "receive": _ms(times.receive_s),
        },
    }
    peer = flow.server_conn.peername
    if peer:
        entry["serverIPAddress"] = str(peer[0])
        entry["connection"] = str(flow.server_conn.id)
    if destination and destination != "empty":
        entry["_resourceType"] = destination
    return entry


def read_times(flow: Any, *, is_first: bool, now_s: float) -> Times:
    """The times of an exchange. A connection that it was the first to use, and waited for, is a part of it."""
    start_s = flow.request.timestamp_start
    sent_s = max(flow.request.timestamp_end or start_s, start_s)
    answer_s = flow.response.timestamp_start if flow.response and flow.response.timestamp_start else now_s
    end_s = flow.response.timestamp_end if flow.response and flow.response.timestamp_end else now_s
    server = flow.server_conn
    begun_s, joined_s, secured_s = server.timestamp_start, server.timestamp_tcp_setup, server.timestamp_tls_setup
    connect_s = ssl_s = None
    send_s, wait_s = sent_s - start_s, answer_s - sent_s
    if is_first and begun_s and joined_s:
        ready_s = secured_s or joined_s
        # The client's own handshake with the proxy comes after: for the client all of it is connecting.
        if ready_s <= start_s <= max(ready_s, flow.client_conn.timestamp_tls_setup or 0.0) + MAX_CONNECT_GAP_S:
            connect_s = start_s - begun_s
            ssl_s = start_s - joined_s if secured_s else None
            start_s = begun_s
        elif begun_s >= start_s and ready_s <= answer_s:
            # The proxy connects when the request's head, or all of it, has come.
            from_s = min(begun_s, sent_s)
            connect_s = ready_s - from_s
            ssl_s = secured_s - joined_s if secured_s else None
            send_s -= max(min(sent_s, ready_s) - from_s, 0.0)
            wait_s = answer_s - max(sent_s, ready_s)
    return Times(start_s, connect_s, ssl_s, max(send_s, 0.0), max(wait_s, 0.0), max(end_s - answer_s, 0.0))


def _ms(seconds: float | None) -> float:
    """Milliseconds; -1 for what does not apply, as HAR has it."""
    return -1 if seconds is None else round(max(seconds, 0.0) * 1000, 3)


def _request(request: Any, tap: BodyTap) -> dict[str, Any]:
    headers = _fields(request)
    found = {
        "method": request.method,
        "url": request.pretty_url,
        "httpVersion": request.http_version,
        "cookies": [
            {"name": name.strip(), "value": value}
            for line in _values(headers, "cookie")
            for name, _, value in (part.partition("=") for part in line.split(";"))
        ],
        "headers": headers,
        "queryString": _pairs(urlsplit(request.pretty_url).query),
        "headersSize": -1,
        "bodySize": tap.size,
    }
    if tap.content:
        found["postData"] = _post_data(tap.content, request.headers.get("Content-Type", ""))
    return found


def _post_data(content: bytes, media_type: str) -> dict[str, Any]:
    """The bytes that were sent: as text if they are UTF-8, else as base64, which loses none of them."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        return {"mimeType": media_type, "params": [], "text": base64.b64encode(content).decode(), "encoding": "base64"}
    is_form = media_type.partition(";")[0].strip().lower() == "application/x-www-form-urlencoded"
    return {"mimeType": media_type, "params": _pairs(text) if is_form else [], "text": text}


def _response(flow: Any, tap: BodyTap) -> dict[str, Any]:
    response = flow.response
    failure = {"_error": str(flow.error.msg)} if flow.error else {}
    if response is None:
        empty = {"size": 0, "mimeType": ""}
        sizes = {"headersSize": -1, "bodySize": -1}
        return {
            **{"status": 0, "statusText": "", "httpVersion": "", "cookies": [], "headers": []},
            **{"content": empty, "redirectURL": "", **sizes, **failure},
        }
    headers = _fields(response)
    return {
        "status": response.status_code,
        "statusText": response.reason or "",
        "httpVersion": response.http_version,
        "cookies": [_set_cookie(line) for line in _values(headers, "set-cookie")],
        "headers": headers,
        "content": _content(tap, headers),
        "redirectURL": next(iter(_values(headers, "location")), ""),
        "headersSize": -1,
        "bodySize": tap.size,
        **failure,
    }


def _content(tap: BodyTap, headers: list[dict[str, str]]) -> dict[str, Any]:
    """The body of an answer, decoded; as it was sent if it cannot be decoded."""
    media_type = next(iter(_values(headers, "content-type")), "")
    codings = ", ".join(_values(headers, "content-encoding"))
    if tap.content is None:
        return {"size": -1, "mimeType": media_type, "comment": f"not recorded: longer than {tap.limit} B"}
    decoded = decode_body(tap.content, codings, tap.limit)
    found: dict[str, Any] = {"size": len(tap.content if decoded is None else decoded), "mimeType": media_type}
    if decoded is None:
        found["comment"] = f"as it was sent: {codings} could not be decoded, or only to more than {tap.limit} B"
    elif len(decoded) != tap.size:
        found["compression"] = len(decoded) - tap.size
    text = None if decoded is None else text_of(decoded, media_type)
    if text is not None:
        found["text"] = text
    elif tap.content:
        found |= {"text": base64.b64encode(tap.content if decoded is None else decoded).decode(), "encoding": "base64"}
    return found


def _fields(message: Any) -> list[dict[str, str]]:
    """The header fields as they were sent."""
    return [
        {"name": name.decode("latin-1"), "value": _field_text(value)}
        for name, value in message.headers.fields
        if name.lower().decode("latin-1") not in _HOP_FIELDS
    ]


def _field_text(value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _values(headers: list[dict[str, str]], name: str) -> list[str]:
    return [one["value"] for one in headers if one["name"].lower() == name]


def _pairs(text: str) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in parse_qsl(text, keep_blank_values=True)]


def _set_cookie(line: str) -> dict[str, Any]:
    first, *attributes = line.split(";")
    name, _, value = first.partition("=")
    found: dict[str, Any] = {"name": name.strip(), "value": value.strip(), "httpOnly": False, "secure": False}
    for attribute in attributes:
        key, _, text = attribute.strip().partition("=")
        match key.lower():
            case "path" | "domain":
                found[key.lower()] = text
            case "httponly":
                found["httpOnly"] = True
            case "secure":
                found["secure"] = True
            case "samesite":
                found["sameSite"] = text
    return found
