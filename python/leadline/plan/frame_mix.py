"""Mixes of Ethernet frame sizes, as RFC 6985 names them, and the UDP payloads that they leave. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

IMIX: Mapping[int, int] = {64: 7, 594: 4, 1518: 1}
"""The mix that testers call simple IMIX: 7 frames of 64 bytes, 4 of 594 and 1 of 1518."""
NAMES: Mapping[str, Mapping[int, int]] = {"imix": IMIX}

_ETHERNET_BYTES = 18
"""Header 14 and FCS 4: RFC 6985's frame sizes contain both."""
_IP_BYTES = {4: 20, 6: 40}
_UDP_BYTES = 8
SMALLEST_PAYLOAD_BYTES = 16
"""The short measurement header."""
LARGEST_FRAME_BYTES = 9216
MOST_SIZES = 32
LONGEST_ROUND = 1000


def frame_payload(frame_bytes: int, ip: int) -> int:
    """The UDP payload of a frame of this size over this IP version."""
    return frame_bytes - _ETHERNET_BYTES - _IP_BYTES[ip] - _UDP_BYTES


def smallest_frame(ip: int) -> int:
    """The smallest frame that carries the measurement header."""
    return frame_payload(0, ip) * -1 + SMALLEST_PAYLOAD_BYTES


def mean_payload(mix: Mapping[int, int], ip: int) -> float:
    """The mean UDP payload of a mix, bytes."""
    return sum(frame_payload(size, ip) * count for size, count in mix.items()) / sum(mix.values())


def read_mix(value: Any) -> dict[int, int]:
    """A mix by its name, or as a mapping of frame sizes to counts."""
    if isinstance(value, str) and value.lower() in NAMES:
        return dict(NAMES[value.lower()])
    if isinstance(value, str):
        value = _pairs(value)
    if not isinstance(value, Mapping):
        raise ValueError("write a name, as in imix, or frame sizes with their counts: {64: 7, 594: 4, 1518: 1}")
    # The keys of JSON are text.
    mix = {int(size) if isinstance(size, str) and size.isdecimal() else size: count for size, count in value.items()}
    for number in (*mix, *mix.values()):
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            raise ValueError(f"{number!r} is not a whole number above 0")
    if not 1 <= len(mix) <= MOST_SIZES:
        raise ValueError(f"{len(mix)} sizes; a mix has 1 to {MOST_SIZES}")
    if max(mix) > LARGEST_FRAME_BYTES:
        raise ValueError(f"a frame of {max(mix)} bytes is too large; at most {LARGEST_FRAME_BYTES} bytes")
    if sum(mix.values()) > LONGEST_ROUND:
        raise ValueError(f"{sum(mix.values())} frames in a round are too many; at most {LONGEST_ROUND}")
    return mix


def is_mix(value: object) -> bool:
    """Whether the value of an option for sizes is a mix: its name, or sizes with counts as in `64:7,594:4,1518:1`."""
    return isinstance(value, str) and (value.lower() in NAMES or ":" in value)


def _pairs(text: str) -> dict[str, Any]:
    pairs = [part.split(":") for part in text.replace(" ", "").split(",")]
    if any(len(pair) != 2 or not all(number.isdecimal() for number in pair) for pair in pairs):
        raise ValueError(f"{text!r} is no mix; write {', '.join(NAMES)}, or sizes with counts as in 64:7,594:4,1518:1")
    return {size: int(count) for size, count in pairs}


FrameMix = Annotated[
    dict[int, int],
    BeforeValidator(read_mix),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": f"^({'|'.join(NAMES)}|\\d+:\\d+(,\\d+:\\d+)*)$"},
                {
                    "type": "object",
                    "patternProperties": {r"^[1-9]\d{1,3}$": {"type": "integer", "minimum": 1}},
                    "additionalProperties": False,
                    "minProperties": 1,
                    "maxProperties": MOST_SIZES,
                },
            ]
        }
    ),
]
