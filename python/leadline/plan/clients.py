"""The clients of a plan: their number, and whether they are hosts of their own or a fleet on one host. Pure."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Discriminator, Field, Tag

from leadline.plan.field_types import Count, PlanModel, within

MOST_CLIENTS = 100_000
"""Maximum number of VPN clients of a fleet."""


def _true(value: bool) -> bool:
    if not value:
        raise ValueError("fleet must be true; for client hosts write clients: N")
    return value


class FleetClients(PlanModel):
    """A fleet: VPN clients in one process on one host, instead of a host and a process for each client."""

    fleet: Annotated[bool, AfterValidator(_true), Field(json_schema_extra={"const": True})]
    """Must be true: selects a fleet."""
    count: Annotated[int, within(1, MOST_CLIENTS, " clients")] | None = Field(default=None)
    """Number of clients; an axis of `clients` may give it instead."""


def _tag(value: Any) -> str:
    return _FLEET if isinstance(value, dict | FleetClients) else _HOSTS


_HOSTS, _FLEET = "clients that are hosts", "clients that are a fleet"
CLIENTS_TAGS = frozenset({_HOSTS, _FLEET})
"""pydantic's names for the two forms in the locations of its errors; they are not keys of a plan."""
PlanClients = Annotated[Annotated[Count, Tag(_HOSTS)] | Annotated[FleetClients, Tag(_FLEET)], Discriminator(_tag)]
