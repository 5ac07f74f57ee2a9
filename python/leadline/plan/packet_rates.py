"""Rates of frames: packets per second, bits per second, or a share of a line's rate, and what a line can carry. Pure.

A frame's size is that without its FCS, as the kernel counts it. On the wire it also has the FCS, the preamble and the
gap before the next frame. Bits per second are those of layer 2, FCS included, as RFC 2544 and testers count them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from leadline.plan import units

FCS_BYTES = 4
PREAMBLE_AND_GAP_BYTES = 20
MIN_FRAME_BYTES, MAX_FRAME_BYTES = 60, 9216
"""Without FCS; shorter frames are padded on the way."""

_PACKETS = re.compile(r"([\d.]+(?:e\d+)?)\s*([kKmMgG]?)(?:pps|packets/s|/s)")
_PREFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}
_EXAMPLES = "write 1Mpps, 500mbit or 50%"


@dataclass(frozen=True, slots=True)
class PacketRate:
    """A rate as a user gave it."""

    value: float
    unit: Literal["packets", "bits", "share"]
    """Packets per second, bits of layer 2 per second, or a share of the line's rate."""

    def packets_per_s(self, sizes: Mapping[int, int], line_bps: float | None) -> float | None:
        """The rate in packets for frames of these sizes, each with its count in a round; None if it is a share of a
        line whose rate is not known."""
        if self.unit == "packets":
            return self.value
        if self.unit == "bits":
            return self.value / (8 * (mean_frame_bytes(sizes) + FCS_BYTES))
        return None if line_bps is None else self.value * line_packets_per_s(sizes, line_bps)


def read_packet_rate(value: units.Number) -> PacketRate:
    """A rate from `1Mpps`, `500mbit`, `50%`, or from a bare number of packets per second.

    Raises:
        UnitError: it is none of these, or is not above 0; or it is more than a line's whole rate.
    """
    text = str(value).strip()
    rate = _read(value, text)
    if not 0 < rate.value <= (1.0 if rate.unit == "share" else 1e15):
        raise units.UnitError(f"{text!r} is not a rate above 0, or more than 100 % of a line; {_EXAMPLES}")
    return rate


def _read(value: units.Number, text: str) -> PacketRate:
    if not isinstance(value, str):
        return PacketRate(units.per_second(value), "packets")
    try:
        if text.endswith("%"):
            return PacketRate(units.fraction(text), "share")
        if (found := _PACKETS.fullmatch(text)) is not None:
            return PacketRate(float(found[1]) * _PREFIXES[found[2].lower()], "packets")
        if re.fullmatch(r"[\d.]+(?:e\d+)?", text):
            return PacketRate(float(text), "packets")
        return PacketRate(float(units.rate_bps(text)), "bits")
    except ValueError:
        raise units.UnitError(f"{text!r} is not a rate of packets; {_EXAMPLES}") from None


def mean_frame_bytes(sizes: Mapping[int, int]) -> float:
    """The mean size of frames, each size with its count in a round."""
    return sum(size * count for size, count in sizes.items()) / sum(sizes.values())


def wire_bits(frames: float, frame_bytes: float) -> float:
    """The bits that frames of these bytes in total occupy on a wire."""
    return 8 * (frame_bytes + frames * (FCS_BYTES + PREAMBLE_AND_GAP_BYTES))


def line_packets_per_s(sizes: Mapping[int, int], line_bps: float) -> float:
    """The frames per second that a line can carry."""
    return line_bps / wire_bits(1, mean_frame_bytes(sizes))
