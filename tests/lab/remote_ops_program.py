"""What `test_remote_ops.py` runs in a jail: operations on a host through its agent alone, one line each."""

from __future__ import annotations

import asyncio
import stat
import sys
from pathlib import Path

from jailed import enter, print_json

from leadline.agents import Agent, Launch, agent_binary
from leadline.agents.host_ops import HostProcess
from leadline.agents.remote_ops import RemoteOps
from leadline.errors import LeadlineError
from leadline.lab import topology
from leadline.lab.hosts import Lab
from leadline.lab.topology import LinkSpec

FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")


def mode(path: Path) -> str:
    return f"{stat.S_IMODE(path.stat().st_mode):o}"


def there(path: Path) -> bool:
    return path.exists()


def here() -> str:
    """The setting of this process's own network."""
    return FORWARDING.read_text().strip()


async def main(folder: Path) -> None:
    lab = Lab.build(topology.remote_access(1, LinkSpec()), "c01/1")
    launch = Launch((*lab.launch_prefix("gateway"), str(agent_binary())), hello_within_s=30)
    agent = await Agent.start("gateway", launch, sink=lambda _host, _event, _line: None)
    try:
        host = RemoteOps(agent, "c01/1/setup", folder)
        await files(host, folder)
        await commands(host)
        await network(host)
        await host.start(
            HostProcess("waiter", ("sh", "-c", "echo up; sleep 60"), folder / "logs" / "waiter.log", ("up",))
        )
        await host.output("waiter", "up", 10.0)
        print_json(log=await host.last_lines(folder / "logs" / "waiter.log", 3))
        await host.stop("waiter")
        await host.exited("waiter", 10.0)
        await host.close()
        routes = (await host.run("ip", "route", "show", "10.99.0.0/24")).output
        print_json(closed=[(await host.read_file(FORWARDING)).strip(), there(folder), routes])
    finally:
        await agent.close()
        lab.close()


async def files(host: RemoteOps, folder: Path) -> None:
    content = bytes(range(256)) * 1000
    file = await host.write_file(folder / "keys" / "key", content)
    print_json(written=[file.read_bytes() == content, mode(file)])
    await host.write_file(file, "x" * 9000 + "\nsecond", mode=0o640)
    print_json(replaced=[await host.read_file(file) == "x" * 9000 + "\nsecond", mode(file)])
    print_json(folder=mode(folder), lines=await host.last_lines(file, 1))
    await refused(host.read_file(folder / "absent"))
    print_json(absent=await host.last_lines(folder / "absent", 1))


async def commands(host: RemoteOps) -> None:
    done = await host.run("sh", "-c", "echo out; exit 3")
    print_json(status=done.status, output=done.output)
    print_json(killed=(await host.run("sh", "-c", "kill -9 $$")).status)
    print_json(found=[await host.find_program(name) is not None for name in ("ip", "cd", "no-such-program", "/bin/sh")])
    await refused(host.run("no-such-program"))
    await refused(host.run("sleep", "60", within_s=0.2))
    print_json(agent=await host.agent_program() == str(agent_binary()))


async def network(host: RemoteOps) -> None:
    await host.set_sysctl("net/ipv4/ip_forward", 1)
    print_json(forwarding=[(await host.read_file(FORWARDING)).strip(), here()])
    for name in ("kernel/hostname", "net/../kernel/hostname", "net/ipv4/no_such_setting"):
        await refused(host.set_sysctl(name, "x"))
    await host.run("ip", "route", "add", "10.99.0.0/24", "via", "10.81.0.2")
    await host.add_route("10.99.0.0/24", dev="lan")
    await host.add_route("10.98.0.0/24", via="10.81.0.2")
    print_json(routes=(await host.run("ip", "route", "show", "root", "10.96.0.0/14")).output.splitlines())
    await host.remove_route("10.98.0.0/24")
    await host.remove_route("10.98.0.0/24")
    await host.set_sysctl("net/ipv4/ip_forward", 1)
    await refused(host.add_route("10.82.0.0/24", via="10.81.0.2"))
    await refused(host.remove_route("10.82.0.0/24"))
    await refused(host.add_route("10.97.0.0/24", via="192.0.2.1"))
    await refused(host.add_route("10.97.0.0/33", dev="lan"))


async def refused(operation: object) -> None:
    try:
        await operation  # type: ignore[misc]
    except LeadlineError as error:
        print_json(refused=type(error).__name__, message=str(error))


if __name__ == "__main__":
    enter()
    asyncio.run(main(Path(sys.argv[1])))
