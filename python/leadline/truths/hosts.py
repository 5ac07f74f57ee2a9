"""Two hosts, made for one load, with a link of a rate or a wire of a behaviour between them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from ipaddress import IPv4Interface
from pathlib import Path
from typing import Any

from leadline.analysis.truths import Value
from leadline.errors import LeadlineError
from leadline.lab.hosts import Lab
from leadline.lab.topology import HostLayout, Interface, Layout, Link, Port, shaper
from leadline.truths import link_meter, wire
from leadline.truths.model import Site
from leadline.truths.processes import killed_at_end, read_account

_CLIENT, _SERVER, _WIRE = "client", "server", "wire"
_DEVICE = "wan"
_ADDRESSES = {_CLIENT: "10.86.0.1", _SERVER: "10.86.0.2"}
_MTU = 1500


AccountReader = Callable[[str], Mapping[str, Value]]
"""Reads the true figures from the JSON that a meter or a wire prints."""


@dataclass
class HostsSite:
    """Hosts with something between them that is counted by a process on one of them."""

    client: tuple[str, ...]
    server: tuple[str, ...]
    read: AccountReader
    process: subprocess.Popen[str] = field(repr=False)
    address: str = _ADDRESSES[_SERVER]
    port: None = None
    uncertain: Mapping[str, float] = field(default_factory=dict)

    def true_figures(self) -> Mapping[str, Value]:
        """End the process, and read what it prints."""
        return self.read(read_account(self.process, "what counts between the hosts"))


@contextmanager
def link_site(
    rate_bps: int, read: Callable[[Sequence[link_meter.Reading]], Mapping[str, Value]], _: Any
) -> Iterator[Site]:
    """Two hosts on a link of this rate in each direction, of Ethernet frames; the server's side of it is metered."""
    ports = [Port(host, _DEVICE, _MTU, shaper(rate_bps, _MTU)) for host in _ADDRESSES]
    with _built(Layout("truths", _hosts(), (Link(*ports),))) as lab:
        argv = [*lab.launch_prefix(_SERVER), sys.executable, str(Path(link_meter.__file__)), _DEVICE]
        with _counting(argv) as process:
            yield _site(lab, lambda said: read([tuple(row) for row in json.loads(said)]), process)


@contextmanager
def wire_site(
    behaviour: wire.Behaviour,
    read: Callable[[wire.Account], Mapping[str, Value]],
    settings: Mapping[str, str],
    _: Any,
) -> Iterator[Site]:
    """Two hosts with a wire of a behaviour between them; `settings` of the server below /proc/sys."""
    ends = {_CLIENT: wire.NEAR, _SERVER: wire.FAR}
    links = [Link(Port(host, _DEVICE, _MTU, single_packets=True), Port(_WIRE, end, _MTU)) for host, end in ends.items()]
    with _built(Layout("truths", _hosts(), tuple(links), emulator=_WIRE)) as lab:
        for name, value in settings.items():
            lab.set_sysctl(_SERVER, name, value)
        argv = [*lab.launch_prefix(_WIRE), sys.executable, str(Path(wire.__file__)), json.dumps(asdict(behaviour))]
        with _counting(argv) as process:
            yield _site(lab, lambda said: read(wire.Account(**json.loads(said))), process)


@contextmanager
def _counting(argv: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """A process that has printed that it counts."""
    pipe = subprocess.PIPE
    with killed_at_end(subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True)) as process:
        if not process.stdout.readline():
            raise LeadlineError("what lies between the hosts cannot be made or counted")
        yield process


def _site(lab: Lab, read: AccountReader, process: subprocess.Popen[str]) -> HostsSite:
    return HostsSite(lab.launch_prefix(_CLIENT), lab.launch_prefix(_SERVER), read, process)


def _hosts() -> tuple[HostLayout, ...]:
    return tuple(
        HostLayout(host, (Interface(_DEVICE, (IPv4Interface(f"{address}/24"),)),))
        for host, address in _ADDRESSES.items()
    )


@contextmanager
def _built(layout: Layout) -> Iterator[Lab]:
    lab = Lab.build(layout, "truths")
    try:
        yield lab
    finally:
        lab.close()
