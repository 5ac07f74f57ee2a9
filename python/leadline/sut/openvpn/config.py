"""Renders OpenVPN's configuration files from parameters. Pure.

Options other than those of the parameters keep the daemon's defaults: OpenVPN is measured as it ships. Options that a
build does not know are omitted or replaced by their older names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, ip_network
from pathlib import Path

from leadline.sut.addressing import Network, gateway_address
from leadline.sut.openvpn.parameters import DEFAULT_INITIAL_RATE, OpenvpnSut
from leadline.sut.openvpn.program import OpenvpnProgram
from leadline.sut.pki import Identity

INTERFACE = "tun"
"""Begins the name of its interfaces."""
PORT = 1194
DEFAULT_MAX_CLIENTS = 1024
"""The daemon's default `max-clients`: more clients than this are refused."""
INITIAL_RATE = (100, 10)
"""OpenVPN 2.6's default `connect-freq-initial`: responses to first packets, and the period in seconds."""
_LEGACY_CIPHERS = ("BF-", "CAST5-", "DES-CBC", "IDEA-", "RC2-", "SEED-")
"""Ciphers in OpenSSL 3's legacy provider."""


@dataclass(frozen=True, slots=True)
class Keys:
    """The files of one end."""

    authority: Path
    identity: Identity
    control: Path | None
    """Key that protects the control channel; None if `control` is none."""


@dataclass(frozen=True, slots=True)
class Networks:
    """The networks in the server's configuration, by IP version; versions that the hosts lack are absent."""

    pool: Mapping[int, Network]
    pushed: Sequence[Network]
    behind_client: Sequence[Network] = ()
    """Networks behind the one client of a site-to-site tunnel."""


def server_config(
    parameters: OpenvpnSut,
    program: OpenvpnProgram,
    keys: Keys,
    networks: Networks,
    *,
    listen: str,
    clients: int,
    folder: Path,
    interface: str = f"{INTERFACE}0",
) -> str:
    """The gateway's file. `listen` is its WAN address, `clients` the number of expected clients, `folder` for its
    status file."""
    lines = [
        f"dev {interface}",
        f"proto {_server_proto(parameters)}",
        f"local {listen}",
        f"port {PORT}",
        f"topology {parameters.topology}",
        *_addressing(parameters, networks.pool),
        *(f'push "{_route(network)}"' for network in networks.pushed),
        *(_route(network) for network in networks.behind_client),
    ]
    if networks.behind_client:
        lines.append(f"client-config-dir {_quoted(folder / 'ccd')}")
    lines += _common(parameters, program, keys, "server")
    lines += ["remote-cert-tls client", "dh none", "keepalive 10 60"]
    most = parameters.max_clients or (clients if clients > DEFAULT_MAX_CLIENTS else None)
    if most is not None:
        lines.append(f"max-clients {most}")
    lines += _initial_rate(parameters, program, clients)
    lines += [f"status {_quoted(folder / 'status')} 10", "status-version 2"]
    return _text(lines)


def client_config(
    parameters: OpenvpnSut, program: OpenvpnProgram, keys: Keys, *, remote: str, interface: str = f"{INTERFACE}0"
) -> str:
    """The file of a client. `remote` is the gateway's WAN address."""
    lines = [
        "client",
        f"dev {interface}",
        # Without the IP version, which follows from the remote's address: not every client knows `udp4`.
        "proto udp" if parameters.transport == "udp" else "proto tcp-client",
        f"remote {remote} {PORT}",
        "nobind",
        "connect-retry 1",
        *_common(parameters, program, keys, "client"),
        "remote-cert-tls server",
    ]
    if parameters.transport == "udp":
        lines.append("explicit-exit-notify 1")
    return _text(lines)


def client_directory_entry(networks: Networks) -> str:
    """The entry in the server's client-config-dir for the client with networks behind it."""
    return _text([f"i{_route(network)}" for network in networks.behind_client])


def pool_range(parameters: OpenvpnSut, pool: Network) -> tuple[str, str]:
    """The first and last address of a pool of `pool_size` clients; net30 takes four addresses for each."""
    size = parameters.pool_size or 0
    first, each = {"subnet": (2, 1), "net30": (4, 4), "p2p": (4, 1)}[parameters.topology]
    return str(pool[first]), str(pool[first + each * size - 1])


