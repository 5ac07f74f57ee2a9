"""The programs that tests/lab/test_lab_hosts.py runs in a jail: each builds a lab, tries something and says what it
saw.

Sockets are opened inside a host's namespace by the program itself, so that one process holds both ends and nothing has
to be waited for.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from jailed import PORT, enter, print_json, udp
from pyroute2 import IPRoute

from leadline.errors import LeadlineError
from leadline.lab import jail, kernel, topology
from leadline.lab.hosts import Lab
from leadline.lab.topology import LinkSpec

SERVER, SERVER_V6 = "10.82.0.2", "fd82::2"
UDP_SEGMENT = 103
"""The socket option by which the kernel cuts what is sent into datagrams (udp(7))."""


def routed(**link: Any) -> Lab:
    """A client, a gateway that forwards, and a server."""
    enter()
    lab = Lab.build(topology.remote_access(1, LinkSpec(**link)), "c01/1")
    forward(lab, "gateway")
    lab.add_route("client1", "10.82.0.0/24", via="10.81.0.1")
    if lab.layout.ipv6:
        lab.add_route("client1", "fd82::/64", via="fd81::1")
    return lab


def forward(lab: Lab, host: str) -> None:
    """Have a host pass packets on, in each IP version that the kernel has."""
    lab.set_sysctl(host, "net/ipv4/ip_forward", 1)
    if Path("/proc/sys/net/ipv6").exists():
        lab.set_sysctl(host, "net/ipv6/conf/all/forwarding", 1)


def on_one_cpu() -> None:
    """Packets of one sender cannot overtake each other."""
    os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])


def remote_access() -> None:
    """What reaches the server before there are routes, before the gateway forwards, and after."""
    enter()
    lab = Lab.build(topology.remote_access(2, LinkSpec()), "c01/1")
    print_json(bare=[reach(lab, "client1", address, within_s=0.3) for address in (SERVER, SERVER_V6)])
    for client in ("client1", "client2"):
        lab.add_route(client, "10.82.0.0/24", via="10.81.0.1")
        lab.add_route(client, "fd82::/64", via="fd81::1")
    print_json(unforwarded=[reach(lab, "client1", address, within_s=0.3) for address in (SERVER, SERVER_V6)])
    forward(lab, "gateway")
    reached = [
        reach(lab, client, address, within_s=60) for client in ("client1", "client2") for address in (SERVER, SERVER_V6)
    ]
    print_json(routed=reached)
    print_json(reported=lab.hosts["client2"].addresses, gateway=lab.hosts["gateway"].addresses)


def reach(lab: Lab, client: str, address: str, within_s: float) -> list[str] | str:
    """What both ends received, and from where; the error's name where no datagram arrived.

    It is sent again each second: the kernel drops what waits for an address or a link that takes longer.
    """
    server = udp(lab, "server", address)
    sender = udp(lab, client, "::" if ":" in address else None)
    deadline = time.monotonic() + within_s
    try:
        while True:
            try:
                sender.sendto(b"there", (address, PORT))
                server.settimeout(min(1.0, within_s))
                words, back = server.recvfrom(100)
                server.sendto(b"back", back)
                sender.settimeout(min(1.0, within_s))
                return [words.decode(), sender.recvfrom(100)[0].decode(), back[0]]
            except TimeoutError:
                if time.monotonic() >= deadline:
                    raise
    except OSError as error:
        return type(error).__name__
    finally:
        server.close()
        sender.close()


def site_to_site() -> None:
    """What crosses two gateways, from where."""
    enter()
    lab = Lab.build(topology.site_to_site(LinkSpec()), "c01/1")
    for near, there, lan in (("gateway-a", 2, 82), ("gateway-b", 1, 84)):
        forward(lab, near)
        lab.add_route(near, f"10.{lan}.0.0/24", via=f"10.81.0.{there}")
        lab.add_route(near, f"fd{lan}::/64", via=f"fd81::{there}")
    lab.add_route("client1", "10.82.0.0/24", via="10.84.0.1")
    lab.add_route("client1", "fd82::/64", via="fd84::1")
    seen = []
    for address, own in ((SERVER, "10.84.0.2"), (SERVER_V6, "fd84::2")):
        server, client = udp(lab, "server", address), udp(lab, "client1", own)
        client.sendto(b"there", (address, PORT))
        _, back = server.recvfrom(100)
        server.sendto(b"back", back)
        seen.append([back[0], client.recvfrom(100)[0].decode()])
    print_json(seen=seen)


def links_of_a_host() -> None:
    """The interfaces that a program on a host sees."""
    enter()
    lab = Lab.build(topology.site_to_site(LinkSpec()), "c01/1")
    listed = subprocess.check_output([*lab.launch_prefix("gateway-b"), "cat", "/proc/net/dev"], text=True)
    print_json(links=sorted(line.split(":")[0].strip() for line in listed.splitlines()[2:]))


def udp_loss_each_way(bundle: int) -> None:
    """Which of 10,000 datagrams are lost up and down, handed to the kernel in bundles."""
    lab = routed(drop_udp_every=100)
    on_one_cpu()
    server, client = udp(lab, "server", SERVER), udp(lab, "client1", "10.81.1.1")
    print_json(up=lost(client, server, (SERVER, PORT), bundle))
    client.setblocking(True)
    client.settimeout(60)
    print_json(down=lost(server, client, ("10.81.1.1", PORT), bundle))


def loss_of_any_packet() -> None:
    """The same of all packets, on a link too narrow for IPv6."""
    lab = routed(drop_every=100, mtu=1200)
    on_one_cpu()
    server, client = udp(lab, "server", SERVER), udp(lab, "client1", "10.81.1.1")
    print_json(up=lost(client, server, (SERVER, PORT), 1), versions=list(lab.hosts["client1"].addresses["wan"]))


def lost(sender: socket.socket, receiver: socket.socket, address: tuple[str, int], bundle: int) -> dict[str, Any]:
    """Of any 100 packets in a row, a filter that drops every 100th drops one: 99 are awaited, so nothing can overflow
    or be late."""
    if bundle > 1:
        sender.setsockopt(socket.SOL_UDP, UDP_SEGMENT, 10)
    arrived = []
    for first in range(0, 10_000, 100):
        for start in range(first, first + 100, bundle):
            sender.sendto(b"".join(b"%010d" % number for number in range(start, start + bundle)), address)
        arrived += [int(receiver.recv(100)) for _ in range(99)]
    arrived += [int(words) for words in waiting(receiver)]
    missing = sorted(set(range(10_000)) - set(arrived))
    steps = sorted({later - earlier for earlier, later in pairwise(missing)})
    return {"arrived": len(arrived), "missing": len(missing), "steps": steps}


def waiting(receiver: socket.socket) -> list[bytes]:
    """The datagrams that a socket holds now."""
    receiver.setblocking(False)
    found = []
    try:
        while True:
            found.append(receiver.recv(100))
    except BlockingIOError:
        return found


def random_loss() -> None:
    """How many of 10,000 datagrams arrive at 20 % of loss."""
    lab = routed(loss=0.2)
    on_one_cpu()
    server, client = udp(lab, "server", SERVER), udp(lab, "client1")
    server.settimeout(0.05)
    arrived = 0
    for first in range(0, 10_000, 250):
        for number in range(first, first + 250):
            client.sendto(b"%d" % number, (SERVER, PORT))
        # So that no more is under way than a socket holds, however long the kernel takes to forward.
        arrived += before_mark(client, server, b"mark %d" % first)
    print_json(arrived=arrived)


def before_mark(sender: socket.socket, receiver: socket.socket, mark: bytes) -> int:
    """How many datagrams arrive before a mark that is sent behind them, and gets through some time."""
    arrived = 0
    while True:
        sender.sendto(mark, (SERVER, PORT))
        try:
            while (said := receiver.recv(100)) != mark:
                arrived += not said.startswith(b"mark")
            return arrived
        except TimeoutError:
            continue


def rates_and_mtus() -> None:
    """Of each node its ports' MTU and rate."""
    enter()
    Lab.build(topology.remote_access(2, LinkSpec(rate_bps=100_000_000, mtu=1400)), "c01/1")
    inside = jail.current()
    print_json(**{path.name: ports(path) for path in inside.namespaces.iterdir()})


