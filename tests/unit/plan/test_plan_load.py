"""What a plan says, and every error about one that cannot be right: one line, with file, line and advice."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_plan import GIVEN, LOCAL_HOSTS, SMALL

from leadline.errors import PlanError
from leadline.kinds.http.model import HttpTest
from leadline.kinds.rr import RrTest
from leadline.kinds.tcp import TcpTest
from leadline.kinds.udp import UdpTest
from leadline.plan import LinkSpec, Plan, load_plan, source
from leadline.plan.load import MOST_PLAN_BYTES
from leadline.plan.problems import Problems
from leadline.sut.openvpn.parameters import OpenvpnSut

Load = Callable[..., Plan]
ErrorText = Callable[..., str]


def test_a_small_plan_is_one_case_with_every_default_filled_in(load: Load) -> None:
    plan = load(SMALL)
    (case,) = plan.cases
    assert (plan.name, plan.repeat, plan.observe_period_ms, plan.limits.stability.spread) == ("small", 1, 100, 0.1)
    assert (case.id, case.topology, case.clients, case.parameters) == ("c01", "remote-access", 1, {})
    assert case.link == LinkSpec()
    assert case.sut == OpenvpnSut()
    assert case.tests[0] == UdpTest(name="load", packet_bytes=100, duration_ms=1000)
    assert case.tests[1] == TcpTest(name="bulk", duration_ms=1000)
    assert case.title == "openvpn"


def test_units_are_parsed_where_they_come_in(load: Load) -> None:
    plan = load(
        """
name: units
clients: 3
interval: 200ms
observe: {period: 50ms}
limits: {stability: {spread: 5%}}
lab: {link: {rate: 1gbit, mtu: 1400, loss: 1%, drop_udp_every: 100, delay: 1500us}}
sut: {kind: wireguard, ip: 6}
tests:
  - {name: t, kind: tcp, block: 64KiB, rate: 10mbit, duration: 1m, warmup: 500ms, clients: 2, direction: both}
  - {name: u, kind: udp, rate: 20mbit, number: 10, interval: 1s}
  - {name: r, kind: rr, protocol: udp, request: 1kB, timeout: 2s, ip: 6}
  - {name: h, kind: http, rate: 1000/s, size: 1MB, clients: all, headers: [{name: Accept, value: "*/*"}]}
