"""What limited a test: each part named by the evidence that it was at its end, and `not known` where none was."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from made_gateways import with_gateway
from made_journals import (
    EPOCH_NS,
    S,
    facts,
    finished,
    load,
    observation,
    outcome,
    process,
    steady_flow_events,
    steady_test,
    test_data,
    thread,
)

from leadline.analysis import TestData, analyse_test
from leadline.analysis.model import Bound, LimitedBy, Verdict

MBIT = 1e6 / 8


def limit(data: TestData) -> tuple[LimitedBy, str]:
    found = analyse_test(data).limit
    assert found is not None
    return found.by, found.evidence


def test_nothing_at_its_end_is_not_known() -> None:
    assert limit(with_gateway(steady_test()))[0] is LimitedBy.UNKNOWN


def test_generator_and_answering_side_are_named_by_their_reasons() -> None:
    assert limit(steady_test("tcp", generator=load(thread(0.97)))) == (
        LimitedBy.GENERATOR,
        "the busiest thread on client1 was on a CPU 97 % of the time",
    )
    assert limit(steady_test("tcp", receiver=load(thread(0.97), side="peer")))[0] is LimitedBy.ANSWERING_SIDE


def test_gateway_that_may_use_some_cpus_alone_is_full_when_they_are() -> None:
    data = with_gateway(steady_test(), busy=0.99, threads=4)
    assert limit(data)[0] is LimitedBy.UNKNOWN
    for cpus, words in (([1], "its only CPU had no time left"), ([1, 3], "its 2 CPUs had no time left")):
        data = with_gateway(steady_test(), busy=0.99 * len(cpus), threads=4)
        data.facts["gateway"] = {**facts(), "cpus": 8, "own_cpus": cpus}
        by, evidence = limit(data)
        assert by is LimitedBy.GATEWAY and evidence.endswith(words)


def test_gateway_whose_busiest_thread_is_full_is_the_limit() -> None:
    """Four threads on eight CPUs: one of them does the work."""
    own = {**facts(), "cpus": 8}
    data = with_gateway(steady_test(), busy=1.2, threads=4, busiest=lambda past: {"tid": 11, "cpu_s": 0.97 * past})
    data.facts["gateway"] = own
    assert limit(data) == (
        LimitedBy.GATEWAY,
        "the busiest of 4 threads of openvpn on gateway used 97 % of a CPU: it had no time left",
    )
    found = analyse_test(data).limit
    assert found is not None and found.clause == "its busiest thread is the limit at 97.0 % of a core"
    # Threads that take turns: each is the busiest one of a second, and has half of the time.
    turns = with_gateway(
        steady_test(), busy=1.2, threads=4, busiest=lambda past: {"tid": 11 + past % 2, "cpu_s": 0.5 * past}
    )
    turns.facts["gateway"] = own
    assert limit(turns)[0] is LimitedBy.UNKNOWN


@pytest.mark.parametrize("kind", ["tcp", "rr", "http"])
def test_thread_that_waits_for_a_cpu_is_the_limit_where_nothing_else_is_known(kind: str) -> None:
    """Both ends take turns: none of them is at its end."""
    waiting, idle = load(thread(0.2, 0.6)), load(thread(0.2, 0.1), side="peer")
    by, text = limit(steady_test(kind, generator=waiting, receiver=idle))
    assert (by, text) == (
        LimitedBy.GENERATOR,
        "a thread on client1 was ready to run and waited for a CPU 60 % of the time",
    )
    by, text = limit(steady_test(kind, generator=load(thread(0.2, 0.3)), receiver=load(thread(0.2, 0.5), side="peer")))
    assert by is LimitedBy.ANSWERING_SIDE and "the server that client1 used" in text
    assert limit(steady_test(kind, generator=load(thread(0.2, 0.2)), receiver=idle))[0] is LimitedBy.UNKNOWN


@pytest.mark.parametrize(("own", "far", "by"), [(0.42, 0.1, "generator"), (0.1, 0.42, "receiver")])
def test_end_that_waits_for_a_cpu_leaves_bounds_and_no_valid_figure(own: float, far: float, by: str) -> None:
    """Other work would have a verdict of its own; here the load's own threads shared too few CPUs."""
    data = steady_test("rr", generator=load(thread(0.2, own)), receiver=load(thread(0.2, far), side="peer"))
    found = analyse_test(data)
    rate = found.metrics["transactions_per_s"]
    assert (found.validity.verdict, rate.reasons, rate.bound) == (f"{by}-limited", ("thread-waited",), Bound.LEAST)
    assert found.limit is not None and found.validity.reasons[0].text == found.limit.evidence
    assert found.limit.clause.endswith("is the limit: it waits for a CPU")


