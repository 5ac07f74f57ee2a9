"""One trial's bring-up and take-down in a jail, as a program: `sut_trial.py SPEC FOLDER`, both given by test_sut_*.py.

SPEC is JSON: topology, clients, kind, parameters, and what to do besides (`kill`: host and process name to kill once
all is up; `by_agents`: act on the hosts through their agents alone, as on given hosts; `wrong_secret`: strongSwan's
clients have other secrets than its gateway). Says what happened as one JSON object, and leaves what the agents said in
FOLDER/heard.jsonl.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from leadline.agents import Agent, Event, Launch, UnreadObservation, agent_binary
from leadline.agents.remote_ops import RemoteOps
from leadline.contract.models import InterfaceView, Prepared, ServeWorkload
from leadline.errors import LeadlineError, NoClientConnected
from leadline.lab import jail
from leadline.lab.hosts import Lab
from leadline.lab.topology import LinkSpec, remote_access, site_to_site
from leadline.registry import SYSTEMS
from leadline.sut.model import Site, setup_label
from leadline.sut.running import SystemUnderTest
from leadline.sut.strongswan import config as strongswan_config
from leadline.trial.site import lab_site
from leadline.trial.workloads import PLAIN_ANSWER


async def main(spec: dict[str, Any], folder: Path) -> dict[str, Any]:
    link = LinkSpec(**spec.get("link", {}))
    layout = site_to_site(link) if spec["topology"] == "site-to-site" else remote_access(spec["clients"], link)
    lab = Lab.build(layout, "c01/1")
    heard: list[tuple[str, Event]] = []
    agents: dict[str, Agent] = {}

    async def start(host: str) -> None:
        launch = Launch((*lab.launch_prefix(host), str(agent_binary())), hello_within_s=30)
        agents[host] = await Agent.start(host, launch, sink=lambda name, event, _line: heard.append((name, event)))

    try:
        await asyncio.gather(*(start(host) for host in lab.hosts))
        server = lab.hosts["server"].addresses["lan"]
        bind = ServeWorkload(
            bind=list(server.values()), port=0, http_port=None, answer=PLAIN_ANSWER, longest_ms=60_000, most_flows=8
        )
        serve = await agents["server"].prepare("c01/1/setup", "serve", bind)
        assert serve.port is not None
        site = lab_site(
            lab,
            agents,
            label="c01/1",
            clients=layout.clients,
            serve_port=serve.port,
            server_address=server,
            folder=folder,
            logs=folder / "logs",
        )
        if spec.get("by_agents"):
            site = _by_agents(site, agents, folder / "remote")
            before = await _networks(agents)
        said = await _up_and_down(spec, site, heard)
        if spec.get("by_agents"):
            said["before"], said["after"] = before, await _networks(agents)
            said["forwarding"] = await _forwarding(site)
            said["files_left"] = (folder / "remote").exists()
        said["left"] = [*await _left_interfaces(agents), *_left_processes()]
        return said
    finally:
        await asyncio.gather(*(agent.close() for agent in agents.values()))
        (folder / "heard.jsonl").write_text("".join(_as_json(event) + "\n" for _, event in heard))
        lab.close()


def _as_json(event: Event) -> str:
    return (event.read() if isinstance(event, UnreadObservation) else event).model_dump_json()


async def _up_and_down(spec: dict[str, Any], site: Site, heard: list[tuple[str, Event]]) -> dict[str, Any]:
    model = SYSTEMS.get(spec["kind"]).model
    sut = SystemUnderTest(model.model_validate(spec.get("parameters", {}), strict=False, by_name=True), site)
    if spec.get("wrong_secret"):
        _give_wrong_secrets()
    said: dict[str, Any] = {}
    try:
        up = await sut.bring_up()
        said["up"] = dataclasses.asdict(up)
        if "kill" in spec:
            host, name = spec["kill"]
            watch = asyncio.create_task(sut.failure())
            pids = [
                event.pid for at, event in heard if at == host and isinstance(event, Prepared) and event.task == name
            ]
            assert pids[-1] is not None
            os.kill(pids[-1], signal.SIGKILL)
            said["failure"] = str(await watch)
    except LeadlineError as error:
        said["error"] = {"code": error.code, "message": str(error)}
        if isinstance(error, NoClientConnected):
            said["clients"] = [dataclasses.asdict(client) for client in error.clients]
    finally:
        await sut.take_down()
        await sut.take_down()
    return said


def _give_wrong_secrets() -> None:
    right = strongswan_config.client_config

    def client_config(parameters: Any, client: Any, *others: Any) -> str:
        return right(parameters, dataclasses.replace(client, secret=f"not-{client.secret}"), *others)

    setattr(strongswan_config, "client_config", client_config)  # noqa: B010


def _by_agents(site: Site, agents: dict[str, Agent], folder: Path) -> Site:
    """The same hosts, as if they were elsewhere."""
    hosts = {name: RemoteOps(agent, setup_label(site.label), folder) for name, agent in agents.items()}
    return dataclasses.replace(site, hosts=hosts, folder=folder, logs=None, shared_files=False)


async def _networks(agents: dict[str, Agent]) -> list[Any]:
    """The routes of every host, but those of link-local addresses, which the kernel adds when a link is up."""
    views = await asyncio.gather(*(agent.inspect() for agent in agents.values()))
    return [
        sorted(route.model_dump_json() for route in view.routes if not route.destination.startswith("fe80:"))
        for view in views
    ]


async def _forwarding(site: Site) -> list[str]:
    path = Path("/proc/sys/net/ipv4/ip_forward")
    return [(await host.read_file(path)).strip() for host in site.hosts.values()]


async def _left_interfaces(agents: dict[str, Agent]) -> list[str]:
    """Tunnel devices that outlived the take-down."""
    views = await asyncio.gather(*(agent.inspect() for agent in agents.values()))
    found: list[InterfaceView] = [item for view in views for item in view.interfaces]
    return [item.name for item in found if item.name.startswith(("tun", "wg", "ipsec"))]


def _left_processes() -> list[str]:
    """Daemons that outlived the take-down, in the jail's own namespace of processes."""
    found = []
    for path in Path("/proc").glob("[0-9]*/comm"):
        try:
            name = path.read_text().strip()
        except OSError:
            continue
        if name.startswith(("charon", "swanctl", "openvpn", "wireguard", "pluto", "haproxy", "node", "redis", "nginx")):
            found.append(name)
    return found


if __name__ == "__main__":
    jail.enter("sut-test")
    result = asyncio.run(main(json.loads(sys.argv[1]), Path(sys.argv[2])))
    print(json.dumps(result, default=str), flush=True)
