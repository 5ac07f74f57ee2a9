"""The kernel operations that create one namespace, link, qdisc or packet filter, through pyroute2.

Owns: netlink and /proc/sys. `topology` decides what to create, `hosts` in what order. Every function acts in the
calling thread's network namespace; refusals by the kernel become EnvironmentLimit or LabError.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.nfnetlink.nftsocket import Cmp, Meta, Regs
from pyroute2.nftables.expressions import verdict
from pyroute2.nftables.main import NFTables

from leadline.errors import EnvironmentLimit, LabError
from leadline.lab import kernel
from leadline.lab.topology import Address, Drops, Link, Netem, Port, Shaper

_NO_DUPLICATE_ADDRESS_DETECTION = 0x02  # IFA_F_NODAD
_NFPROTO_INET = 1
_NF_DROP = 0
_NF_ACCEPT = 1
_NG_INCREMENTAL = 0
_NG_RANDOM = 1
_BYTEORDER_HTON = 1
_TABLE = "leadline"
_CHAIN = "loss"
_RAW_PRIORITY = -300  # before connection tracking, which would reassemble fragments
_RANDOM_RANGE = 2**31 - 1
_SIOCETHTOOL = 0x8946
_ETHTOOL_SGRO = 0x2C

# New namespaces inherit some of these from the machine (devinet_init_net), so each one is set explicitly.
_HOST_SETTINGS = {
    "ipv4/ip_forward": 0,
    "ipv4/conf/all/rp_filter": 0,  # replies may return on another path: through a tunnel
    "ipv4/conf/default/rp_filter": 0,
    "ipv6/conf/all/forwarding": 0,
    "ipv6/conf/all/accept_dad": 0,  # addresses work at once
    "ipv6/conf/default/accept_dad": 0,
    "ipv6/conf/default/accept_ra": 0,  # no autoconfiguration
    "ipv6/conf/default/autoconf": 0,
    "ipv6/conf/default/router_solicitations": 0,
}
_SWITCH_SETTINGS = {
    "ipv6/conf/all/disable_ipv6": 1,  # a switch has no addresses and sends no packets of its own
    "ipv6/conf/default/disable_ipv6": 1,
    "bridge/bridge-nf-call-iptables": 0,
    "bridge/bridge-nf-call-ip6tables": 0,
}


def hold_namespace(path: Path) -> None:
    """Create a network namespace, and bind it to a file."""
    try:
        kernel.create_network_namespace(path)
    except FileExistsError:
        raise LabError(f"this jail already has a host {path.name}", hint="close the other lab first") from None
    except OSError as error:
        path.unlink(missing_ok=True)
        if error.errno == errno.ENOSPC:
            raise EnvironmentLimit(
                f"this machine allows at most {_namespaces_allowed()} hosts",
                hint="allow more with `sudo sysctl -w user.max_net_namespaces=15000`",
            ) from error
        raise LabError(f"the namespace of {path.name} cannot be created: {error.strerror}") from error


def has_ipv6() -> bool:
    """Whether the kernel runs IPv6 at all (`ipv6.disable=1` disables it)."""
    return Path("/proc/sys/net/ipv6").exists()


def prepare_host() -> None:
    """Apply the settings of a host's namespace before it has interfaces, and bring its loopback up."""
    _set_all(_HOST_SETTINGS)
    with _netlink("bring a loopback interface up") as route:
        route.link("set", index=1, state="up")


def make_switch() -> None:
    """Create a bridge named "bridge", without spanning tree or multicast snooping."""
    _set_all(_SWITCH_SETTINGS)
    with _netlink("make a bridge", module="bridge") as route:
        route.link("add", ifname="bridge", kind="bridge", br_stp_state=0, br_forward_delay=0, br_mcast_snooping=0)
        route.link("set", index=_index(route, "bridge"), state="up")


def prepare_emulator() -> None:
    """Apply the settings of the emulator's namespace before it has interfaces: like a switch, it sends no packets of
    its own.
    """
    _set_all(_SWITCH_SETTINGS)


def has_netem() -> bool:
    """Whether the kernel has netem, tried on the loopback interface of this namespace, where it stays for a moment."""
    with _netlink("try netem") as route:
        loopback = _index(route, "lo")
        if _refusal("netem", lambda: _impair(route, loopback, Netem(0.0))) is not None:
            return False
        route.tc("del", "netem", loopback, handle=0x1_0000)
        return True