"""
    )
    (case,) = plan.cases
    tcp, udp, rr, http = case.tests
    assert case.link == LinkSpec(rate_bps=10**9, mtu_bytes=1400, loss=0.01, drop_udp_every=100, delay_us=1500)
    assert isinstance(tcp, TcpTest)
    assert (tcp.block_bytes, tcp.rate_bps, tcp.duration_ms, tcp.warmup_ms, tcp.clients) == (65536, 10**7, 60000, 500, 2)
    assert isinstance(udp, UdpTest)
    assert (udp.rate_bps, udp.number, tcp.interval_ms, udp.interval_ms) == (20_000_000, 10, 200, 1000)
    assert isinstance(rr, RrTest)
    assert (rr.request_bytes, rr.timeout_ms, rr.ip) == (1000, 2000, 6)
    assert isinstance(http, HttpTest)
    assert (http.rate_per_s, http.request_target, http.clients) == (1000.0, "/?size=1000000", None)
    assert (plan.observe_period_ms, plan.limits.stability.spread) == (50, 0.05)


def test_a_model_made_in_code_takes_plain_numbers() -> None:
    assert TcpTest(name="t", duration_ms=5000, rate_bps=10).duration_ms == 5000


def test_given_hosts_replace_the_lab(load: Load) -> None:
    hosts = "hosts: {gateway: 'ssh://root@gw:2222', server: 'ssh://[fd00::1]', clients: [local, 'ssh://c2']}\n"
    (case,) = load(GIVEN + hosts).cases
    assert case.link is None
    assert case.hosts is not None
    assert case.clients == 2
    named = case.hosts.named("remote-access")
    assert list(named) == ["client1", "client2", "gateway", "server"]
    assert (named["gateway"].user, named["gateway"].host, named["gateway"].port) == ("root", "gw", 2222)
    assert (named["server"].host, named["client1"].is_local) == ("fd00::1", True)


def test_a_host_has_an_address_of_its_own_on_the_measured_network(load: Load) -> None:
    hosts = "{gateway: {ssh: root@gw, address: 10.81.0.1}, clients: [{ssh: local, address: fd00::1}], "
    hosts += "server: {ssh: 'ssh://srv:2222', address: [10.82.0.2, 'fd00::2']}}"
    (case,) = load(f"{GIVEN}hosts: {hosts}").cases
    assert case.hosts is not None
    named = case.hosts.named("remote-access")
    assert (named["gateway"].user, named["gateway"].host, named["gateway"].addresses) == ("root", "gw", ("10.81.0.1",))
    assert (named["server"].host, named["server"].port, named["server"].addresses) == (
        "srv",
        2222,
        ("10.82.0.2", "fd00::2"),
    )
    assert (named["client1"].is_local, named["client1"].addresses) == (True, ("fd00::1",))


def test_a_local_server_with_an_address_is_reached_from_elsewhere(load: Load) -> None:
    hosts = "hosts: {gateway: 'ssh://gw', server: {ssh: local, address: 10.0.0.1}, clients: ['ssh://c1']}"
    (case,) = load(GIVEN + hosts).cases
    assert case.hosts is not None
    assert case.hosts.named("remote-access")["server"].addresses == ("10.0.0.1",)


def test_results_of_given_hosts_are_called_by_the_label(load: Load) -> None:
    text = GIVEN.replace("packet: 100", "packet: '{packet}'")
    plan = load(text + LOCAL_HOSTS + "axes: {packet: [64, 128]}")
    assert [case.parameters for case in plan.cases] == [
        {"sut": "pfSense 2.7 on an APU2", "packet": 64},
        {"sut": "pfSense 2.7 on an APU2", "packet": 128},
    ]
    assert plan.cases[0].title == "sut=pfSense 2.7 on an APU2 packet=64"
    assert plan.axes == {"packet": ("64", "128")}


@pytest.mark.parametrize("cipher", ["aes-256-gcm", "AES-192-CBC", "CAMELLIA-256-CBC", "BF-CBC", "none"])
def test_a_usual_cipher_is_taken_in_any_case(load: Load, cipher: str) -> None:
    (case,) = load(SMALL.replace("openvpn", f"openvpn, cipher: {cipher}")).cases
    assert isinstance(case.sut, OpenvpnSut)
    assert case.sut.cipher == cipher


def test_an_unknown_cipher_is_left_to_the_daemon(load: Load) -> None:
    (case,) = load(SMALL.replace("openvpn", "openvpn, cipher: NO-SUCH-CIPHER")).cases
    assert isinstance(case.sut, OpenvpnSut)
    assert case.sut.cipher == "NO-SUCH-CIPHER"


def changed(old: str, new: str) -> str:
    assert old in SMALL
    return SMALL.replace(old, new)


MISTAKES = [
    # Unknown keys, kinds and choices
    (changed("tests:", "tetss:"), "plan.yaml:3: unknown key 'tetss'; did you mean 'tests'?"),
    (changed("packet:", "packte:"), "plan.yaml:4: unknown key 'packte' in tests.load; did you mean 'packet'?"),
    (
        changed("duration: 1s}\n  -", "duration_ms: 1}\n  -"),
        "plan.yaml:4: unknown key 'duration_ms' in tests.load; did you mean 'duration'?",
    ),
    (SMALL + "lab: {linc: {}}", "plan.yaml:6: unknown key 'linc' in lab; did you mean 'link'?"),
    (SMALL + "observe:\n  perod: 1s", "plan.yaml:7: unknown key 'perod' in observe; did you mean 'period'?"),
    (changed("kind: openvpn", "kind: opnvpn"), "plan.yaml:2: sut: unknown kind 'opnvpn'; did you mean 'openvpn'?"),
    (
        changed("kind: openvpn", r'kind: "a\nb"'),
        r"plan.yaml:2: sut: unknown kind 'a\nb'; there is route, wireguard, openvpn, strongswan, libreswan, stack, "
        "given",
    ),
    (
        changed("kind: udp, ", ""),
        "plan.yaml:4: tests.load: 'kind' is missing; there is tcp, udp, rr, http, tunnel, scenario, replay,"
        " load-latency, packets",
    ),
    (
        changed("openvpn", "openvpn, transport: sctp"),
        "plan.yaml:2: sut.transport: 'sctp' is not possible; there is udp, tcp",
    ),
    (changed("openvpn", "openvpn, ip: 5"), "plan.yaml:2: sut.ip: 5 is not possible; there is 4, 6"),
    (
        changed("name: load", 'name: "\\n"'),
        "plan.yaml:4: tests.\\n.name: '\\n' is not a name; use letters, digits, '-' and '_' (at most 64...",
    ),
    (changed("kind: udp", 'kind: udp, "a\\tb": 1'), "plan.yaml:4: unknown key 'a\\tb' in tests.load..."),
    # Missing
    ("name: x\nsut: {kind: route}\n", "plan.yaml:1: 'tests' is missing"),
    ("name: x\ntests: [{kind: tcp, name: a}]\n", "plan.yaml:1: 'sut' is missing"),
    ("sut: {kind: route}\ntests: [{kind: tcp, name: a}]\n", "plan.yaml:1: 'name' is missing"),
    (changed("name: load, ", ""), "plan.yaml:4: tests[1]: 'name' is missing"),
    (
        changed(SMALL[SMALL.index("tests:") :], "tests: []"),
        "plan.yaml:3: tests: the list is empty; give it at least one item, or remove it",
    ),
    # Impossible values
    (
        changed("packet: 100", "packet: 15"),
        "plan.yaml:4: tests.load.packet: 15 bytes is too small; at least 16 bytes (by the short "
        "measurement header and by UDP)",
    ),
    (
        changed("packet: 100", "packet: 65508"),
        "plan.yaml:4: tests.load.packet: 65508 bytes is too large; at most 65507 bytes (by the short measurement...",
    ),
    (
        changed("packet: 100", "packet: 100, rate: 2000tbit"),
        "plan.yaml:4: tests.load.rate: 2.00 Pbit/s is too large; at most 1.00 Pbit/s",
    ),
    (
        changed("packet: 100, duration: 1s", "duration: -1s"),
        "plan.yaml:4: tests.load.duration: '-1s' is negative; a duration is not",
    ),
    (
        changed("packet: 100, duration: 1s", "duration: 0s"),
        "plan.yaml:4: tests.load.duration: a duration must be above 0",
    ),
    (
        changed("packet: 100, duration: 1s", "duration: 10 parsecs"),
        "plan.yaml:4: tests.load.duration: '10 parsecs' is not a duration; write 10s, 500ms or 1m",
    ),
    (
        changed("packet: 100", "warmup: 1s"),
        "plan.yaml:4: tests.load.warmup: 1000 ms of warm-up leave no time of 1000 ms; the duration includes the...",
    ),
    (changed("packet: 100", "rate: 0"), "plan.yaml:4: tests.load.rate: a rate must be above 0"),
    (
        changed("packet: 100", "rate: 3furlong"),
        "plan.yaml:4: tests.load.rate: '3furlong' is not a rate; write 20mbit, 1gbit or a number of bit/s",
    ),
    (changed("packet: 100", "flows: 0"), "plan.yaml:4: tests.load.flows: 0 is not possible; at least 1"),
    (changed("packet: 100", "clients: 2"), "plan.yaml:4: tests.load.clients: 2 is more than the 1 clients"),
    (
        changed("kind: udp, packet: 100", "kind: rr, protocol: udp, request: 70kB"),
        "plan.yaml:4: tests.load.request: 70000 is too large for a datagram; at most 65507 bytes",
    ),
    (
        changed("kind: udp, packet: 100", "kind: http, path: '/?a=1', size: 5"),
        "plan.yaml:4: tests.load.size: the size is sent in the query, but path already has a query; give only "
        "one of them",
    ),
    (
        changed("kind: udp, packet: 100", "kind: http, path: index"),
        "plan.yaml:4: tests.load.path: 'index' is not a path; it starts with '/' and has no spaces (encode them...",
    ),
    (SMALL + "clients: 0", "plan.yaml:6: clients: 0 is not possible; at least 1"),
    (SMALL + "clients: '5'", "plan.yaml:6: clients: '5' is not a whole number"),
    (SMALL + "clients: true", "plan.yaml:6: clients: true is not a whole number"),
    (SMALL + "repeat: 0", "plan.yaml:6: repeat: 0 is not possible; at least 1"),
    (SMALL + "repeat: {min: 2}", "plan.yaml:6: repeat.min: 2 is not possible; at least 3"),
    (SMALL + "repeat: {min: 5, max: 4}", "plan.yaml:6: repeat.max: 4 is less than min (5); raise max"),
    (SMALL + "repeat: {until: 2}", "plan.yaml:6: repeat.until: 2 is not possible; at most 1"),
    (SMALL + "repeat: {till: 1%}", "plan.yaml:6: unknown key 'till' in repeat; did you mean 'until'?"),
    (SMALL + "repeat: 1.5", "plan.yaml:6: repeat: 1.5 is not a whole number"),
    (SMALL + "seed: -1", "plan.yaml:6: seed: -1 is not possible; at least 0"),
    (SMALL + "interval: 1ms", "plan.yaml:6: interval: 1 ms is too small; at least 10 ms"),
    (
        SMALL + "limits: {stability: {spread: 0}}",
        "plan.yaml:6: limits.stability.spread: 0 is not possible; more than 0",
    ),
    (SMALL + "lab:\n  link:\n    rate: 0", "plan.yaml:8: lab.link.rate: a rate must be above 0"),
    (
        SMALL + "lab: {link: {loss: 1}}",
        "plan.yaml:6: lab.link.loss: 1 is 100 %: nothing would arrive; one percent is 1%",
    ),
    (SMALL + "lab: {link: {drop_every: 1}}", "plan.yaml:6: lab.link.drop_every: 1 is not possible; at least 2"),
    (SMALL + "lab: {link: {mtu: 500}}", "plan.yaml:6: lab.link.mtu: 500 is not possible; at least 576"),
    (
        SMALL + "lab: {link: {delay: 2ms, jitter: 3ms}}",
        "plan.yaml:6: lab.link.jitter: the jitter (3 ms) is longer than the delay (2 ms); packets cannot arrive before "
        "they were sent; give lab.link.delay",
    ),
    (
        SMALL + "lab: {link: {loss_burst: 3}}",
        "plan.yaml:6: lab.link.loss_burst: bursts of a loss that is not given; give lab.link.loss",
    ),
    (
        SMALL + "lab: {link: {queue: 1MB}}",
        "plan.yaml:6: lab.link.queue: a queue without a rate is always empty; give lab.link.rate",
    ),
    (
        SMALL + "lab: {emulator: netem, link: {loss: 1%, loss_burst: 3}}",
        "plan.yaml:6: lab.emulator: netem cannot lose packets in bursts; write emulator: own",
    ),
    (SMALL + "lab: {link: {reorder: 2}}", "plan.yaml:6: lab.link.reorder: 2 is too large; at most 1 (a share)"),
    (SMALL + "lab: {link: fast}", "plan.yaml:6: lab.link: 'fast' is not a mapping"),
    (
        changed("openvpn", "openvpn, ip: 6") + "lab: {link: {mtu: 1279}}",
        "plan.yaml:6: lab.link.mtu: 1279 is too small for IPv6, which sut uses; at least 1280",
    ),
    (
        changed("packet: 100", "ip: 6") + "lab: {link: {mtu: 1279}}",
        "plan.yaml:6: lab.link.mtu: 1279 is too small for IPv6, which test 'load' uses; at least 1280",
    ),
    (
        changed("openvpn", "openvpn, push_routes: [10.0.0.0/8, 10.1.1.1/8]"),
        "plan.yaml:2: sut.push_routes[2]: '10.1.1.1/8' is not a network such as 10.90.0.0/24 (10.1.1.1/8 has hos...",
    ),
    (changed("openvpn", "openvpn, pool_size: 0"), "plan.yaml:2: sut.pool_size: 0 is not possible; at least 1"),
    (changed("openvpn", "openvpn, optional: 1"), "plan.yaml:2: sut.optional: 1 is not true or false"),
    (
        changed("openvpn", "openvpn, cipher: AES-256-GMC"),
        "plan.yaml:2: sut.cipher: 'AES-256-GMC' is not a cipher of OpenVPN; did you mean 'AES-256-GCM'?",
    ),
    (
        changed("openvpn", "openvpn, cipher: chacha-poly1305"),
        "plan.yaml:2: sut.cipher: 'chacha-poly1305' is not a cipher of OpenVPN; did you mean 'CHACHA20-POLY1305'?",
    ),
    (changed("openvpn", "openvpn, cipher: ''"), "plan.yaml:2: sut.cipher: '' is not one word"),
    (
        SMALL + "clients: 2\ntopology: site-to-site",
        "plan.yaml:6: clients: a site-to-site plan has one client; use flows for more load",
    ),
    # Names
    (
        changed("name: small", "name: a/b"),
        "plan.yaml:1: name: 'a/b' is not a name; use letters, digits, '.', '-' and '_' (at most 64)",
    ),
    (changed("name: bulk", "name: load"), "plan.yaml:5: tests.load.name: two tests are called 'load'; rename one"),
    (
        changed("name: bulk", "name: tear-down"),
        "plan.yaml:5: tests.tear-down.name: 'tear-down' is reserved for a phase of the trial; choose another name",
    ),
    (
        changed("name: bulk", "name: a.b"),
        "plan.yaml:5: tests.a.b.name: 'a.b' is not a name; use letters, digits, '-' and '_' (at most 64, a lette...",
    ),
    (
        changed("name: bulk", "name: 'u{packet}'"),
        "plan.yaml:5: tests.u{packet}.name: the name of a test must be the same in every case; tables show the axes...",
    ),
    # Hosts
    (
        SMALL + "lab: {}\nhosts: {gateway: local, server: local, clients: [local]}",
        "plan.yaml:7: hosts: a plan has either lab or hosts, not both; remove one of them",
    ),
    (
        SMALL + "hosts: {gateway: gw, server: local, clients: [local]}",
        "plan.yaml:6: hosts.gateway: 'gw' is not a host; write ssh://[user@]host[:port], exec:COMMAND, "
        "ray://[HEAD:PORT]?hosts=N, or local",
    ),
    (
        SMALL + "hosts: {gateway: 'ssh://me:word@gw', server: local, clients: [local]}",
        "plan.yaml:6: hosts.gateway: the address is not a host; a password must not be in a plan; use a key or...",
    ),
    (
        SMALL + "hosts: {gateway: 'ssh://gw:99999', server: local, clients: [local]}",
        "plan.yaml:6: hosts.gateway: 'ssh://gw:99999' has an invalid port; write 1 to 65535",
    ),
    (
        GIVEN + "hosts: {server: local, clients: [local]}",
        "plan.yaml:6: hosts: 'gateway' is missing; it has gateway, server and clients",
    ),
    (
        GIVEN + "topology: site-to-site\nhosts: {gateway: local, server: local, clients: [local]}",
        "plan.yaml:7: hosts.gateway: a site-to-site plan has no gateway; it has gateway-a, gateway-b, server and...",
    ),
    (
        SMALL.replace("openvpn", "strongswan") + LOCAL_HOSTS,
        "plan.yaml:2: sut.kind: strongswan cannot be brought up on given hosts; use route, wireguard, openvpn, st...",
    ),
    (
        SMALL.replace("kind: openvpn", "kind: given") + LOCAL_HOSTS,
        "plan.yaml:2: sut: 'label' is missing",
    ),
    (
        SMALL.replace("kind: openvpn", "kind: given, label: ' '") + LOCAL_HOSTS,
        "plan.yaml:2: sut.label: a label must be one line of at most 100 characters",
    ),
    (
        GIVEN,
        "plan.yaml:2: sut.kind: the kind given is not possible on the lab's hosts; give hosts, or u...",
    ),
    (
        GIVEN + LOCAL_HOSTS + "axes:\n  clients: [1]\n  sut.cipher: [AES-256-GCM, CHACHA20-POLY1305]",
        "plan.yaml:9: 'sut.cipher' cannot differ between cases: a given system is measured as it is; write a pl...",
    ),
    (
        GIVEN + LOCAL_HOSTS + "axes:\n  sut: [{kind: given, label: a}, {kind: given, label: b}]",
        "plan.yaml:8: 'sut' cannot differ between cases: a given system is measured as it is; write a plan for ...",
    ),
    (
        GIVEN + LOCAL_HOSTS + "include:\n  - {sut.label: b}",
        "plan.yaml:8: 'sut.label' cannot differ between cases: a given system is measured as it is; write a pla...",
    ),
    (
        GIVEN.replace("pfSense 2.7 on an APU2", "'{box}'") + LOCAL_HOSTS + "axes: {box: [a, b]}",
        "plan.yaml:2: sut: it cannot differ between cases: a given system is measured as it is; write a plan fo...",
    ),
    (
        GIVEN + LOCAL_HOSTS + "profile: true",
        "plan.yaml:7: profile: on given hosts the processes of a given system are unknown; leave it out",
    ),
    (
        GIVEN + "hosts: {gateway: local, server: {ssh: srv, address: srv.example}, clients: [local]}",
        "plan.yaml:6: hosts.server.address: 'srv.example' is not an IP address, such as 10.0.0.2 or fd00::2",
    ),
    (
        GIVEN + "hosts: {gateway: local, server: {ssh: srv, address: 0.0.0.0}, clients: [local]}",
        "plan.yaml:6: hosts.server.address: 0.0.0.0 is not a unicast address without a zone...",
    ),
    (
        GIVEN + "hosts: {gateway: local, server: {ssh: srv, address: [10.0.0.1, 10.0.0.2]}, clients: [local]}",
        "plan.yaml:6: hosts.server.address: 10.0.0.1, 10.0.0.2: give only one address per IP version...",
    ),
    (
        GIVEN + "hosts: {gateway: local, server: {ssh: srv, adress: 10.0.0.1}, clients: [local]}",
        "plan.yaml:6: unknown key 'adress' in hosts.server; did you mean 'address'?",
    ),
    (
        GIVEN + "hosts: {gateway: local, server: {address: 10.0.0.1}, clients: [local]}",
        "plan.yaml:6: hosts.server: the host lacks ssh, exec or ray; as in {ssh: gw1, address: 10.0.0.2}",
    ),
    (
        GIVEN + "hosts: {gateway: local, server: local, clients: ['ssh://c1']}",
        "plan.yaml:6: hosts.server: ssh://c1 cannot reach a server that is only called 'local'; write server: {...",
    ),
    # Targets
    (
        SMALL + "targets:\n  - load.lost_ratoi < 1%",
        "plan.yaml:7: target 'load.lost_ratoi < 1%': unknown metric 'lost_ratoi' of a udp test; did you mean 'lo...",
    ),
    (
        SMALL + "targets: [laod.lost_ratio < 1%]",
        "plan.yaml:6: target 'laod.lost_ratio < 1%': unknown test 'laod'; did you mean 'load'?",
    ),
    (
        SMALL + "targets: [load.retransmits < 1]",
        "plan.yaml:6: target 'load.retransmits < 1': unknown metric 'retransmits' of a udp test; there is...",
    ),
    (
        SMALL + "targets: [latency_p99_us < 1]",
        "plan.yaml:6: target 'latency_p99_us < 1': unknown metric 'latency_p99_us'; there is jitter_us...",
    ),
    (
        SMALL + "targets: [load.lost_ratio = 1]",
        "plan.yaml:6: target 'load.lost_ratio = 1': not of the form 'METRIC < VALUE'; as in 'lost_ratio < 0.1%'",
    ),
    (
        SMALL + "targets: [load.lost < few]",
        "plan.yaml:6: target 'load.lost < few': 'few' is not a number, and lost has no unit",
    ),
    (SMALL + "targets: [load.lost < 1e999]", "plan.yaml:6: target 'load.lost < 1e999': '1e999' is not a number, ..."),
    (
        SMALL + "targets: [load.lost < 1%]",
        "plan.yaml:6: target 'load.lost < 1%': lost is a count; for a share write lost_ratio, as in 'lost_ratio < 1%'",
    ),
    (SMALL + "targets: load.lost < 1", "plan.yaml:6: targets: 'load.lost < 1' is not a list; write ['load.lost < 1']"),
    # YAML
    ("", "plan.yaml:1: the plan is empty; it needs at least name, sut and tests"),
    ("# nothing\n", "plan.yaml:1: the plan is empty; it needs at least name, sut and tests"),
    ("- 1\n", "plan.yaml:1: the plan is not a mapping; write it as 'key: value' lines, such as 'name: my-plan'"),
    (SMALL + "name: other\n", "plan.yaml:6: the key 'name' is here twice (first in line 1); remove one"),
    (
        SMALL + "lab: {link: {rate: 1mbit, rate: 2mbit}}",
        "plan.yaml:6: the key 'rate' is here twice (first in line 6); remove one",
    ),
    (
        "name: a: b\n",
        "plan.yaml:1: there is a ':' where a key is not possible; put text that contains ': ' in quotation marks...",
    ),
    ("name: a\n sut: b\n", "plan.yaml:2: there is a ':' where a key is not possible; ..."),
    ("name: a\ntests:\n\t- 1\n", "plan.yaml:3: there is a tab, but YAML needs spaces; indent with spaces"),
    ("name: a\n---\nname: b\n", "plan.yaml:2: a second document begins here ('---' or '...'); a plan is one document"),
    ("name: a\nb: \x01\n", "plan.yaml:2: a character that text cannot hold (U+0001); remove it"),
    (
        'name: "\\ud800"\nsut: {kind: route}\n',
        "plan.yaml:1: '\\ud800' to '\\udfff' are halves of characters; write the character itself",
    ),
    ("name: *x\n", "plan.yaml:1: '*x' refers to nothing; put text that begins with '*' in quotation marks"),
    (
        "name: a\ntests: [{kind: tcp}\nclients: 1\n",
        "plan.yaml:2: the '[' is not closed; close it with ']' before line 3, or put ',' between its items",
    ),
    (
        "name: a\ntests:\n  - {kind: tcp, name: x\n  - {kind: udp}\n",
        "plan.yaml:3: the '{' is not closed; close it with '}' before line 4, or put ',' between its items",
    ),
    ("name: a\ntests: [1,\n\n\n", "plan.yaml:2: the '[' is not closed; close it with ']'"),
    ("name: a\nsut: {a: 1 b: 2}\n", "plan.yaml:2: the '{' is not closed; close it with '}', or put ',' between..."),
    ("name: a\ntests: ]\n", "plan.yaml:2: ']' closes nothing; remove it"),
    ("name: a\ntests: [1,,2]\n", "plan.yaml:2: a value is missing before ','"),
    ("name: a\nb: 'c\nd: e\n", "plan.yaml:2: a quotation mark is not closed; close it, on this line"),
    ("name: a\nsut\ntests: []\n", "plan.yaml:2: a key has no ':' after it; write 'key: value'"),
    ("tests:\n  - a: x\n   b: y\n", "plan.yaml:3: the indentation fits none of the lines above; ..."),
    ("tests:\n  - a: x\n    b: y\n  c: z\n", "plan.yaml:4: the indentation fits none of the lines above; ..."),
    ("name: @x\n", "plan.yaml:1: text cannot begin with '@'; put the value in quotation marks"),
    ("name: 'x' y\n", "plan.yaml:1: text follows a complete value; put all of it in quotes"),
    ('name: "\\q"\n', "plan.yaml:1: '\\q' is not an escape in double quotation marks; use single ones"),
    ("name: x\nsut: &a [*a]\n", "plan.yaml:2: too large for a plan, or has an alias that contains itself"),
    ("name: " + "[" * 1500, "plan.yaml:1: nested too deeply for a plan"),
    ("name: x\nsut: !!set {a}\n", "plan.yaml:2: the tag tag:yaml.org,2002:set has no meaning in a plan; remove it"),
    ("name: &a {b: 1}\nsut:\n  <<: *a\n", "plan.yaml:3: '<<' has no meaning in a plan; use 'extends: FILE' to inherit"),
    ("[a]: 1\n", "plan.yaml:1: a key is not text; write 'key: value'..."),
    (SMALL + "clients: .inf\n", "plan.yaml:6: .inf is not a quantity"),
    (SMALL + f"clients: {'9' * 5000}\n", "plan.yaml:6: a number of 5000 characters is not a quantity"),
    (SMALL + f"interval: {'9' * 50}s\n", f"plan.yaml:6: interval: {'9' * 50}000 ms is too large; at most 60000 ms"),
]


@pytest.mark.parametrize(("text", "expected"), MISTAKES, ids=[expected[10:70] for _, expected in MISTAKES])
def test_a_mistake_is_one_line_with_its_place(error_text: ErrorText, text: str, expected: str) -> None:
    """`...` at the end of what is expected stands for more of the same line."""
    found = error_text(text)
    if expected.endswith("..."):
        assert found.startswith(expected.removesuffix("..."))
    else:
        assert found == expected


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("name: load", "nmae: load", "unknown key 'nmae' in tests[1]; did you mean 'name'?"),
        ("kind: udp", "knid: udp", "unknown key 'knid' in tests.load; did you mean 'kind'?"),
        ("sut:", "stu:", "unknown key 'stu'; did you mean 'sut'?"),
    ],
)
def test_a_misspelt_key_comes_before_what_it_makes_missing(
    error_text: ErrorText, old: str, new: str, expected: str
) -> None:
    assert error_text(changed(old, new)).endswith(expected)


def test_missing_plan_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"nowhere\.yaml: there is no such file; give the path of a plan in YAML"):
        load_plan(tmp_path / "nowhere.yaml")


def test_a_folder_is_no_plan(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="this is a folder, not a regular file; give the path of a plan in YAML"):
        load_plan(tmp_path)


def test_a_fifo_is_refused_without_waiting_for_its_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "plan.yaml")
    with pytest.raises(PlanError, match=r"plan\.yaml: this is a FIFO, not a regular file"):
        load_plan(tmp_path / "plan.yaml")


def test_a_device_is_refused_unread() -> None:
    with pytest.raises(PlanError, match="/dev/zero: this is a device, not a regular file"):
        load_plan(Path("/dev/zero"))


def test_a_plan_beyond_the_largest_is_refused(load: Load) -> None:
    padding = "#" * (MOST_PLAN_BYTES - len(SMALL))
    assert load(SMALL + padding).cases
    with pytest.raises(PlanError, match=r"plan\.yaml: this is too large; at most 256 KiB"):
        load(SMALL + padding + "#")


def test_a_fifo_that_a_plan_refers_to_is_refused(error_text: ErrorText, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "body")
    text = changed("kind: udp, packet: 100", "kind: http, method: POST, body_file: body")
    assert error_text(text).endswith("body is a FIFO, not a regular file")


def test_yaml_anchor_can_be_reused(load: Load, recwarn: pytest.WarningsRecorder) -> None:
    assert load(SMALL + "description: &a one\nrepeat: &a 1\n").cases
    assert not recwarn.list


def test_binary_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_bytes(b"name: \xff\xfe")
    with pytest.raises(PlanError, match="this is not text in UTF-8"):
        load_plan(tmp_path / "plan.yaml")


def test_targets_take_units_and_may_omit_the_test(load: Load) -> None:
    plan = load(SMALL + "targets: [load.lost_ratio < 0.1%, throughput_bps >= 900mbit, load.jitter_us<=2ms]")
    lost, throughput, jitter = plan.targets
    assert (lost.test, lost.metric, lost.op, lost.value) == ("load", "lost_ratio", "<", 0.001)
    assert (throughput.test, throughput.value) == (None, 900_000_000)
    assert (jitter.op, jitter.value) == ("<=", 2000)
    assert lost.met_by(0.0)
    assert not lost.met_by(0.001)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(data=st.data())
def test_any_text_gives_a_plan_or_a_plan_error(load: Load, data: st.DataObject) -> None:
    """A plan with a piece of it replaced by something else, or just anything."""
    start = data.draw(st.integers(0, len(SMALL)))
    end = data.draw(st.integers(start, min(len(SMALL), start + 12)))
    odd = st.sampled_from(
        ["null", "-1", "[]", "{}", "1e400", "{packet}", '"{packet}"', "&a", "*a", "~", ": ", "- ", "!!x"]
    )
    piece = data.draw(odd | st.text(max_size=8))
    text = SMALL[:start] + piece + SMALL[end:]
    if any("\ud800" <= character <= "\udfff" for character in text):
        return
    try:
        assert load(text).cases
    except PlanError as error:
        assert "\n" not in str(error)


def test_reading_ends_at_the_first_value_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(source._MOST_READ, "plan", 12)
    # What follows is not YAML: it is not reached.
    text = "name: x\naxes:\n" + "  - 1\n" * 12 + "]"
    with pytest.raises(PlanError, match=r"plan\.yaml:10: too large: more than 12 keys and values; split the file"):
        source.parse_plan_text(text, "plan.yaml", Problems())
