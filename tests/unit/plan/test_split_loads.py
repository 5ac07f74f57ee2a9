"""`split` of a plan's test, and more clients than hosts: what each host has, and mistakes with their place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from leadline.errors import PlanError
from leadline.plan import BaseTest, Plan
from leadline.trial.dealing import Dealt, count_clients, deal
from leadline.trial.workloads import PhasedWorkload, Server, workload

GIVEN = """\
name: given
clients: {clients}
hosts: {{gateway: ssh://g, server: ssh://s, clients: [ssh://c1, ssh://c2, ssh://c3]}}
sut: {{kind: given, label: far}}
tests:
  - {test}
"""
LAB = """\
name: lab
clients: 7
sut: {{kind: {sut}}}
tests:
  - {test}
"""
SEVEN = [f"client{number}" for number in range(1, 8)]


def dealt(load: Callable[..., Plan], test: str, hosts: list[str] | None = None, clients: int = 7) -> Dealt:
    (case,) = load(LAB.format(sut="route", test=test)).cases
    return deal(case.tests[0], hosts or SEVEN, clients)


def values(found: Dealt, name: str) -> list[Any]:
    return [getattr(test, name) for test in found.tests.values()]


def test_a_client_alone_runs_the_test_as_it_is(load: Callable[..., Plan]) -> None:
    found = dealt(load, "{name: h, kind: http, rate: 50, connections: 3, number: 100, split: true}", ["client1"], 1)
    assert found.shares == {} and found.left_out == ()
    (test,) = found.tests.values()
    assert test == found.test


def test_clients_without_split_run_the_test_each(load: Callable[..., Plan]) -> None:
    found = dealt(load, "{name: h, kind: http, rate: 50, number: 100}")
    assert list(found.tests.values()) == [found.test] * 7
    assert found.shares == {}


def test_totals_of_http_are_shared(load: Callable[..., Plan]) -> None:
    text = "{name: h, kind: http, rate: 50k, number: 1000, connections: 20, threads: 4, split: true}"
    found = dealt(load, text)
    assert values(found, "rate_per_s") == [7143.0] * 6 + [7142.0]
    assert values(found, "number") == [143] * 6 + [142]
    assert values(found, "connections") == [3] * 6 + [2]
    assert values(found, "threads") == [3] * 6 + [2], "no more threads than connections"
    assert found.shares["client7"] == {"clients": 1, "connections": 2, "rate_per_s": 7142.0, "number": 142}


def test_what_a_test_does_not_give_is_each_clients_own(load: Callable[..., Plan]) -> None:
    found = dealt(load, "{name: r, kind: rr, number: 100, split: true}")
    assert values(found, "flows") == [1] * 7
    assert sum(values(found, "number")) == 100


def test_stages_of_a_rate_are_shared_at_both_ends(load: Callable[..., Plan]) -> None:
    found = dealt(load, "{name: h, kind: http, rate: '0:1000/1s,1000/1s', split: true}")
    ends = [[(stage.from_per_s, stage.to_per_s) for stage in stages] for stages in values(found, "rate_per_s")]
    assert ends == [[(0, 143), (143, 143)]] * 6 + [[(0, 142), (142, 142)]]


def test_too_small_a_total_leaves_clients_out(load: Callable[..., Plan]) -> None:
    found = dealt(load, "{name: r, kind: rr, number: 3, split: true}")
    assert list(found.tests) == SEVEN[:3]
    assert found.left_out == tuple(SEVEN[3:])
    assert values(found, "number") == [1, 1, 1]


def test_a_rate_of_whole_datagrams_is_shared_in_whole_datagrams(load: Callable[..., Plan]) -> None:
    found = dealt(load, "{name: u, kind: udp, rate: 8mbit, packet: 1000, split: true}")
    assert values(found, "rate_bps") == [143 * 8000] * 6 + [142 * 8000]
    odd = dealt(load, "{name: u, kind: udp, rate: 1000001, packet: 1000, split: true}")
    assert sum(values(odd, "rate_bps")) == 1_000_001
    assert max(values(odd, "rate_bps")) - min(values(odd, "rate_bps")) == 1


def test_flows_share_a_number_of_datagrams(load: Callable[..., Plan]) -> None:
    found = dealt(load, "{name: u, kind: udp, number: 1003, flows: 10, split: true}")
    loads = [workload(test, Server("192.0.2.1")) for test in found.tests.values()]
    tasks: list[Any] = []
    for one in loads:
        tasks += one.phases[0].values() if isinstance(one, PhasedWorkload) else [one]
    assert sum(task.flows * task.number for task in tasks) == 1003
    assert sum(task.flows for task in tasks) == 10


def test_the_clients_of_one_host_have_their_amounts_together(load: Callable[..., Plan]) -> None:
    text = "{name: u, kind: udp, rate: 1mbit, number: 40, flows: 2}"
    (case,) = load(GIVEN.format(clients=7, test=text)).cases
    assert (case.clients, case.client_hosts) == (7, 3)
    found = deal(case.tests[0], SEVEN[:3], 7)
    assert values(found, "rate_bps") == [3_000_000, 2_000_000, 2_000_000]
    assert values(found, "flows") == [6, 4, 4]
    assert values(found, "number") == [40, 40, 40], "it is that of each flow"
    assert [share["clients"] for share in found.shares.values()] == [3, 2, 2]


def test_clients_of_lost_hosts_are_not_counted() -> None:
    hosts = SEVEN[:3]
    assert count_clients(hosts, hosts, 7) == 7
    assert count_clients(hosts[1:], hosts, 7) == 4, "the first one had three"
    assert count_clients(hosts[:2], hosts, 2) == 2


def test_a_split_load_is_shared_by_hosts_with_several_clients(load: Callable[..., Plan]) -> None:
    found = dealt(load, "{name: h, kind: http, rate: 100, connections: 20, split: true}", SEVEN[:3], 7)
    assert values(found, "rate_per_s") == [34.0, 33.0, 33.0]
    assert values(found, "connections") == [7, 7, 6]
    each = dealt(load, "{name: h, kind: http, rate: 100, split: true}", SEVEN[:3], 7)
    assert values(each, "connections") == [3, 2, 2], "one of each client, as without split"


def test_the_rate_of_a_search_is_that_of_all_clients(load: Callable[..., Plan]) -> None:
    (case,) = load(LAB.format(sut="route", test="{name: h, kind: http, connections: 5}")).cases
    at_rate = case.tests[0].model_copy(update={"rate_per_s": 1000.0})
    found = deal(at_rate, SEVEN, 7, totals=frozenset(at_rate.rates))
    assert sum(values(found, "rate_per_s")) == 1000
    assert values(found, "connections") == [5] * 7
    slow = deal(at_rate.model_copy(update={"rate_per_s": 3.0}), SEVEN, 7, totals=frozenset(at_rate.rates))
    assert values(slow, "rate_per_s") == [3 / 7] * 7, "all clients take part in a search"


@pytest.mark.parametrize(
    ("test", "message"),
    [
        (
            "{name: t, kind: packets, split: true}",
            "plan.yaml:5: tests.t.split: a packets test cannot be split among its clients; "
            "leave it out: each client has the test's load",
        ),
        (
            "{name: t, kind: load-latency, split: true}",
            "plan.yaml:5: tests.t.split: a load-latency test cannot be split among its clients; "
            "leave it out: each client has the test's load",
        ),
        (
            "{name: t, kind: http, cross_check: wrk, split: true}",
            "plan.yaml:5: tests.t.split: wrk would repeat the whole load on every client; "
            "leave out cross_check, or split",
        ),
    ],
)
def test_a_load_that_cannot_be_split_is_refused(error_text: Callable[..., str], test: str, message: str) -> None:
    assert error_text(LAB.format(sut="route", test=test)) == message


def test_a_fleet_is_not_split(error_text: Callable[..., str]) -> None:
    plan = LAB.format(sut="wireguard", test="{name: t, kind: udp, split: true}")
    plan = plan.replace("clients: 7", "clients: {fleet: true, count: 5}")
    assert error_text(plan) == "plan.yaml:5: tests.t.split: the clients of a fleet have a load each; leave it out"


@pytest.mark.parametrize(
    ("test", "message"),
    [
        (
            "{name: t, kind: packets, clients: 7}",
            "one client sends packets",
        ),
        (
            "{name: t, kind: load-latency}",
            "plan.yaml:6: tests.t.kind: 7 clients, but hosts has 3: a host carries one client of a load-latency test; "
            "give more of them in hosts.clients, or fewer clients to the test",
        ),
        (
            "{name: t, kind: http, cross_check: wrk}",
            "plan.yaml:6: tests.t.cross_check: 7 clients, but hosts has 3: wrk repeats the load of one client on each; "
            "leave it out",
        ),
    ],
)
def test_a_load_that_needs_a_host_for_each_client_is_refused(
    error_text: Callable[..., str], test: str, message: str
) -> None:
    assert message in error_text(GIVEN.format(clients=7, test=test))


@pytest.mark.parametrize("kind", ["openvpn", "wireguard", "strongswan", "libreswan"])
def test_a_gateway_with_a_client_on_each_host_needs_a_host_for_each(load: Callable[..., Plan], kind: str) -> None:
    plan = GIVEN.format(clients=7, test="{name: t, kind: rr}").replace("{kind: given, label: far}", f"{{kind: {kind}}}")
    with pytest.raises(PlanError) as raised:
        load(plan)
    expected = (
        f"plan.yaml:2: clients: 7 clients, but hosts has 3: {kind} makes one VPN client on each; give more of them"
    )
    assert any(expected in str(one) for one in (raised.value, *raised.value.others))


def test_a_test_of_fewer_clients_fits(load: Callable[..., Plan]) -> None:
    (case,) = load(GIVEN.format(clients=7, test="{name: t, kind: load-latency, clients: 3}")).cases
    assert isinstance(case.tests[0], BaseTest)
