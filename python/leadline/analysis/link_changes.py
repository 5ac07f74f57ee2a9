"""The changes of interfaces that hosts report when they happen. Records only; `outages` says what they mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class LinkChange(NamedTuple):
    """The state of an interface from an instant on, on the controller's clock."""

    host: str
    t_ns: int
    name: str
    is_up: bool
    has_carrier: bool
    carrier_losses: int | None = None
    is_removed: bool = False

    @classmethod
    def read(cls, host: str, event: Mapping[str, Any], offset_ns: int) -> LinkChange:
        """Convert a `link` event."""
        return cls(
            host,
            event["t_ns"] - offset_ns,
            event["name"],
            event["is_up"],
            event["has_carrier"],
            event.get("carrier_losses"),
            event["is_removed"],
        )

    @property
    def works(self) -> bool:
        """Whether packets can pass."""
        return self.is_up and self.has_carrier
