"""The command that starts an agent on a host, and what carries it there. Starts nothing itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from leadline.agents.launchers.processes import HERE

if TYPE_CHECKING:
    from leadline.agents.launchers.model import Launcher


@dataclass(frozen=True, slots=True)
class Launch:
    """The command that starts an agent on a host, what carries it there, and the time limit for its `hello`."""

    argv: tuple[str, ...]
    """For example ("nsenter", "--net=/x/ns/gateway", "--", ".../leadline-agent")."""
    hello_within_s: float = 20.0
    """An agent sends `hello` at once, but a machine may start a hundred agents, and SSH must connect first."""
    launcher: Launcher = HERE
    """Starts the command."""
    place: str | None = None
    """What people call the host, beside its role; None if the role says it all."""
    address: str | None = None
    """IP address by which other hosts reach it, where that is known of what starts the command."""


def named(role: str, place: str | None) -> str:
    """A host in messages: by its role in the trial, and by what people call it."""
    return role if place in (None, role) else f"{role} ({place})"
