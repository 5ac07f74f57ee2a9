"""How long the requests of an http test ask Leadline's responder to wait before it answers (`?delay=20ms`). Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

_TIME = re.compile(r"(\d+(?:\.\d+)?)(us|ms|s)")
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


def asked_delay_s(test: Mapping[str, Any]) -> float | None:
    """The mean delay, if all requests of a plan's test or of a workload ask for the same; None otherwise."""
    targets = [str(request.get("url", "")) for request in test.get("requests") or ()]
    if not targets and not test.get("urls") and test.get("path"):
        targets = [str(test["path"])]
    delays = {dict(parse_qsl(urlsplit(target).query)).get("delay", "") for target in targets}
    found = _TIME.fullmatch(delays.pop()) if len(delays) == 1 else None
    return float(found[1]) * _SECONDS[found[2]] if found else None