def ports(namespace: Path) -> dict[str, list[int | None]]:
    with kernel.network_namespace(namespace), IPRoute() as route:
        links = {link["index"]: link for link in route.get_links() if link.get_attr("IFLA_IFNAME") != "lo"}
        rates = {
            queue["index"]: queue.get_attr("TCA_OPTIONS").get_attr("TCA_TBF_PARMS")["rate"] * 8
            for queue in route.get_qdiscs()
            if queue.get_attr("TCA_KIND") == "tbf"
        }
        return {
            link.get_attr("IFLA_IFNAME"): [link.get_attr("IFLA_MTU"), rates.get(index)] for index, link in links.items()
        }


def delay() -> None:
    """How long a packet takes there and back over a link with delay; where there can be none, what is left."""
    inside = enter()
    try:
        lab = Lab.build(topology.remote_access(1, LinkSpec(delay_ms=30)), "c01/1")
    except LeadlineError as error:
        print_json(error=str(error), status=error.exit_code, left=left_in(inside))
        Lab.build(topology.remote_access(1, LinkSpec()), "c01/2").close()
        return
    gateway, client = udp(lab, "gateway", "10.81.0.1"), udp(lab, "client1")
    took_s = 0.0
    for _ in range(2):  # the first finds the neighbour, too
        begin_s = time.monotonic()
        client.sendto(b"there", ("10.81.0.1", PORT))
        gateway.sendto(b"back", gateway.recvfrom(100)[1])
        client.recv(100)
        took_s = time.monotonic() - begin_s
    print_json(took_s=took_s)


