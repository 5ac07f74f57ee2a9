"""The rungs of HTTP in a ladder: large bodies for the payload, small ones for the requests, with and without TLS."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.kinds.tcp import stream_share
from leadline.plan.ladder import Chain, Packets, Rung

_LARGE, _SMALL = "1MiB", 12
_PATIENT = "60s"
"""A large body takes long on a slow line."""
_TLS: Mapping[str, Any] = {"scheme": "https", "tls": {"verify": False}}
_HEAD_BYTES = 100
"""An answer's head, about; of a large body it is one part in ten thousand."""
_RECORD_BYTES = 16_384
_RECORD_OVERHEAD_BYTES = 22
"""Header, type and tag of a record of TLS 1.3 (RFC 8446, section 5.2)."""


def _large(layer: str, title: str, height: int, parameters: Mapping[str, Any]) -> Rung:
    given = {**parameters, "size": _LARGE, "timeout": _PATIENT}
    return Rung(layer, layer, title, Chain.PAYLOAD, height, "transfer_bps", given)


def _small(layer: str, title: str, height: int, parameters: Mapping[str, Any]) -> Rung:
    given = {**parameters, "size": _SMALL}
    return Rung(f"{layer}-small", layer, title, Chain.REQUESTS, height, "requests_per_s", given)


RUNGS = (
    _large("http", "HTTP bodies", 30, {}),
    _large("https", "HTTPS bodies", 40, _TLS),
    _small("http", "HTTP requests", 30, {}),
    _small("https", "HTTPS requests", 40, _TLS),
)


def payload_share(test: Mapping[str, Any], packets: Packets) -> float | None:
    """The bodies in the bytes of the frames that carry them; None if the size of the bodies is not known."""
    size = test.get("size_bytes")
    if not isinstance(size, int) or size <= 0:
        return None
    share = stream_share(packets) * size / (size + _HEAD_BYTES)
    is_tls = test.get("scheme") == "https"
    return share * _RECORD_BYTES / (_RECORD_BYTES + _RECORD_OVERHEAD_BYTES) if is_tls else share
