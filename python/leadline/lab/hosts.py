"""A lab: creates the hosts and links of a layout in the jail, and removes them.

Owns: the order of creating and removing, and the facts about a host. Leaves system calls to `kernel` and
`netlink_ops`, and addresses and shaping to `topology`. One worker thread does all the work, because it changes
namespaces while the caller's thread may be running an event loop.
"""

from __future__ import annotations

import ipaddress
import os
import select
import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import ParamSpec, TypeVar

from leadline.errors import LabError, MissingBinary
from leadline.lab import cgroups, jail, kernel, netlink_ops
from leadline.lab.topology import HostLayout, Layout

P = ParamSpec("P")
R = TypeVar("R")

_DEAD_WITHIN_S = 5.0


@dataclass(frozen=True, slots=True)
class LabHost:
    """A host that exists."""

    name: str
    netns: Path
    cgroup: Path | None  # None: see Lab.cgroup_reason
    addresses: dict[str, dict[int, str]]  # interface -> IP version -> address; versions that the lab lacks are absent


class Lab:
    """Hosts and links; end it with `close`, or let the end of the jail do that."""

    def __init__(
        self, layout: Layout, run_label: str, enclosing_jail: jail.Jail, cpus: Mapping[str, Sequence[int]]
    ) -> None:
        """Use `build`."""
        self.layout = layout
        self.cpus = cpus
        self.run_label = run_label
        self.hosts: dict[str, LabHost] = {}
        self.cgroup_reason = enclosing_jail.cgroup_reason
        self._jail = enclosing_jail
        self._made: list[Path] = []  # namespaces, in order
        self._groups: list[Path] = []
        self._nsenter = shutil.which("nsenter")
        self._taskset = shutil.which("taskset")
        self._worker: ThreadPoolExecutor | None = ThreadPoolExecutor(1, thread_name_prefix="lab")

    @classmethod
    def build(cls, layout: Layout, run_label: str, cpus: Mapping[str, Sequence[int]] = MappingProxyType({})) -> Lab:
        """Create everything in the layout, or nothing. Programs on a host run on its `cpus`, if it has some.

        Raises EnvironmentLimit if the kernel lacks a feature that the layout needs, LabError otherwise.
        """
        lab = cls(layout, run_label, jail.current(), cpus)
        try:
            if lab._nsenter is None or lab._taskset is None:
                missing = "nsenter" if lab._nsenter is None else "taskset"
                raise MissingBinary(missing, hint="apt-get install util-linux")
            lab._do(lab._make)
        except BaseException:
            with suppress(LabError):  # the first failure is the one to report
                lab.close()
            raise
        return lab

    @property
    def keys(self) -> Path:
        """Folder for the keys and configurations of what runs on the hosts; they are never on a disk."""
        return self._jail.keys / self.run_label.replace("/", "-")

    def launch_prefix(self, host: str) -> tuple[str, ...]:
        """The words before a command that run it on `host`."""
        enter = (str(self._nsenter), f"--net={self.hosts[host].netns}", "--")
        own = ",".join(map(str, self.cpus.get(host, ())))
        return (*enter, str(self._taskset), "--cpu-list", own) if own else enter

    def add_route(self, host: str, destination: str, *, via: str | None = None, dev: str | None = None) -> None:
        """Route packets of `host` for a network (10.82.0.0/24, fd82::/64) or "0.0.0.0/0", "::/0" to a neighbour or
        device.

        Replaces a route to the same network. Raises LabError if the host cannot reach `via`.
        """
        network = _network(destination)
        if via is None and dev is None:
            raise LabError(f"a route to {destination} needs a neighbour or a device")
        self._do(self._inside, host, netlink_ops.add_route, network, via, dev)

    def remove_route(self, host: str, destination: str) -> None:
        """Remove `host`'s route to a network; does nothing if there is none. Raises LabError if the kernel
        refuses."""
        self._do(self._inside, host, netlink_ops.remove_route, _network(destination))

    def set_sysctl(self, host: str, name: str, value: int | str) -> None:
        """Set a value of `host`'s network by its path below /proc/sys: net/ipv4/ip_forward.

        Raises LabError if the kernel has no such value or refuses this one.
        """
        self._do(self._inside, host, netlink_ops.set_sysctl, name, value)

    def close(self) -> None:
        """End all processes on the hosts and remove the hosts; may be called again.

        Raises LabError if something cannot be removed, after everything else was.
        """
        if self._worker is None:
            return
        try:
            failures = self._do(self._unmake)
        finally:
            self._worker.shutdown()
            self._worker = None
            self.hosts = {}
        shutil.rmtree(self.keys, ignore_errors=True)
        if failures:
            raise LabError(f"the lab was not removed completely: {'; '.join(failures)}")

    # --- in the worker thread -----------------------------------------------------------------------------------------

    def _make(self) -> None:
        for switch in self.layout.switches:
            self._hold(switch)
            with kernel.network_namespace(self._file(switch)):
                netlink_ops.make_switch()
        for host in self.layout.hosts:
            self._hold(host.name)
            with kernel.network_namespace(self._file(host.name)):
                netlink_ops.prepare_host()
        if self.layout.emulator is not None:
            self._hold(self.layout.emulator)
            with kernel.network_namespace(self._file(self.layout.emulator)):
                netlink_ops.prepare_emulator()
        for link in self.layout.links:
            netlink_ops.connect(link, self._file(link.a.node), self._file(link.b.node))
        ports = [port for link in self.layout.links for port in (link.a, link.b)]
        for switch in self.layout.switches:
            with kernel.network_namespace(self._file(switch)):
                netlink_ops.set_up_switch_ports([port for port in ports if port.node == switch])
        if self.layout.emulator is not None:
            self._make_emulator(self.layout.emulator)
        ipv6 = self.layout.ipv6 and netlink_ops.has_ipv6()
        for host in self.layout.hosts:
            addresses = _addresses(host, ipv6)
            with kernel.network_namespace(self._file(host.name)):
                for port in ports:
                    if port.node == host.name:
                        netlink_ops.set_up_host_port(port, addresses[port.interface])
                for gateway in host.gateways:
                    if gateway.version == 4 or ipv6:
                        netlink_ops.add_route("::/0" if gateway.version == 6 else "0.0.0.0/0", str(gateway), None)
            by_version: dict[str, dict[int, str]] = {
                name: {a.version: str(a.ip) for a in found} for name, found in addresses.items()
            }
            self.hosts[host.name] = LabHost(host.name, self._file(host.name), self._group(host.name), by_version)

    def _make_emulator(self, name: str) -> None:
        """A host without addresses: an agent on it forwards the frames."""
        ports = [port for link in self.layout.links for port in (link.a, link.b) if port.node == name]
        with kernel.network_namespace(self._file(name)):
            for port in ports:
                netlink_ops.set_up_host_port(port, ())
        self.hosts[name] = LabHost(name, self._file(name), self._group(name), {})

    def _hold(self, node: str) -> None:
        netlink_ops.hold_namespace(self._file(node))
        self._made.append(self._file(node))

    def _group(self, host: str) -> Path | None:
        if self._jail.cgroup is None:
            return None
        group = self._jail.cgroup / host
        try:
            group.mkdir()
        except OSError as error:
            raise LabError(f"the cgroup of {host} can't be made: {error.strerror}") from error
        self._groups.append(group)
        return group

    def _unmake(self) -> list[str]:
        failures = []
        _kill_inhabitants(self._made)
        for group in reversed(self._groups):
            try:
                cgroups.remove(group)
            except OSError as error:
                failures.append(str(error))
        for path in reversed(self._made):
            try:
                kernel.detach(path)
                path.unlink()
            except OSError as error:
                failures.append(str(error))
        self._groups.clear()
        self._made.clear()
        return failures

    def _inside(self, host: str, function: Callable[P, R], *arguments: P.args, **keywords: P.kwargs) -> R:
        with kernel.network_namespace(self.hosts[host].netns):
            return function(*arguments, **keywords)

    def _file(self, node: str) -> Path:
        return self._jail.namespaces / node

    def _do(self, function: Callable[P, R], *arguments: P.args, **keywords: P.kwargs) -> R:
        if self._worker is None:
            raise LabError("this lab is closed")
        return self._worker.submit(function, *arguments, **keywords).result()


def _network(text: str) -> str:
    try:
        return str(ipaddress.ip_network(text))
    except ValueError as error:
        raise LabError(f"{text} is not a network: {error}") from None


def _addresses(
    host: HostLayout, ipv6: bool
) -> dict[str, tuple[ipaddress.IPv4Interface | ipaddress.IPv6Interface, ...]]:
    return {
        interface.name: tuple(address for address in interface.addresses if address.version == 4 or ipv6)
        for interface in host.interfaces
    }


def _kill_inhabitants(namespaces: list[Path]) -> None:
    """End every process in one of these network namespaces, and wait for its end. Agents end by themselves, so any
    process that is left belonged to a program that died.
    """
    inodes = {path.stat().st_ino for path in namespaces}
    doomed: list[int] = []  # pidfds
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with suppress(OSError):  # it may end meanwhile
            if (entry / "ns/net").stat().st_ino in inodes:
                doomed.append(os.pidfd_open(int(entry.name)))
                signal.pidfd_send_signal(doomed[-1], signal.SIGKILL)
    deadline = time.monotonic() + _DEAD_WITHIN_S
    for descriptor in doomed:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
        os.close(descriptor)
