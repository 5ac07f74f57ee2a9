"""Lowers the addresses that a scenario gives to names of hosts: one for each port that its requests may have. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from leadline.scenario.lower_expressions import Lowered, Names, as_text

_USUAL_PORTS = (80, 443)
"""Those of the schemes, also where a redirect leads to the other one."""


@dataclass(frozen=True, slots=True)
class FixedAddress:
    """The address of a host for one port."""

    host: str
    port: int
    address: str


def list_fixed_addresses(
    hosts: Mapping[str, str], requests: Iterable[Lowered], names: Names
) -> tuple[FixedAddress, ...]:
    """The addresses of `name` and `name:port` for the agent, which knows names with their ports only.

    Raises:
        ValueError: a name has no port, and a request's port is not known before the test begins.
    """
    if not hosts:
        return ()
    ports: set[int] = set()
    unknown = False
    for request in requests:
        port = _port(request.get("port") or [], names)
        ports |= {port} if port is not None else set()
        unknown = unknown or port is None
    found = []
    for host, address in hosts.items():
        name, _, port_text = host.partition(":")
        if not port_text and unknown:
            why = f"the address of {name} needs its ports, and a request's port is computed while the test runs"
            raise ValueError(f"{why}; write {name}:PORT")
        own = (int(port_text),) if port_text else sorted({*ports, *_USUAL_PORTS} - {0})
        found += [FixedAddress(name, port, address) for port in own]
    return tuple(found)


def _port(template: list[Any], names: Names) -> int | None:
    """A request's port, 0 for the scheme's own; None if a user computes it."""
    text = ""
    for part in template:
        if isinstance(part, str):
            text += part
        elif part["op"] == "variable" and part["name"] in names.constants:
            text += as_text(names.constants[part["name"]])
        else:
            return None
    text = text.strip()
    return int(text) if text.isdecimal() and 0 < len(text) < 6 else 0
