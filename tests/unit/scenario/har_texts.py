"""HAR files of a few entries, as texts. Used by the tests of conversions."""

from __future__ import annotations

import json
from typing import Any


def entry(url: str, at: str = "00.000", time: float = 10, method: str = "GET", **more: Any) -> dict[str, Any]:
    """One entry; `at` are its seconds in a minute."""
    request = {"method": method, "url": url, "headers": more.pop("headers", []), **more.pop("request", {})}
    response = {
        "status": more.pop("status", 200),
        "headers": more.pop("gives", []),
        "content": {},
        **more.pop("response", {}),
    }
    return {
        "startedDateTime": f"2026-01-01T00:00:{at}Z",
        "time": time,
        "request": request,
        "response": response,
        **more,
    }


def har(*entries: dict[str, Any], pages: Any = None) -> bytes:
    return json.dumps({"log": {"version": "1.2", "entries": entries, **({"pages": pages} if pages else {})}}).encode()
