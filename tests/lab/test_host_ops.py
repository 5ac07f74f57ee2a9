"""What a system under test does on a lab's host changes that host, and no other."""

from __future__ import annotations

import pytest
from lab_scripts import jail_user

pytestmark = pytest.mark.lab

SCRIPT = """
import asyncio
from pathlib import Path
from leadline.errors import LabError
from leadline.lab.host_ops import LabHostOps

class NamedAgent:
    name = "gateway"

enter()

async def main():
    lab = Lab.build(topology.remote_access(1, LinkSpec()), "c01/1")
    gateway, client = (LabHostOps(lab, name, NamedAgent(), "c01/1/setup") for name in ("gateway", "client1"))

    async def routes():
        return (await client.run("ip", "route", "show", "10.82.0.0/24")).output.split()

    forwarding = Path("/proc/sys/net/ipv4/ip_forward")
    await gateway.set_sysctl("net/ipv4/ip_forward", 1)
    say(forwarding=[(await host.read_file(forwarding)).strip() for host in (gateway, client)])
    for name in ("kernel/hostname", "net/../kernel/hostname", "net/ipv4/no_such_setting"):
        try:
            await gateway.set_sysctl(name, "x")
        except LabError as error:
            say(refused=str(error))
    await client.add_route("10.82.0.0/24", via="10.81.0.1")
    say(routes=await routes())
    await client.remove_route("10.82.0.0/24")
    await client.remove_route("10.82.0.0/24")
    say(routes=await routes())
    counters = [(await host.read_file(Path("/proc/net/dev"))) for host in (gateway, client)]
    say(interfaces=[sorted(line.split(":")[0].strip() for line in text.splitlines()[2:]) for text in counters])

asyncio.run(main())
"""


def test_changes_and_readings_are_of_the_host_itself() -> None:
    with jail_user("root") as who:
        said = who.run(SCRIPT)
    assert said[0] == {"forwarding": ["1", "0"]}
    assert [str(one["refused"]).partition(";")[0] for one in said[1:4]] == [
        "kernel/hostname is not a setting of a host's network",
        "net/../kernel/hostname is not a setting of a host's network",
        "/proc/sys/net/ipv4/no_such_setting can't be set to x: No such file or directory",
    ]
    assert said[4]["routes"][:4] == ["10.82.0.0/24", "via", "10.81.0.1", "dev"]
    assert said[5] == {"routes": []}
    assert said[6] == {"interfaces": [["lan", "lo", "wan"], ["lo", "wan"]]}