def _addressing(parameters: OpenvpnSut, pool: Mapping[int, Network]) -> list[str]:
    """`server` and `server-ipv6`; with a given pool size, the options that these two macros stand for
    (openvpn(8))."""
    v4, v6 = pool[4], pool.get(6)
    if parameters.pool_size is None:
        return [f"server {_masked(v4)}", *([f"server-ipv6 {v6}"] if v6 else [])]
    start, end = pool_range(parameters, v4)
    gateway, second = gateway_address(v4), str(v4[2])
    lines = ["mode server", "tls-server", f'push "topology {parameters.topology}"']
    if parameters.topology == "subnet":
        lines += [
            f"ifconfig {gateway} {v4.netmask}",
            f"ifconfig-pool {start} {end} {v4.netmask}",
            f'push "route-gateway {gateway}"',
            f"route-gateway {second}",
        ]
    else:
        lines += [f"ifconfig {gateway} {second}", f"ifconfig-pool {start} {end}", _route(v4)]
    if parameters.topology == "net30":
        lines.append(f'push "route {gateway}"')
    if v6:
        lines += [
            f"ifconfig-ipv6 {gateway_address(v6)}/{v6.prefixlen} {v6[2]}",
            f"ifconfig-ipv6-pool {v6[0x1000]}/{v6.prefixlen}",
            'push "tun-ipv6"',
        ]
    return lines


def _common(parameters: OpenvpnSut, program: OpenvpnProgram, keys: Keys, end: str) -> list[str]:
    lines = [
        f"ca {_quoted(keys.authority)}",
        f"cert {_quoted(keys.identity.certificate)}",
        f"key {_quoted(keys.identity.key)}",
        *_control(parameters, keys, end),
        *_cipher(parameters.cipher, program),
    ]
    if parameters.compression is not None:
        lines.append(f"compress {parameters.compression}")
        if program.knows("allow-compression"):
            lines.append("allow-compression yes")
    if parameters.tun_mtu is not None:
        lines.append(f"tun-mtu {parameters.tun_mtu}")
    if program.knows("disable-dco"):
        # The data path must not depend on the host's kernel.
        lines.append("disable-dco")
    return [*lines, "verb 3"]


def _control(parameters: OpenvpnSut, keys: Keys, end: str) -> list[str]:
    if parameters.control == "none" or keys.control is None:
        return []
    direction = {"server": " 0", "client": " 1"}[end] if parameters.control == "tls-auth" else ""
    return [f"{parameters.control} {_quoted(keys.control)}{direction}"]


def _cipher(cipher: str, program: OpenvpnProgram) -> list[str]:
    lines = [f"data-ciphers {cipher}"] if program.knows("data-ciphers") else [f"cipher {cipher}"]
    if not program.knows("data-ciphers") and program.knows("ncp-ciphers"):
        lines.append(f"ncp-ciphers {cipher}")
    if cipher.upper().startswith(_LEGACY_CIPHERS) and program.knows("providers"):
        lines.append("providers legacy default")
    return lines


def _initial_rate(parameters: OpenvpnSut, program: OpenvpnProgram, clients: int) -> list[str]:
    """The given limit; by default one that clients which connect at the same time do not reach: each may need several
    requests."""
    wanted, seconds = 4 * clients, INITIAL_RATE[1]
    asked = parameters.connect_freq_initial
    if asked is not None and parameters.transport == "udp":
        # A build that does not know the option reports an error: a given limit is never silently omitted.
        return [] if asked == DEFAULT_INITIAL_RATE else [f"connect-freq-initial {asked} {seconds}"]
    if parameters.transport != "udp" or not program.knows("connect-freq-initial") or wanted <= INITIAL_RATE[0]:
        return []
    return [f"connect-freq-initial {wanted} {seconds}"]


def _server_proto(parameters: OpenvpnSut) -> str:
    return f"udp{parameters.ip}" if parameters.transport == "udp" else f"tcp{parameters.ip}-server"


def route_networks(parameters: OpenvpnSut, server_lan: Sequence[Network]) -> list[Network]:
    """The pushed networks: the server's always, then the plan's; a repeated network would be an error for the
    client."""
    return list(dict.fromkeys([*server_lan, *(ip_network(text) for text in parameters.push_routes)]))


def _route(network: Network) -> str:
    return f"route {_masked(network)}" if isinstance(network, IPv4Network) else f"route-ipv6 {network}"


def _masked(network: Network) -> str:
    return f"{network.network_address} {network.netmask}"


def _quoted(path: Path) -> str:
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _text(lines: Sequence[str]) -> str:
    return "\n".join(lines) + "\n"
