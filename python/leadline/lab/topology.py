"""The layout of a lab: its hosts, their links, and the links' effects on packets. Pure data from a few numbers.

Owns: the address plan, the two topologies, and where on a path rate, MTU, delay and loss apply. `hosts` creates a
layout. In base layouts hosts have no route around a gateway: the system under test adds the routes towards the
server.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network

from leadline.errors import InputError

Address = IPv4Interface | IPv6Interface

WAN = (IPv4Network("10.81.0.0/16"), IPv6Network("fd81::/64"))
SERVER_LAN = (IPv4Network("10.82.0.0/24"), IPv6Network("fd82::/64"))
VPN_POOL = (IPv4Network("10.83.0.0/16"), IPv6Network("fd83::/64"))
CLIENT_LAN = (IPv4Network("10.84.0.0/24"), IPv6Network("fd84::/64"))

GATEWAY_ON_WAN = 1  # number inside the network
PEER_GATEWAY_ON_WAN = 2
GATEWAY_ON_LAN = 1
HOST_ON_LAN = 2
FIRST_CLIENT_ON_WAN = 0x101  # client i: 10.81.1.0 + i; in IPv6 fd81::1:0 + i

EMULATOR = "emulator"
EMULATOR_ENDS = ("near", "far")  # its interfaces: towards the clients, and towards the server

MOST_CLIENTS = 1000  # a Linux bridge takes 1023 ports (BR_MAX_PORTS)
LEAST_MTU_BYTES = 576  # RFC 791: every IPv4 host must accept this size
# RFC 8200, section 5: "IPv6 requires that every link in the Internet have an MTU of 1280 octets or greater".
LEAST_IPV6_MTU_BYTES = 1280
MOST_MTU_BYTES = 65535
MOST_RATE_BPS = 8 * (2**32 - 1)  # tbf's rate field counts bytes/s in 32 bits

# A bucket of 10 ms: a timer that fires some ms late, as on a busy or virtual machine, must not reduce the link's rate.
_TBF_BURST_S = 0.010
_QUEUE_S = 0.050
_FRAME_HEADER_BYTES = 14  # Ethernet's, which tbf counts


@dataclass(frozen=True, slots=True)
class LinkSpec:
    """A plan's link parameters. Rate and MTU hold for every link in each direction; the other effects apply once per
    direction, on the WAN. An own emulator has the rate there, too, and the other links have none.
    """

    rate_bps: int | None = None  # of Ethernet frames without preamble, FCS and gap; None: as fast as the kernel goes
    mtu: int = 1500  # bytes of IP; below 1280 there is no IPv6
    loss: float | None = None  # share of packets dropped at random, 0..1
    drop_every: int | None = None  # every Nth packet (IPv6 neighbour discovery counts as packets, too)
    drop_udp_every: int | None = None  # every Nth UDP packet
    delay_ms: float | None = None  # one way; a round trip takes twice this
    jitter_ms: float | None = None  # the delay varies by up to this much in either direction
    loss_burst: float | None = None  # mean number of packets lost in a row; None: each independently
    reorder: float | None = None  # share of packets that arrive after a later one
    duplicate: float | None = None  # share of packets that arrive twice
    corrupt: float | None = None  # share of packets with an inverted bit
    queue_bytes: int | None = None  # longest queue in front of the rate; None: 50 ms of it
    own_emulator: bool = False  # an agent on a host "emulator" has these effects and the rate, once, in the WAN

    def __post_init__(self) -> None:
        _in_range("link rate", self.rate_bps, 8000, MOST_RATE_BPS, "bit/s")
        _in_range("link mtu", self.mtu, LEAST_MTU_BYTES, MOST_MTU_BYTES, "bytes")
        _in_range("link loss", self.loss, 0, 1, "(a share)")
        _in_range("link drop_every", self.drop_every, 2, 2**31, "packets")
        _in_range("link drop_udp_every", self.drop_udp_every, 2, 2**31, "packets")
        _in_range("link delay", self.delay_ms, 0, 60_000, "ms")
        _in_range("link jitter", self.jitter_ms, 0, self.delay_ms or 0, "ms")
        for name in ("reorder", "duplicate", "corrupt"):
            _in_range(f"link {name}", getattr(self, name), 0, 1, "(a share)")

    @property
    def netem(self) -> Netem | None:
        """What the kernel's netem does to packets that leave a host for the WAN; None for nothing."""
        if self.own_emulator or not (self.delay_ms or self.reorder or self.duplicate or self.corrupt):
            return None
        shares = (self.reorder or 0.0, self.duplicate or 0.0, self.corrupt or 0.0)
        return Netem(self.delay_ms or 0.0, self.jitter_ms or 0.0, *shares)

    @property
    def shaper(self) -> Shaper | None:
        """The token bucket of every port; None for none."""
        if self.own_emulator or not self.rate_bps:
            return None
        return shaper(self.rate_bps, self.mtu, self.queue_bytes)


