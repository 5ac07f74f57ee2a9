"""Loads that were dealt to hosts: what each had of them, what all had, and how that is said."""

from __future__ import annotations

from typing import Any

import pytest

from leadline.analysis.dealt_loads import clients_left_out, dealt_load, load_in_all
from leadline.analysis.dealt_model import DealtLoad
from leadline.analysis.metrics import Histograms
from leadline.analysis.test_data import TestData
from leadline.analysis.test_spec import HostSpecs, TestSpec
from leadline.analysis.validity import Evidence


def data(test: dict[str, Any], shares: dict[str, dict[str, Any]], left_out: tuple[str, ...] = ()) -> TestData:
    specs = HostSpecs.read(test, shares)
    hosts = tuple(shares) or ("client1", "client2")
    return TestData(specs.largest or TestSpec.read(test), hosts, specs, left_out)


def notes(found: TestData) -> list[tuple[str, str]]:
    evidence = Evidence(found, [], None, Histograms({}), None)
    return [(one.code, one.text) for rule in (load_in_all, clients_left_out) for one in rule(evidence)]


HTTP = {"name": "h", "kind": "http", "connections": 5, "rate_per_s": 50.0, "number": 9, "split": True}
SPLIT = {
    "client1": {"clients": 1, "connections": 3, "rate_per_s": 25.0, "number": 5},
    "client2": {"clients": 1, "connections": 2, "rate_per_s": 25.0, "number": 4},
}


def test_hosts_have_parts_of_a_shared_load() -> None:
    found = data(HTTP, SPLIT, left_out=("client3",))
    assert (found.spec.number, found.spec_of("client2").number) == (5, 4)
    assert found.connections == 5
    assert found.spec.send_gap_s == pytest.approx(1 / 25)
    assert dealt_load(found) == DealtLoad(2, 2, is_split=True)
    assert notes(found) == [
        ("load-in-all", "shared by 2 clients: in all connections 5, rate 50.0 /s, number 9"),
        (
            "clients-left-out",
            "1 of 3 client hosts took no part (client3): what the clients share is too little for all",
        ),
    ]


def test_clients_of_a_host_are_counted() -> None:
    test = {"name": "t", "kind": "tcp", "flows": 2, "rate_bps": 1_000_000}
    shares = {
        "client1": {"clients": 3, "flows": 6, "rate_bps": 3_000_000},
        "client2": {"clients": 2, "flows": 4, "rate_bps": 2_000_000},
    }
    found = data(test, shares)
    assert found.client_count == 5
    assert found.asked_bps == 5_000_000
    dealt = dealt_load(found)
    assert dealt is not None and dealt.words == dealt.clients_on_hosts == "5 clients on 2 hosts"
    assert notes(found) == [("load-in-all", "5 clients on 2 hosts: in all flows 10, rate 5.00 Mbit/s")]


def test_clients_that_are_hosts_have_nothing_to_say() -> None:
    test = {"name": "t", "kind": "tcp", "flows": 2, "rate_bps": 1_000_000}
    found = data(test, {})
    assert (found.client_count, found.asked_bps, dealt_load(found), notes(found)) == (2, 2_000_000, None, [])


def test_the_loads_of_a_search_are_not_called_shared() -> None:
    shares = {host: {"clients": 1, "rate_per_s": 500.0} for host in ("client1", "client2")}
    found = data({"name": "h", "kind": "http", "rate_per_s": 1000.0, "connections": 5}, shares)
    assert (found.connections, dealt_load(found)) == (10, None)


def test_a_number_of_datagrams_is_that_of_each_flow() -> None:
    found = data({"name": "u", "kind": "udp", "split": True}, {"client1": {"clients": 1, "flows": 2, "number": 145}})
    assert found.spec_of("client1").number == 72
