"""The records of fleets of machines, and the interface that providers implement. Does no I/O."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Protocol

from leadline.errors import InputError, LeadlineError

TAG_FLEET = "leadline-fleet"
"""Tag of a machine whose value is the name of its fleet."""
TAG_END = "leadline-end"
"""Tag of a machine whose value is the end of its fleet, as `format_time` writes it."""
RESOURCE_PREFIX = "leadline-fleet-"
"""Begins the names of the key pair and of the security group of a fleet; the name of the fleet follows."""
MIN_TTL_S = 600
"""Machines need some of it to start, and take no new logins in the last five minutes before a halt (systemd)."""
MAX_TTL_S = 7 * 86400
INSTALL_COMMAND = "pip install 'leadline[cloud]'"
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")
_TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"


class CloudFailed(LeadlineError):
    """A provider did not do what was asked, or does not answer."""

    code = "cloud"


class Refused(CloudFailed):
    """A provider refused a request, and did nothing. `reason` is its own code for it."""

    code = "cloud_refused"

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class FleetRequest:
    """What the user asks for."""

    name: str
    count: int
    machine_type: str
    ttl_s: int
    ssh_from: str
    """IPv4 network that may connect to SSH, as 198.51.100.0/24."""
    arch: str | None = None
    """x86_64 or aarch64; None for that of the machine type."""
    image: str | None = None
    user: str | None = None
    """User of the image that SSH logs in as; None for the one that its distribution has."""
    key: str | None = None
    """Name of a key pair that the provider has; None for one that is generated."""
    network: str | None = None
    subnet: str | None = None
    is_spot: bool = False
    floating_network: str | None = None
    """Network of OpenStack that gives each machine an address for SSH; None for the machines' own addresses."""


@dataclass(frozen=True, slots=True)
class Image:
    """What a machine boots from."""

    id: str
    name: str
    owner: str
    """Who publishes it, as far as that is known."""
    user: str
    """User that SSH logs in as."""


@dataclass(frozen=True, slots=True)
class Price:
    """The price of one machine."""

    usd_per_hour: float
    as_of: str
    """Month of the price list, as 2025-03."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What would be created, as far as a provider says without creating anything."""

    request: FleetRequest
    image: Image
    arch: str | None
    """x86_64 or aarch64; None if unknown."""
    price: Price | None
    """None if unknown."""
    network: str
    """Where the machines are connected, as the provider names it."""
    subnet: str | None = None
    flavor: str | None = None
    """The provider's identifier of the machine type, where it differs from its name."""
    floating_network: str | None = None
    """The provider's identifier of the network that gives addresses for SSH."""


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine, as its provider describes it."""

    id: str
    fleet: str
    state: str
    """pending, running, halted, ending or failed. Machines that are gone are not listed."""
    machine_type: str
    created: datetime
    end: datetime | None
    """End of its fleet; None if the tag is missing or unreadable."""
    address: str | None
    """Its address among the fleet's members."""
    public_address: str | None
    position: int = 0
    """Its place among the machines that were created together."""
    fault: str = ""
    """Why it failed, in the provider's words."""
    is_spot: bool = False

    @property
    def ssh_address(self) -> str | None:
        """The address for SSH from here: the public one where there is one."""
        return self.public_address or self.address


@dataclass(frozen=True, slots=True)
class Group:
    """A security group of a fleet."""

    id: str
    fleet: str
    end: datetime | None


@dataclass(slots=True)
class CloudFleet:
    """All that a provider has of one fleet."""

    name: str
    machines: list[Machine] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    """Names of key pairs."""
    addresses: list[str] = field(default_factory=list)
    """Identifiers of floating addresses."""

    @property
    def end(self) -> datetime | None:
        """The latest end that its parts name; None if none does."""
        ends = [*(machine.end for machine in self.machines), *(group.end for group in self.groups)]
        return max((end for end in ends if end is not None), default=None)

    @property
    def created(self) -> datetime | None:
        """When its first machine was created; None without machines."""
        return min((machine.created for machine in self.machines), default=None)

    def is_expired(self, now: datetime) -> bool:
        """Whether its end has passed. A key pair alone, which has no end, is left over from a fleet that has gone."""
        return self.end <= now if self.end is not None else not self.machines and not self.groups