def test_client_that_only_receives_is_the_answering_side() -> None:
    waiting, idle = thread(0.2, 0.6), thread(0.2, 0.1)
    for own, far, by in (
        (waiting, idle, LimitedBy.ANSWERING_SIDE),
        (idle, waiting, LimitedBy.GENERATOR),
    ):
        data = steady_test("tcp", generator=load(own), receiver=load(far, side="peer"))
        data.spec = replace(data.spec, direction="down")
        assert limit(data)[0] is by


def quota(held_back_s: float, group: str = "/sys/fs/cgroup/a") -> dict[str, Any]:
    """A quota of a tenth of a CPU, over 10 s."""
    return {"group": group, "cpus": 0.1, "wall_s": 10.0, "throttled_s": held_back_s}


@pytest.mark.parametrize("kind", ["tcp", "rr"])
def test_answering_side_whose_quota_is_used_up(kind: str) -> None:
    """Its threads are hardly on a CPU, and not all of their waiting counts as such."""
    held = load(thread(0.1, 0.2), side="peer", quota=quota(8.5))
    data = steady_test(kind, receiver=held)
    assert limit(data) == (
        LimitedBy.ANSWERING_SIDE,
        "a quota of 0.1 CPUs, of /sys/fs/cgroup/a, held threads on the server that client1 used back 85 % of the time "
        "of one CPU",
    )
    assert analyse_test(data).validity.verdict is Verdict.RECEIVER_LIMITED
    assert limit(steady_test(kind, receiver={**held, "quota": quota(0.4)}))[0] is LimitedBy.UNKNOWN
    # This side was held back as long by a group of the same name: it may be the same group.
    both = steady_test(kind, generator=load(quota=quota(8.4)), receiver=held)
    assert limit(both)[0] is LimitedBy.UNKNOWN
    other = steady_test(kind, generator=load(quota=quota(8.4, "/sys/fs/cgroup/b")), receiver=held)
    assert limit(other)[0] is LimitedBy.ANSWERING_SIDE


def test_sending_server_whose_quota_is_used_up_is_the_generator() -> None:
    data = steady_test("tcp", receiver=load(thread(0.1, 0.4), side="peer", quota=quota(8.5)))
    data.spec = replace(data.spec, direction="down")
    assert limit(data)[0] is LimitedBy.GENERATOR


def test_socket_of_the_receiver_that_drops_comes_before_a_busy_generator() -> None:
    """Of 10,000 datagrams, 300 arrived and had no room; the generator was at its end, too."""
    data = steady_test("udp", generator=load(thread(0.97)), receiver=load(side="peer", socket_drops=300))
    assert limit(data) == (
        LimitedBy.ANSWERING_SIDE,
        "the socket on the server that client1 used dropped 3.00 % of the datagrams sent (300): its buffer was full",
    )
    reasons = {reason.code: reason.text for reason in analyse_test(data).validity.reasons}
    assert reasons["receiver-socket-drops"].startswith("300 datagrams arrived and were dropped by the socket on the ")
    few = steady_test("udp", generator=load(thread(0.97)), receiver=load(side="peer", socket_drops=3))
    assert limit(few)[0] is LimitedBy.GENERATOR


@pytest.mark.parametrize(("direction", "where"), [("down", ["client1"]), ("both", ["the server", "client1"])])
def test_sockets_of_every_receiving_side_are_named(direction: str, where: list[str]) -> None:
    data = steady_test("udp", generator=load(socket_drops=2), receiver=load(side="peer", socket_drops=3))
    data.spec = replace(data.spec, direction=direction)
    reasons = [one.text for one in analyse_test(data).validity.reasons if one.code == "receiver-socket-drops"]
    assert len(reasons) == len(where)
    assert all(f"the socket on {name}" in text for name, text in zip(where, reasons, strict=True))


