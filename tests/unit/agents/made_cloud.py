"""A provider in memory, in virtual time: machines start and end after some looks, and calls can be made to fail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from leadline.agents.launchers.cloud.life import Hooks
from leadline.agents.launchers.cloud.model import (
    CloudFleet,
    FleetRequest,
    Group,
    Image,
    Machine,
    Offer,
    Price,
    collect_fleets,
)

START = datetime(2026, 11, 29, 12, 0, 0, tzinfo=UTC)


def made_request(count: int = 3, name: str = "lab", key: str | None = None) -> FleetRequest:
    return FleetRequest(name, count, "m7i.large", 7200, "0.0.0.0/0", key=key)


def made_offer(count: int = 3, name: str = "lab", key: str | None = None) -> Offer:
    image = Image("ami-1", "debian-13", "Debian", "admin")
    return Offer(made_request(count, name, key), image, "x86_64", Price(0.1, "2025-03"), "vpc-1", subnet="subnet-1")


class MadeCloud:
    """A provider whose machines run after `start_looks` looks at them, and are gone after `end_looks`."""

    name = "aws"
    region = "us-east-1"
    ends_halted = True

    def __init__(self, start_looks: int = 2, end_looks: int = 2) -> None:
        self.machines: dict[str, Machine] = {}
        self.groups: dict[str, Group] = {}
        self.keys: dict[str, str] = {}
        self.failures: dict[str, list[Exception]] = {}
        """What the next calls of a method raise."""
        self.hidden_looks = 0
        """For how many looks new machines are not listed, as after a request whose answer was lost."""
        self.user_data = ""
        self.now = START
        self.lines: list[str] = []
        self.stops_after: str | None = None
        """The line of progress after which the user wants an end."""
        self.silent: set[str] = set()
        """Addresses at which no SSH server answers."""
        self._looks: dict[str, int] = {}
        self._start_looks = start_looks
        self._end_looks = end_looks

    def hooks(self) -> Hooks:
        return Hooks(
            show=self.lines.append,
            is_stopped=lambda: self.stops_after is not None and any(self.stops_after in line for line in self.lines),
            now=lambda: self.now,
            sleep=self._sleep,
            find_answering=lambda addresses: set(addresses) - self.silent,
        )

    def offer(self, request: FleetRequest) -> Offer:
        return replace(made_offer(), request=request)

    def find_price(self, machine_type: str) -> Price | None:
        return Price(0.1, "2025-03") if machine_type == "m7i.large" else None

    def find_fleets(self) -> list[CloudFleet]:
        self._fail("find_fleets")
        return collect_fleets(list(self.machines.values()), list(self.groups.values()), list(self.keys))

    def list_machines(self, fleet: str) -> list[Machine]:
        self._fail("list_machines")
        if self.hidden_looks:
            self.hidden_looks -= 1
            return []
        for machine in [one for one in self.machines.values() if one.fleet == fleet]:
            self._age(machine)
        return [one for one in self.machines.values() if one.fleet == fleet]

    def import_key(self, name: str, public_key: str) -> None:
        self._fail("import_key")
        self.keys[name] = public_key

    def create_group(self, offer: Offer, description: str) -> str:
        self._fail("create_group")
        self.groups["sg-1"] = Group("sg-1", offer.request.name, START + timedelta(seconds=offer.request.ttl_s))
        return "sg-1"

    def create_machines(self, offer: Offer, key: str, group: str, end: datetime, user_data: str) -> None:
        self.user_data = user_data
        for place in range(offer.request.count):
            address = f"10.0.0.{place + 1}"
            self.machines[f"i-{place}"] = Machine(
                f"i-{place}", offer.request.name, "pending", "m7i.large", self.now, end, address, None, place
            )
        self._fail("create_machines")

    def connect_machines(self, offer: Offer, machines: Sequence[Machine]) -> None:
        """Machines have their addresses from the start."""

    def delete_address(self, address: str) -> None:
        raise AssertionError("there is none")

    def delete_machines(self, machines: Sequence[Machine]) -> None:
        self._fail("delete_machines")
        for machine in machines:
            self.machines[machine.id] = replace(machine, state="ending")
            self._looks[machine.id] = 0

    def delete_group(self, group: str) -> None:
        self._fail("delete_group")
        self.groups.pop(group)

    def delete_key(self, name: str) -> None:
        self._fail("delete_key")
        self.keys.pop(name)

    def is_empty(self) -> bool:
        return not (self.machines or self.groups or self.keys)

    def _age(self, machine: Machine) -> None:
        looks = self._looks[machine.id] = self._looks.get(machine.id, 0) + 1
        if machine.state == "pending" and looks >= self._start_looks:
            public = f"198.51.100.{machine.position + 1}"
            self.machines[machine.id] = replace(machine, state="running", public_address=public)
        elif machine.state == "ending" and looks >= self._end_looks:
            del self.machines[machine.id]

    def _sleep(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def _fail(self, method: str) -> None:
        if self.failures.get(method):
            raise self.failures[method].pop(0)
