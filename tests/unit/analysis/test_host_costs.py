"""CPU time per byte, packet and operation of each host, from counters with known growth."""

from __future__ import annotations

from typing import Any

import pytest
from made_journals import EPOCH_NS, MS, S, facts, load, observation, process, steady_test, thread

from leadline.analysis.flows import build_flows
from leadline.analysis.gateway_model import GatewayStatistics
from leadline.analysis.host_costs import host_costs
from leadline.analysis.ladder_model import HostCost
from leadline.analysis.model import Window
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


SETTLING_S = 5
"""Of the 10 s: the part before the window, in which a fifth of the rate is carried."""


def slow_at_first(cpu_s_per_byte: float = 5e-9, **changes: Any) -> TestData:
    """A fifth of 100 MB/s for 5 s, then all of it, and CPU time in step with it."""
    data = steady_test(bytes_per_s=BYTES_PER_S, **changes)
    total_bytes = 0
    for points in data.progress.values():
        for number, point in enumerate(points):
            total_bytes = _moved_bytes((point.t_ns - EPOCH_NS) / S)
            points[number] = point._replace(sent_bytes=total_bytes, received_bytes=total_bytes)
    made: Any = data.outcomes[0].outcome
    made["flows"][0] |= {"sent_bytes": total_bytes, "received_bytes": total_bytes}
    for side in ("generator", "receiver"):
        made[side] = load(thread(cpu_s_per_byte * total_bytes / 10))
    return data


def _moved_bytes(since_s: float) -> int:
    return round(BYTES_PER_S * (0.2 * min(since_s, SETTLING_S) + max(0.0, since_s - SETTLING_S)))


LATE = Window(EPOCH_NS, EPOCH_NS + SETTLING_S * S, EPOCH_NS + 10 * S, EPOCH_NS + 10 * S)


def test_threads_whose_time_is_known_in_all_alone_are_set_against_all_of_their_work() -> None:
    data = slow_at_first()
    found = {cost.host: cost for cost in host_costs(data, build_flows(data), LATE)}
    for host in ("client1", "answering side"):
        assert found[host].ns_per_byte == pytest.approx(5.0, rel=0.01)


def test_agent_that_is_sampled_costs_what_it_used_inside_the_window_without_observing() -> None:
    data = slow_at_first()
    for step in range(102):
        since_s = step / 10
        spent_s, observing_s = 3e-9 * _moved_bytes(since_s), 0.1 * since_s
        agent = [process("agent", 7, spent_s, observing_s, 1000)]
        data.add("client1", observation(EPOCH_NS + step * 100 * MS, None, agent, observer_cpu_s=observing_s))
    found = {cost.host: cost for cost in host_costs(data, build_flows(data), LATE)}
    assert found["client1"].source == "load threads"
    assert found["client1"].cpu_percent == pytest.approx(30.0, rel=0.01)
    assert found["client1"].ns_per_byte == pytest.approx(3.0, rel=0.01)


def test_no_window_no_costs() -> None:
    data = sampled("client1")
    assert host_costs(data, build_flows(data), None) == ()
