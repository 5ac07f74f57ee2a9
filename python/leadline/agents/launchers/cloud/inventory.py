"""The inventory that a fleet is used by: a YAML file of hosts for `--hosts`. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from leadline.agents.launchers.cloud.model import Machine


def host_name(position: int) -> str:
    """The name of a machine in the inventory, by its place from 0."""
    return f"lead-{position + 1}"


def render_inventory(machines: Sequence[Machine], user: str, notes: Sequence[str], ssh_config: Path) -> str:
    """The text of the inventory, with comments for the reader.

    Args:
        machines: In their order; all have addresses.
        user: To log in as.
        notes: Lines of comments, without their signs.
        ssh_config: The file with the fleet's key and known hosts.
    """
    lines = ["# made by `leadline fleet up`", *(f"# {note}" for note in notes)]
    lines += [f"ssh_config: {json.dumps(str(ssh_config))}", "hosts:"]
    for position, machine in enumerate(machines):
        ssh = json.dumps(f"{user}@{machine.ssh_address}")
        words = f"name: {host_name(position)}, ssh: {ssh}, address: {machine.address or machine.ssh_address}"
        lines.append(f"  - {{{words}}}  # {machine.id}")
    return "\n".join(lines) + "\n"