class Provider(Protocol):
    """One account at a provider, in one region. Every method may raise CloudFailed, and InputError where the provider
    says that what the user asked for is wrong."""

    @property
    def name(self) -> str:
        """`aws` or `openstack`."""

    @property
    def region(self) -> str:
        """The region, or "" where there is only one."""

    @property
    def ends_halted(self) -> bool:
        """Whether a machine that halts itself is removed by the provider, and costs nothing from then on."""

    def offer(self, request: FleetRequest) -> Offer:
        """Find image, type, network and price. Creates nothing."""

    def find_price(self, machine_type: str) -> Price | None:
        """The price of a machine type; None if unknown."""

    def find_fleets(self) -> list[CloudFleet]:
        """All that there is of any fleet, by name."""

    def list_machines(self, fleet: str) -> list[Machine]:
        """The machines of one fleet that are not gone, in the order of their positions."""

    def import_key(self, name: str, public_key: str) -> None:
        """Make a key pair of this name known, by its public half."""

    def create_group(self, offer: Offer, description: str) -> str:
        """Create the security group of a fleet: SSH from `ssh_from`, everything among its members. Returns its id."""

    def create_machines(self, offer: Offer, key: str, group: str, end: datetime, user_data: str) -> None:
        """Create all machines, tagged. They may still be starting when this returns."""

    def connect_machines(self, offer: Offer, machines: Sequence[Machine]) -> None:
        """Give machines that run their addresses for SSH, where the provider does not do so by itself. May be called
        again for the same machines."""

    def delete_machines(self, machines: Sequence[Machine]) -> None:
        """Remove machines. They may still be ending when this returns; one that is gone is no error."""

    def delete_group(self, group: str) -> None:
        """Remove a security group; one that is gone is no error. Raises Refused while a machine still uses it."""

    def delete_key(self, name: str) -> None:
        """Remove a key pair; one that is gone is no error."""

    def delete_address(self, address: str) -> None:
        """Give a floating address back; one that is gone is no error."""


def check_name(name: str) -> str:
    """Return the name of a fleet if it can be one.

    Raises:
        InputError: it cannot.
    """
    if not _NAME.fullmatch(name):
        raise InputError(
            f"{name!r} cannot be the name of a fleet", hint="1 to 40 small letters, digits and hyphens, as in lead-1"
        )
    return name


def format_time(at: datetime) -> str:
    """Format a time for a tag, in UTC: 2026-11-29T19:39:29Z."""
    return at.astimezone(UTC).strftime(_TIME_FORMAT)


def parse_time(text: str | None) -> datetime | None:
    """Read what `format_time` writes; None if it is something else."""
    try:
        return datetime.strptime(text or "", _TIME_FORMAT).replace(tzinfo=UTC)
    except ValueError:
        return None


def format_removal(provider: Provider, fleet: str) -> str:
    """Format the command that removes a fleet."""
    region = f" --region {provider.region}" if provider.region else ""
    return f"leadline fleet down {fleet} --provider {provider.name}{region}"


def describe_group(end: datetime) -> str:
    """The description of a security group, which is how its end is known."""
    return f"Made by leadline fleet up; {TAG_END}={format_time(end)}"


def parse_group_end(description: str | None) -> datetime | None:
    """The end in a description that `describe_group` wrote; None if there is none."""
    return parse_time((description or "").partition(f"{TAG_END}=")[2])


def whole_seconds(at: datetime) -> datetime:
    """A time without its fraction of a second, as tags have it."""
    return at - timedelta(microseconds=at.microsecond)


def collect_fleets(
    machines: Sequence[Machine],
    groups: Sequence[Group],
    key_names: Sequence[str],
    addresses: Sequence[tuple[str, str]] = (),
) -> list[CloudFleet]:
    """Put the parts of fleets together, by the names of the fleets. `addresses` has each floating address's fleet and
    identifier."""
    found: dict[str, CloudFleet] = {}
    for machine in machines:
        found.setdefault(machine.fleet, CloudFleet(machine.fleet)).machines.append(machine)
    for group in groups:
        found.setdefault(group.fleet, CloudFleet(group.fleet)).groups.append(group)
    for key in key_names:
        if key.startswith(RESOURCE_PREFIX):
            fleet = key.removeprefix(RESOURCE_PREFIX)
            found.setdefault(fleet, CloudFleet(fleet)).keys.append(key)
    for fleet, address in addresses:
        found.setdefault(fleet, CloudFleet(fleet)).addresses.append(address)
    return [found[name] for name in sorted(found)]
