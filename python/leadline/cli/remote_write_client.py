"""Sends requests of Prometheus remote write to a server, one after the other.

As Prometheus does, it sends a request again that fails for a passing reason, after a pause that doubles; a request that
the receiver refuses for good (another 4xx) ends the command.
"""

from __future__ import annotations

import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from leadline import __version__
from leadline.errors import InputError, LeadlineError

TIMEOUT_S = 30.0
RETRIES = 5
"""Attempts to send a request again while the receiver fails (5xx), has too many (429) or cannot be reached."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 8.0
"""The pause before the first of them, which doubles each time, up to the longest one."""
LONGEST_ASKED_PAUSE_S = 60.0
"""A receiver that asks for a longer pause (Retry-After) gets this one."""
_TOO_MANY, _SERVERS_FAULT = 429, 500
_LONGEST_NUMBER = 7
_MOST_ANSWER = 4096
_LONGEST_TOKEN = 16_384


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: the body would not go with it, and a token should not."""

    def redirect_request(self, *_: Any) -> None:
        """No request."""


def check_url(url: str) -> None:
    """Check that a URL can be sent to.

    Raises:
        InputError: it cannot, or contains a password.
    """
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").encode("idna")  # as the socket does: labels of 1 to 63 characters
        is_whole = parts.scheme in ("http", "https") and bool(host) and (parts.port or 1) > 0
    except ValueError:
        is_whole = False
    if not is_whole or any(character <= " " for character in url):
        raise InputError(f"--url {url}: not a URL", hint="as in --url http://127.0.0.1:9090/api/v1/write")
    if not (parts.path + parts.query).isascii():
        raise InputError(f"--url {url}: its path is not ASCII", hint="write é as %C3%A9")
    if parts.username is not None:
        raise InputError("--url: it contains credentials", hint="give a token by --token-file FILE")


def read_token(path: Path) -> str:
    """The token in a file.

    Raises:
        InputError: it cannot be read, or is not one line of text.
    """
    try:
        with path.open("rb") as file:
            text = file.read(_LONGEST_TOKEN + 1).decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not ASCII text"
        raise InputError(f"--token-file {path}: {why}") from None
    if not text or len(text) > _LONGEST_TOKEN or not text.isprintable() or " " in text:
        raise InputError(f"--token-file {path}: it has to contain one token and nothing else")
    return text


def send(
    url: str,
    bodies: Iterable[bytes],
    headers: dict[str, str],
    token: str | None,
    *,
    retries: int = RETRIES,
    pause: Callable[[float], None] = time.sleep,
    on_retry: Callable[[str], None] = lambda _: None,
) -> int:
    """Send the requests; returns their number. `on_retry` gets the reason of each repeated attempt.

    Raises:
        LeadlineError: the server cannot be reached, or refuses one. Those before it have been stored.
    """
    about = {**headers, "User-Agent": f"leadline/{__version__}"}
    if token is not None:
        about["Authorization"] = f"Bearer {token}"
    opener, sent = urllib.request.build_opener(_NoRedirect), 0
    for body in bodies:
        _send_one(
            opener, urllib.request.Request(url, data=body, headers=about, method="POST"), retries, pause, on_retry
        )
        sent += 1
    return sent


@dataclass(frozen=True, slots=True)
class _Refusal:
    """Why a request was not taken."""

    why: str
    is_passing: bool
    """Whether the receiver may take it later."""
    pause_s: float = 0.0
    """The pause that the receiver asks for."""


def _send_one(
    opener: urllib.request.OpenerDirector,
    request: urllib.request.Request,
    retries: int,
    pause: Callable[[float], None],
    on_retry: Callable[[str], None],
) -> None:
    """Send one request, again after a growing pause while the receiver may take it later.

    Raises:
        LeadlineError: it was refused, or not taken by the last attempt.
    """
    pause_s = FIRST_PAUSE_S
    for attempt in range(retries + 1):
        refusal = _refused(opener, request)
        if refusal is None:
            return
        if not refusal.is_passing or attempt == retries:
            times = f" ({attempt + 1} attempts)" if attempt else ""
            raise LeadlineError(f"--url {request.full_url}: {refusal.why}{times}")
        wait_s = min(max(pause_s, refusal.pause_s), LONGEST_ASKED_PAUSE_S)
        on_retry(f"{refusal.why}; attempt {attempt + 2} of {retries + 1} in {wait_s:g} s")
        pause(wait_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


def _refused(opener: urllib.request.OpenerDirector, request: urllib.request.Request) -> _Refusal | None:
    """Send it once; None if it was taken."""
    try:
        with opener.open(request, timeout=TIMEOUT_S) as answer:
            answer.read(_MOST_ANSWER)
    except urllib.error.HTTPError as error:
        with suppress(OSError, HTTPException):
            text = " ".join(error.read(_MOST_ANSWER).decode("utf-8", "replace").split())
            why = f"the server answered {error.code}{f': {text[:300]}' if text else ''}"
            return _Refusal(why, error.code == _TOO_MANY or error.code >= _SERVERS_FAULT, _asked_pause_s(error))
        return _Refusal(f"the server answered {error.code}", error.code >= _SERVERS_FAULT)
    except (urllib.error.URLError, OSError, HTTPException) as error:
        cause = error.reason if isinstance(error, urllib.error.URLError) else error
        is_passing = not (isinstance(cause, socket.gaierror) and cause.errno != socket.EAI_AGAIN)
        return _Refusal(f"cannot be reached: {getattr(cause, 'strerror', None) or cause}", is_passing)
    return None


def _asked_pause_s(error: urllib.error.HTTPError) -> float:
    """`Retry-After` in seconds; 0 if it is absent or a date."""
    text = (error.headers.get("Retry-After") or "").strip()
    return float(text) if text.isascii() and text.isdecimal() and len(text) < _LONGEST_NUMBER else 0.0
