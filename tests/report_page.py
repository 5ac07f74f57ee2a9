"""Reads a report's page as a browser does that opens every case."""

from __future__ import annotations

import re
import zlib
from base64 import b64decode


def packed_cases(page: str) -> list[str]:
    """What a report's page packs and draws when a case is opened: the JSON of each case."""
    packed = re.findall(r'<script type="application/octet-stream">([^<]+)', page)
    return [zlib.decompress(b64decode(case)).decode() for case in packed]
