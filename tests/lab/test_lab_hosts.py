"""Labs: packets go where they should and nowhere else, links do what was asked, and closing takes everything away.

Sockets are opened inside a host's namespace by the test program itself, so that one process holds both ends and
nothing has to be waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from lab_scripts import JailUser, jail_user

pytestmark = pytest.mark.lab

ROUTED = """
enter()
lab = Lab.build(topology.remote_access(CLIENTS, LinkSpec(LINK)), "c01/1")
lab.forward("gateway")
for number in range(1, CLIENTS + 1):
    lab.add_route(f"client{number}", "10.82.0.0/24", via="10.81.0.1")
    if lab.layout.ipv6:
        lab.add_route(f"client{number}", "fd82::/64", via="fd81::1")
"""


def routed(link: str = "", clients: int = 1) -> str:
    return ROUTED.replace("LINK", link).replace("CLIENTS", str(clients))


@pytest.fixture(params=["root", "nobody"])
def who(request: pytest.FixtureRequest) -> Iterator[JailUser]:
    with jail_user(request.param) as user:
        yield user
        assert user.left_behind() == []


@pytest.fixture
def anyone() -> Iterator[JailUser]:
    """For what does not depend on rights."""
    with jail_user("nobody") as user:
        yield user
        assert user.left_behind() == []


def test_remote_access_reaches_the_server_through_the_gateway_only(who: JailUser) -> None:
    said = who.run("""
enter()
lab = Lab.build(topology.remote_access(2, LinkSpec()), "c01/1")
def reach(client, address):
    server = udp(lab, "server", address)
    sender = udp(lab, client)  if ":" not in address else udp(lab, client, "::")
    try:
        sender.sendto(b"there", (address, 7))
        server.settimeout(0.3 if not lab_routed else 60)
        words, back = server.recvfrom(100)
        server.sendto(b"back", back)
        return [words.decode(), sender.recvfrom(100)[0].decode(), back[0]]
    except OSError as error:
        return type(error).__name__
    finally:
        server.close(); sender.close()
lab_routed = False
say(bare=[reach("client1", "10.82.0.2"), reach("client1", "fd82::2")])
for client in ("client1", "client2"):
    lab.add_route(client, "10.82.0.0/24", via="10.81.0.1")
    lab.add_route(client, "fd82::/64", via="fd81::1")
say(unforwarded=[reach("client1", "10.82.0.2"), reach("client1", "fd82::2")])
lab.forward("gateway")
lab_routed = True
say(routed=[reach(client, address) for client in ("client1", "client2") for address in ("10.82.0.2", "fd82::2")])
say(told=lab.hosts["client2"].addresses, gateway=lab.hosts["gateway"].addresses)
""")
    assert said[0] == {"bare": ["OSError", "OSError"]}  # no route
    assert said[1] == {"unforwarded": ["TimeoutError", "TimeoutError"]}
    assert said[2]["routed"] == [
        ["there", "back", "10.81.1.1"],
        ["there", "back", "fd81::1:1"],
        ["there", "back", "10.81.1.2"],
        ["there", "back", "fd81::1:2"],
    ]
    assert said[3] == {
        "told": {"wan": {"4": "10.81.1.2", "6": "fd81::1:2"}},
        "gateway": {"wan": {"4": "10.81.0.1", "6": "fd81::1"}, "lan": {"4": "10.82.0.1", "6": "fd82::1"}},
    }


def test_site_to_site_reaches_over_two_gateways(who: JailUser) -> None:
    [said] = who.run("""
enter()
lab = Lab.build(topology.site_to_site(LinkSpec()), "c01/1")
for near, far, here, there, lan in (("gateway-a", "gateway-b", 1, 2, 82), ("gateway-b", "gateway-a", 2, 1, 84)):
    lab.forward(near)
    lab.add_route(near, f"10.{lan}.0.0/24", via=f"10.81.0.{there}")
    lab.add_route(near, f"fd{lan}::/64", via=f"fd81::{there}")
