"""A plan whose clients are a fleet: how many they are at which points, what they can do, and errors."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from leadline.kinds.tunnel.model import TunnelTest
from leadline.plan import Plan, describe

FLEET = """\
name: fleet
sut: {kind: openvpn}
clients: {fleet: true, count: 30}
tests:
  - {name: storm, kind: tunnel, rate: 100/s}
  - {name: load, kind: udp, rate: 1mbit, duration: 1s}
"""


def test_a_fleet_is_one_host_with_many_clients(load: Callable[..., Plan]) -> None:
    plan = load(FLEET)
    [case] = plan.cases
    assert (case.clients, case.fleet) == (1, 30)
    [line] = describe(plan).cases
    assert (line.clients, line.fleet) == (30, True)
    storm = case.tests[0]
    assert isinstance(storm, TunnelTest) and storm.number == 30


def test_estimate_includes_the_fleets_arrival_time(load: Callable[..., Plan]) -> None:
    [case] = load(FLEET.replace("count: 30", "count: 500").replace("100/s", "10/s")).cases
    assert case.tests[0].expected_ms >= 50_000


@pytest.mark.parametrize("axis", ["clients", "clients.count"])
def test_axis_sets_the_fleets_size(load: Callable[..., Plan], axis: str) -> None:
    plan = load(FLEET.replace(", count: 30", "") + f"axes: {{{axis}: [10, 20]}}\n")
    assert [(case.clients, case.fleet) for case in plan.cases] == [(1, 10), (1, 20)]
    assert [case.parameters for case in plan.cases] == [{axis: 10}, {axis: 20}]


def test_override_turns_hosts_into_a_fleet(load: Callable[..., Plan]) -> None:
    hosts = "name: x\nsut: {kind: openvpn}\naxes: {clients: [5, 20]}\ntests: [{name: u, kind: udp, rate: 1mbit}]\n"
    assert [case.fleet for case in load(hosts).cases] == [None, None]
    assert [case.fleet for case in load(hosts, "clients={fleet: true}").cases] == [5, 20]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            "{fleet: true}",
            "3: clients: the number of the fleet's clients is missing; give count, or an axis of clients",
        ),
        ("{fleet: false, count: 3}", "3: clients.fleet: fleet must be true; for client hosts write clients: N"),
        ("{fleet: true, count: 0}", "3: clients.count: 0 clients is too small; at least 1 clients"),
        ("{fleet: true, cuont: 3}", "3: unknown key 'cuont' in clients; did you mean 'count'?"),
        ("many", "3: clients: 'many' is not a whole number"),
        ("0", "3: clients: 0 is not possible; at least 1"),
    ],
)
def test_clients_that_are_neither_hosts_nor_a_fleet_are_refused(
    error_text: Callable[..., str], change: str, said: str
) -> None:
    assert error_text(FLEET.replace("{fleet: true, count: 30}", change)).endswith(said)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("{kind: openvpn}", "{kind: route}", "a fleet needs a VPN gateway as the system under test"),
        ("{kind: openvpn}", "{kind: strongswan, method: rsa}", "a fleet's clients do not prove themselves by rsa"),
        ("name: fleet", "name: fleet\ntopology: site-to-site", "needs the lab's remote-access topology"),
        ("kind: udp, rate: 1mbit", "kind: rr", "tests.load.kind: a fleet's clients cannot carry rr tests"),
        ("kind: udp, rate: 1mbit", "kind: udp, flows: 2", "tests.load.flows: each client of a fleet has one flow"),
        ("kind: udp, rate: 1mbit", "kind: tcp, rate: 1mbit", "tests.load.rate: TCP in a fleet's tunnels"),
        ("rate: 100/s", "number: 31", "tests.storm.number: 31 is more than the fleet's 30 clients"),
        ("rate: 100/s", "settled: 30", "tests.storm.settled: 30 settled clients of 30 leave no client to arrive"),
        (
            "rate: 100/s",
            "rate: 10/2s",
            "tests.storm.rate: the stages last for 20 arrivals, but 30 clients have to arrive",
        ),
        ("rate: 100/s", "threads: 31", "tests.storm.threads: 31 threads for 30 clients"),
        ("{fleet: true, count: 30}", "3", "tests.storm.kind: a tunnel test needs a fleet"),
    ],
)
def test_tests_that_a_fleet_cannot_run_are_refused(
    error_text: Callable[..., str], old: str, new: str, said: str
) -> None:
    assert said in error_text(FLEET.replace(old, new))
