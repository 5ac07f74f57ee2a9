"""The hosts of an inventory, and the roles that they take in a plan. Pure; `agents.inventory` reads the files.

Each form of an inventory becomes a list of `InventoryHost`: our own YAML, Ansible's document, the pods that kubectl
lists, the aliases of an ssh_config(5).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from typing import Any

from leadline.plan.host_address import HostAddress
from leadline.plan.hosts import GATEWAYS, Topology

_ROLES = ("gateway", "gateway-a", "gateway-b", "server", "client")
_OWN_KEYS = {"name", "role", "ssh", "ssh_config", "exec", "ray", "address"}
_WHERE = ("ssh", "exec", "ray")
PLAN_KEYS = {"gateway", "gateway-a", "gateway-b", "server", "clients"}
"""Keys of a plan's `hosts`, which an inventory may have as they are."""


@dataclass(frozen=True, slots=True)
class InventoryHost:
    """One host of an inventory, or some nodes of a Ray cluster."""

    name: str
    where: Mapping[str, str]
    """As in a plan: {ssh: ...}, {exec: ...} or {ray: ...}."""
    addresses: tuple[str, ...] = ()
    role: str | None = None
    """The role that the inventory gives it; None for any."""
    left_out: str | None = field(default=None, compare=False)
    """Why it takes no part, although the inventory has it."""

    @property
    def entry(self) -> dict[str, Any]:
        """The host as a plan's `hosts` have it."""
        return {"name": self.name, **self.where, **({"address": list(self.addresses)} if self.addresses else {})}


def own_hosts(document: Any) -> list[InventoryHost]:
    """The hosts of our own form: a list, or `hosts` with one; each is an address or {name, ssh, address, role}. An
    `ssh_config` beside `hosts` holds for all that are reached by ssh.

    Raises:
        ValueError: with the mistake and its place.
    """
    listed = document.get("hosts") if isinstance(document, Mapping) else document
    if not isinstance(listed, list) or not listed:
        raise ValueError("hosts is not a list of hosts, such as [{ssh: gw1, address: 10.0.0.2}, ssh://c1]")
    config = document.get("ssh_config") if isinstance(document, Mapping) else None
    hosts = [_own_host(entry, number) for number, entry in enumerate(listed, 1)]
    if config is None:
        return hosts
    return [
        replace(host, where={"ssh_config": str(config), **host.where}) if "ssh" in host.where else host
        for host in hosts
    ]


def _own_host(entry: Any, number: int) -> InventoryHost:
    if isinstance(entry, str):
        where = where_of(entry)
        return InventoryHost(next(iter(where.values())).removeprefix("ssh://"), where)
    if not isinstance(entry, Mapping):
        raise ValueError(f"host {number} is neither an address nor a mapping")
    unknown = [key for key in entry if key not in _OWN_KEYS]
    if unknown:
        raise ValueError(f"host {number}: unknown key '{unknown[0]}'; it has {', '.join(sorted(_OWN_KEYS))}")
    where = {key: entry[key] for key in (*_WHERE, "ssh_config") if key in entry}
    untold = next((key for key, value in where.items() if not isinstance(value, str) or not value.strip()), None)
    if untold is not None:
        raise ValueError(f"host {number}: {untold} is {where[untold]!r}, and not a text")
    role = entry.get("role")
    if role is not None and role not in _ROLES:
        raise ValueError(f"host {number}: {role!r} is not a role; roles are {', '.join(_ROLES)}")
    addresses = entry.get("address", ())
    if not isinstance(addresses, str | list | tuple):
        raise ValueError(f"host {number}: address is {addresses!r}, and neither an IP address nor a list of them")
    texts = (addresses,) if isinstance(addresses, str) else tuple(map(str, addresses))
    name = str(entry.get("name") or next(iter(where.values()), f"host {number}"))
    return InventoryHost(name, where, texts, role)