lab.add_route("client1", "10.82.0.0/24", via="10.84.0.1")
lab.add_route("client1", "fd82::/64", via="fd84::1")
seen = []
for address, own in (("10.82.0.2", "10.84.0.2"), ("fd82::2", "fd84::2")):
    server, client = udp(lab, "server", address), udp(lab, "client1", own)
    client.sendto(b"there", (address, 7))
    words, back = server.recvfrom(100)
    server.sendto(b"back", back)
    seen.append([back[0], client.recvfrom(100)[0].decode()])
say(seen=seen)
""")
    assert said == {"seen": [["10.84.0.2", "back"], ["fd84::2", "back"]]}


def test_launching_on_a_host(who: JailUser) -> None:
    [said] = who.run("""
enter()
lab = Lab.build(topology.site_to_site(LinkSpec()), "c01/1")
listed = subprocess.check_output([*lab.launch_prefix("gateway-b"), "cat", "/proc/net/dev"], text=True)
say(links=sorted(line.split(":")[0].strip() for line in listed.splitlines()[2:]))
""")
    assert said == {"links": ["lan", "lo", "wan"]}


# Of any 100 packets in a row, a filter that drops every 100th drops one: 99 are awaited, so nothing can overflow or be
# late.
COUNT = """
def count(sender, receiver, address, bundle):
    if bundle > 1:
        sender.setsockopt(socket.SOL_UDP, 103, 10)  # UDP_SEGMENT: the kernel cuts what is sent every 10 bytes
    arrived = []
    for first in range(0, 10_000, 100):
        for start in range(first, first + 100, bundle):
            sender.sendto(b"".join(b"%010d" % number for number in range(start, start + bundle)), address)
        arrived += [int(receiver.recv(100)) for _ in range(99)]
    receiver.setblocking(False)
    try:
        arrived.append(receiver.recv(100))
    except BlockingIOError:
        pass
    missing = sorted(set(range(10_000)) - set(arrived))
    return dict(arrived=len(arrived), missing=len(missing), steps=sorted({b - a for a, b in zip(missing, missing[1:])}))
"""


@pytest.mark.parametrize("bundle", [1, 20])
def test_every_100th_udp_packet_is_lost_to_the_packet_each_way(who: JailUser, bundle: int) -> None:
    """Also where the sender hands the kernel bundles (generic segmentation offload)."""
    said = who.run(
        routed("drop_udp_every=100")
        + COUNT
        + f"""
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])  # packets of one sender can't overtake each other
server, client = udp(lab, "server", "10.82.0.2"), udp(lab, "client1", "10.81.1.1")
say(up=count(client, server, ("10.82.0.2", 7), {bundle}))
client.setblocking(True); client.settimeout(60)
say(down=count(server, client, ("10.81.1.1", 7), {bundle}))
"""
    )
    exact = {"arrived": 9900, "missing": 100, "steps": [100]}
    assert said == [{"up": exact}, {"down": exact}]


def test_every_100th_packet_of_any_kind(anyone: JailUser) -> None:
    """On a link too narrow for IPv6, so that nothing but the test's own packets is counted."""
    said = anyone.run(
        routed("drop_every=100, mtu=1200")
        + COUNT
        + """
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
server, client = udp(lab, "server", "10.82.0.2"), udp(lab, "client1", "10.81.1.1")
say(up=count(client, server, ("10.82.0.2", 7), 1), versions=list(lab.hosts["client1"].addresses["wan"]))
"""
    )
    assert said == [{"up": {"arrived": 9900, "missing": 100, "steps": [100]}, "versions": [4]}]


