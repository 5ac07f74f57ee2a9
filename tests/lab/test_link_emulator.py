"""Leadline's own link emulator in a lab: what it says that it did is what the ends counted, to the packet."""

from __future__ import annotations

import json
import os
from pathlib import Path

import cli_runs as cli
import pytest

from leadline.agents import agent_binary

pytestmark = [
    pytest.mark.lab,
    pytest.mark.takes(10),
    pytest.mark.skipif(bool(cli.why_not()), reason=cli.why_not() or "-"),
]

PACKETS, MANY = 2000, 3000
UDP = f"{{name: n, kind: udp, rate: 8mbit, packet: 500, number: {PACKETS}, duration: 30s}}"
WAY = "{name: way, kind: udp, rate: 1mbit, packet: 500, number: 200, duration: 30s}"
PING = "{name: ping, kind: rr, protocol: udp, number: 40, duration: 60s, timeout: 60s}"


def plan(link: str, *tests: str, topology: str = "remote-access", more: str = "") -> str:
    return (
        f"{{name: emulated, topology: {topology}, lab: {{emulator: own, link: {{{link}}}}}, sut: {{kind: route}}, "
        f"tests: [{', '.join(tests)}]{more}}}"
    )


@pytest.mark.parametrize("topology", ["remote-access", pytest.param("site-to-site", marks=pytest.mark.full_matrix)])
def test_faults_are_those_that_the_receiver_counts(
    tmp_path: Path, topology: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # All agents on one CPU: a sender that changes its CPU can overtake its own datagrams.
    agent = tmp_path / "agent"
    agent.write_text(f'#!/bin/sh\nexec taskset -c {min(os.sched_getaffinity(0))} {agent_binary()} "$@"\n')
    agent.chmod(0o755)
    monkeypatch.setenv("LEADLINE_AGENT", str(agent))
    link = "delay: 5ms, loss: 2%, loss_burst: 3, reorder: 1%, duplicate: 1%"
    run = cli.run(plan(link, UDP, topology=topology), tmp_path)
    assert run.code == 0, run.err
    figures, counters = run.figures("n"), cli.wire_counters(run)["up"]
    udp = counters["udp"]
    assert (counters["overrun"], counters["refused"], counters["unfit"], udp["queue_full"]) == (0, 0, 0, 0)
    # Beside the flow's datagrams only its first ones, which introduce it.
    assert PACKETS <= udp["arrived"] <= PACKETS + 4
    assert figures["sent"] == PACKETS
    # Those meet faults too, which the receiver counts for none.
    introductions = udp["arrived"] - PACKETS
    for figure, fault in (("lost", "lost"), ("duplicates", "duplicated"), ("reordered", "reordered")):
        assert 0 <= udp[fault] - (figures[figure] or 0.0) <= introductions, fault
    # By the seed of the first trial of the first case, and so the same wherever this runs.
    assert udp["lost"] > 20
    assert udp["duplicated"] > 5
    assert udp["reordered"] > 5


def test_delay_rate_and_corruption_are_emulated_without_the_kernels_queues(tmp_path: Path) -> None:
    # Few enough frames are corrupted that the route is verified in time, even if a process stalls meanwhile.
    link = "rate: 4mbit, queue: 20kB, delay: 20ms, corrupt: 3%"
    fast = f"{{name: fast, kind: udp, rate: 8mbit, packet: 1000, number: {MANY}, duration: 60s}}"
    run = cli.run(plan(link, PING, fast), tmp_path)
    assert run.code == 0, run.err
    assert (run.figures("ping")["latency_min_us"] or 0.0) >= 40_000
    figures, udp = run.figures("fast"), cli.wire_counters(run)["up"]["udp"]
    # A frame with an inverted bit fails a checksum, or its address is another one.
    assert udp["corrupted"] > 20
    assert udp["queue_full"] > 100
    assert udp["arrived"] == udp["forwarded"] + udp["queue_full"]
    lost = udp["queue_full"] + udp["corrupted"]
    assert 0 <= lost - (figures["lost"] or 0.0) <= udp["arrived"] - MANY


def test_netem_delays_packets_or_is_refused_in_one_line(tmp_path: Path) -> None:
    run = cli.run(plan("delay: 5ms", PING).replace("own", "netem"), tmp_path)
    doctor = json.loads(cli.call("doctor", "--json").stdout)
    [netem] = [one for one in doctor["findings"] if one["what"] == "netem"]
    if netem["works"]:
        assert (run.figures("ping")["latency_min_us"] or 0.0) >= 10_000
    else:
        assert run.code == 1
        said = "links cannot have a delay or faults: this kernel has no netem; load it with "
        assert f"{said}`sudo modprobe sch_netem`, or write lab.emulator: own\n" in run.err


@pytest.mark.full_matrix
@pytest.mark.parametrize("delay_ms", [5, 20, 100])
def test_emulated_delay_is_within_three_tenths_of_a_millisecond(tmp_path: Path, delay_ms: int) -> None:
    axes = f", axes: {{lab.link.delay: [0ms, {delay_ms}ms]}}"
    run = cli.run(plan("delay: 0ms", PING, WAY, more=axes), tmp_path)
    for test, metric, ways in (("ping", "latency_min_us", 2), ("way", "one_way_delay_min_us", 1)):
        without_us, with_us = (run.figures(test, case)[metric] or 0.0 for case in ("c01", "c02"))
        assert with_us - without_us == pytest.approx(1000 * ways * delay_ms, abs=300), metric


@pytest.mark.full_matrix
@pytest.mark.parametrize("rate_mbps", [10, 100, pytest.param(1000, marks=pytest.mark.exclusive)])
def test_emulated_rate_is_within_a_percent(tmp_path: Path, rate_mbps: int) -> None:
    test = f"{{name: more, kind: udp, rate: {1.3 * rate_mbps}mbit, packet: 1400, duration: 2s, warmup: 500ms}}"
    run = cli.run(plan(f"rate: {rate_mbps}mbit, queue: 2MB", test, more=", repeat: 3"), tmp_path)
    found = [run.figures("more", repeat=repeat)["throughput_bps"] or 0.0 for repeat in (1, 2, 3)]
    # A machine that keeps the sender or the emulator waiting carries less, and never more.
    assert max(found) == pytest.approx(rate_mbps * 1e6 * 1400 / 1442, rel=0.01), found