def where_of(text: str) -> dict[str, str]:
    """Where a host is, as in a plan, by an address as one text.

    Raises:
        ValueError: it is none.
    """
    scheme = HostAddress.parse(text).scheme
    return {"ssh" if scheme == "local" else scheme: text}


def ansible_hosts(document: Mapping[str, Any]) -> list[InventoryHost]:
    """The hosts of what `ansible-inventory --list` prints, in its order; roles by groups of these names.

    Raises:
        ValueError: it is no such document, or a host cannot be reached by SSH.
    """
    variables = document.get("_meta", {}).get("hostvars", {})
    roles = {host: role for role, host in _ansible_roles(document)}
    names = dict.fromkeys([*_ansible_names(document, "all", set()), *variables])
    return [_ansible_host(name, variables.get(name, {}), roles.get(name)) for name in names]


def _ansible_names(document: Mapping[str, Any], group: str, seen: set[str]) -> Iterator[str]:
    """The hosts of a group and of those below it, in their order."""
    found = document.get(group)
    if group in seen or not isinstance(found, Mapping):
        return
    seen.add(group)
    yield from found.get("hosts", ())
    for child in found.get("children", ()):
        yield from _ansible_names(document, child, seen)


def _ansible_roles(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for group in document:
        role = group.replace("_", "-")
        role = role if role in _ROLES else role.removesuffix("s")
        if role in _ROLES:
            yield from ((role, host) for host in _ansible_names(document, group, set()))


def _ansible_host(name: str, variables: Mapping[str, Any], role: str | None) -> InventoryHost:
    connection = variables.get("ansible_connection", "ssh")
    host = str(variables.get("ansible_host", name))
    address = str(variables.get("leadline_address", ""))
    addresses = (address,) if address else (host,) if _is_ip(host) else ()
    if connection == "local":
        return InventoryHost(name, {"ssh": "local"}, addresses, role)
    if connection in ("docker", "podman"):
        command = f"{connection} exec -i {shlex.quote(host)}"
        return InventoryHost(name, {"exec": command}, tuple(text for text in (address,) if text), role)
    if connection not in ("ssh", "smart", "paramiko", "paramiko_ssh", "ansible.netcommon.libssh"):
        raise ValueError(f"{name}: ansible_connection {connection} is not one that carries an agent; use ssh")
    user, port = variables.get("ansible_user"), variables.get("ansible_port")
    shown = f"[{host}]" if ":" in host else host
    where = f"ssh://{f'{user}@' if user else ''}{shown}{f':{port}' if port else ''}"
    return InventoryHost(name, {"ssh": where}, addresses, role)


def pod_hosts(document: Mapping[str, Any]) -> list[InventoryHost]:
    """The pods of what `kubectl get pods -o json` prints; those that do not run are left out, with the reason. A role
    is the value of the label `leadline-role`."""
    found = []
    for pod in document.get("items", [document]):
        meta, status = pod.get("metadata", {}), pod.get("status", {})
        name, space = str(meta.get("name")), str(meta.get("namespace", "default"))
        role = (meta.get("labels") or {}).get("leadline-role")
        if role is not None and role not in _ROLES:
            raise ValueError(f"pod {name}: leadline-role {role!r} is not a role; roles are {', '.join(_ROLES)}")
        is_leaving = meta.get("deletionTimestamp") is not None
        phase = "Terminating" if is_leaving else str(status.get("phase", "of an unknown phase"))
        addresses = [str(entry["ip"]) for entry in status.get("podIPs", []) if entry.get("ip")]
        addresses = addresses or ([str(status["podIP"])] if status.get("podIP") else [])
        where = {"exec": f"kubectl exec -i -n {shlex.quote(space)} {shlex.quote(name)} --"}
        out = None if phase == "Running" else f"it is {phase}"
        found.append(InventoryHost(name, where, tuple(addresses), role, out))
    return found


_SSH_BLOCK = re.compile(r"^\s*host(?:\s*=\s*|\s+)(.+?)\s*$", re.IGNORECASE)
_SSH_HOSTNAME = re.compile(r"^\s*hostname(?:\s*=\s*|\s+)\"?([^\s\"]+)\"?\s*$", re.IGNORECASE)


def is_ssh_config(text: str) -> bool:
    """Whether a text is an ssh_config(5): its first statement begins a block of hosts, or another one does."""
    return any(_SSH_BLOCK.match(line) for line in text.splitlines())


def ssh_config_hosts(text: str, file: str | None) -> list[InventoryHost]:
    """The aliases of an ssh_config(5), without patterns. `file` is its path, unless it is the user's own."""
    found: dict[str, InventoryHost] = {}
    aliases: list[str] = []
    for line in text.splitlines():
        if (block := _SSH_BLOCK.match(line)) is not None:
            aliases = [alias for alias in block[1].replace('"', "").split() if not set("*?!") & set(alias)]
            for alias in aliases:
                extra = {} if file is None else {"ssh_config": file}
                found.setdefault(alias, InventoryHost(alias, {"ssh": f"ssh://{alias}", **extra}))
        elif re.match(r"^\s*match\b", line, re.IGNORECASE):
            aliases = []
        elif (named := _SSH_HOSTNAME.match(line)) is not None and _is_ip(named[1]):
            for alias in aliases:
                host = found[alias]
                found[alias] = InventoryHost(host.name, host.where, host.addresses or (named[1],))
    return list(found.values())


def _is_ip(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def hosts_with_roles(hosts: Sequence[InventoryHost], topology: Topology) -> dict[str, Any]:
    """A plan's `hosts`: each role goes to the host that the inventory gives it to, or that has its name, else to the
    next one, gateways first, then the server; all others are clients.

    Raises:
        ValueError: there are too few hosts, or two for one role.
    """
    able = [host for host in hosts if host.left_out is None]
    wanted = (*GATEWAYS[topology], "server")
    taken: dict[str, InventoryHost] = {}
    for host in able:
        role = host.role or (host.name if host.name in wanted else None)
        if role == "gateway" and "gateway" not in wanted:
            role = wanted[0] if wanted[0] not in taken else wanted[1]
        if role is None or role == "client":
            continue
        if role not in wanted:
            raise ValueError(f"{host.name} is a {role}, which a {topology} plan does not have")
        if role in taken:
            raise ValueError(f"{taken[role].name} and {host.name} both are the {role}")
        taken[role] = host
    rest = [host for host in able if host not in taken.values()]
    free = [host for host in rest if host.role is None]
    for role in wanted:
        if role not in taken and free:
            taken[role] = free.pop(0)
            rest.remove(taken[role])
    missing = [role for role in wanted if role not in taken] or ([] if rest else ["a client"])
    if missing:
        out = "".join(f"; {host.name}: {host.left_out}" for host in hosts if host.left_out is not None)
        raise ValueError(
            f"{len(able)} hosts leave none for {missing[0]}: a {topology} plan has {', '.join(wanted)} and clients{out}"
        )
    return {**{role: host.entry for role, host in taken.items()}, "clients": [host.entry for host in rest]}


def split_ray(text: str, topology: Topology) -> dict[str, Any]:
    """A plan's `hosts` on the nodes of one Ray cluster: `ray://[HEAD:PORT]?hosts=N`.

    Raises:
        ValueError: it is no such address, or has too few nodes.
    """
    cluster = HostAddress.parse(text)
    others = (*GATEWAYS[topology], "server")
    if cluster.hosts <= len(others):
        raise ValueError(
            f"{cluster.hosts} nodes are too few: a {topology} plan has {', '.join(others)} and clients; "
            f"write {cluster.text}?hosts=N"
        )
    clients = f"{cluster.text}?hosts={cluster.hosts - len(others)}"
    return {**{role: {"ray": cluster.text} for role in others}, "clients": [{"ray": clients}]}
