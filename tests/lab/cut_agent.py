"""Cuts the network between a controller and its agent behind SSH, and waits for the end of the agent, of what it
started, and of what undoes its changes: cut_agent.py FOLDER, in a network of its own. Prints what it saw as JSON.

A helper of test_cut_links.py. Both hosts are network namespaces, so that process ids are the same on both; the SSH
server is that of behind_ssh.py.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from leadline.agents import Agent
from leadline.agents.hosts import ReachedHosts
from leadline.agents.remote_ops import RemoteOps
from leadline.contract.models import ProcessWorkload
from leadline.errors import LabError
from leadline.plan.host_address import HostAddress

HERE = Path(__file__).resolve().parent
WITHIN_MS = 120_000
ADDRESS = "10.91.0.2"
# 20 ticks of silence take two seconds.
SHORT_TICKS = {"LEADLINE_PEER_PATIENCE_MS": "100"}
CHILDREN = "sleep 1000 & echo pid $!; setsid sleep 1000 & echo pid $!; echo ready; wait"


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def start_far_host(folder: Path, opened: ExitStack) -> tuple[int, subprocess.Popen[str], str]:
    """A namespace with a cable to this one: a process in it, the SSH server in it, and that server's address."""
    held = start(opened, ["unshare", "--net", "sh", "-c", "echo; exec sleep 1000"])
    assert held.stdout is not None and held.stdout.readline()
    ip("link", "add", "name", "near", "type", "veth", "peer", "name", "far", "netns", str(held.pid))
    ip("addr", "add", "10.91.0.1/24", "dev", "near")
    ip("link", "set", "near", "up")
    inside = ["nsenter", f"--net=/proc/{held.pid}/ns/net"]
    for words in ("link set lo up", f"addr add {ADDRESS}/24 dev far", "link set far up"):
        subprocess.run([*inside, "ip", *words.split()], check=True)
    # Its command ends with its stdin, which is a pipe from here.
    behind = [sys.executable, str(HERE / "behind_ssh.py"), str(folder), "sh", "-c", "echo @SSH@; exec cat"]
    server = start(opened, [*inside, *behind], {**os.environ, **SHORT_TICKS, "BEHIND_SSH_ADDRESS": ADDRESS})
    assert server.stdout is not None
    return held.pid, server, server.stdout.readline().strip()


def start(opened: ExitStack, argv: list[str], variables: dict[str, str] | None = None) -> subprocess.Popen[str]:
    """A process that ends with the stack."""
    pipe = subprocess.PIPE
    process = opened.enter_context(subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True, env=variables))
    opened.callback(process.terminate)
    return process


async def start_children(agent: Agent) -> list[int]:
    """Processes of the agent: a shell, its child, and a child in a session of its own."""
    work = ProcessWorkload(
        name="children", argv=["sh", "-c", CHILDREN], cwd=None, env={}, log=None, report=["pid", "ready"], grace_ms=100
    )
    prepared = await agent.prepare("cut", "children", work)
    await agent.output("cut", "children", "ready", 60.0)
    lines = [line.line for line in agent.lines("cut", "children")]
    assert prepared.pid is not None
    return [prepared.pid, *(int(line.removeprefix("pid ")) for line in lines if line.startswith("pid "))]


def await_ends(pids: list[int]) -> list[bool]:
    """Whether each of these processes has ended, after a wait for all of them."""
    poll = select.poll()
    descriptors = [os.pidfd_open(pid) for pid in pids]
    ended = dict.fromkeys(descriptors, False)
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    while not all(ended.values()) and (ready := poll.poll(WITHIN_MS)):
        for descriptor, _ in ready:
            ended[descriptor] = True
            poll.unregister(descriptor)
    return list(ended.values())


async def change_host(agent: Agent, folder: Path) -> list[str]:
    """Change the agent's host: a file, a route and a setting; returns what it refuses."""
    host = RemoteOps(agent, "cut", folder)
    await host.write_file(folder / "keys" / "key", "secret")
    await host.add_route("10.92.0.0/24", via="10.91.0.1")
    await host.set_sysctl("net/ipv4/ip_forward", 1)
    refused = []
    for network in ("10.91.0.0/24", "10.88.0.0/13"):
        try:
            await host.add_route(network, via="10.91.0.7")
        except LabError as error:
            refused.append(error.message)
    return refused


STATE = 'ip -4 route; cd /proc/sys/net/ipv4 && grep -H "" ip_forward conf/*/forwarding conf/all/accept_redirects'


def read_state(held: int, folder: Path) -> tuple[list[str], bool]:
    """The far host's routes and settings, and whether it has the folder."""
    argv = ["nsenter", f"--net=/proc/{held}/ns/net", "sh", "-c", STATE]
    shown = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    # The cable is out.
    return shown.replace(" linkdown", "").splitlines(), folder.exists()


def await_state(held: int, folder: Path, wanted: tuple[list[str], bool]) -> bool:
    """Whether the far host is in this state, after a wait for that."""
    deadline = time.monotonic() + WITHIN_MS / 1000
    while read_state(held, folder) != wanted:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


async def main(folder: Path) -> dict[str, object]:
    """Start all, cut the network, and wait."""
    with ExitStack() as opened:
        held, server, address = start_far_host(folder, opened)
        os.environ["PATH"] = f"{folder / 'bin'}:{os.environ['PATH']}"
        reached = ReachedHosts()
        launches = await reached.launches({"far": HostAddress.parse(address)})
        agent = await Agent.start("far", launches["far"], sink=lambda *_: None)
        try:
            before = read_state(held, folder / "trial")
            pids = [agent.hello.pid, *await start_children(agent)]
            refused = await change_host(agent, folder / "trial")
            changed = read_state(held, folder / "trial")
            ip("link", "set", "near", "down")
            ended = await asyncio.to_thread(await_ends, pids)
            is_undone = await asyncio.to_thread(await_state, held, folder / "trial", before)
            is_served = server.poll() is None
        finally:
            await agent.close()
            await reached.aclose()
    return {
        "processes": len(pids),
        "ended": ended,
        "is_served": is_served,
        "changes": sorted(set(changed[0]) - set(before[0])),
        "has_folder": changed[1],
        "refused": refused,
        "is_undone": is_undone,
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(Path(sys.argv[1])))))
