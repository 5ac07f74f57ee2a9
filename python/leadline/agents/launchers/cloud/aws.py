"""Machines of Amazon EC2, by libcloud's driver.

All machines of a fleet are created by one request, which EC2 answers with all of them or none. A machine that halts is
terminated, so that it costs nothing from then on.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from leadline.agents.launchers.cloud.aws_account import AwsAccount
from leadline.agents.launchers.cloud.calls import TIMEOUT_S, BadRequest, provider_call
from leadline.agents.launchers.cloud.images import ARCHITECTURES, DEB_ARCH, PUBLISHERS, find_user, rank_cloud_image
from leadline.agents.launchers.cloud.model import (
    RESOURCE_PREFIX,
    TAG_END,
    TAG_FLEET,
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
from leadline.agents.launchers.cloud.prices import find_ec2_price
from leadline.errors import InputError

_EC2_ARCH = {"x86_64": "x86_64", "aarch64": "arm64"}
"""EC2's words for architectures."""
_STATES = {
    "pending": "pending",
    "running": "running",
    "shutting-down": "ending",
    "stopping": "halted",
    "stopped": "halted",
}
"""States of machines that are not gone; `terminated` is."""
_GONE = ("InvalidGroup.NotFound", "InvalidKeyPair.NotFound", "InvalidInstanceID.NotFound")