def test_random_loss_has_the_share_that_was_asked_for(anyone: JailUser) -> None:
    """10,000 packets at 20 %: six standard deviations are 240."""
    [said] = anyone.run(
        routed("loss=0.2")
        + """
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
server, client = udp(lab, "server", "10.82.0.2"), udp(lab, "client1")
arrived = 0
for number in range(10_000):
    client.sendto(b"%d" % number, ("10.82.0.2", 7))
    server.setblocking(False)
    try:
        while server.recv(100):
            arrived += 1
    except BlockingIOError:
        pass
server.setblocking(True); server.settimeout(60)
while True:  # what is still under way: a last word gets through some time
    client.sendto(b"end", ("10.82.0.2", 7))
    server.settimeout(0.2)
    try:
        while server.recv(100) != b"end":
            arrived += 1
        break
    except TimeoutError:
        continue
say(arrived=arrived)
"""
    )
    assert abs(said["arrived"] - 8000) < 240


def test_rate_and_mtu_are_set_on_both_ends_of_every_link(anyone: JailUser) -> None:
    [said] = anyone.run("""
from pyroute2 import IPRoute
enter()
lab = Lab.build(topology.remote_access(2, LinkSpec(rate_bps=100_000_000, mtu=1400)), "c01/1")
def ports(folder, node):
    with kernel.network_namespace(folder / node), IPRoute() as route:
        links = {link["index"]: link for link in route.get_links() if link.get_attr("IFLA_IFNAME") != "lo"}
        rates = {q["index"]: q.get_attr("TCA_OPTIONS").get_attr("TCA_TBF_PARMS")["rate"] * 8
                 for q in route.get_qdiscs() if q.get_attr("TCA_KIND") == "tbf"}
        return {link.get_attr("IFLA_IFNAME"): [link.get_attr("IFLA_MTU"), rates.get(index)]
                for index, link in links.items()}
folder = jail.current().namespaces
say(**{path.name: ports(folder, path.name) for path in folder.iterdir()})
""")
    port = [1400, 100_000_000]
    assert said == {
        "client1": {"wan": port},
        "client2": {"wan": port},
        "gateway": {"wan": port, "lan": port},
        "server": {"lan": port},
        "switch": {"client1": port, "client2": port, "gateway": port, "bridge": [1400, None]},
    }


def test_delay_works_or_is_said_to_be_impossible_and_nothing_stays(who: JailUser) -> None:
    said = who.run("""
inside = enter()
try:
    lab = Lab.build(topology.remote_access(1, LinkSpec(delay_ms=30)), "c01/1")
except LeadlineError as error:
    left = [path.name for path in inside.namespaces.iterdir()]
    left += [path.name for path in inside.cgroup.iterdir() if path.is_dir()] if inside.cgroup else []
    say(error=str(error), status=error.exit_code, left=left)
    Lab.build(topology.remote_access(1, LinkSpec()), "c01/2").close()
    sys.exit()
gateway, client = udp(lab, "gateway", "10.81.0.1"), udp(lab, "client1")
for _ in range(2):  # the first finds the neighbour, too
    begin = time.monotonic()
    client.sendto(b"there", ("10.81.0.1", 7))
    gateway.sendto(b"back", gateway.recvfrom(100)[1])
    client.recv(100)
    took_s = time.monotonic() - begin
say(took_s=took_s)
""")
    if "took_s" in said[0]:
        assert said[0]["took_s"] >= 0.060
    else:
        assert said == [
            {
                "error": "links can't have a delay: this kernel has no netem; load it with `sudo modprobe sch_netem`, "
                "or leave lab.link.delay out of the plan",
                "status": 2,
                "left": [],
            }
        ]


def test_closing_ends_what_runs_and_removes_everything(who: JailUser) -> None:
    [said] = who.run(
        routed()
        + """
inside = jail.current()
sleeper = [sys.executable, "-c", "import time; time.sleep(600)"]
with_group, without = [subprocess.Popen([*lab.launch_prefix(host), *sleeper]) for host in ("server", "gateway")]
if inside.cgroup:
    (lab.hosts["server"].cgroup / "cgroup.procs").write_text(str(with_group.pid))
for process in (with_group, without):  # nsenter has changed over when it has become what it starts
    while os.readlink(f"/proc/{process.pid}/ns/net") == os.readlink("/proc/self/ns/net"):
        pass
lab.close()
lab.close()
left = [path.name for path in inside.namespaces.iterdir()]
left += [path.name for path in inside.cgroup.iterdir() if path.is_dir()] if inside.cgroup else []
try:
    lab.forward("gateway")
except LeadlineError as error:
    refusal = str(error)
say(ended=[with_group.wait(), without.wait()], left=left, refusal=refusal, hosts=lab.hosts)
"""
    )
    assert said == {"ended": [-9, -9], "left": [], "refusal": "this lab is closed", "hosts": {}}


