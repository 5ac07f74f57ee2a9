"""What `test_host_ops.py` runs in a jail: changes and readings on a lab's hosts through `HostOps`, one line each."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from jailed import enter, print_json

from leadline.errors import LabError
from leadline.lab import topology
from leadline.lab.host_ops import LabHostOps
from leadline.lab.hosts import Lab
from leadline.lab.topology import LinkSpec


class NoAgent:
    """No process is started here."""

    name = "gateway"


async def main() -> None:
    lab = Lab.build(topology.remote_access(1, LinkSpec()), "c01/1")
    agent: Any = NoAgent()
    gateway, client = (LabHostOps(lab, name, agent, "c01/1/setup") for name in ("gateway", "client1"))

    async def routes() -> list[str]:
        return (await client.run("ip", "route", "show", "10.82.0.0/24")).output.split()

    forwarding = Path("/proc/sys/net/ipv4/ip_forward")
    await gateway.set_sysctl("net/ipv4/ip_forward", 1)
    print_json(forwarding=[(await host.read_file(forwarding)).strip() for host in (gateway, client)])
    for name in ("kernel/hostname", "net/../kernel/hostname", "net/ipv4/no_such_setting"):
        try:
            await gateway.set_sysctl(name, "x")
        except LabError as error:
            print_json(refused=str(error))
    await client.add_route("10.82.0.0/24", via="10.81.0.1")
    print_json(routes=await routes())
    await client.remove_route("10.82.0.0/24")
    await client.remove_route("10.82.0.0/24")
    print_json(routes=await routes())
    counters = [(await host.read_file(Path("/proc/net/dev"))) for host in (gateway, client)]
    print_json(interfaces=[sorted(line.split(":")[0].strip() for line in text.splitlines()[2:]) for text in counters])


if __name__ == "__main__":
    enter()
    asyncio.run(main())