@pytest.mark.parametrize("sent_s", [10.0, 12.5])
def test_what_arrives_after_the_end_was_not_carried_at_the_rate(sent_s: float) -> None:
    """12.5 MB were asked for in 10 s. A path that takes 8 Mbit/s has them all 2.5 s later, out of buffers before it."""
    data = test_data("tcp", rate_bps=10e6)
    report, events = steady_flow_events(0, EPOCH_NS, EPOCH_NS + round(sent_s * S), 12.5e6 / sent_s)
    report["end_ns"] = EPOCH_NS + 10 * S
    for event in events:
        data.add("client1", event)
    data.add("client1", finished(EPOCH_NS + round(sent_s * S), outcome([report])))
    assert (limit(data)[0] is LimitedBy.OFFERED_RATE) == (sent_s == 10.0)


def test_a_rate_that_was_delivered_whole_was_the_limit_itself() -> None:
    data = with_gateway(steady_test("udp", generator=load(thread(0.97))))
    assert limit(data)[0] is LimitedBy.GENERATOR
    spec = {"name": "t", "kind": "udp", "duration_ms": 10_000, "interval_ms": 100, "rate_pps": 1000.0}
    data.spec = type(data.spec).read(spec)
    assert limit(data) == (LimitedBy.OFFERED_RATE, "100 % of what was due was delivered: more was not asked for")


@pytest.mark.parametrize(("mbit", "by"), [(98.0, LimitedBy.LINK), (95.0, LimitedBy.UNKNOWN)])
def test_a_link_that_carried_nearly_its_rate(mbit: float, by: LimitedBy) -> None:
    data = with_gateway(steady_test(), bits=mbit * 1e6)
    assert limit(data)[0] is LimitedBy.UNKNOWN, "nothing is known of the link's rate"
    data.link_bps = 100e6
    found, text = limit(data)
    assert found is by
    if by is LimitedBy.LINK:
        assert text == "lan of gateway (sent) carried 98 of 100 Mbit/s, headers included"


def test_full_link_comes_before_a_generator_without_cpu_to_spare() -> None:
    """As of a flood beside other work: the generator sent less than it was asked to, and more than the link takes."""
    data = with_gateway(steady_test("tcp", generator=load(thread(0.97))), bits=98e6)
    assert limit(data)[0] is LimitedBy.GENERATOR
    data.link_bps = 100e6
    assert limit(data)[0] is LimitedBy.LINK


@pytest.mark.parametrize(
    ("mbit", "packet_bytes", "by"),
    [
        (970, 1514, LimitedBy.LINK),
        (940, 1514, LimitedBy.UNKNOWN),
        (715, 64, LimitedBy.LINK),
        (600, 64, LimitedBy.UNKNOWN),
    ],
)
def test_a_link_whose_speed_its_interface_knows(mbit: float, packet_bytes: int, by: LimitedBy) -> None:
    """Of 1 Gbit/s, 24 bytes of each frame are preamble, checksum and gap: much of short frames."""
    data = with_gateway(steady_test(), bits=mbit * 1e6, packet_bytes=packet_bytes)
    speed = {"name": "lan", "mtu": 1500, "speed_bps": 1_000_000_000}
    data.facts["gateway"]["interfaces"] = [{"name": "lo"}, speed]
    found, text = limit(data)
    assert found is by
    if by is LimitedBy.LINK:
        assert text.startswith("lan of gateway (") and text.endswith(" of 1000 Mbit/s, headers included")


def test_segments_that_an_interface_counts_as_one_have_their_headers_added() -> None:
    """64 KiB of TCP payload in one packet of the interface are 46 on the wire, each with headers of its own."""
    payload_share = 1448 / 1514
    data = with_gateway(steady_test(), bits=payload_share * 100e6, packet_bytes=65_226)
    data.link_bps, data.sut_processes = 100e6, ()
    found, text = limit(data)
    assert found is LimitedBy.LINK
    assert re.search(r"carried (99\.9|100) of 100 Mbit/s, headers included", text), text


