"""The option `--hosts` of `run` and `plan`: what it gives, as a plan's hosts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leadline.plan.hosts import Topology


def hosts_of(text: str | None) -> Callable[[Topology], dict[str, Any]] | None:
    """What `load_plan` asks for the hosts of a topology; None without the option."""
    if text is None:
        return None

    def read(topology: Topology) -> dict[str, Any]:
        from leadline.agents.inventory import read_hosts

        return read_hosts(text, topology)

    return read
