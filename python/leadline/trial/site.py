"""A trial's hosts for a system under test: the operations on each, and the addresses of the tunnel between them.

Reads names and addresses only; changes nothing.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from leadline.agents import Agent
from leadline.agents.remote_ops import RemoteOps
from leadline.errors import LeadlineError
from leadline.lab import topology
from leadline.lab.host_ops import LabHostOps
from leadline.lab.hosts import Lab
from leadline.plan import Case
from leadline.plan.hosts import GATEWAYS
from leadline.sut.addressing import Addressing, Network, TunnelClient
from leadline.sut.forwarding import SERVER
from leadline.sut.model import Site, setup_label
from leadline.trial.given_network import GivenHostView, given_addressing


def lab_site(
    lab: Lab,
    agents: Mapping[str, Agent],
    *,
    label: str,
    clients: Sequence[str],
    serve_port: int,
    server_address: Mapping[int, str],
    folder: Path,
    logs: Path | None = None,
    fleet: int | None = None,
) -> Site:
    """The site of a trial in a lab, each of whose hosts has an agent."""
    return Site(
        hosts={name: LabHostOps(lab, name, agents[name], setup_label(label)) for name in lab.hosts},
        agents=agents,
        addressing=addressing_of(lab, clients),
        folder=folder,
        label=label,
        clients=tuple(clients),
        serve_port=serve_port,
        server_address=server_address,
        logs=logs,
        fleet=fleet,
    )


def given_site(
    agents: Mapping[str, Agent],
    *,
    gateway: str,
    label: str,
    clients: Sequence[str],
    serve_port: int,
    server_address: Mapping[int, str],
    addressing: Addressing | None = None,
    key: str | None = None,
) -> Site:
    """The site of a trial on given hosts. Without `addressing`, Leadline knows of no network between them that a tunnel
    could use."""
    nowhere = Addressing(
        gateway=gateway, outer={}, clients=(), forwarding=(), pool={}, server_lan={}, client_lan={}, link_mtu_bytes=0
    )
    folder = new_folder()
    return Site(
        hosts={name: RemoteOps(agent, setup_label(label), folder) for name, agent in agents.items()},
        agents=agents,
        addressing=addressing or nowhere,
        folder=folder,
        label=label,
        clients=tuple(clients),
        serve_port=serve_port,
        server_address=server_address,
        key=key,
        shared_files=False,
    )


def new_folder() -> Path:
    """The path of a trial's folder on given hosts, which does not exist yet."""
    return Path(f"/tmp/leadline-{secrets.token_hex(8)}")


async def survey_given_hosts(case: Case, agents: Mapping[str, Agent], clients: Sequence[str], label: str) -> Addressing:
    """The addresses of a tunnel between the hosts of a case, with these clients; changes nothing on them.

    Raises:
        LeadlineError: they cannot be derived, or a host is this machine and the plan does not allow changes to it.
        AgentLost: an agent is gone.
    """
    given = case.hosts
    assert given is not None
    named = given.named(case.topology)

    async def inspect(name: str) -> GivenHostView:
        host = RemoteOps(agents[name], setup_label(label), new_folder())
        where = await host.whereabouts()
        machine = f"{host.facts.boot_id} {where.namespace}"
        if machine == _this_machine() and not given.change_local:
            raise LeadlineError(
                f"{name} is this machine, whose routes and settings {case.sut.kind} would change",
                hint="write change_local: true in hosts to allow that",
            )
        await host.await_other_runs()
        return GivenHostView(named[name], await host.network(), machine, where.reached_from)

    names = (*clients, *GATEWAYS[case.topology], SERVER)
    views = await asyncio.gather(*(inspect(name) for name in names))
    return given_addressing(case.topology, dict(zip(names, views, strict=True)), clients)


def _this_machine() -> str | None:
    """This process's network stack, as hosts describe theirs; None if the kernel does not tell."""
    try:
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot_id} {Path('/proc/self/ns/net').readlink()}"
    except OSError:
        return None


def addressing_of(lab: Lab, clients: Sequence[str]) -> Addressing:
    """The addresses of the tunnel, by the lab's layout."""
    site_to_site = lab.layout.topology == "site-to-site"
    gateway = "gateway-b" if site_to_site else "gateway"
    outer = lab.hosts[gateway].addresses["wan"]
    holders = {client: "gateway-a" if site_to_site else client for client in (clients[:1] if site_to_site else clients)}
    return Addressing(
        gateway=gateway,
        outer=outer,
        clients=tuple(
            TunnelClient(client, holder, number, lab.hosts[holder].addresses["wan"])
            for number, (client, holder) in enumerate(holders.items(), 1)
        ),
        forwarding=("gateway-a", gateway) if site_to_site else (gateway,),
        pool=_known(topology.VPN_POOL, outer),
        server_lan=_known(topology.SERVER_LAN, outer),
        client_lan=_known(topology.CLIENT_LAN, outer),
        link_mtu_bytes=min(port.mtu for link in lab.layout.links for port in (link.a, link.b)),
    )


def _known(networks: Sequence[Network], outer: Mapping[int, str]) -> dict[int, Network]:
    """The networks of the IP versions that the hosts have."""
    return {network.version: network for network in networks if network.version in outer}