def connect(link: Link, a: Path, b: Path) -> None:
    """Create a pair of virtual interfaces with one end in each of two namespaces."""
    with _open_namespace(a) as a_fd, _open_namespace(b) as b_fd, _netlink("make a veth pair", module="veth") as route:
        peer = {"ifname": link.b.interface, "mtu": link.b.mtu, "net_ns_fd": b_fd}
        route.link("add", ifname=link.a.interface, kind="veth", mtu=link.a.mtu, net_ns_fd=a_fd, peer=peer)


def set_up_host_port(port: Port, addresses: tuple[Address, ...]) -> None:
    """Configure a host's end of a link: addresses, limits, losses; bring it up."""
    with _netlink(f"set {port.interface} of {port.node} up") as route:
        index = _index(route, port.interface)
        _set_up(route, index, port)
        for address in addresses:
            flags = _NO_DUPLICATE_ADDRESS_DETECTION if address.version == 6 else 0
            route.addr("add", index=index, address=str(address.ip), prefixlen=address.network.prefixlen, flags=flags)
    if port.drops is not None:
        _drop(port.interface, port.drops)


def set_up_switch_ports(ports: list[Port]) -> None:
    """Configure the switch's ends of links, and bring them up."""
    with _netlink("set a switch up") as route:
        bridge = _index(route, "bridge")
        for port in ports:
            index = _index(route, port.interface)
            route.link("set", index=index, master=bridge)
            _set_up(route, index, port)
        route.link("set", index=bridge, mtu=min(port.mtu for port in ports))


def add_route(destination: str, via: str | None, device: str | None) -> None:
    """Set a route; replaces one to the same destination."""
    family = 10 if ":" in destination else 2
    with _netlink(f"set a route to {destination} via {via or device}") as route:
        where: dict[str, Any] = {"gateway": via} if via is not None else {}
        if device is not None:
            where["oif"] = _index(route, device)
        route.route("replace", family=family, dst=destination, **where)


def remove_route(destination: str) -> None:
    """Remove the route to a destination; a missing route is not an error."""
    with _netlink(f"remove the route to {destination}") as route:
        try:
            route.route("del", family=10 if ":" in destination else 2, dst=destination)
        except NetlinkError as error:
            if error.code != errno.ESRCH:
                raise


def set_sysctl(name: str, value: int | str) -> None:
    """Write a value below /proc/sys. Only /proc/sys/net belongs to a network namespace, so only that is a host's
    own."""
    path = Path("/proc/sys") / name
    if not name.startswith("net/") or ".." in path.parts:
        raise LabError(f"{name} is not a setting of a host's network", hint="give a path such as net/ipv4/ip_forward")
    try:
        path.write_text(str(value))
    except OSError as error:
        raise LabError(f"{path} cannot be set to {value}: {error.strerror}") from error


def try_kernel() -> dict[str, EnvironmentLimit | LabError | None]:
    """The errors that prevent a delay, a rate and drops on links, by kernel feature; None if a feature works. Tries
    each on the loopback interface of a temporary namespace.
    """
    with _netlink("set queueing disciplines") as route:
        loopback = _index(route, "lo")
        delay = _refusal("netem", lambda: _impair(route, loopback, Netem(1.0)))
        # As on a link with both: the bucket is the child of the delay.
        parent = 0x1_0001 if delay is None else None
        bucket = Shaper(rate_bps=8_000_000, burst_bytes=15_000, limit_bytes=30_000)
        rate = _refusal("tbf", lambda: _shape(route, loopback, bucket, parent))
    return {"netem": delay, "tbf": rate, "nftables": _refusal("nftables", lambda: _drop("lo", Drops(every=1000)))}


def _refusal(name: str, attempt: Callable[[], None]) -> EnvironmentLimit | LabError | None:
    try:
        attempt()
    except (EnvironmentLimit, LabError) as error:
        return error
    except NetlinkError as error:
        return LabError(f"{name} cannot be set: {os.strerror(error.code)}")
    return None