def test_raw_frames_that_pass_a_links_queue_by_do_not_fill_it() -> None:
    data = with_gateway(steady_test(), bits=37 * 100e6, packet_bytes=1000)
    data.link_bps, data.sut_processes = 100e6, ()
    assert limit(data)[0] is not LimitedBy.LINK


def test_bundles_of_a_tunnel_have_its_headers_added_and_not_the_loads() -> None:
    """44 datagrams of 1,472 bytes in one packet of the interface: with TCP's headers they would be 101.5 Mbit/s."""
    number, payload = 44, 1472
    counted, on_wire = 42 + number * payload, number * (42 + payload)
    data = with_gateway(steady_test(), bits=counted / on_wire * 100e6, packet_bytes=counted)
    data.link_bps, data.sut_processes = 100e6, ("wireguard-gateway",)
    found, text = limit(data)
    assert found is LimitedBy.LINK
    assert re.search(r"carried (99\.9\d*|100) of 100 Mbit/s, headers included", text), text


@pytest.mark.parametrize(
    ("busy", "threads", "by"),
    [
        (0.96, 1, LimitedBy.GATEWAY),
        (0.90, 1, LimitedBy.UNKNOWN),
        (0.96, 2, LimitedBy.UNKNOWN),
        (1.95, 4, LimitedBy.GATEWAY),
    ],
)
def test_a_gateway_whose_process_had_no_more_cpu(busy: float, threads: int, by: LimitedBy) -> None:
    assert limit(with_gateway(steady_test(), busy=busy, threads=threads))[0] is by


def test_a_gateway_that_its_group_held_back() -> None:
    found, text = limit(with_gateway(steady_test(), throttled=0.4))
    assert (found, text) == (
        LimitedBy.GATEWAY,
        "the CPU limit of gateway's control group held it back 40 % of the time",
    )


@pytest.mark.parametrize(("interrupts", "by"), [(0.95, LimitedBy.GATEWAY), (0.6, LimitedBy.UNKNOWN)])
@pytest.mark.parametrize("attribution", ["kernel", "process"])
def test_a_kernel_whose_interrupts_fill_a_cpu(interrupts: float, by: LimitedBy, attribution: str) -> None:
    data = with_gateway(steady_test())
    data.facts["gateway"] = facts("another")
    data.cpu_attribution = attribution
    for number, sample in enumerate(data.samples["gateway"]):
        spent = (0.1 * number, interrupts * number)
        data.samples["gateway"][number] = sample._replace(
            cpu_s=(0.0, 0.0, sum(spent), 0.0, 0.0, 0.0, 2.0 * number), cpus=2, interrupted_s=spent
        )
    assert limit(data)[0] is (by if attribution == "kernel" else LimitedBy.UNKNOWN)
    data.facts["gateway"] = data.facts["client1"] = facts()
    assert limit(data)[0] is LimitedBy.UNKNOWN, "all hosts of a machine share its interrupts"


@pytest.mark.parametrize(("dropped", "by"), [(50, LimitedBy.GATEWAY), (5, LimitedBy.UNKNOWN)])
def test_a_gateway_whose_queue_drops(dropped: int, by: LimitedBy) -> None:
    data = with_gateway(steady_test(), bits=1514 * 8 * 1000)
    for number, sample in enumerate(data.samples["gateway"]):
        uses = tuple(use._replace(dropped=(0, dropped * number)) for use in sample.interfaces)
        data.samples["gateway"][number] = sample._replace(interfaces=uses)
    found, text = limit(data)
    assert found is by
    if by is LimitedBy.GATEWAY:
        assert text == "lan of gateway dropped 4.8 % of the packets to send: its queue was full"


