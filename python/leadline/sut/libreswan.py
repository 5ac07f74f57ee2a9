"""The system `libreswan`: pluto at both ends, IKEv2 with pre-shared keys, ESP in the kernel.

Clients keep their own addresses: the networks of both ends are in policies, and nothing is sent in the clear, because
each connection has a trap policy before it has security associations. pluto runs in a private folder with its files,
its database of keys and its control socket. It has no data plane of its own, so a host without ESP is refused.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator

from leadline.plan.field_types import IpVersion, validation_error
from leadline.plan.need import Need
from leadline.plan.sut import BaseSut, CpuAttribution
from leadline.sut.system import System

if TYPE_CHECKING:
    from leadline.sut.addressing import Addressing, Network, TunnelClient
    from leadline.sut.client_bringup import ClientPlan
    from leadline.sut.daemons import Daemon, Daemons
    from leadline.sut.model import BringUp, Site

GATEWAY_NAME, CLIENT_NAME = "libreswan-gateway", "libreswan-client"
READY, FAILED = "connections are up", "connections failed"
INSTALL_HINT = "apt-get install libreswan libnss3-tools"
_GATEWAY_WITHIN_S = 20.0
_WAIT_STEPS, _STEP_S = 500, 0.02
_INITIATE_WITHIN_S = 20
_CAUSES = (
    ("netlink response for Add SA", "its kernel refuses the security association"),
    ("AUTHENTICATION_FAILED", "the gateway refused it"),
    ("NO_PROPOSAL_CHOSEN", "there is no common proposal"),
    ("TS_UNACCEPTABLE", "the gateway refused the tunnel"),
    ("FATAL ERROR", "it cannot run"),
    ("need --listen", "it does not listen yet"),
)
"""Of several lines, the one highest in this list is the cause."""
_STAMP = re.compile(r"^\w{3} [ \d]\d \d\d:\d\d:\d\d\.\d+: ")


def _proposal(text: str) -> str:
    if not re.fullmatch(r"[a-zA-Z0-9_;,+-]+", text):
        hint = "write Libreswan's words, such as aes_gcm256-sha2_256-dh31"
        raise validation_error(f"{text!r} is not a proposal", hint=hint)
    return text


def _folder(text: str) -> str:
    if not text.startswith("/") or not text.isprintable():
        raise ValueError("it is not the absolute path of a folder")
    return text


Proposal = Annotated[str, AfterValidator(_proposal)]


class LibreswanSut(BaseSut):
    """Libreswan's daemon pluto at both ends: IKEv2 with pre-shared keys, ESP in the kernel."""

    kind: Literal["libreswan"] = "libreswan"
    folder: Annotated[str, AfterValidator(_folder)] = "/usr/libexec/ipsec"
    """Folder of its programs pluto, addconn and whack."""
    ip: IpVersion = 4
    """IP version of the tunnel's transport."""
    ike: Proposal = "aes_gcm256-sha2_256-dh31"
    """Proposals for IKE, in Libreswan's words."""
    esp: Proposal = "aes_gcm256"
    """Proposals for ESP, in Libreswan's words."""
    compression: bool = False
    """Offer IPComp."""

    @property
    def uses_ipv6(self) -> bool:
        """Whether the tunnel's transport uses IPv6."""
        return self.ip == 6


