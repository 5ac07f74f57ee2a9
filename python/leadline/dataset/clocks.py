"""Maps instants of the agents' monotonic clocks to the controller's clock.

A `clock` record has the offset of an agent's clock to the controller's; it applies from there on, until the next
comparison with that host. An event before any comparison gets its time of receipt, which is late by the delivery's
delay, some milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class HostClocks:
    """Offsets by host, in the order of the journal."""

    __slots__ = ("_bounds_ns", "_offsets_ns")

    def __init__(self) -> None:
        self._offsets_ns: dict[str, int] = {}
        self._bounds_ns: dict[str, int] = {}

    def note(self, record: Mapping[str, Any]) -> None:
        """Store a `clock` record: `host`, `offset_ns` (agent minus controller), `bound_ns`."""
        host = record.get("host")
        offset_ns = record.get("offset_ns")
        if not isinstance(host, str) or not isinstance(offset_ns, int):
            return
        self._offsets_ns[host] = offset_ns
        bound_ns = record.get("bound_ns")
        if isinstance(bound_ns, int):
            self._bounds_ns[host] = bound_ns

    def offset_ns(self, entry: Mapping[str, Any]) -> int:
        """The offset to subtract from every instant of this entry's event to get the controller's clock, ns."""
        known = self._offsets_ns.get(entry.get("host", ""))
        if known is not None:
            return known
        event, at_ns = entry.get("event"), entry.get("at_ns")
        t_ns = event.get("t_ns") if isinstance(event, Mapping) else None
        return t_ns - at_ns if isinstance(t_ns, int) and isinstance(at_ns, int) else 0

    @property
    def bounds_ns(self) -> dict[str, int]:
        """Half-width of each host's last comparison, ns: the precision of mapped instants."""
        return dict(self._bounds_ns)