def test_a_second_lab_in_one_jail_is_refused_and_leaves_the_first_alone(anyone: JailUser) -> None:
    [said] = anyone.run(
        routed()
        + """
try:
    Lab.build(topology.remote_access(1, LinkSpec()), "c01/2")
except LeadlineError as error:
    said = str(error)
server, client = udp(lab, "server", "10.82.0.2"), udp(lab, "client1")
client.sendto(b"there", ("10.82.0.2", 7))
say(error=said, got=server.recv(100).decode())
"""
    )
    assert said == {"error": "there is a host switch in this jail already; close the other lab first", "got": "there"}


def test_one_lab_after_another_in_an_event_loop(anyone: JailUser) -> None:
    """As a run does it: build and close from a coroutine."""
    [said] = anyone.run("""
import asyncio
enter()
async def trials():
    for number in range(3):
        lab = Lab.build(topology.remote_access(3, LinkSpec(rate_bps=10_000_000, loss=0.01)), f"c01/{number}")
        lab.forward("gateway")
        lab.close()
asyncio.run(trials())
say(done=True)
""")
    assert said == {"done": True}


def test_errors_name_the_route(anyone: JailUser) -> None:
    said = anyone.run(
        routed()
        + """
for destination, how in (("10.9.0.0/16", dict(via="10.99.0.1")), ("nonsense", dict(dev="wan")),
                         ("10.9.0.0/16", dict(dev="tun7")), ("10.9.0.0/16", {})):
    try:
        lab.add_route("client1", destination, **how)
    except LeadlineError as error:
        say(error=str(error))
"""
    )
    assert [line["error"] for line in said] == [
        "can't set a route to 10.9.0.0/16 via 10.99.0.1: Network is unreachable",
        "nonsense is no network: 'nonsense' does not appear to be an IPv4 or IPv6 network",
        "there is no interface tun7",
        "a route to 10.9.0.0/16 needs a neighbour or a device",
    ]


def test_a_host_has_a_cgroup_that_accounts_for_its_cpu(who: JailUser) -> None:
    said = who.run(
        routed()
        + """
inside = jail.current()
if inside.cgroup is None:
    say(reason=lab.cgroup_reason, groups=[host.cgroup for host in lab.hosts.values()])
    sys.exit()
spin = "import time\\nwhile time.process_time() < 0.2: pass"
group = lab.hosts["client1"].cgroup
join = ["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh"]
subprocess.run([*lab.launch_prefix("client1"), *join, sys.executable, "-c", spin], check=True)
stat = dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())
say(usage_us=int(stat["usage_usec"]))
"""
    )
    if "reason" in said[0]:
        assert said[0]["reason"]
        assert set(said[0]["groups"]) == {None}
    else:
        assert said[0]["usage_us"] >= 200_000


def test_a_hundred_clients(who: JailUser, record_property: Callable[[str, object], None]) -> None:
    [said] = who.run("""
enter()
begin = time.monotonic()
lab = Lab.build(topology.remote_access(100, LinkSpec(rate_bps=1_000_000_000, loss=0.01)), "c01/1")
say(hosts=len(lab.hosts), last=lab.hosts["client100"].addresses["wan"], took_s=time.monotonic() - begin)
""")
    record_property("build_s", said.pop("took_s"))
    assert said == {"hosts": 102, "last": {"4": "10.81.1.100", "6": "fd81::1:64"}}