class Aws:
    """One AWS account in one region."""

    name = "aws"
    ends_halted = True

    def __init__(self, account: AwsAccount) -> None:
        """Connect by an account. Nothing is sent yet.

        Raises:
            InputError: libcloud does not know the region.
        """
        from libcloud import security
        from libcloud.compute.drivers.ec2 import EC2NodeDriver

        self.region = account.region
        self._where = f"aws in {account.region}"
        known = EC2NodeDriver.list_regions()
        if account.region not in known:
            near = difflib.get_close_matches(account.region, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            raise InputError(f"aws: {account.region} is no region that libcloud knows", hint=hint)
        is_secure, host, port = account.endpoint or (True, None, None)
        if account.ca_file:
            security.CA_CERTS_PATH = account.ca_file
        self._driver: Any = EC2NodeDriver(
            account.key, account.secret, secure=is_secure, host=host, port=port, region=account.region,
            token=account.token, signature_version="4", timeout=TIMEOUT_S,
        )  # fmt: skip

    def offer(self, request: FleetRequest) -> Offer:
        """See `Provider`."""
        if request.floating_network is not None:
            raise InputError("--floating-network: aws gives public addresses by itself", hint="leave it out")
        arch = self._find_arch(request)
        image = self._find_image(request, arch)
        network, subnet = self._find_subnet(request)
        if request.key is not None:
            self._check_key(request.key)
        price = self.find_price(request.machine_type)
        return Offer(request, image, arch, price, network, subnet=subnet)

    def find_price(self, machine_type: str) -> Price | None:
        """See `Provider`: the on-demand price, also for spot machines, which cost that much at most."""
        return find_ec2_price(machine_type, self.region)

    def find_fleets(self) -> list[CloudFleet]:
        """See `Provider`."""
        with provider_call(self._where, "list the security groups"):
            found = self._driver.ex_get_security_groups(filters={"group-name": f"{RESOURCE_PREFIX}*"})
        groups = [
            Group(one.id, one.name.removeprefix(RESOURCE_PREFIX), parse_group_end(one.extra.get("description")))
            for one in found
        ]
        with provider_call(self._where, "list the key pairs"):
            keys = [key.name for key in self._driver.list_key_pairs()]
        return collect_fleets(self._list({"tag-key": TAG_FLEET}), groups, keys)

    def list_machines(self, fleet: str) -> list[Machine]:
        """See `Provider`."""
        return self._list({f"tag:{TAG_FLEET}": fleet})

    def import_key(self, name: str, public_key: str) -> None:
        """See `Provider`."""
        with provider_call(self._where, "import the key"):
            self._driver.import_key_pair_from_string(name, public_key)

    def create_group(self, offer: Offer, description: str) -> str:
        """See `Provider`."""
        name = f"{RESOURCE_PREFIX}{offer.request.name}"
        with provider_call(self._where, "create the security group"):
            group: str = self._driver.ex_create_security_group(name, description, vpc_id=offer.network)["group_id"]
            allow = self._driver.ex_authorize_security_group_ingress
            allow(group, 22, 22, cidr_ips=[offer.request.ssh_from])
            allow(group, -1, -1, group_pairs=[{"group_id": group}], protocol="-1")
        return group

    def create_machines(self, offer: Offer, key: str, group: str, end: datetime, user_data: str) -> None:
        """See `Provider`."""
        from libcloud.compute.base import NodeImage, NodeSize
        from libcloud.compute.drivers.ec2 import EC2NetworkSubnet

        request = offer.request
        with provider_call(self._where, "create the machines"):
            self._driver.create_node(
                name=f"{RESOURCE_PREFIX}{request.name}",
                size=NodeSize(request.machine_type, request.machine_type, 0, 0, 0, 0, self._driver),
                image=NodeImage(offer.image.id, offer.image.name, self._driver),
                ex_mincount=request.count,
                ex_maxcount=request.count,
                ex_keyname=key,
                ex_security_group_ids=[group],
                ex_subnet=EC2NetworkSubnet(offer.subnet, offer.subnet, "available"),
                ex_assign_public_ip=True,
                ex_userdata=user_data,
                ex_metadata={TAG_FLEET: request.name, TAG_END: format_time(end)},
                ex_terminate_on_shutdown=True,
                ex_spot=request.is_spot,
            )

    def connect_machines(self, offer: Offer, machines: Sequence[Machine]) -> None:
        """See `Provider`: EC2 gives them public addresses by itself."""

    def delete_address(self, address: str) -> None:
        """See `Provider`: no fleet has any here."""

    def delete_machines(self, machines: Sequence[Machine]) -> None:
        """See `Provider`: by one request."""
        if not machines:
            return
        words = {f"InstanceId.{number}": machine.id for number, machine in enumerate(machines, 1)}
        with self._unless_gone("remove the machines"):
            self._request("TerminateInstances", words)

    def delete_group(self, group: str) -> None:
        """See `Provider`."""
        with self._unless_gone("remove the security group"):
            self._driver.ex_delete_security_group_by_id(group)

    def delete_key(self, name: str) -> None:
        """See `Provider`."""
        with self._unless_gone("remove the key pair"):
            self._request("DeleteKeyPair", {"KeyName": name})

    def _request(self, action: str, words: dict[str, str]) -> Any:
        """Send a request that libcloud's driver has no method for. Returns the root of the answer's XML."""
        return self._driver.connection.request("/", params={"Action": action, **words}).object

    @contextmanager
    def _unless_gone(self, what: str) -> Iterator[None]:
        """A call whose purpose is that something is gone: that it is gone already is no error."""
        try:
            with provider_call(self._where, what):
                yield
        except BadRequest as refusal:
            if refusal.reason not in _GONE:
                raise

    def _list(self, filters: dict[str, str]) -> list[Machine]:
        with provider_call(self._where, "list the machines"):
            nodes = self._driver.list_nodes(ex_filters=filters)
        found = [_to_machine(node) for node in nodes if node.extra["status"] in _STATES]
        return sorted(found, key=lambda machine: (machine.fleet, machine.created, machine.position, machine.id))

    def _find_arch(self, request: FleetRequest) -> str:
        """The architecture of the machine type.

        Raises:
            InputError: there is no such type, or it has another architecture than the one that is asked for.
        """
        try:
            with provider_call(self._where, "describe the machine type"):
                answer = self._request("DescribeInstanceTypes", {"InstanceType.1": request.machine_type})
        except BadRequest:
            answer = None
        named = [] if answer is None else [one.text for one in answer.iterfind(".//{*}supportedArchitectures/{*}item")]
        archs = [arch for arch in ARCHITECTURES if _EC2_ARCH[arch] in named]
        if not named:
            raise InputError(f"--type: {self._where} has no {request.machine_type}", hint=_near_type(request))
        if not archs:
            raise InputError(f"--type: {request.machine_type} is {named[0]}", hint=f"agents run on {_ALL}")
        if request.arch is not None and request.arch not in archs:
            raise InputError(f"--arch: {request.machine_type} is {archs[0]}", hint="leave --arch out, or change --type")
        return request.arch or archs[0]

    def _find_image(self, request: FleetRequest, arch: str) -> Image:
        if request.image is not None:
            return self._named_image(request, arch)
        for publisher in PUBLISHERS:
            patterns = [pattern.format(arch=DEB_ARCH[arch]) for pattern in publisher.patterns]
            filters = {"name": patterns, "state": "available", "architecture": _EC2_ARCH[arch]}
            with provider_call(self._where, "list the images"):
                found = self._driver.list_images(ex_owner=publisher.account, ex_filters=filters)
            if found:
                newest = max(found, key=lambda one: (_release(one.name), str(one.extra["creation_date"]), one.name))
                return Image(newest.id, newest.name, publisher.name, request.user or publisher.user)
        who = " or ".join(publisher.name for publisher in PUBLISHERS)
        raise InputError(f"{self._where} has no image for {arch} by {who}", hint="name one with --image")

    def _named_image(self, request: FleetRequest, arch: str) -> Image:
        with provider_call(self._where, "describe the image"):
            found = self._driver.list_images(ex_image_ids=[request.image])
        if not found:
            raise InputError(f"--image: {self._where} has no {request.image}")
        image = found[0]
        if image.extra["architecture"] != _EC2_ARCH[arch]:
            raise InputError(
                f"--image: {request.image} is for {image.extra['architecture']}, and {request.machine_type} is {arch}"
            )
        name = image.name or image.id
        owner = image.extra["owner_alias"] or image.extra["owner_id"]
        return Image(image.id, name, owner, request.user or find_user(name, self.name))

    def _find_subnet(self, request: FleetRequest) -> tuple[str, str]:
        """The VPC and the subnet: the one that is named, or the first of the VPC whose zone has the machine type and
        that has addresses enough. One subnet, so that the machines are near each other."""
        with provider_call(self._where, "find the subnet"):
            if request.subnet is not None:
                found = self._driver.ex_list_subnets(subnet_ids=[request.subnet])
            else:
                found = self._driver.ex_list_subnets(filters={"vpc-id": request.network or self._default_network()})
            words = {"LocationType": "availability-zone", "Filter.1.Name": "instance-type"}
            words["Filter.1.Value.1"] = request.machine_type
            offered = self._request("DescribeInstanceTypeOfferings", words)
        if request.subnet is not None and request.network not in (None, found[0].extra["vpc_id"]):
            raise InputError(f"--subnet: {request.subnet} is not in {request.network}")
        zones = {one.text for one in offered.iterfind(".//{*}location")}
        usable = [one for one in found if one.extra["zone"] in zones]
        if not usable:
            option = "--subnet" if request.subnet else "--type"
            raise InputError(f"{option}: no zone of the subnets of {self._where} has {request.machine_type}")
        roomy = [one for one in usable if one.extra["available_ips"] >= request.count]
        if not roomy:
            most = max(one.extra["available_ips"] for one in usable)
            raise InputError(f"--count: the subnet has {most} free addresses", hint=f"{request.count} are needed")
        subnet = min(roomy, key=lambda one: (one.extra["zone"], one.id))
        return subnet.extra["vpc_id"], subnet.id

    def _default_network(self) -> str:
        found = self._driver.ex_list_networks(filters={"isDefault": "true"})
        if not found:
            raise InputError(f"{self._where} has no default VPC", hint="name a network with --network or --subnet")
        network: str = found[0].id
        return network

    def _check_key(self, name: str) -> None:
        with provider_call(self._where, "list the key pairs"):
            known = [key.name for key in self._driver.list_key_pairs()]
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else "leave --key out, and one is generated"
            raise InputError(f"--key: {self._where} has no key pair {name}", hint=hint)


def _to_machine(node: Any) -> Machine:
    tags = node.extra["tags"]
    return Machine(
        id=node.id,
        fleet=tags.get(TAG_FLEET, ""),
        state=_STATES[node.extra["status"]],
        machine_type=node.extra["instance_type"],
        created=node.created_at,
        end=parse_time(tags.get(TAG_END)),
        address=node.private_ips[0] if node.private_ips else None,
        public_address=node.public_ips[0] if node.public_ips else None,
        position=node.extra["launch_index"] or 0,
        fault=node.extra["reason"] or "",
        is_spot=node.extra["instance_lifecycle"] == "spot",
    )


def _release(name: str) -> float:
    """The release in an image's name, by which a newer one is known that was published earlier."""
    rank = rank_cloud_image(name)
    return rank[1] if rank else 0.0


def _near_type(request: FleetRequest) -> str:
    from libcloud.compute.constants.ec2_instance_types import INSTANCE_TYPES

    near = difflib.get_close_matches(request.machine_type, INSTANCE_TYPES, n=1)
    return f"did you mean {near[0]}?" if near else "name one as in m7i.large"


_ALL = " and ".join(ARCHITECTURES)