def left_in(inside: jail.Jail) -> list[str]:
    """Namespaces and groups of a lab."""
    left = [path.name for path in inside.namespaces.iterdir()]
    return left + ([path.name for path in inside.cgroup.iterdir() if path.is_dir()] if inside.cgroup else [])


def closing() -> None:
    """What is left once a lab with running programs is closed, twice."""
    lab = routed()
    inside = jail.current()
    sleeper = [sys.executable, "-c", "import time; time.sleep(600)"]
    with_group, without = [subprocess.Popen([*lab.launch_prefix(host), *sleeper]) for host in ("server", "gateway")]
    group = lab.hosts["server"].cgroup
    if group is not None:
        (group / "cgroup.procs").write_text(str(with_group.pid))
    for process in (with_group, without):  # nsenter has changed over when it has become what it starts
        while Path(f"/proc/{process.pid}/ns/net").readlink() == Path("/proc/self/ns/net").readlink():
            pass
    lab.close()
    lab.close()
    refusal = ""
    try:
        forward(lab, "gateway")
    except LeadlineError as error:
        refusal = str(error)
    print_json(ended=[with_group.wait(), without.wait()], left=left_in(inside), refusal=refusal, hosts=lab.hosts)


def second_lab() -> None:
    """The error for a second lab in one jail, and whether the first one still carries packets."""
    lab = routed()
    said = ""
    try:
        Lab.build(topology.remote_access(1, LinkSpec()), "c01/2")
    except LeadlineError as error:
        said = str(error)
    server, client = udp(lab, "server", SERVER), udp(lab, "client1")
    client.sendto(b"there", (SERVER, PORT))
    print_json(error=said, got=server.recv(100).decode())


def labs_in_an_event_loop() -> None:
    """Build and close from a coroutine, as a run does."""
    enter()

    async def trials() -> None:
        for number in range(3):
            lab = Lab.build(topology.remote_access(3, LinkSpec(rate_bps=10_000_000, loss=0.01)), f"c01/{number}")
            forward(lab, "gateway")
            lab.close()

    asyncio.run(trials())
    print_json(done=True)


def impossible_routes() -> None:
    """What each is refused with."""
    lab = routed()
    ways: list[tuple[str, dict[str, Any]]] = [
        ("10.9.0.0/16", {"via": "10.99.0.1"}),
        ("nonsense", {"dev": "wan"}),
        ("10.9.0.0/16", {"dev": "tun7"}),
        ("10.9.0.0/16", {}),
    ]
    for destination, way in ways:
        try:
            lab.add_route("client1", destination, **way)
        except LeadlineError as error:
            print_json(error=str(error))


def cpu_account() -> None:
    """What a host's group says of a program on it that computes for 200 ms."""
    lab = routed()
    group = lab.hosts["client1"].cgroup
    if group is None:
        print_json(reason=lab.cgroup_reason, groups=[host.cgroup for host in lab.hosts.values()])
        return
    # What the process used before it joined the group is not in the group's account.
    spin = [sys.executable, str(Path(__file__).with_name("spin_loop.py")), "--for", "0.2"]
    join = ["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh"]
    subprocess.run([*lab.launch_prefix("client1"), *join, *spin], check=True)
    stat = dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())
    print_json(usage_us=int(stat["usage_usec"]))


def hundred_clients() -> None:
    """The size of the largest lab that users build, and how long that takes."""
    enter()
    begin_s = time.monotonic()
    lab = Lab.build(topology.remote_access(100, LinkSpec(rate_bps=1_000_000_000, loss=0.01)), "c01/1")
    print_json(hosts=len(lab.hosts), last=lab.hosts["client100"].addresses["wan"], took_s=time.monotonic() - begin_s)
