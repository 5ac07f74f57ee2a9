"""CPU time per byte, packet and operation of each host, from counters with known growth."""

from __future__ import annotations

from typing import Any

import pytest
from made_journals import EPOCH_NS, MS, S, facts, observation, steady_test

from leadline.analysis.flows import build_flows
from leadline.analysis.host_costs import host_costs
from leadline.analysis.ladder_model import HostCost
from leadline.analysis.model import GatewayStatistics, Window
from leadline.analysis.test_data import TestData

BYTES_PER_S = 1e8
PACKET_BYTES = 1514
WINDOW = Window(EPOCH_NS, EPOCH_NS, EPOCH_NS + 10 * S, EPOCH_NS + 10 * S)


def sampled(
    *hosts: str, packets_per_s: int = 80_000, frame_bytes: int = PACKET_BYTES, grouped: bool = True
) -> TestData:
    """A stream of 100 MB/s; each host's group uses half of a CPU, the machine one and a half of two."""
    data = steady_test(bytes_per_s=BYTES_PER_S)
    for host in hosts:
        data.facts[host] = facts(interfaces=[{"name": "wan", "mtu": 1500}])
        for step in range(102):
            since_s = step / 10
            cpu_s = {"user": 1.0 * since_s, "softirq": 0.5 * since_s, "idle": 0.5 * since_s}
            event = observation(EPOCH_NS + step * 100 * MS, cpu_s, cgroup_s=0.5 * since_s if grouped else None)
            packets = round(packets_per_s * since_s)
            event["network"]["interfaces"] = [_interface("wan", packets, packets * frame_bytes)]
            data.add(host, event)
    return data


def _interface(name: str, packets: int, count: int) -> dict[str, Any]:
    zero = {f"{way}_{what}": 0 for way in ("rx", "tx") for what in ("errors", "dropped")}
    return {"name": name, "rx_bytes": count, "rx_packets": packets, "tx_bytes": 0, "tx_packets": 0, **zero}


def costs(data: TestData, *gateways: GatewayStatistics) -> dict[str, HostCost]:
    found = host_costs(data, build_flows(data), WINDOW, gateways)
    assert len({cost.host for cost in found}) == len(found)
    return {cost.host: cost for cost in found}


def test_group_of_each_host_and_the_whole_machine() -> None:
    found = costs(sampled("client1", "gateway", "server"))
    assert list(found) == ["client1", "gateway", "server", "machine"]
    client, machine = found["client1"], found["machine"]
    assert (client.source, client.reason) == ("control group", None)
    assert client.cpu_percent == pytest.approx(50)
    assert client.ns_per_byte == pytest.approx(0.5e9 / BYTES_PER_S, rel=0.01)
    assert client.ns_per_packet == pytest.approx(0.5e9 / 80_000, rel=0.01)
    assert machine.source == "whole machine" and machine.cpu_percent == pytest.approx(150)
    assert machine.ns_per_byte == pytest.approx(1.5e9 / BYTES_PER_S, rel=0.01)
    assert (machine.ns_per_packet, machine.reason) == (None, "its packets are not known")


def test_packets_that_an_interface_counts_as_one_are_counted_as_those_on_the_wire() -> None:
    whole = costs(sampled("client1", packets_per_s=8_000, frame_bytes=66 + 10 * 1448))["client1"]
    assert whole.ns_per_packet == pytest.approx(0.5e9 / 80_000, rel=0.01)


def test_gateway_costs_what_the_system_under_test_costs() -> None:
    gateway = GatewayStatistics(
        host="gateway",
        attribution="process",
        basis="its processes",
        cpu_percent=80.0,
        cpu_unknown=None,
        at_most=False,
        memory_bytes=None,
        memory_unknown=None,
        threads=1,
        payload_bps=8 * BYTES_PER_S,
        packets_per_s=160_000.0,
        clients=1.0,
    )
    found = costs(sampled("client1", "gateway", "server"), gateway)["gateway"]
    assert (found.source, found.cpu_percent) == ("its processes", 80.0)
    assert found.ns_per_byte == pytest.approx(8.0, rel=0.01) and found.ns_per_packet == pytest.approx(5000)


def test_without_groups_the_loads_threads_are_what_is_known() -> None:
    found = costs(sampled("client1", grouped=False))
    assert found["client1"].source == "load threads" and (found["client1"].ns_per_byte or 0) > 0
    assert found["answering side"].source == "load threads"
    assert found["answering side"].reason == "its packets are not known"


def test_no_window_no_costs() -> None:
    data = sampled("client1")
    assert host_costs(data, build_flows(data), None) == ()
