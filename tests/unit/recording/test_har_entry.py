"""Entries of a HAR file from exchanges: times, header fields and bodies, of made flows."""

from __future__ import annotations

import base64
import gzip
import zlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from leadline.recording.body_decoding import decode_body, text_of
from leadline.recording.har_entry import BodyTap, har_entry, read_times

START_S = 1_000_000.0
PACK: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "identity": bytes,
}


def headers(pairs: dict[str, str]) -> Any:
    """Header fields as mitmproxy has them."""
    fields = tuple((name.encode("latin-1"), value.encode()) for name, value in pairs.items())
    return SimpleNamespace(fields=fields, get=lambda name, other="": pairs.get(name, other))


def flow(
    sent: dict[str, str] | None = None,
    given: dict[str, str] | None = None,
    *,
    server: tuple[float | None, float | None, float | None] = (None, None, None),
    client_tls: float | None = None,
    request: tuple[float, float] = (0.0, 0.001),
    response: tuple[float, float] = (0.011, 0.021),
) -> Any:
    """An exchange, with times in seconds after `START_S`."""

    def at(second: float | None) -> float | None:
        return None if second is None else START_S + second

    return SimpleNamespace(
        request=SimpleNamespace(
            method="POST",
            pretty_url="https://shop.test/a?x=1&y=",
            http_version="HTTP/1.1",
            headers=headers(sent or {}),
            timestamp_start=at(request[0]),
            timestamp_end=at(request[1]),
        ),
        response=SimpleNamespace(
            status_code=200,
            reason="OK",
            http_version="HTTP/1.1",
            headers=headers(given or {}),
            timestamp_start=at(response[0]),
            timestamp_end=at(response[1]),
        ),
        server_conn=SimpleNamespace(
            id="c1",
            peername=("192.0.2.7", 443),
            timestamp_start=at(server[0]),
            timestamp_tcp_setup=at(server[1]),
            timestamp_tls_setup=at(server[2]),
        ),
        client_conn=SimpleNamespace(timestamp_tls_setup=at(client_tls)),
        error=None,
    )


def tap(content: bytes, limit: int = 1000) -> BodyTap:
    """A body that has passed in two parts."""
    found = BodyTap(limit)
    assert found(content[:3]) + found(content[3:]) == content
    return found


def entry_of(made: Any, sent: bytes = b"", given: bytes = b"", limit: int = 1000) -> dict[str, Any]:
    """The entry of a flow with its bodies."""
    times = read_times(made, is_first=True, now_s=START_S + 1)
    return har_entry(made, tap(sent, limit), tap(given, limit), times)


@pytest.mark.parametrize(
    ("server", "client_tls", "request_s", "start", "connect", "ssl", "send", "wait"),
    [
        # No connection of its own, and one that is known to be older.
        ((None, None, None), None, (0.0, 0.001), 0.0, -1, -1, 1, 10),
        # CONNECT: the connection is ready before the request, which waited for it and the client's own handshake.
        ((-0.05, -0.04, -0.02), -0.01, (0.0, 0.001), -0.05, 50, 40, 1, 10),
        # One that was opened ahead of need is no part of the request.
        ((-0.3, -0.29, -0.28), -0.27, (0.0, 0.001), 0.0, -1, -1, 1, 10),
        # Plain HTTP: the proxy connects when the request has come.
        ((0.002, 0.006, None), None, (0.0, 0.001), 0.0, 5, -1, 1, 5),
        # A body that is long in coming: the proxy connects meanwhile.
        ((0.001, 0.003, None), None, (0.0, 0.008), 0.0, 2, -1, 6, 3),
    ],
)
def test_times_add_up_and_a_connection_counts_where_the_request_waited_for_it(  # noqa: PLR0917
    server: tuple[float | None, float | None, float | None],
    client_tls: float | None,
    request_s: tuple[float, float],
    start: float,
    connect: float,
    ssl: float,
    send: float,
    wait: float,
) -> None:
    found = entry_of(flow(server=server, client_tls=client_tls, request=request_s))
    timings = found["timings"]
    assert (timings["connect"], timings["ssl"]) == pytest.approx((connect, ssl), abs=0.002)
    assert (timings["send"], timings["wait"], timings["receive"]) == pytest.approx((send, wait, 10), abs=0.002)
    assert found["time"] == pytest.approx(max(connect, 0) + send + wait + 10, abs=0.002)
    assert found["startedDateTime"].startswith("1970-01-12T13:4" + ("6:39.95" if start < 0 else "6:40.0"))


