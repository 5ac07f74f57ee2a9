"""Where the tiers of a stack are: the host, the addresses, the ports and the CPUs of each. Pure.

Every tier has a hundred ports, from 9000 on in the order of the tiers, and its first workers have the first of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from leadline.errors import EnvironmentLimit
from leadline.sut.model import Site
from leadline.sut.stack.parameters import CommandTier, HaproxyTier, NodeTier, StackSut, Tier

FIRST_PORT = 9000
PORTS_OF_A_TIER = 100


@dataclass(frozen=True, slots=True)
class PlacedTier:
    """A tier of a trial."""

    tier: Tier
    host: str
    """The host that it runs on."""
    addresses: Mapping[int, str]
    """Its addresses by IP version; tiers behind another one have one."""
    ports: tuple[int, ...]
    """One for each worker."""
    cpus: tuple[int, ...]
    """The CPUs that its processes may use; empty: all of its host."""

    @property
    def address(self) -> str:
        """Its first address."""
        return next(iter(self.addresses.values()))

    @property
    def endpoints(self) -> tuple[str, ...]:
        """ADDRESS:PORT of each worker, by its first address."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return tuple(f"{host}:{port}" for port in self.ports)

    @property
    def processes(self) -> tuple[str, ...]:
        """The names of its processes: the tier's own, with a number where it has several."""
        name = self.tier.name
        return (
            (name,) if len(self.ports) == 1 else tuple(f"{name}-{number}" for number in range(1, len(self.ports) + 1))
        )


def place_tiers(parameters: StackSut, site: Site, cpus: Mapping[str, Sequence[int]]) -> list[PlacedTier]:
    """The place of each tier; `cpus` are those that programs of a host may use.

    Raises:
        EnvironmentLimit: a host has fewer CPUs than one of its tiers is to have.
    """
    used: Counter[int] = Counter()
    placed = []
    for index, tier in enumerate(parameters.tiers):
        host = parameters.host_of(tier)
        own = _choose_cpus(tier, host, cpus[host], used)
        used.update(own)
        addresses = site.addressing.outer if host == "gateway" else site.server_address
        # IPv4 where there is one: a tier behind another one needs one address.
        first = dict(sorted(addresses.items())[:1])
        binds_all = index == 0 and isinstance(tier, HaproxyTier)
        placed.append(
            PlacedTier(
                tier, host, dict(sorted(addresses.items())) if binds_all else first, _choose_ports(tier, index), own
            )
        )
    return placed


def _choose_ports(tier: Tier, index: int) -> tuple[int, ...]:
    first = FIRST_PORT + PORTS_OF_A_TIER * index
    if isinstance(tier, CommandTier):
        return (tier.port or first,)
    return tuple(range(first, first + (tier.workers if isinstance(tier, NodeTier) else 1)))


def _choose_cpus(tier: Tier, host: str, allowed: Sequence[int], used: Counter[int]) -> tuple[int, ...]:
    """The CPUs that the fewest tiers before this one have, the last ones first: a load's threads begin at the first."""
    if tier.cpus is None:
        return ()
    if tier.cpus > len(allowed):
        raise EnvironmentLimit(
            f"{tier.cpus} CPUs for the tier '{tier.name}': the host {host} has {len(allowed)}",
            hint=f"lower sut.tiers.{tier.name}.cpus, or its axis",
        )
    return tuple(sorted(sorted(allowed, key=lambda cpu: (used[cpu], -cpu))[: tier.cpus]))


def read_cpu_list(status: str) -> tuple[int, ...]:
    """The CPUs of `Cpus_allowed_list` in a /proc/PID/status: 0-3,8. Empty where it is missing."""
    text = next((line.partition(":")[2] for line in status.splitlines() if line.startswith("Cpus_allowed_list:")), "")
    found: list[int] = []
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first.isdecimal():
            found += range(int(first), int(last or first) + 1)
    return tuple(found)
