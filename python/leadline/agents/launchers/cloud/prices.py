"""Prices of machine types, from the list that libcloud brings along, and what a fleet costs by them.

The list has 0 where its makers found no price: that is unknown, never free. Prices are for a machine alone: disks,
traffic and public addresses come on top.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

from leadline.agents.launchers.cloud.model import CloudFleet, Price

_HOUR = timedelta(hours=1)


def find_ec2_price(machine_type: str, region: str) -> Price | None:
    """The on-demand price of an EC2 type under Linux in a region; None if the list has none."""
    from libcloud import pricing

    usd = pricing.get_size_price("compute", "ec2_linux", machine_type, region=region)
    return Price(usd, _month_of_list()) if usd else None


def _month_of_list() -> str:
    from libcloud import pricing

    with open(pricing.get_pricing_file_path(), encoding="utf-8") as file:  # noqa: PTH123
        updated = json.load(file).get("updated")
    return datetime.fromtimestamp(updated, UTC).strftime("%Y-%m") if updated else "an unknown month"


def cost_so_far(fleet: CloudFleet, prices: dict[str, Price | None], now: datetime) -> float | None:
    """What the machines of a fleet have cost, in USD, at on-demand prices; None if a price is unknown."""
    total = 0.0
    for machine in fleet.machines:
        price = prices.get(machine.machine_type)
        if price is None:
            return None
        total += price.usd_per_hour * max(0.0, (now - machine.created) / _HOUR)
    return total


def cost_per_hour(fleet: CloudFleet, prices: dict[str, Price | None]) -> float | None:
    """What the machines of a fleet cost in an hour, in USD, at on-demand prices; None if a price is unknown."""
    found = [prices.get(machine.machine_type) for machine in fleet.machines]
    known = [price.usd_per_hour for price in found if price is not None]
    return sum(known) if len(known) == len(found) else None