def _set_up(route: IPRoute, index: int, port: Port) -> None:
    if port.single_packets:
        route.link("set", index=index, gso_max_segs=1)
    if port.takes_xdp:
        _switch_on_gro(port.interface)
    route.link("set", index=index, state="up")
    if port.netem is not None:
        _impair(route, index, port.netem)
    if port.shaper is not None:
        # netem holds delayed packets, and passes them to its child, the bucket.
        _shape(route, index, port.shaper, parent=0x1_0001 if port.netem is not None else None)


def _switch_on_gro(interface: str) -> None:
    """`ethtool -K INTERFACE gro on` (ethtool(8)), which also gives a veth its own queue for frames of XDP."""
    value = ctypes.create_string_buffer(struct.pack("II", _ETHTOOL_SGRO, 1))
    request = struct.pack("16sP16x", interface.encode(), ctypes.addressof(value))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        try:
            fcntl.ioctl(control, _SIOCETHTOOL, request)
        except OSError as error:
            raise LabError(f"GRO of {interface} cannot be switched on: {os.strerror(error.errno or 0)}") from error


def _shape(route: IPRoute, index: int, shaper: Shaper, parent: int | None) -> None:
    place = {"handle": 0x10_0000, **({"parent": parent} if parent is not None else {})}
    remedy = "load it with `sudo modprobe sch_tbf`, write lab.emulator: own, or leave lab.link.rate out of the plan"
    with _needs("tbf", "links cannot have a rate", remedy):
        route.tc(
            "add",
            "tbf",
            index,
            rate=shaper.rate_bps // 8,  # pyroute2 takes a number as bytes/s
            burst=shaper.burst_bytes,
            limit=shaper.limit_bytes,
            **place,
        )


def _impair(route: IPRoute, index: int, netem: Netem) -> None:
    remedy = "load it with `sudo modprobe sch_netem`, or write lab.emulator: own"
    with _needs("netem", "links cannot have a delay or faults", remedy):
        route.tc(
            "add",
            "netem",
            index,
            handle=0x1_0000,
            delay=round(netem.delay_ms * 1000),
            jitter=round(netem.jitter_ms * 1000),
            prob_reorder=netem.reorder * 100,  # pyroute2 takes percent
            duplicate=netem.duplicate * 100,
            prob_corrupt=netem.corrupt * 100,
            # The queue must hold all packets in flight: 1 s of 10 Gbit/s in frames of 1500 bytes is 833,000.
            limit=1_000_000,
        )


def _drop(interface: str, drops: Drops) -> None:
    """Add filter rules for packets that arrive at `interface`. The comments show nft's syntax."""
    rules = []
    arrives = _meta_equals(Meta.NFT_META_IIFNAME, interface.encode().ljust(16, b"\0"))  # iifname "wan"
    if drops.udp_every is not None:
        is_udp = _meta_equals(Meta.NFT_META_L4PROTO, bytes([17]))  # meta l4proto udp
        rules.append([*arrives, *is_udp, *_every(drops.udp_every)])
    if drops.every is not None:
        rules.append([*arrives, *_every(drops.every)])
    if drops.share is not None:
        rules.append([*arrives, *_at_random(drops.share)])
    with _netfilter() as filters:
        filters.table("add", name=_TABLE)
        filters.chain(
            "add",
            table=_TABLE,
            name=_CHAIN,
            hook="prerouting",
            type="filter",
            priority=_RAW_PRIORITY,
            policy=_NF_ACCEPT,
        )
        for rule in rules:
            filters.rule("add", table=_TABLE, chain=_CHAIN, expressions=(rule, verdict(_NF_DROP)))


@contextmanager
def _netfilter() -> Iterator[NFTables]:
    """A socket for tables of IPv4 and IPv6, in this thread's namespace; pyroute2 waits for each answer."""
    hint = "load what it needs with `sudo modprobe -a nf_tables nft_numgen`, or leave loss and drops out of lab.link"
    try:
        with NFTables(nfgen_family=_NFPROTO_INET) as filters:
            yield filters
    except (NetlinkError, OSError) as error:
        number = error.code if isinstance(error, NetlinkError) else error.errno
        if number in (errno.EPROTONOSUPPORT, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOENT):
            raise EnvironmentLimit(
                "links cannot lose packets: this kernel lacks nftables or its numgen", hint=hint
            ) from error
        raise LabError(f"packet filters cannot be set: {os.strerror(number or 0)}") from error


