"""Plans that bring systems up on given hosts: what they have to say, and what they need."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from small_plan import LOCAL_HOSTS, SMALL

from leadline.plan import Plan, needs

Load = Callable[..., Plan]
ROUTE = SMALL.replace("openvpn", "route")
HOSTS = "hosts: {gateway: 'ssh://gw', server: {ssh: srv, address: 10.82.0.2}, clients: ['ssh://c1']}\n"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            SMALL + LOCAL_HOSTS,
            "plan.yaml:6: hosts: client1 is this machine, whose routes and settings openvpn would change; "
            "write change_local: true in hosts to allow that, or name another host",
        ),
        (
            SMALL + "hosts: {gateway: local, server: local, clients: [local], change_local: true}",
            "plan.yaml:6: hosts.server: openvpn is brought up between the clients and the server's address, "
            "which is missing; add it, as in server: {ssh: srv, address: 10.82.0.2}",
        ),
        (
            SMALL + "hosts: {gateway: 'ssh://gw', server: local, clients: ['ssh://c1']}",
            "plan.yaml:6: hosts.server: ssh://c1 cannot reach a server that is only called 'local'; "
            "write server: {ssh: local, address: ADDRESS}",
        ),
        (
            SMALL + HOSTS + "axes: {sut: [{kind: route}, {kind: given, label: a box}]}",
            "plan.yaml:7: 'sut' cannot differ between cases: a given system is measured as it is; "
            'write a plan for each system, with sut: {kind: given, label: "..."}',
        ),
    ],
    ids=["this-machine", "no-address", "local-server", "mixed"],
)
def test_what_a_plan_has_to_say_is_one_line(error_text: Callable[..., str], text: str, wanted: str) -> None:
    assert error_text(text) == wanted


def test_cases_are_those_of_the_lab(load: Load) -> None:
    axes = "axes: {sut.cipher: [AES-256-GCM, CHACHA20-POLY1305]}\n"
    given, in_lab = load(SMALL + HOSTS + axes).cases, load(SMALL + axes).cases
    assert [(case.id, case.labels, case.sut) for case in given] == [(case.id, case.labels, case.sut) for case in in_lab]


def test_this_machine_may_be_changed_where_the_plan_says_so(load: Load) -> None:
    (case,) = load(ROUTE + HOSTS.replace("'ssh://c1']", "local], change_local: true")).cases
    assert case.hosts is not None
    assert case.hosts.change_local


def test_programs_are_needed_on_the_hosts_that_run_them(load: Load) -> None:
    axes = "axes: {sut: [{kind: route}, {kind: openvpn, optional: true}]}\n"
    found = needs(load(ROUTE + HOSTS + axes).cases)
    assert [(need.name, need.where, need.optional) for need in found] == [
        ("leadline-agent", None, False),
        ("ssh", None, False),
        ("ip", "every host", False),
        ("openvpn", "gateway and clients", True),
        ("/dev/net/tun", "gateway and clients", True),
    ]
