"""WireGuard interfaces that ip(8) and wg(8) set up: those of wireguard-go and of the kernel.

`wireguard` chooses among the implementations, and owns keys, addresses and routes. A private key goes through a file to
wg, never through a command line.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from leadline.agents import kernel_support
from leadline.agents.host_ops import HostOps
from leadline.errors import MissingKernelFeature, SutFailed

Implementation = Literal["embedded", "wireguard-go", "wireguard-kernel"]

WIREGUARD_GO, WG = "wireguard-go", "wg"
READY, FAILED = "interface is up", "interface failed"
INSTALL_HINTS = {WIREGUARD_GO: "apt-get install wireguard-go", WG: "apt-get install wireguard-tools"}
NAMES = {"wireguard-go": "wireguard (wireguard-go)", "wireguard-kernel": "wireguard (kernel)"}
"""What tables call the system."""
TITLES = {"wireguard-go": "WireGuard (wireguard-go)", "wireguard-kernel": "WireGuard in the kernel"}

_SOCKETS = "/var/run/wireguard"
"""Where wireguard-go has its control sockets: a path in its program."""
_WAIT_STEPS, _STEP_S = 250, 0.02
_REMOVE = '[ ! -e "/proc/sys/net/ipv4/conf/$2" ] || exec "$1" link delete "$2"'


@dataclass(frozen=True, slots=True)
class Programs:
    """The programs' paths on a host."""

    ip: str
    wg: str
    wireguard_go: str | None


async def find_programs(host: HostOps, implementation: Implementation) -> Programs:
    """The programs that an implementation needs.

    Raises:
        MissingBinary: one is missing.
        MissingKernelFeature: the host's kernel has no WireGuard.
    """
    ip = await _find(host, "ip", kernel_support.IPROUTE_HINT)
    if implementation == "wireguard-kernel":
        why = await kernel_support.refusal(host, kernel_support.WIREGUARD)
        if why is not None:
            message = (
                f"implementation: wireguard-kernel needs WireGuard in the kernel, and {host.name}'s has none ({why})"
            )
            raise MissingKernelFeature(message, hint="use embedded or wireguard-go")
    wg = await _find(host, WG, INSTALL_HINTS[WG])
    go = await _find(host, WIREGUARD_GO, INSTALL_HINTS[WIREGUARD_GO]) if implementation == "wireguard-go" else None
    return Programs(ip, wg, go)


async def _find(host: HostOps, name: str, hint: str) -> str:
    path = await host.find_program(name)
    if path is None:
        raise host.missing(name, hint)
    return path


def wg_config(config: Mapping[str, Any]) -> str:
    """The file for `wg setconf`, from the configuration of the embedded implementation."""
    lines = ["[Interface]", f"PrivateKey = {config['private_key']}"]
    if config["listen_port"] is not None:
        lines.append(f"ListenPort = {config['listen_port']}")
    for peer in config["peers"]:
        lines += ["", "[Peer]", f"PublicKey = {peer['public_key']}", f"AllowedIPs = {', '.join(peer['allowed_ips'])}"]
        if peer["endpoint"] is not None:
            lines.append(f"Endpoint = {peer['endpoint']}")
    return "\n".join((*lines, ""))


def set_up_commands(programs: Programs, config: Mapping[str, Any], file: Path) -> list[str]:
    """The shell commands that give an existing interface its keys, addresses and MTU, and set it up."""
    name, ip = config["interface"], shlex.quote(programs.ip)
    return [
        f"{shlex.quote(programs.wg)} setconf {name} {shlex.quote(str(file))}",
        *(f"{ip} address add {address} dev {name}{_no_dad(address)}" for address in config["addresses"]),
        f"{ip} link set {name} mtu {config['mtu']} up",
    ]


def _no_dad(address: str) -> str:
    # There is no other host on the interface, and a tentative address cannot send.
    return " nodad" if ":" in address else ""


def wireguard_go_argv(programs: Programs, config: Mapping[str, Any], file: Path) -> tuple[str, ...]:
    """wireguard-go in the foreground, in a mount namespace of its own: hosts that share a file system would otherwise
    share its control socket. A second process sets the interface up once that socket exists, and ends."""
    name = config["interface"]
    commands = " && ".join([*set_up_commands(programs, config, file), f"echo {READY}"])
    wait = f"n=0; until [ -S {_SOCKETS}/{name}.sock ] || [ $n = {_WAIT_STEPS} ]; do sleep {_STEP_S}; n=$((n+1)); done"
    assert programs.wireguard_go is not None
    script = (
        f"mount -t tmpfs none /run && mkdir -p {_SOCKETS} || exit 1\n"
        f"( {wait}; {commands} || echo {FAILED} ) &\n"
        f"exec env WG_I_PREFER_BUGGY_USERSPACE_TO_POLISHED_KMOD=1 {shlex.quote(programs.wireguard_go)} -f {name}"
    )
    return ("unshare", "--mount", "sh", "-c", script)


async def set_up_in_kernel(host: HostOps, programs: Programs, config: Mapping[str, Any], file: Path) -> None:
    """Create and set up an interface of the kernel.

    Raises:
        SutFailed: a command refused it.
    """
    await host.undo_at_end(
        f"interface {config['interface']}", "sh", "-c", _REMOVE, "sh", programs.ip, config["interface"]
    )
    created = f"{shlex.quote(programs.ip)} link add {config['interface']} type wireguard"
    done = await host.run("sh", "-c", " && ".join([created, *set_up_commands(programs, config, file)]))
    if done.status != 0:
        why = kernel_support.cause_in(done.output)
        raise SutFailed(f"{config['interface']} on {host.name} cannot be set up: {why}")


async def version(host: HostOps, programs: Programs) -> str:
    """The version as text: wireguard-go's own, or the kernel's."""
    if programs.wireguard_go is None:
        return f"WireGuard of Linux {host.facts.kernel}"
    said = await host.run(programs.wireguard_go, "--version")
    lines: Sequence[str] = [line.strip() for line in said.output.splitlines() if line.strip()]
    return next((line for line in lines if line.startswith("wireguard-go v")), "wireguard-go (unknown version)")
