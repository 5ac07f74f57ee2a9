"""Cuts the network between a controller and its agent behind SSH, and waits for the end of the agent and of what it
started: cut_agent.py FOLDER, in a network of its own. Prints what it saw as JSON.

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
from contextlib import ExitStack
from pathlib import Path

from leadline.agents import Agent
from leadline.agents.hosts import ReachedHosts
from leadline.contract.models import ProcessWorkload
from leadline.plan.host_address import HostAddress

HERE = Path(__file__).resolve().parent
WITHIN_MS = 120_000
ADDRESS = "10.91.0.2"
# 20 ticks of silence take two seconds.
SHORT_TICKS = {"LEADLINE_PEER_PATIENCE_MS": "100"}
CHILDREN = "sleep 1000 & echo pid $!; setsid sleep 1000 & echo pid $!; echo ready; wait"


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def start_far_host(folder: Path, opened: ExitStack) -> tuple[subprocess.Popen[str], str]:
    """A namespace with a cable to this one; the SSH server in it, and that server's address."""
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
    return server, server.stdout.readline().strip()


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


async def main(folder: Path) -> dict[str, object]:
    """Start all, cut the network, and wait."""
    with ExitStack() as opened:
        server, address = start_far_host(folder, opened)
        os.environ["PATH"] = f"{folder / 'bin'}:{os.environ['PATH']}"
        reached = ReachedHosts()
        launches = await reached.launches({"far": HostAddress.parse(address)})
        agent = await Agent.start("far", launches["far"], sink=lambda *_: None)
        try:
            pids = [agent.hello.pid, *await start_children(agent)]
            ip("link", "set", "near", "down")
            ended = await asyncio.to_thread(await_ends, pids)
            is_served = server.poll() is None
        finally:
            await agent.close()
            await reached.aclose()
    return {"processes": len(pids), "ended": ended, "is_served": is_served}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(Path(sys.argv[1])))))
