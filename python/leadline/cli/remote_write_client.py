"""Sends requests of Prometheus remote write to a server, one after the other."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from leadline import __version__
from leadline.errors import InputError, LeadlineError

TIMEOUT_S = 30.0
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
        is_whole = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_whole = False
    if not is_whole or any(character <= " " for character in url):
        raise InputError(f"--url {url}: not a URL", hint="as in --url http://127.0.0.1:9090/api/v1/write")
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


def send(url: str, bodies: Iterable[bytes], headers: dict[str, str], token: str | None) -> int:
    """Send the requests; returns their number.

    Raises:
        LeadlineError: the server cannot be reached, or refuses one. Those before it have been stored.
    """
    about = {**headers, "User-Agent": f"leadline/{__version__}"}
    if token is not None:
        about["Authorization"] = f"Bearer {token}"
    opener, sent = urllib.request.build_opener(_NoRedirect), 0
    for body in bodies:
        request = urllib.request.Request(url, data=body, headers=about, method="POST")
        try:
            with opener.open(request, timeout=TIMEOUT_S) as answer:
                answer.read(_MOST_ANSWER)
        except urllib.error.HTTPError as error:
            text = " ".join(error.read(_MOST_ANSWER).decode("utf-8", "replace").split())
            raise LeadlineError(
                f"--url {url}: the server answered {error.code}{f': {text[:300]}' if text else ''}"
            ) from None
        except (urllib.error.URLError, OSError) as error:
            why = error.reason if isinstance(error, urllib.error.URLError) else error
            raise LeadlineError(f"--url {url}: cannot be reached: {getattr(why, 'strerror', None) or why}") from None
        sent += 1
    return sent
