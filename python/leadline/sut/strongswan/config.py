"""Renders strongswan.conf and swanctl.conf from parameters. Pure.

Options other than those of the parameters keep charon's defaults: it is measured as it ships. The list of plugins is
explicit, because some of those that Debian loads use fixed paths outside of the trial's folder (stroke), or add
policies of their own (bypass-lan).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from leadline.sut.addressing import Network
from leadline.sut.strongswan import log
from leadline.sut.strongswan.parameters import DataPlane, StrongswanSut

CONNECTION, CHILD = "gateway", "net"
LIBIPSEC_INTERFACE = "ipsec0"
SOCKET = "unix://vici"
"""charon's control socket, in the daemon's own folder, in which it and swanctl run: a socket's path has at most 107
characters."""
CONNECT_WITHIN_S = 50
_FIRST_ADDRESS = 2
"""Of a pool: WireGuard's and OpenVPN's gateways have the first one."""
_MAX_POOL = 65_000
_MIN_LATE_S = 10
ANYONE = "%any"
"""The name of a secret that all clients share."""

_PLUGINS = (
    *("random", "nonce", "pem", "x509", "pubkey", "pkcs1", "pkcs8", "constraints", "openssl", "hmac", "kdf", "gcm"),
    *("aes", "sha1", "sha2", "curve25519", "chapoly"),
    # It takes the kernel's place only in front of kernel-netlink, which then sets routes and addresses alone.
    *("kernel-libipsec", "kernel-netlink", "socket-default", "vici", "eap-identity", "eap-mschapv2", "md5", "updown"),
)
_FOR_LIBIPSEC = "kernel-libipsec"


@dataclass(frozen=True, slots=True)
class End:
    """One end of the tunnel."""

    name: str
    """Its identity in IKE: the host's name."""
    outer: str
    """Its address on the WAN."""
    networks: tuple[Network, ...]
    """The networks behind it; a client with a virtual address has none."""
    secret: str | None
    """Its pre-shared key or password; None with certificates."""


def plugins(parameters: StrongswanSut, data_plane: DataPlane) -> tuple[str, ...]:
    """The plugins to load, in their order."""
    eap = ("eap-identity", "eap-mschapv2", "md5")
    without = {*((_FOR_LIBIPSEC,) if data_plane == "kernel" else ()), *(() if "eap" in parameters.method else eap)}
    return tuple(name for name in _PLUGINS if name not in without)


def daemon_config(parameters: StrongswanSut, data_plane: DataPlane, *, swanctl: str, connects: bool) -> str:
    """strongswan.conf. The daemon runs swanctl once it has started: it loads the other file, and a client connects."""
    control = f"--uri {SOCKET}"
    program = shlex.quote(swanctl)
    steps = [f"{program} --load-all --noprompt --file swanctl.conf {control}"]
    if connects:
        steps.append(f"{program} --initiate --child {CHILD} --timeout {CONNECT_WITHIN_S} {control}")
    script = " && ".join([*steps, f"echo {log.DONE}"]) + f" || echo {log.FAILED}"
    return _text(
        "charon-systemd {",
        *_limits(parameters),
        f"  load = {' '.join(plugins(parameters, data_plane))}",
        # In the main table, where the host's view shows them; 220 is the default.
        "  routing_table = 0",
        f"  plugins {{ vici {{ socket = {SOCKET} }} }}",
        # charon does not flush what it calls stdout.
        "  filelog { out { path = /dev/stdout",
        "      default = 1",
        "      flush_line = yes } }",
        "  journal { default = -1 }",
        f'  start-scripts {{ {log.SCRIPT} = "{_escaped(script)}" }}',
        "}",
    )


def _limits(parameters: StrongswanSut) -> list[str]:
    """What differs from the daemon's own limits."""
    lines = [] if parameters.dos_protection else ["  dos_protection = no"]
    if parameters.ikesa_table_size is not None:
        lines.append(f"  ikesa_table_size = {parameters.ikesa_table_size}")
    return lines


def gateway_config(
    parameters: StrongswanSut, gateway: End, clients: Sequence[End], pools: Mapping[int, Network], *, site_to_site: bool
) -> str:
    """swanctl.conf of the gateway: one connection for all clients. `pools` are those of virtual addresses."""
    names = [f"ipv{version}" for version in pools]
    others = [network for client in clients for network in client.networks] if site_to_site else []
    return _text(
        f"connections {{ {CONNECTION} {{",
        *_COMMON,
        f"  local_addrs = {gateway.outer}",
        f"  proposals = {parameters.ike}",
        *([f"  pools = {', '.join(names)}"] if names else []),
        *_own(parameters, gateway, is_client=False),
        *_other(parameters, None, is_client=True),
        *_child(parameters, parameters.esp, gateway.networks, others),
        "} }",
        "pools {",
        *(
            f"  {name} {{ addrs = {_range(pool, parameters.pool_size)} }}"
            for name, pool in zip(names, pools.values(), strict=True)
        ),
        "}",
        *_secrets(parameters, clients),
    )


