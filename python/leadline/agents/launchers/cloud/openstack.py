"""Machines of OpenStack (Nova, Neutron, Glance), by libcloud's driver.

A machine that halts stays, and costs as before: only `leadline fleet down` removes it, from any computer.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from leadline.agents.launchers.cloud.calls import TIMEOUT_S, BadRequest, provider_call
from leadline.agents.launchers.cloud.images import find_user, is_for, rank_cloud_image
from leadline.agents.launchers.cloud.model import (
    RESOURCE_PREFIX,
    TAG_END,
    TAG_FLEET,
    CloudFailed,
    CloudFleet,
    FleetRequest,
    Group,
    Image,
    Machine,
    Offer,
    Price,
    collect_fleets,
    format_time,
    parse_group_end,
    parse_time,
)
from leadline.agents.launchers.cloud.openstack_account import OpenStackAccount
from leadline.errors import InputError, LeadlineError

_DEFAULT_ARCH = "x86_64"
_ADDRESS_TYPE = "OS-EXT-IPS:type"
_ADDRESS_MARK = f"{TAG_FLEET}="
"""Begins the description of a floating address; the name of its fleet follows."""
_POSITION = "leadline-position"
"""Tag with a machine's place in its fleet."""


class OpenStack:
    """One project of an OpenStack cloud, in one region."""

    name = "openstack"
    ends_halted = False

    def __init__(self, account: OpenStackAccount) -> None:
        """Connect by an account. Nothing is sent yet."""
        from libcloud import security
        from libcloud.compute.drivers.openstack import OpenStackNodeDriver

        self.region = account.region or ""
        self._where = f"openstack in {account.region}" if account.region else "openstack"
        if account.ca_file:
            security.CA_CERTS_PATH = account.ca_file
        self._driver: Any = OpenStackNodeDriver(
            account.user,
            account.secret,
            api_version="2.2",
            timeout=TIMEOUT_S,
            ex_force_auth_url=account.auth_url,
            ex_force_auth_version="3.x_appcred" if account.is_application else "3.x_password",
            ex_tenant_name=account.project,
            ex_tenant_domain_id=account.project_domain,
            ex_domain_name=account.user_domain,
            ex_force_service_region=account.region,
        )
        for connection in (
            self._driver.connection,
            self._driver.network_connection,
            self._driver.image_connection,
        ):
            # libcloud wants services of its own names, in RegionOne. A catalog may have others; the type says enough.
            connection.service_name = None
            connection.service_region = account.region
        self._flavors: dict[str, str] | None = None
        self._connected: set[str] = set()
        """Machines that have been given a floating address, which Nova tells later."""

    def offer(self, request: FleetRequest) -> Offer:
        """See `Provider`."""
        if request.is_spot:
            raise InputError("--spot: openstack has no spot machines", hint="leave it out")
        if request.subnet is not None:
            raise InputError("--subnet: openstack connects machines to networks", hint="name it with --network")
        flavors = {name: identifier for identifier, name in self._read_flavors().items()}
        if request.machine_type not in flavors:
            raise InputError(
                f"--type: {self._where} has no {request.machine_type}", hint=_near(request.machine_type, flavors)
            )
        image = self._find_image(request)
        networks = self._list_networks()
        network = self._find_network(request, networks)
        floating = None
        if request.floating_network is not None:
            floating = self._named_network("--floating-network", request.floating_network, networks)
        if request.key is not None:
            with self._call("list the key pairs"):
                keys = [key.name for key in self._driver.list_key_pairs()]
            if request.key not in keys:
                raise InputError(f"--key: {self._where} has no key pair {request.key}", hint=_near(request.key, keys))
        flavor = flavors[request.machine_type]
        return Offer(
            request,
            image,
            request.arch,
            self.find_price(request.machine_type),
            network,
            flavor=flavor,
            floating_network=floating,
        )

    def find_price(self, machine_type: str) -> Price | None:
        """See `Provider`: no list has the prices of OpenStack clouds."""
        return None

    def find_fleets(self) -> list[CloudFleet]:
        """See `Provider`."""
        with self._call("list the security groups"):
            found = [one for one in self._driver.ex_list_security_groups() if one.name.startswith(RESOURCE_PREFIX)]
        groups = [
            Group(one.id, one.name.removeprefix(RESOURCE_PREFIX), parse_group_end(one.description)) for one in found
        ]
        with self._call("list the key pairs"):
            keys = [key.name for key in self._driver.list_key_pairs()]
        answer: dict[str, Any] = {"floatingips": []}
        # A cloud whose networks are all outer ones has no such addresses, and no such request.
        with self._unless_gone("list the floating addresses"):
            answer = self._driver.network_connection.request("/v2.0/floatingips").object
        addresses = [
            (one["description"].removeprefix(_ADDRESS_MARK), one["id"])
            for one in answer["floatingips"]
            if (one.get("description") or "").startswith(_ADDRESS_MARK)
        ]
        return collect_fleets(self._list(lambda _: True), groups, keys, addresses)

    def list_machines(self, fleet: str) -> list[Machine]:
        """See `Provider`."""
        return self._list(lambda name: name == fleet)

    def import_key(self, name: str, public_key: str) -> None:
        """See `Provider`."""
        with self._call("import the key"):
            self._driver.import_key_pair_from_string(name, public_key)

    def create_group(self, offer: Offer, description: str) -> str:
        """See `Provider`. What the machines send is allowed by Neutron's own rules of a new group."""
        with self._call("create the security group"):
            group = self._driver.ex_create_security_group(f"{RESOURCE_PREFIX}{offer.request.name}", description)
            allow = self._driver.ex_create_security_group_rule
            allow(group, "tcp", 22, 22, cidr=offer.request.ssh_from)
            allow(group, None, None, None, source_security_group=group)
        identifier: str = group.id
        return identifier

    def create_machines(self, offer: Offer, key: str, group: str, end: datetime, user_data: str) -> None:
        """See `Provider`: by one request for each machine, which Nova starts side by side."""
        from libcloud.compute.base import NodeImage, NodeSize
        from libcloud.compute.drivers.openstack import OpenStackNetwork, OpenStackSecurityGroup

        request = offer.request
        name = f"{RESOURCE_PREFIX}{request.name}"
        for position in range(request.count):
            with self._call(f"create machine {position + 1} of {request.count}"):
                self._driver.create_node(
                    name=f"{name}-{position + 1}",
                    size=NodeSize(offer.flavor, request.machine_type, 0, 0, 0, 0, self._driver),
                    image=NodeImage(offer.image.id, offer.image.name, self._driver),
                    networks=[OpenStackNetwork(offer.network, offer.network, None, self._driver)],
                    ex_keyname=key,
                    ex_security_groups=[OpenStackSecurityGroup(group, None, name, "", self._driver)],
                    ex_userdata=user_data,
                    ex_metadata={TAG_FLEET: request.name, TAG_END: format_time(end), _POSITION: str(position)},
                )

    def connect_machines(self, offer: Offer, machines: Sequence[Machine]) -> None:
        """See `Provider`: each gets a floating address, if a network for them is named."""
        if offer.floating_network is None:
            return
        send = self._driver.network_connection.request
        for machine in machines:
            if machine.public_address is not None or machine.id in self._connected:
                continue
            with self._call(f"connect the machine {machine.id}"):
                ports = send("/v2.0/ports", params={"device_id": machine.id}).object["ports"]
                if not ports:
                    continue
                floating = {
                    "floating_network_id": offer.floating_network,
                    "port_id": ports[0]["id"],
                    "description": f"{_ADDRESS_MARK}{machine.fleet}",
                }
                send("/v2.0/floatingips", method="POST", data={"floatingip": floating})
            self._connected.add(machine.id)

    def delete_address(self, address: str) -> None:
        """See `Provider`."""
        with self._unless_gone("give the floating address back"):
            self._driver.network_connection.request(f"/v2.0/floatingips/{address}", method="DELETE")

    def delete_machines(self, machines: Sequence[Machine]) -> None:
        """See `Provider`: by one request for each, and the first error is raised after all of them."""
        first: LeadlineError | None = None
        for machine in machines:
            try:
                with self._unless_gone(f"remove the machine {machine.id}"):
                    self._driver.connection.request(f"/servers/{machine.id}", method="DELETE")
            except LeadlineError as error:
                first = first or error
        if first is not None:
            raise first

    def delete_group(self, group: str) -> None:
        """See `Provider`."""
        with self._unless_gone("remove the security group"):
            self._driver.network_connection.request(f"/v2.0/security-groups/{group}", method="DELETE")

    def delete_key(self, name: str) -> None:
        """See `Provider`."""
        with self._unless_gone("remove the key pair"):
            self._driver.connection.request(f"/os-keypairs/{name}", method="DELETE")

    @contextmanager
    def _call(self, what: str) -> Iterator[None]:
        try:
            with provider_call(self._where, what):
                yield
        except ValueError as error:
            if "more than 1 matching endpoint" not in str(error):
                raise
            hint = f"name one with --region or OS_REGION_NAME: {self._region_names()}"
            raise InputError(f"{self._where} has several regions", hint=hint) from None
        except CloudFailed as failure:
            if "Could not find specified endpoint" not in str(failure):
                raise
            what = f"region {self.region}" if self.region else "service that creates machines"
            raise InputError(f"openstack has no {what}", hint=f"there is {self._region_names()}") from None

    def _region_names(self) -> str:
        """The regions of the catalog, which the first request brought."""
        connections = (self._driver.network_connection, self._driver.connection, self._driver.image_connection)
        catalog = next((one.service_catalog for one in connections if one.service_catalog is not None), None)
        return ", ".join(catalog.get_regions("compute") if catalog is not None else ()) or "none"

    @contextmanager
    def _unless_gone(self, what: str) -> Iterator[None]:
        """A call to which it is no error that there is no such thing."""
        try:
            with self._call(what):
                yield
        except BadRequest as refusal:
            if refusal.reason != "404":
                raise

    def _read_flavors(self) -> dict[str, str]:
        """The name of each flavor by its identifier."""
        if self._flavors is None:
            with self._call("list the flavors"):
                self._flavors = {size.id: size.name for size in self._driver.list_sizes()}
        return self._flavors

    def _list(self, is_wanted: Callable[[str], bool]) -> list[Machine]:
        with self._call("list the machines"):
            nodes = self._driver.list_nodes()
        ours = [
            node
            for node in nodes
            if TAG_FLEET in node.extra["metadata"] and is_wanted(node.extra["metadata"][TAG_FLEET])
        ]
        flavors = self._read_flavors() if ours else {}
        found = [_to_machine(node, flavors) for node in ours if node.extra["vm_state"] != "deleted"]
        return sorted(found, key=lambda machine: (machine.fleet, machine.position, machine.id))

    def _find_image(self, request: FleetRequest) -> Image:
        with self._call("list the images"):
            images = self._driver.list_images()
        if request.image is not None:
            named = [one for one in images if request.image in (one.id, one.name)]
            if not named:
                names = [one.name for one in images]
                raise InputError(f"--image: {self._where} has no {request.image}", hint=_near(request.image, names))
            chosen, owner = max(named, key=_age), "named by --image"
        else:
            arch = request.arch or _DEFAULT_ARCH
            ranked = [
                (rank, _age(one), one)
                for one in images
                if one.extra["visibility"] == "public"
                and is_for(one.name, arch)
                and (rank := rank_cloud_image(one.name))
            ]
            if not ranked:
                raise InputError(
                    f"{self._where} has no public image of Debian or Ubuntu for {arch}", hint="name one with --image"
                )
            chosen, owner = max(ranked, key=lambda one: one[:2])[2], "public image of the cloud"
        return Image(chosen.id, chosen.name, owner, request.user or find_user(chosen.name, self.name))

    def _list_networks(self) -> list[Any]:
        with self._call("list the networks"):
            return list(self._driver.ex_list_networks())

    def _find_network(self, request: FleetRequest, networks: list[Any]) -> str:
        """The network's identifier: of the one that is named, or of the only one that is no external one."""
        if request.network is not None:
            return self._named_network("--network", request.network, networks)
        inner = [one for one in networks if not one.extra.get("router:external")]
        if len(inner) != 1:
            names = ", ".join(one.name for one in inner) or "none"
            raise InputError(
                f"{self._where} has {len(inner)} networks to choose from", hint=f"--network; there are {names}"
            )
        only: str = inner[0].id
        return only

    def _named_network(self, option: str, name: str, networks: list[Any]) -> str:
        named = [one.id for one in networks if name in (one.id, one.name)]
        if len(named) == 1:
            found: str = named[0]
            return found
        count = "several networks" if named else "no network"
        hint = "name its identifier" if named else _near(name, [one.name for one in networks])
        raise InputError(f"{option}: {self._where} has {count} {name}", hint=hint)