def _every(count: int) -> list[dict[str, Any]]:
    """numgen inc mod COUNT == COUNT-1: the counter starts at 0, so packet number COUNT is the first to be dropped."""
    number = _numgen(count, _NG_INCREMENTAL)
    return [number, _compare(Cmp.NFT_CMP_EQ, struct.pack("=I", count - 1))]


def _at_random(share: float) -> list[dict[str, Any]]:
    """numgen random mod RANGE < SHARE*RANGE. Registers are compared as bytes, so the number is converted to network
    order.
    """
    number = _numgen(_RANDOM_RANGE, _NG_RANDOM)
    turn = {"SREG": Regs.NFT_REG_1, "DREG": Regs.NFT_REG_1, "OP": _BYTEORDER_HTON, "LEN": 4, "SIZE": 4}
    below = struct.pack("!I", round(share * _RANDOM_RANGE))
    return [number, _expression("byteorder", "BYTEORDER", turn), _compare(Cmp.NFT_CMP_LT, below)]


def _meta_equals(key: int, value: bytes) -> list[dict[str, Any]]:
    meta = _expression("meta", "META", {"DREG": Regs.NFT_REG_1, "KEY": key})
    return [meta, _compare(Cmp.NFT_CMP_EQ, value)]


def _numgen(modulus: int, kind: int) -> dict[str, Any]:
    return _expression("numgen", "NG", {"DREG": Regs.NFT_REG_1, "MODULUS": modulus, "TYPE": kind, "OFFSET": 0})


def _compare(operator: int, value: bytes) -> dict[str, Any]:
    data = {"attrs": [("NFTA_DATA_VALUE", value)]}
    return _expression("cmp", "CMP", {"SREG": Regs.NFT_REG_1, "OP": operator, "DATA": data})


def _expression(name: str, prefix: str, attributes: dict[str, Any]) -> dict[str, Any]:
    """pyroute2's form of one nftables expression. (Its own `genex` cannot write numgen, whose prefix differs from its
    name.)
    """
    data = [(f"NFTA_{prefix}_{key}", value) for key, value in attributes.items()]
    return {"attrs": [("NFTA_EXPR_NAME", name), ("NFTA_EXPR_DATA", {"attrs": data})]}


def _set_all(settings: dict[str, int]) -> None:
    """Write below /proc/sys/net; settings that this kernel lacks are skipped."""
    for name, value in settings.items():
        path = Path("/proc/sys/net") / name
        try:
            path.write_text(str(value))
        except FileNotFoundError:
            continue
        except OSError as error:
            raise LabError(f"{path} cannot be set to {value}: {error.strerror}") from error


def _index(route: IPRoute, interface: str) -> int:
    found = route.link_lookup(ifname=interface)
    if not found:
        raise LabError(f"there is no interface {interface}")
    return int(found[0])


@contextmanager
def _open_namespace(path: Path) -> Iterator[int]:
    """A descriptor of a namespace's file, open during the block."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _netlink(what: str, module: str | None = None) -> Iterator[IPRoute]:
    """A socket in this thread's namespace, open during the block; `what` names the operation in errors."""
    with IPRoute() as route:
        try:
            yield route
        except NetlinkError as error:
            if module is not None and error.code in (errno.EOPNOTSUPP, errno.ENOENT):
                raise EnvironmentLimit(
                    f"this kernel cannot {what}", hint=f"load what it needs with `sudo modprobe {module}`"
                ) from error
            raise LabError(f"cannot {what}: {os.strerror(error.code)}") from error


@contextmanager
def _needs(qdisc: str, consequence: str, remedy: str) -> Iterator[None]:
    """Convert rtnl's ENOENT for an unknown queueing discipline to an error with advice."""
    try:
        yield
    except NetlinkError as error:
        if error.code == errno.ENOENT:
            raise EnvironmentLimit(f"{consequence}: this kernel has no {qdisc}", hint=remedy) from error
        raise


def _namespaces_allowed() -> str:
    return Path("/proc/sys/user/max_net_namespaces").read_text().strip()