@dataclass(frozen=True, slots=True)
class Shaper:
    """A token bucket for packets that leave a port."""

    rate_bps: int
    burst_bytes: int
    limit_bytes: int  # of the queue, burst included


@dataclass(frozen=True, slots=True)
class Netem:
    """What netem does to the packets that leave a port."""

    delay_ms: float
    jitter_ms: float = 0.0
    reorder: float = 0.0
    duplicate: float = 0.0
    corrupt: float = 0.0


@dataclass(frozen=True, slots=True)
class Drops:
    """The packets that a host drops when they arrive at a port."""

    share: float | None = None
    every: int | None = None
    udp_every: int | None = None


@dataclass(frozen=True, slots=True)
class Port:
    """One end of a link."""

    node: str  # a host or a switch
    interface: str
    mtu: int  # bytes
    shaper: Shaper | None = None
    netem: Netem | None = None  # of leaving packets
    drops: Drops | None = None
    single_packets: bool = False  # no bundles (GSO) leave, so that "every Nth packet" counts packets
    takes_xdp: bool = False  # its far end may send it frames by XDP, which a veth takes only with GRO


@dataclass(frozen=True, slots=True)
class Link:
    """A cable."""

    a: Port
    b: Port


@dataclass(frozen=True, slots=True)
class Interface:
    """A host's side of a link. The name is that of the network it is on: "wan" or "lan"."""

    name: str
    addresses: tuple[Address, ...]


@dataclass(frozen=True, slots=True)
class HostLayout:
    """A host to be created."""

    name: str
    interfaces: tuple[Interface, ...]
    gateways: tuple[IPv4Address | IPv6Address, ...] = ()  # default routes


@dataclass(frozen=True, slots=True)
class Layout:
    """A whole lab to be created."""

    topology: str
    hosts: tuple[HostLayout, ...]
    links: tuple[Link, ...]
    switches: tuple[str, ...] = field(default=())  # bridges, each in a namespace of its own
    emulator: str | None = None  # the host between the two links of the WAN on which an agent forwards frames

    @property
    def ipv6(self) -> bool:
        """Whether every link is wide enough for IPv6."""
        return all(port.mtu >= LEAST_IPV6_MTU_BYTES for link in self.links for port in (link.a, link.b))

    def with_xdp(self) -> Layout:
        """The same lab, whose links take frames that are sent by XDP."""
        ends = [tuple(replace(port, takes_xdp=True) for port in (link.a, link.b)) for link in self.links]
        return replace(self, links=tuple(Link(a, b) for a, b in ends))

    @property
    def clients(self) -> tuple[str, ...]:
        """The hosts that generate load, in order."""
        return tuple(host.name for host in self.hosts if host.name.startswith("client"))


def remote_access(clients: int, link: LinkSpec) -> Layout:
    """N clients on a WAN, and a gateway between it and the server's LAN.

    The WAN is a switch even for one client: the number of clients may be an axis, and the path must not change along
    it.
    """
    _in_range("clients", clients, 1, MOST_CLIENTS, "")
    client_names = [f"client{number}" for number in range(1, clients + 1)]
    client_hosts = [
        HostLayout(name, (Interface("wan", _pair(WAN, FIRST_CLIENT_ON_WAN + index)),))
        for index, name in enumerate(client_names)
    ]
    gateway = HostLayout(
        "gateway",
        (Interface("wan", _pair(WAN, GATEWAY_ON_WAN)), Interface("lan", _pair(SERVER_LAN, GATEWAY_ON_LAN))),
    )
    wires = [Link(_wan_port(name, link), _plain_port("switch", name, link)) for name in client_names]
    # Every packet between a client and the gateway crosses the gateway's own link to the switch once.
    wan = _wan_links(_plain_port("switch", "gateway", link), _wan_port("gateway", link), link)
    return Layout(
        "remote-access",
        (*client_hosts, gateway, _host_behind("server", SERVER_LAN)),
        (*wires, *wan, _lan("gateway", "server", link)),
        ("switch",),
        EMULATOR if link.own_emulator else None,
    )