def _to_machine(node: Any, flavors: dict[str, str]) -> Machine:
    extra = node.extra
    flavor = extra["flavor_details"] or {}
    position = extra["metadata"].get(_POSITION, "0")
    entries = [one for network in extra["addresses"].values() for one in network if ":" not in one["addr"]]
    # libcloud tells public addresses by their range, and floating ones may be of any.
    floating = [one["addr"] for one in entries if one.get(_ADDRESS_TYPE) == "floating"]
    fixed = [one["addr"] for one in entries if one.get(_ADDRESS_TYPE) != "floating"]
    return Machine(
        id=node.id,
        fleet=extra["metadata"][TAG_FLEET],
        state="ending" if extra["task_state"] == "deleting" else _STATES.get(str(node.state), "pending"),
        machine_type=flavor.get("original_name") or flavors.get(extra["flavorId"], extra["flavorId"]),
        created=node.created_at,
        end=parse_time(extra["metadata"].get(TAG_END)),
        address=next(iter((*fixed, *floating)), None),
        public_address=next(iter(floating), None),
        position=int(position) if position.isdecimal() else 0,
        fault=(extra["fault"] or {}).get("message", ""),
    )


_STATES = {
    "running": "running", "stopped": "halted", "suspended": "halted", "paused": "halted", "error": "failed",
    "terminated": "ending",
}  # fmt: skip
"""Maps libcloud's states to those of `Machine`; the others are on their way."""


def _age(image: Any) -> str:
    return str(image.extra["created"])


def _near(word: str, known: Any) -> str:
    names = sorted(known)
    near = difflib.get_close_matches(word, names, n=1)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(names[:20]) or 'none'}"
