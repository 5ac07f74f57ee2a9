"""The records of raw frames by their sizes and flows. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PacketPart:
    """The frames of one size, or of one flow."""

    number: int
    """Bytes of each frame, FCS included; or the flow's number."""
    sent: int  # Frames that were sent.
    received: int  # Those that arrived, duplicates included.
    lost: int | None
    """Those that did not arrive; null where that is not known."""
    duplicates: int | None
    """Those that arrived again; of a size not known."""
    reordered: int | None
    """Those that arrived behind a later one of their flow; of a size not known."""


@dataclass(frozen=True, slots=True)
class PacketFindings:
    """Frames by size, and by flow."""

    sizes: tuple[PacketPart, ...]  # By size.
    flows: tuple[PacketPart, ...]
    """The first flows, by number."""
    flows_seen: int | None  # Flows of which a frame arrived; null without a receiver.