def site_to_site(link: LinkSpec) -> Layout:
    """A client and a server, each behind its own gateway; the gateways meet on the WAN. Four hosts in a line."""
    gateway_a = HostLayout(
        "gateway-a",
        (Interface("lan", _pair(CLIENT_LAN, GATEWAY_ON_LAN)), Interface("wan", _pair(WAN, GATEWAY_ON_WAN))),
    )
    gateway_b = HostLayout(
        "gateway-b",
        (Interface("wan", _pair(WAN, PEER_GATEWAY_ON_WAN)), Interface("lan", _pair(SERVER_LAN, GATEWAY_ON_LAN))),
    )
    client = HostLayout("client1", (Interface("lan", _pair(CLIENT_LAN, HOST_ON_LAN)),))
    wan = _wan_links(_wan_port("gateway-a", link), _wan_port("gateway-b", link), link)
    return Layout(
        "site-to-site",
        (client, gateway_a, gateway_b, _host_behind("server", SERVER_LAN)),
        (_lan("client1", "gateway-a", link), *wan, _lan("gateway-b", "server", link)),
        emulator=EMULATOR if link.own_emulator else None,
    )


def shaper(rate_bps: int, mtu: int, queue_bytes: int | None = None) -> Shaper:
    """A token bucket that TCP can use up to within 2 % of the rate.

    The burst is 10 ms of the rate: a timer that fires later loses tokens, and a burst is the error of a test, 0.1 %
    of ten seconds. It is at least two frames; with less, tbf drops everything.
    """
    frame_bytes = mtu + _FRAME_HEADER_BYTES
    burst = max(2 * frame_bytes, round(rate_bps / 8 * _TBF_BURST_S))
    queue = queue_bytes_of(rate_bps, mtu) if queue_bytes is None else queue_bytes
    return Shaper(rate_bps, burst, min(burst + queue, 2**32 - 1))


def queue_bytes_of(rate_bps: int, mtu: int) -> int:
    """The default queue in front of a rate: 50 ms of it, at least 16 frames."""
    return max(16 * (mtu + _FRAME_HEADER_BYTES), round(rate_bps / 8 * _QUEUE_S))


def _host_behind(name: str, networks: tuple[IPv4Network, IPv6Network]) -> HostLayout:
    """A host that reaches everything through its gateway."""
    gateways = tuple(address.ip for address in _pair(networks, GATEWAY_ON_LAN))
    return HostLayout(name, (Interface("lan", _pair(networks, HOST_ON_LAN)),), gateways)


def _lan(left: str, right: str, link: LinkSpec) -> Link:
    return Link(_plain_port(left, "lan", link), _plain_port(right, "lan", link))


def _plain_port(node: str, interface: str, link: LinkSpec) -> Port:
    return Port(
        node,
        interface,
        link.mtu,
        link.shaper,
        single_packets=node == "switch" and _counts_packets(link),
    )


def _wan_port(host: str, link: LinkSpec) -> Port:
    """A host's port on the WAN. Packets are delayed when they leave a host and dropped when they arrive at one, so a
    packet that crosses the WAN meets each exactly once, with or without a switch.
    """
    drops = _drops(link)
    return Port(host, "wan", link.mtu, link.shaper, link.netem, drops, single_packets=_counts_packets(link))


def _wan_links(near: Port, far: Port, link: LinkSpec) -> tuple[Link, ...]:
    """The WAN between the clients' side and the server's gateway: one link, or two with the emulator between them."""
    if not link.own_emulator:
        return (Link(near, far),)
    ends = [Port(EMULATOR, name, link.mtu) for name in EMULATOR_ENDS]
    return (Link(near, ends[0]), Link(ends[1], far))


def _counts_packets(link: LinkSpec) -> bool:
    """Whether something on the link happens to single packets, so that none may be bundled."""
    netem = link.netem
    faults = netem is not None and (netem.reorder or netem.duplicate or netem.corrupt)
    return link.own_emulator or bool(faults) or _drops(link) is not None


def _drops(link: LinkSpec) -> Drops | None:
    loss = None if link.own_emulator else link.loss or None
    if not (loss or link.drop_every or link.drop_udp_every):
        return None
    return Drops(loss, link.drop_every, link.drop_udp_every)


def _pair(networks: tuple[IPv4Network, IPv6Network], number: int) -> tuple[Address, ...]:
    v4, v6 = networks
    return (
        IPv4Interface((v4.network_address + number, v4.prefixlen)),
        IPv6Interface((v6.network_address + _in_v6(number), v6.prefixlen)),
    )


def _in_v6(number: int) -> int:
    """A number in IPv6: clients have their own group, fd81::1:7 is client 7; small numbers are unchanged."""
    return 0x1_0000 + number - (FIRST_CLIENT_ON_WAN - 1) if number >= FIRST_CLIENT_ON_WAN else number


def _in_range(what: str, value: float | None, least: float, most: float, unit: str) -> None:
    if value is not None and not least <= value <= most:
        raise InputError(f"{what} is {value}", hint=f"it can be from {least} to {most} {unit}".rstrip())
