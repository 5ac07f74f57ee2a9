"""The CPUs of this machine as the hosts of a lab use them: which host runs on which, and what idle ones do.

Hosts that share CPUs disturb one another in a way that changes from second to second: the kernel moves their threads,
and an idle CPU takes some time to wake up. Neither is a property of what is measured.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from pathlib import Path

from leadline.errors import EnvironmentLimit
from leadline.lab.topology import Layout

LATENCY_DEVICE = Path("/dev/cpu_dma_latency")
"""Kernel documentation, power/pm_qos_interface: a process that holds it open limits how long CPUs may take to wake
up; from 0 on they poll."""


def allowed() -> tuple[int, ...]:
    """The CPUs that this process may use."""
    return tuple(sorted(os.sched_getaffinity(0)))


def split(layout: Layout, cpus: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """The CPUs of each host: a third for the gateways, a third for the server, the rest for the clients.

    Of two CPUs, one is the gateways' own, because they are what is measured; clients and server share the other one.
    One CPU cannot be split: then the result is empty.
    """
    if len(cpus) < 2:
        return {}
    each = max(1, len(cpus) // 3)
    gateways, server, clients = cpus[-each:], cpus[-2 * each : -each], cpus[: -2 * each]
    shares = {"server": server, **dict.fromkeys(("gateway", "gateway-a", "gateway-b"), gateways)}
    return {host.name: tuple(shares.get(host.name, clients or server)) for host in layout.hosts}


def with_gateway_cpus(layout: Layout, number: int, cpus: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """The CPUs of each host where the gateways have `number` of them: server and clients have half of the rest each,
    share a single one, or use every CPU where none is left.

    Raises:
        EnvironmentLimit: there are fewer CPUs.
    """
    if number > len(cpus):
        hint = "lower lab.gateway_cpus, or its axis"
        raise EnvironmentLimit(f"{number} CPUs for the gateways: this machine lets a run use {len(cpus)}", hint=hint)
    rest = tuple(cpus[: len(cpus) - number]) or tuple(cpus)
    half = len(rest) // 2
    alone = number == len(cpus) or half == 0
    shares = {"server": rest if alone else rest[-half:]}
    shares |= dict.fromkeys(("gateway", "gateway-a", "gateway-b"), tuple(cpus[-number:]))
    return {host.name: shares.get(host.name, rest if alone else rest[:-half]) for host in layout.hosts}


class IdlePoll:
    """Keeps the idle CPUs of this machine from sleeping until it is closed."""

    def __init__(self, device: Path = LATENCY_DEVICE) -> None:
        """Raises OSError if the kernel lacks the device, or this user may not open it."""
        self._file = os.open(device, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(self._file, struct.pack("i", 0))
        except OSError:
            os.close(self._file)
            raise

    def close(self) -> None:
        """Let them sleep again; may be called again."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