class Libreswan(System[LibreswanSut]):
    """IPsec between the clients and the gateway, or between two gateways. Its policies disappear with the trial's
    hosts."""

    name = "libreswan"
    title = "Libreswan"
    model = LibreswanSut
    connects_hosts = True

    def cpu_attribution(self, parameters: LibreswanSut) -> CpuAttribution:
        """The kernel encrypts; the daemon only negotiates."""
        return CpuAttribution.KERNEL

    def needs(self, parameters: LibreswanSut, *, fleet: bool) -> list[Need]:
        """The daemon, and the program that makes its database of keys."""
        from leadline.agents.kernel_support import ESP, need_of

        programs = (f"{parameters.folder}/pluto", "certutil")
        why = "the system under test is Libreswan"
        needs = [Need("program", name, why, parameters.optional, INSTALL_HINT) for name in programs]
        return [*needs, need_of(ESP, parameters)]

    def bring_up_seconds(self, parameters: LibreswanSut) -> tuple[float, float]:
        """The gateway starts first; each daemon tests its algorithms when it starts."""
        return 3.0, 0.2

    async def bring_up(self, parameters: LibreswanSut, site: Site, daemons: Daemons) -> BringUp:
        """Make the keys, start the gateway's daemon, then all clients' at the same time."""
        from leadline.errors import SutFailed
        from leadline.sut.client_bringup import Hooks, connect, unless_dead
        from leadline.sut.forwarding import add_plain_routes, forward
        from leadline.sut.model import BringUp

        gateway = site.hosts[site.addressing.gateway]
        await _check_host(site, parameters)
        await forward(site)
        await add_plain_routes(site)
        server, plans = await _write_files(parameters, site)
        await daemons.start(server)
        try:
            await daemons.wait_for_output(server, READY, _GATEWAY_WITHIN_S, refused=FAILED)
        except SutFailed as error:
            known = cause(daemons.reported(server))
            raise SutFailed(f"{server.name} on {server.host}: {known}") if known else error from error
        hooks = Hooks(explain=lambda plan: cause(daemons.reported(plan.daemon)) or cause(daemons.reported(server)))
        states = await unless_dead(daemons, server, connect(site, daemons, plans, hooks))
        said = await gateway.run(f"{parameters.folder}/pluto", "--version")
        found = re.search(r"Libreswan (\S+)", said.output)
        own = f"Libreswan {found[1]}" if found is not None else "Libreswan (unknown version)"
        version = f"{own} with ESP of Linux {gateway.facts.kernel}"
        return BringUp(version, states, dict(site.server_address), (GATEWAY_NAME, CLIENT_NAME))


@dataclass(frozen=True, slots=True)
class Connection:
    """One connection of ipsec.conf: a pair of networks between two ends."""

    name: str
    left: str
    left_id: str
    left_network: str
    right: str
    right_id: str
    right_network: str

    def reversed(self) -> Connection:
        """The same from the other end."""
        ours, theirs = (self.left, self.left_id, self.left_network), (self.right, self.right_id, self.right_network)
        return Connection(self.name, *theirs, *ours)


def connections(addressing: Addressing, end: TunnelClient, version: int) -> list[Connection]:
    """A client's connections, one for each IP version inside of the tunnel, as the client writes them."""
    found = []
    for inside, server_lan in addressing.server_lan.items():
        network: Network | str = addressing.client_lan[inside] if end.behind else _host_network(end.outer[inside])
        found.append(
            Connection(
                f"{end.host}-ipv{inside}",
                end.outer[version],
                end.host,
                str(network),
                addressing.outer[version],
                addressing.gateway,
                str(server_lan),
            )
        )
    return found


def _host_network(address: str) -> str:
    return f"{address}/{128 if ':' in address else 32}"


def ipsec_config(parameters: LibreswanSut, connected: Sequence[Connection]) -> str:
    """ipsec.conf. `auto=ignore`: the daemon's script adds the connections in order."""
    lines: list[str] = []
    for one in connected:
        lines += [
            f"conn {one.name}",
            "  ikev2=insist",
            "  authby=secret",
            *(f"  left{key}={value}" for key, value in (("", one.left), ("id", f"@{one.left_id}"))),
            f"  leftsubnet={one.left_network}",
            *(f"  right{key}={value}" for key, value in (("", one.right), ("id", f"@{one.right_id}"))),
            f"  rightsubnet={one.right_network}",
            f"  ike={parameters.ike}",
            f"  esp={parameters.esp}",
            *(["  compress=yes"] if parameters.compression else []),
            # Routes are the trial's; the script may be that of another IPsec on this host.
            "  leftupdown=%disabled",
            "  mobike=no",
            "  keyingtries=1",
            "  auto=ignore",
            "",
        ]
    return "\n".join(lines)


def daemon_argv(parameters: LibreswanSut, folder: str, names: Sequence[str], *, connects: bool) -> tuple[str, ...]:
    """pluto in its folder, in the foreground; beside it a script that loads the connections and, at a client, waits
    until each has its security associations."""
    program = shlex.quote(parameters.folder)
    control = "--ctlsocket ./pluto.ctl"
    script = "\n".join(
        [
            "certutil -N -d sql:./nss --empty-password || exit 1",
            "(",
            f"n=0; until [ -S pluto.ctl ] || [ $n = {_WAIT_STEPS} ]; do sleep {_STEP_S}; n=$((n+1)); done",
            " && ".join([*_load(program, control, names), *(_connect(program, control, names) if connects else [])])
            + f" && echo {READY} || echo {FAILED}",
            ") &",
            f"exec {program}/pluto --nofork --stderrlog --config ipsec.conf --nssdir sql:$PWD/nss --rundir ."
            " --secretsfile ipsec.secrets --ipsecdir . --dumpdir .",
        ]
    )
    return ("env", f"--chdir={folder}", "sh", "-c", script)


