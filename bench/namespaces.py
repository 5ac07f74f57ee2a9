"""Two network namespaces with a link between them, on this machine, for rows that need a path of their own, and servers
in one of them. The namespaces end with the processes that hold them. Needs root.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from programs import SERVER_CPU, PeerMissing, pinned, run

GATEWAY, CLIENT = "192.0.2.1", "192.0.2.2"
OWN_PORT = 5201
"""Of our server."""


@contextmanager
def places() -> Iterator[tuple[int, int]]:
    """Two linked namespaces: of the servers, and of the clients."""
    with namespace() as gateway, namespace() as clients:
        linked(gateway, clients)
        yield gateway, clients


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


@contextmanager
def own_server(pid: int) -> Iterator[None]:
    """Our server for tcp, udp and rr at `GATEWAY`, in a namespace."""
    with served(pid, ["leadline-agent", "serve", "--bind", GATEWAY, "--port", str(OWN_PORT), "--no-http"], OWN_PORT):
        yield


@contextmanager
def served(pid: int, argv: Sequence[str], port: int) -> Iterator[None]:
    """A server with a TCP port in a namespace, on the servers' CPU."""
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(pinned(SERVER_CPU, inside(pid, argv)), stdout=said, stderr=said)
        try:
            deadline = time.monotonic() + 10
            while not run(inside(pid, ["ss", "-Hltn", f"sport = :{port}"])).strip():
                if process.poll() is not None or time.monotonic() > deadline:
                    said.seek(0)
                    raise RuntimeError(f"{argv[0]} did not come up on port {port}: {said.read()[-500:]}")
                time.sleep(0.05)
            yield
        finally:
            process.terminate()
            process.wait()
