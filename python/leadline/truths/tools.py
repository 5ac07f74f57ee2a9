"""How each tool is run for a load. A load that a tool has no option for is asked in its nearest form: a tool without a
rate runs a closed loop over the same connections; one that cannot end by number ends by time.
"""

from __future__ import annotations

import math
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from leadline import __version__
from leadline.analysis.tool_output import read_version
from leadline.truths.model import DatagramLoad, FloodLoad, HttpLoad, Load, RoundTripLoad, StreamLoad

OWN = "leadline"
_OWN_COMMAND = (sys.executable, "-c", "from leadline.cli import main; main()")
_VERSION_WITHIN_S = 10.0
_ENDLESS = 100_000_000
"""Requests of a load that ends by time, for a tool that has to know a number."""


@dataclass(frozen=True, slots=True)
class Command:
    """The command line of a tool for a load."""

    argv: tuple[str, ...]
    ends_by_number: bool = False
    """Whether nothing is under way at the load's end."""
    files: Mapping[str, str] = field(default_factory=dict)
    """The files that it reads, with their content, in the folder where it runs."""
    result: str | None = None
    """The file there with its figures; None if it prints them on stdout."""


@dataclass(frozen=True, slots=True)
class ToolServer:
    """The program of a tool that answers its loads on the server's host."""

    argv: Callable[[str, int], tuple[str, ...]]
    """For an address and a port."""
    ready: str
    """What it prints when it listens."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A load tool: its commands by the class of a load, for the server's address and port."""

    name: str
    commands: Mapping[type, Callable[[Any, str, int], Command]]
    version_argv: tuple[str, ...]
    server: ToolServer | None = None

    def command(self, load: Load, address: str, port: int) -> Command:
        """The command for a load that the tool has."""
        return self.commands[type(load)](load, address, port)

    def has(self, load: Load) -> bool:
        """Whether the tool can offer a load of this kind."""
        return type(load) in self.commands

    @property
    def is_installed(self) -> bool:
        """Whether the tool can be run here."""
        return self.name == OWN or shutil.which(self.name) is not None

    def version(self) -> str | None:
        """The version that the tool prints of itself; None if it is not recognised."""
        if self.name == OWN:
            return __version__
        done = subprocess.run(self.version_argv, capture_output=True, text=True, timeout=_VERSION_WITHIN_S, check=False)
        return read_version(self.name, done.stdout + done.stderr)


# --- Leadline ---------------------------------------------------------------------------------------------------------


def _own_http(load: HttpLoad, address: str, port: int) -> Command:
    end = ("-n", str(load.number), "-d", "60s") if load.number is not None else ("-d", f"{load.duration_s:g}s")
    rate = () if load.rate_per_s is None else ("--rate", f"{load.rate_per_s:g}")
    argv = (*_OWN_COMMAND, "http", _url(address, port), "-c", str(load.connections), *end, *rate, "--json")
    return Command(argv, load.number is not None)


def _own_stream(load: StreamLoad, address: str, port: int) -> Command:
    return Command((*_OWN_COMMAND, "tcp", address, "-p", str(port), "-d", f"{load.duration_s:g}s", "--json"))


def _own_datagrams(load: DatagramLoad, address: str, port: int) -> Command:
    way = ("-n", str(load.number), "-d", "60s", "--rate", str(load.rate_bps), "-l", str(load.packet_bytes))
    return Command((*_OWN_COMMAND, "udp", address, "-p", str(port), *way, "--json"), ends_by_number=True)


def _own_flood(load: FloodLoad, address: str, port: int) -> Command:
    way = ("-d", f"{load.duration_s:g}s", "-l", str(load.packet_bytes))
    return Command((*_OWN_COMMAND, "udp", address, "-p", str(port), *way, "--json"))


def _own_round_trips(load: RoundTripLoad, address: str, port: int) -> Command:
    return Command((*_OWN_COMMAND, "rr", address, "-p", str(port), "-d", f"{load.duration_s:g}s", "--json"))


def _own_server(address: str, port: int) -> tuple[str, ...]:
    return (*_OWN_COMMAND, "serve", "--bind", address, "--port", str(port), "--no-http")


# --- Its peers --------------------------------------------------------------------------------------------------------


def _wrk(load: HttpLoad, address: str, port: int) -> Command:
    size = ("-t1", f"-c{load.connections}", f"-d{math.ceil(load.duration_s)}s")
    return Command(("wrk", *size, "--latency", _url(address, port)))


def _ab(load: HttpLoad, address: str, port: int) -> Command:
    # -r: a failed request does not end the load; -l: answers of various lengths are no failures.
    end = (
        ("-n", str(load.number))
        if load.number is not None
        else ("-t", str(math.ceil(load.duration_s)), "-n", str(_ENDLESS))
    )
    argv = ("ab", "-q", "-k", "-r", "-c", str(load.connections), *end, _url(address, port))
    return Command(argv, load.number is not None)


def _h2load(load: HttpLoad, address: str, port: int) -> Command:
    end = ("-n", str(load.number)) if load.number is not None else ("-D", str(math.ceil(load.duration_s)))
    # Its rate is that of each connection.
    rate = () if load.rate_per_s is None else (f"--rps={load.rate_per_s / load.connections:.6g}",)
    argv = ("h2load", "--h1", "-t1", "-c", str(load.connections), *end, *rate, _url(address, port))
    return Command(argv, load.number is not None)


def _iperf3_stream(load: StreamLoad, address: str, port: int) -> Command:
    return Command(("iperf3", "-J", "-c", address, "-p", str(port), "-t", str(math.ceil(load.duration_s))))


def _iperf3_datagrams(load: DatagramLoad, address: str, port: int) -> Command:
    size = ("-u", "-b", str(load.rate_bps), "-l", str(load.packet_bytes), "-k", str(load.number))
    return Command(("iperf3", "-J", "-c", address, "-p", str(port), *size), ends_by_number=True)


def _iperf3_flood(load: FloodLoad, address: str, port: int) -> Command:
    way = ("-u", "-b", "0", "-l", str(load.packet_bytes), "-t", str(math.ceil(load.duration_s)))
    return Command(("iperf3", "-J", "-c", address, "-p", str(port), *way))


def _iperf3_server(address: str, port: int) -> tuple[str, ...]:
    return ("iperf3", "-s", "-1", "--forceflush", "-B", address, "-p", str(port))


def _url(address: str, port: int) -> str:
    return f"http://{address}:{port}/"


COMMAND_TOOLS = (
    Tool(
        OWN,
        {
            HttpLoad: _own_http,
            StreamLoad: _own_stream,
            DatagramLoad: _own_datagrams,
            FloodLoad: _own_flood,
            RoundTripLoad: _own_round_trips,
        },
        (),
        ToolServer(_own_server, "listening"),
    ),
    Tool("wrk", {HttpLoad: _wrk}, ("wrk", "-v")),
    Tool("ab", {HttpLoad: _ab}, ("ab", "-V")),
    Tool("h2load", {HttpLoad: _h2load}, ("h2load", "--version")),
    Tool(
        "iperf3",
        {StreamLoad: _iperf3_stream, DatagramLoad: _iperf3_datagrams, FloodLoad: _iperf3_flood},
        ("iperf3", "--version"),
        ToolServer(_iperf3_server, "Server listening"),
    ),
)
"""The tools whose load is on their command line as a whole."""