def test_a_process_whose_cpu_a_hypervisor_took() -> None:
    data = with_gateway(steady_test(), busy=0.72)
    for number, sample in enumerate(data.samples["gateway"]):
        cpu_s = (0.0, 0.0, 0.0, 0.0, 0.5 * number, 0.0, 1.5 * number)
        data.samples["gateway"][number] = sample._replace(cpu_s=cpu_s, cpus=2)
    found, text = limit(data)
    assert found is LimitedBy.GATEWAY
    assert text == "openvpn on gateway used 72 % of a CPU, and a hypervisor took 25 % of each: it had no time left"


@pytest.mark.parametrize(("busy", "by"), [(0.197, LimitedBy.GATEWAY), (0.15, LimitedBy.UNKNOWN)])
def test_a_gateway_that_used_up_the_quota_of_its_group(busy: float, by: LimitedBy) -> None:
    data = with_gateway(steady_test(), busy=busy)
    data.cpu_quotas = {"gateway": {"openvpn": 0.2}}
    found = analyse_test(data).limit
    assert found is not None and found.by is by
    if by is LimitedBy.GATEWAY:
        assert found.evidence == "openvpn on gateway used 20 % of a CPU: the quota of its control group allows 0.2 CPUs"
        assert found.clause == "the CPU quota of its control group is the limit at 19.7 % of a core"


@pytest.mark.parametrize(
    ("busy", "threads", "by"), [(0.97, 1, LimitedBy.SERVER), (0.97, 3, LimitedBy.UNKNOWN), (1.97, 3, LimitedBy.SERVER)]
)
def test_a_server_whose_process_had_no_more_cpu(busy: float, threads: int, by: LimitedBy) -> None:
    data = with_gateway(steady_test())
    data.facts["server"] = facts()
    for second in range(-1, 13):
        own = {**process("nginx", 12, busy * (second + 2), 0.0, 1000), "threads": threads}
        data.add("server", observation(EPOCH_NS + second * S, None, [own]))
    found, text = limit(data)
    assert found is by
    if by is LimitedBy.SERVER:
        assert text.startswith(f"nginx on server used {busy * 100:.0f} % of a CPU: its ")
    data.sut_processes = ("nginx",)
    assert limit(data)[0] is LimitedBy.UNKNOWN, "a process of the system under test is no server"


def test_a_generator_that_its_group_held_back() -> None:
    data = with_gateway(steady_test())
    for second in range(-1, 13):
        event = observation(EPOCH_NS + second * S, cgroup_s=0.1)
        event["cgroup"]["throttled_s"] = 0.3 * (second + 2)
        data.add("client1", event)
    text = "the CPU limit of client1's control group held it back 30 % of the time"
    assert limit(data) == (LimitedBy.GENERATOR, text)
    data.spec = replace(data.spec, direction="down")
    assert limit(data) == (LimitedBy.ANSWERING_SIDE, text), "it only receives"


@pytest.mark.parametrize(("host", "by"), [("client1", LimitedBy.GENERATOR), ("gateway", LimitedBy.GATEWAY)])
@pytest.mark.parametrize("held", [0.3, 0.03])
def test_a_part_that_a_quota_from_above_held_back(host: str, by: LimitedBy, held: float) -> None:
    """As of a container, or of a service."""
    data = with_gateway(steady_test())
    data.facts["client1"] = facts()
    hold_back(data, host, held)
    text = f"the quota of 0.2 CPUs of /sys/fs/cgroup/box held threads of {host} back 30 % of the time"
    if held < 0.05:
        assert limit(data)[0] is LimitedBy.UNKNOWN
        return
    assert limit(data) == (by, text)
    hold_back(data, "gateway" if host == "client1" else "client1", held)
    assert limit(data)[0] is LimitedBy.UNKNOWN, "the parts share it: any of them may have waited for another"
    data.facts["gateway"] = facts("another")
    assert limit(data)[0] is LimitedBy.GENERATOR, "the same name on another machine is another group"


def hold_back(data: TestData, host: str, held: float) -> None:
    """A quota from above, of a group with the same name on every host."""
    for second in range(-1, 13):
        quota = {"group": "/sys/fs/cgroup/box", "cpus": 0.2, "throttled_periods": 4, "throttled_s": held * second}
        data.add(host, {**observation(EPOCH_NS + second * S, cgroup_s=0.0), "quota": quota})
