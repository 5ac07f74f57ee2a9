"""Two network namespaces with a link between them, on this machine, for rows that need a path of their own. They end
with the processes that hold them. Needs root.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from programs import PeerMissing, run

GATEWAY, CLIENT = "192.0.2.1", "192.0.2.2"


@contextmanager
def namespace() -> Iterator[int]:
    """A network namespace that lives as long as the process that is given."""
    # It ends with its input, so also when the bench is killed.
    holder = subprocess.Popen(
        ["unshare", "--net", "sh", "-c", "ip link set lo up && echo up && exec cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    try:
        if holder.stdout.readline().strip() != "up":
            raise PeerMissing("no network namespace can be made")
        yield holder.pid
    finally:
        holder.stdin.close()
        holder.stdout.close()
        holder.wait()


def linked(gateway: int, clients: int) -> None:
    """Join two namespaces by a veth pair with `GATEWAY` and `CLIENT` as its addresses."""
    run(["ip", "link", "add", "bench0", "netns", str(gateway), "type", "veth", "peer", "bench0", "netns", str(clients)])
    for pid, address in ((gateway, GATEWAY), (clients, CLIENT)):
        run(inside(pid, ["ip", "address", "add", f"{address}/24", "dev", "bench0"]))
        run(inside(pid, ["ip", "link", "set", "bench0", "up"]))


def inside(pid: int, argv: Sequence[str]) -> list[str]:
    """The command in the namespace of a process."""
    return ["nsenter", f"--net=/proc/{pid}/ns/net", *argv]
