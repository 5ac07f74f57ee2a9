"""Reads the cases that a page holds packed, as its script does when they are opened."""

from __future__ import annotations

import base64
import json
import re
import zlib
from typing import Any

_PACKED = re.compile(r'<script type="application/octet-stream">([A-Za-z0-9+/=]*)</script>')


def cases_of(page: str) -> list[dict[str, Any]]:
    """What each case shows and draws, in the order of the page."""
    return [_unpacked(match[1]) for match in _PACKED.finditer(page)]


def with_open_cases(page: str) -> str:
    """The page with every case's markup where its script would put it."""
    return _PACKED.sub(lambda match: _unpacked(match[1])["markup"], page)


def _unpacked(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(text, validate=True)))
    return found