def fleet_ends(parameters: StrongswanSut, count: int, secret: str) -> list[End]:
    """The clients of a fleet as the gateway knows them: with a pre-shared key it is one for all names."""
    if parameters.method == "psk":
        return [End(ANYONE, "", (), secret)]
    return [End(f"client{number}", "", (), secret) for number in range(count)]


def client_config(parameters: StrongswanSut, client: End, gateway: End, pools: Iterable[int]) -> str:
    """swanctl.conf of a client, or of the gateway at the client's site. `pools` are the IP versions of its virtual
    addresses."""
    requested = [_ANY_ADDRESS[version] for version in pools]
    return _text(
        f"connections {{ {CONNECTION} {{",
        *_COMMON,
        "  keyingtries = 1",
        f"  local_addrs = {client.outer}",
        f"  remote_addrs = {gateway.outer}",
        f"  proposals = {parameters.client_ike or parameters.ike}",
        *(f"  {line}" for line in _lifetime(parameters.ike_rekey_ms, "over_time")),
        *([f"  vips = {', '.join(requested)}"] if requested else []),
        *_own(parameters, client, is_client=True),
        *_other(parameters, gateway, is_client=False),
        *_child(
            parameters,
            parameters.client_esp or parameters.esp,
            client.networks,
            gateway.networks,
            _lifetime(parameters.child_rekey_ms, "life_time"),
        ),
        "} }",
        *_secrets(parameters, [client]),
    )


# Without MOBIKE a tunnel stays on the addresses, and so on the IP version, that the plan names.
_COMMON = ("  version = 2", "  mobike = no")
_ANY_ADDRESS = {4: "0.0.0.0", 6: "::"}


def _own(parameters: StrongswanSut, end: End, *, is_client: bool) -> list[str]:
    match parameters.method:
        case "psk":
            how = ["auth = psk"]
        case "eap-mschapv2" if is_client:
            how = ["auth = eap-mschapv2", f"eap_id = {end.name}"]
        case _:
            how = ["auth = pubkey", f"certs = {CERTIFICATE}"]
    return _section("local", [*how, f"id = {end.name}"])


def _other(parameters: StrongswanSut, end: End | None, *, is_client: bool) -> list[str]:
    match parameters.method:
        case "psk":
            how = ["auth = psk"]
        case "eap-mschapv2" if is_client:
            how = ["auth = eap-mschapv2", "eap_id = %any"]
        case _:
            how = ["auth = pubkey", f"cacerts = {AUTHORITY}"]
    return _section("remote", [*how, *([f"id = {end.name}"] if end is not None else [])])


CERTIFICATE, AUTHORITY, KEY = "end.crt", "ca.crt", "end.key"
"""Files below `x509`, `x509ca` and `private`, beside swanctl.conf."""


def _child(
    parameters: StrongswanSut,
    proposals: str,
    local: Iterable[Network],
    remote: Iterable[Network],
    lifetime: Iterable[str] = (),
) -> list[str]:
    lines = [f"esp_proposals = {proposals}", *lifetime]
    for name, networks in (("local_ts", tuple(local)), ("remote_ts", tuple(remote))):
        if networks:
            lines.append(f"{name} = {', '.join(map(str, networks))}")
    if parameters.compression:
        lines.append("ipcomp = yes")
    return [f"  children {{ {CHILD} {{", *(f"    {line}" for line in lines), "  } }"]


def _secrets(parameters: StrongswanSut, clients: Iterable[End]) -> list[str]:
    kind = "eap" if parameters.method == "eap-mschapv2" else "ike"
    lines = [
        f"  {kind}-{'all' if client.name == ANYONE else client.name} {{"
        f'{"" if client.name == ANYONE else f" id = {client.name}"}\n    secret = "{client.secret}" }}'
        for client in clients
        if client.secret is not None
    ]
    return ["secrets {", *lines, "}"] if lines else []


def _range(pool: Network, size: int | None) -> str:
    number = min(_MAX_POOL, pool.num_addresses - _FIRST_ADDRESS - 1) if size is None else size
    return f"{pool[_FIRST_ADDRESS]}-{ip_address(int(pool[_FIRST_ADDRESS]) + number - 1)}"


def _lifetime(rekey_ms: int | None, limit: str) -> list[str]:
    """When keys are renewed, and how long the old ones may stay after that: a tenth, as by default, and enough for an
    exchange that has to be repeated."""
    if rekey_ms is None:
        return []
    rekey_s = rekey_ms // 1000
    late_s = max(rekey_s // 10, _MIN_LATE_S)
    beyond_s = late_s if limit == "over_time" else rekey_s + late_s
    return [f"rekey_time = {rekey_s}s", f"{limit} = {beyond_s}s", f"rand_time = {rekey_s // 10}s"]


def _section(name: str, lines: Iterable[str]) -> list[str]:
    return [f"  {name} {{", *(f"    {line}" for line in lines), "  }"]


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _text(*lines: str) -> str:
    return "\n".join((*lines, ""))


def daemon_argv(program: str, env: str, folder: Path) -> tuple[str, ...]:
    """The daemon's command line: it runs in its own folder and reads the file there."""
    return (env, f"--chdir={folder}", "STRONGSWAN_CONF=strongswan.conf", program)