def _load(program: str, control: str, names: Sequence[str]) -> Iterator[str]:
    # It refuses to route before it listens, and its control socket is there before that.
    yield f"{program}/whack {control} --listen"
    for name in names:
        yield f"{program}/addconn --config ipsec.conf {control} {name}"
        # A trap policy: without security associations packets wait or are dropped, and are never sent in the clear.
        yield f"{program}/whack {control} --name {name} --route"


def _connect(program: str, control: str, names: Sequence[str]) -> Iterator[str]:
    for name in names:
        # Its exit status differs between versions; what is up is what the status lists.
        yield f"{{ timeout {_INITIATE_WITHIN_S} {program}/whack {control} --name {name} --initiate; true; }}"
        yield f"{program}/whack {control} --trafficstatus | grep -qF '\"{name}\"'"


def cause(lines: Sequence[str]) -> str | None:
    """Why a connection is not up, with the daemon's line; None if no line explains it."""
    for marker, meaning in _CAUSES:
        for line in lines:
            if marker in line:
                return f"{meaning}: {_STAMP.sub('', line).strip()}"
    return None


async def _check_host(site: Site, parameters: LibreswanSut) -> None:
    """Refuse a host without ESP, or without the programs.

    Raises:
        MissingKernelFeature: its kernel has no ESP.
        MissingBinary: a program is missing.
    """
    from leadline.agents import kernel_support
    from leadline.errors import MissingBinary, MissingKernelFeature

    gateway = site.hosts[site.addressing.gateway]
    why = await kernel_support.refusal(gateway, kernel_support.ESP)
    if why is not None:
        message = f"Libreswan carries packets by ESP in the kernel alone, and {gateway.name}'s has none ({why})"
        raise MissingKernelFeature(
            message, hint="use a host whose kernel has ESP, or strongswan with data_plane: libipsec"
        )
    for name in (f"{parameters.folder}/pluto", "certutil"):
        if await gateway.find_program(name) is None:
            raise MissingBinary(name, hint=INSTALL_HINT)


async def _write_files(parameters: LibreswanSut, site: Site) -> tuple[Daemon, list[ClientPlan]]:
    """The keys and configurations of all ends; nothing is running yet."""
    import secrets

    from leadline.dataset.private_files import private_folder
    from leadline.sut.addressing import outer_address
    from leadline.sut.client_bringup import ClientPlan
    from leadline.sut.daemons import Daemon
    from leadline.sut.expectation import Expectation

    addressing = site.addressing
    outer_address(addressing, parameters.ip)
    ends = {end.host: connections(addressing, end, parameters.ip) for end in addressing.clients}
    keys = {host: f'@{host} @{addressing.gateway} : PSK "{secrets.token_urlsafe(32)}"\n' for host in ends}

    async def daemon(name: str, host: str, own: Sequence[Connection], key: str) -> Daemon:
        folder = private_folder(site.files("libreswan") / host)
        private_folder(folder / "nss")
        for file, text in (("ipsec.conf", ipsec_config(parameters, own)), ("ipsec.secrets", key)):
            await site.hosts[host].write_file(folder / file, text)
        names = [one.name for one in own]
        argv = daemon_argv(parameters, str(folder), names, connects=host != addressing.gateway)
        report = (READY, FAILED, *(marker for marker, _ in _CAUSES))
        return Daemon(name, argv, site.log_file("libreswan", host), report, host)

    every = [one.reversed() for own in ends.values() for one in own]
    server = await daemon(GATEWAY_NAME, addressing.gateway, every, "".join(keys.values()))
    expected = Expectation(None, {}, tuple(addressing.server_lan.values()))
    plans = []
    for end in addressing.clients:
        started = await daemon(CLIENT_NAME, end.host, ends[end.host], keys[end.host])
        plans.append(ClientPlan(end.client, started, READY, expected, refused=FAILED))
    return server, plans


SYSTEM = Libreswan()
