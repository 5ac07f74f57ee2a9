"""How many clients a plan has, and what they are: hosts of their own, or a fleet on one host. Pure."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Discriminator, Field, Tag

from leadline.plan.field_types import Count, PlanModel, within

MOST_CLIENTS = 100_000
"""VPN clients of a fleet at most."""


def _true(value: bool) -> bool:
    if not value:
        raise ValueError("false makes no fleet; for client hosts write clients: N")
    return value


class FleetClients(PlanModel):
    """VPN clients that are machines of one process on one host, instead of a host and a process for each."""

    fleet: Annotated[bool, AfterValidator(_true), Field(json_schema_extra={"const": True})]
    """Says so."""
    count: Annotated[int, within(1, MOST_CLIENTS, " clients")] | None = Field(default=None)
    """How many; an axis of `clients` may say it instead."""


def _tag(value: Any) -> str:
    return _FLEET if isinstance(value, dict | FleetClients) else _HOSTS


_HOSTS, _FLEET = "clients that are hosts", "clients that are a fleet"
CLIENTS_TAGS = frozenset({_HOSTS, _FLEET})
"""What pydantic calls the two in the locations of its errors; no key of a plan."""
PlanClients = Annotated[Annotated[Count, Tag(_HOSTS)] | Annotated[FleetClients, Tag(_FLEET)], Discriminator(_tag)]
