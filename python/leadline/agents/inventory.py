"""Reads an inventory of hosts, in whichever form a user has one: `plan.inventory` knows the forms.

Runs `ansible-inventory` for Ansible's own, whose Python interface is internal.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from leadline.errors import InputError, MissingBinary, PlanError
from leadline.plan import inventory
from leadline.plan.hosts import Topology
from leadline.plan.inventory import InventoryHost
from leadline.plan.source import read_document

MAX_BYTES = 64 * 1024 * 1024
_ANSIBLE_WITHIN_S = 60.0
_USERS_CONFIG = Path("~/.ssh/config")


def read_hosts(text: str, topology: Topology) -> dict[str, Any]:
    """A plan's `hosts`, by what `--hosts` gives: a file, a cluster, or addresses with commas between them.

    Raises:
        InputError: it cannot be read, or has too few hosts.
    """
    try:
        if text.startswith("ray:"):
            return inventory.split_ray(text, topology)
        document = _own_document(text)
        if isinstance(document, Mapping) and document and document.keys() <= inventory.PLAN_KEYS:
            return dict(document)
        return inventory.hosts_with_roles(read_inventory(text), topology)
    except ValueError as error:
        raise InputError(f"--hosts {text}: {error}") from None


def read_inventory(text: str) -> list[InventoryHost]:
    """Every host that `--hosts` gives, also those that are left out.

    Raises:
        InputError: it cannot be read.
    """
    try:
        if text == "local" or text.startswith(("ssh://", "exec:", "ray:", "local,")):
            return inventory.own_hosts(text.split(",") if not text.startswith("exec:") else [text])
        path = Path(text).expanduser()
        if not path.exists():
            raise ValueError("there is no such file; give an inventory, or an address such as ssh://gw1")
        if path.is_dir() or os.access(path, os.X_OK) or path.suffix == ".ini":
            return inventory.ansible_hosts(_ask_ansible(path))
        return _of_file(path, text)
    except ValueError as error:
        raise InputError(f"--hosts {text}: {error}") from None


def _of_file(path: Path, text: str) -> list[InventoryHost]:
    document = _own_document(text)
    if isinstance(document, Mapping):
        if document.get("kind") in ("List", "PodList", "Pod"):
            return _shaped(inventory.pod_hosts, document, "what `kubectl get pods -o json` prints")
        if document.keys() <= inventory.PLAN_KEYS:
            clients = document.get("clients", [])
            named = [{"role": role, **_entry(document[role])} for role in document if role != "clients"]
            return inventory.own_hosts([*named, *(clients if isinstance(clients, list) else [clients])])
        if isinstance(document.get("hosts"), list):
            return inventory.own_hosts(document)
    elif isinstance(document, list):
        return inventory.own_hosts(document)
    content = _content(path)
    if inventory.is_ssh_config(content):
        is_users = path.resolve() == _USERS_CONFIG.expanduser().resolve()
        return inventory.ssh_config_hosts(content, None if is_users else str(path.absolute()))
    return inventory.ansible_hosts(_ask_ansible(path))


def _entry(host: Any) -> dict[str, Any]:
    if isinstance(host, str):
        return dict(inventory.where_of(host))
    if not isinstance(host, Mapping):
        raise ValueError(f"{host!r} is neither an address nor a mapping")
    return dict(host)


def _shaped(
    read: Callable[[Mapping[str, Any]], list[InventoryHost]], document: Mapping[str, Any], what: str
) -> list[InventoryHost]:
    """The hosts of a document that a program prints."""
    try:
        return read(document)
    except (AttributeError, TypeError, KeyError):
        raise ValueError(f"it is not {what}") from None


def _own_document(text: str) -> Any:
    """The file as YAML, of which JSON is a part; None if it is something else."""
    path = Path(text).expanduser()
    if not path.is_file() or os.access(path, os.X_OK):
        return None
    content = _content(path)
    try:
        return json.loads(content)  # of a fleet of pods it is large, and YAML is slow
    except ValueError:
        pass
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    try:
        return read_document(content, str(path))
    except PlanError:
        if path.suffix in (".yaml", ".yml"):
            raise
        return None


def _content(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ValueError(f"it is larger than {MAX_BYTES // 2**20} MiB")
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError("it is not text in UTF-8") from None
    except OSError as error:
        raise ValueError(f"it cannot be read: {error.strerror or error}") from None


def _ask_ansible(path: Path) -> Mapping[str, Any]:
    program = shutil.which("ansible-inventory")
    if program is None:
        raise MissingBinary(
            "ansible-inventory", hint=f"it reads {path}; install Ansible, or write hosts: [...] in YAML"
        )
    argv = [program, "-i", str(path), "--list"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_ANSIBLE_WITHIN_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ValueError(f"ansible-inventory: {error}") from None
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"])[-1]
        raise ValueError(f"ansible-inventory: {last}")
    found = json.loads(done.stdout)
    hosts = _shaped(inventory.ansible_hosts, found, "what `ansible-inventory --list` prints")
    if not hosts:
        raise ValueError("it has no hosts, or is no inventory")
    return dict(found)