def test_second_exchange_of_a_connection_has_not_connected() -> None:
    made = flow(server=(-0.05, -0.04, -0.02))
    times = read_times(made, is_first=False, now_s=START_S + 1)
    assert (times.connect_s, times.ssl_s, times.start_s) == (None, None, START_S)


@pytest.mark.parametrize("coding", ["gzip", "deflate", "identity", "gzip, gzip"])
def test_answer_is_decoded_and_its_sizes_are_known(coding: str) -> None:
    packed = text = b'{"token": "\xc3\xa9"}'
    for name in coding.split(", "):
        packed = PACK[name](packed)
    found = entry_of(flow(given={"Content-Type": "application/json", "Content-Encoding": coding}), given=packed)
    content = found["response"]["content"]
    assert content["text"] == '{"token": "é"}' and content["size"] == len(text)
    assert found["response"]["bodySize"] == len(packed) == len(text) - content.get("compression", 0)


def test_answer_that_cannot_be_decoded_is_kept_as_it_was_sent() -> None:
    found = entry_of(flow(given={"Content-Type": "text/html", "Content-Encoding": "gzip"}), given=b"no gzip")
    content = found["response"]["content"]
    assert base64.b64decode(content["text"]) == b"no gzip" and "could not be decoded" in content["comment"]


def test_longer_body_is_counted_and_not_kept() -> None:
    found = entry_of(flow(given={"Content-Type": "text/plain"}), sent=b"x" * 50, given=b"y" * 60, limit=40)
    assert found["request"]["bodySize"] == 50 and "postData" not in found["request"]
    assert found["response"]["bodySize"] == 60 and "text" not in found["response"]["content"]


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_decoding_ends_at_the_limit(coding: str) -> None:
    bomb = PACK[coding](bytes(10_000_000))
    assert decode_body(bomb, coding, 100_000) is None


@pytest.mark.parametrize(
    ("content", "media_type", "text"),
    [
        ("Цена".encode("cp1251"), "text/html; charset=windows-1251", "Цена"),
        (b'<meta charset="koi8-r">' + "Цена".encode("koi8-r"), "text/html", '<meta charset="koi8-r">Цена'),
        ("é".encode(), "application/problem+json", "é"),
        (b"\xff\xfe", "text/plain", None),
        (b"plain", "image/png", None),
        (b"<svg/>", "image/svg+xml", "<svg/>"),
        (b"a", "text/plain; charset=unheard-of", "a"),
    ],
)
def test_text_is_read_in_its_charset(content: bytes, media_type: str, text: str | None) -> None:
    assert text_of(content, media_type) == text


def test_request_keeps_its_bytes_and_leaves_out_what_was_for_the_proxy() -> None:
    sent = {"Content-Type": "text/plain", "Proxy-Authorization": "Basic x", "Cookie": "a=1; b=2"}
    found = entry_of(flow(sent), sent=b"\xff\x00")["request"]
    assert found["postData"] == {"mimeType": "text/plain", "params": [], "text": "/wA=", "encoding": "base64"}
    assert [one["name"] for one in found["headers"]] == ["Content-Type", "Cookie"]
    assert found["cookies"] == [{"name": "a", "value": "1"}, {"name": "b", "value": "2"}]
    assert found["queryString"] == [{"name": "x", "value": "1"}, {"name": "y", "value": ""}]


def test_exchange_without_an_answer_has_status_0_and_its_cause() -> None:
    made = flow()
    made.response, made.error = None, SimpleNamespace(msg="connection closed")
    found = entry_of(made)
    assert (found["response"]["status"], found["response"]["_error"]) == (0, "connection closed")
    assert found["time"] == pytest.approx(1000, abs=1)
