"""What kernels report of TCP flows: shares of time, RFC 6349, service demand, and the limit that they name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from made_journals import load, steady_test, thread

from leadline.analysis import TestData, analyse_test
from leadline.analysis.model import LimitedBy

SENDER: dict[str, Any] = {
    "samples": 100,
    "rtt_idle_us": 20_000.0,
    "rtt_min_us": 20_000.0,
    "rtt_mean_us": 25_000.0,
    "rtt_max_us": 30_000.0,
    "busy_s": 9.0,
    "receiver_limited_s": 6.0,
    "send_buffer_limited_s": 1.0,
    "sent_bytes": 10_000_000,
    "retransmitted_bytes": 100_000,
}
MACHINE = {
    "wall_s": 10.0,
    "cpus": 2,
    "busy_s": 4.0,
    "softirq_s": 1.0,
    "sent_bytes": 8_000_000,
    "received_bytes": 0,
    "sent_units": 0,
    "received_units": 0,
}


def with_kernel(sender: dict[str, Any] | None = None, **changes: Any) -> TestData:
    data = steady_test("tcp", **changes)
    for found in data.load_outcomes():
        for row in found.outcome["flows"]:
            row["sender_tcp"] = {**SENDER, **(sender or {})}  # type: ignore[typeddict-item]
    return data


def values(data: TestData) -> dict[str, float | None]:
    return {name: metric.value for name, metric in analyse_test(data).metrics.items()}


def test_time_is_divided_among_what_the_sender_waited_for() -> None:
    found = values(with_kernel())
    shares = [found[f"{name}_ratio"] for name in ("receiver_limited", "send_buffer_limited", "path_limited")]
    assert shares == pytest.approx([0.6, 0.1, 0.2])
    assert found["sender_idle_ratio"] == pytest.approx(0.1)


def test_rfc_6349_compares_with_the_idle_path_and_the_line() -> None:
    data = with_kernel()
    data.spec = replace(data.spec, line_bps=10e6)
    found = values(data)
    assert found["tcp_efficiency_ratio"] == pytest.approx(0.99)
    assert found["buffer_delay_ratio"] == pytest.approx(0.25)
    # 8 Mbit/s of the payload that 10 Mbit/s of full frames hold.
    assert found["line_use_ratio"] == pytest.approx(8 / (10 * 1448 / 1514))
    assert found["transfer_time_ratio"] == pytest.approx((10 * 1448 / 1514) / 8)
    assert values(with_kernel())["line_use_ratio"] is None


def test_sends_that_went_another_way_are_a_share_of_all() -> None:
    found = values(with_kernel({"zerocopy_sends": 60, "zerocopy_copied": 30, "zerocopy_fallbacks": 20}))
    assert found["zerocopy_copied_ratio"] == pytest.approx(0.5)
    assert found["zerocopy_fallback_ratio"] == pytest.approx(0.25)
    found = values(with_kernel({"zerocopy_fallbacks": 20}))
    assert (found["zerocopy_copied_ratio"], found["zerocopy_fallback_ratio"]) == (None, 1.0)
    assert values(with_kernel())["zerocopy_fallback_ratio"] is None


def test_service_demand_is_known_of_threads_and_of_the_machine() -> None:
    busy = {**thread(0.2), "user_s": 0.5, "system_s": 1.5}
    data = with_kernel(generator=load(busy, machine=MACHINE), receiver=load(side="peer"))
    found = values(data)
    assert found["client_cpu_ns_per_byte"] == pytest.approx(200.0)
    assert found["client_machine_cpu_ns_per_byte"] == pytest.approx(500.0)
    assert found["server_machine_cpu_ns_per_byte"] is None


def test_machine_without_a_tick_has_an_unknown_demand() -> None:
    data = with_kernel(generator=load(thread(0.2), machine={**MACHINE, "busy_s": 0.0}), receiver=load(side="peer"))
    assert values(data)["client_machine_cpu_ns_per_byte"] is None


def test_each_end_spends_its_time_on_the_packets_of_its_own() -> None:
    """Of 10,000 datagrams 4,000 arrive: the receiver's time is that of 4,000."""
    busy = {**thread(0.2), "user_s": 0.5, "system_s": 1.5}
    data = steady_test("udp", generator=load(busy), receiver=load(busy, side="peer"))
    for found in data.load_outcomes():
        found.outcome["flows"][0] |= {"received_units": 4000, "lost": 6000}
    demand = values(data)
    assert demand["client_cpu_ns_per_packet"] == pytest.approx(2e9 / 10_000)
    assert demand["server_cpu_ns_per_packet"] == pytest.approx(2e9 / 4000)


def test_transactions_are_those_that_were_answered() -> None:
    busy = {**thread(0.2), "user_s": 0.5, "system_s": 1.5}
    machine = {**MACHINE, "sent_units": 10_000, "received_units": 8_000}
    data = steady_test("rr", generator=load(busy, machine=machine), receiver=load(busy, side="peer"))
    demand = values(data)
    assert demand["client_cpu_ns_per_transaction"] == pytest.approx(2e9 / 10_000)
    assert demand["client_machine_cpu_ns_per_transaction"] == pytest.approx(4e9 / 8_000)


def test_each_direction_has_its_own_use_of_the_line() -> None:
    data = with_kernel()
    data.spec = replace(data.spec, line_bps=10e6, direction="both")
    found = values(data)
    assert found["line_use_up_ratio"] == pytest.approx(8 / (10 * 1448 / 1514))
    assert found["transfer_time_up_ratio"] == pytest.approx((10 * 1448 / 1514) / 8)
    assert (found["line_use_down_ratio"], found["line_use_ratio"]) == (None, None)


@pytest.mark.parametrize(
    ("changes", "by"),
    [
        ({}, LimitedBy.RECEIVER_WINDOW),
        ({"receiver_limited_s": 1.0, "send_buffer_limited_s": 7.0}, LimitedBy.SEND_BUFFER),
        ({"receiver_limited_s": 0.0}, LimitedBy.PATH),
        ({"busy_s": 2.0, "receiver_limited_s": 1.0}, LimitedBy.SENDING_PROGRAM),
        ({"busy_s": None}, LimitedBy.UNKNOWN),
    ],
)
def test_most_of_the_time_names_the_limit(changes: dict[str, Any], by: LimitedBy) -> None:
    limit = analyse_test(with_kernel(changes)).limit
    assert limit is not None and limit.by is by


@pytest.mark.parametrize(
    ("window", "congestion", "rtt_us", "by"),
    [
        pytest.param(20_800, 15_000, 20_000, LimitedBy.RECEIVER_WINDOW, id="the rate is 96 % of window / RTT"),
        pytest.param(26_000, 60_000, 20_000, LimitedBy.RECEIVER_WINDOW, id="77 %, below the congestion window"),
        pytest.param(26_000, 20_500, 20_000, LimitedBy.PATH, id="77 %, above the congestion window"),
        pytest.param(60_000, 90_000, 20_000, LimitedBy.PATH, id="a third of the window is under way"),
        pytest.param(41_600, 60_000, 40_000, LimitedBy.PATH, id="the window is full of what waits in a queue"),
        pytest.param(None, 60_000, 20_000, LimitedBy.PATH, id="the window is not known"),
    ],
)
def test_window_that_a_pacing_sender_fills_is_the_limit(
    window: int | None, congestion: int, rtt_us: int, by: LimitedBy
) -> None:
    """1 MB/s by BBR over an idle path of 19 ms: its kernel counts hardly any time as limited by the receiver."""
    idle = {"receiver_limited_s": 0.3, "send_buffer_limited_s": 0.0, "busy_s": 10.0, "rtt_idle_us": 19_000}
    data = with_kernel({**idle, "rtt_mean_us": rtt_us, "congestion_window_bytes": congestion})
    for found in data.load_outcomes():
        for row in found.outcome["flows"]:
            row["receiver_tcp"] = {"receive_window_bytes": window}
    limit = analyse_test(data).limit
    assert limit is not None and limit.by is by
    if by is LimitedBy.RECEIVER_WINDOW:
        assert "of the receiver's window by the round-trip time, " in limit.evidence


def test_short_send_buffer_is_no_full_window() -> None:
    """What is under way is 80 % of the window; half of the time the send buffer held no more."""
    sender = {"receiver_limited_s": 0.5, "send_buffer_limited_s": 4.5, "busy_s": 10.0, "rtt_idle_us": 19_000}
    data = with_kernel({**sender, "rtt_mean_us": 20_000, "congestion_window_bytes": 60_000})
    data.load_outcomes()[0].outcome["flows"][0]["receiver_tcp"] = {"receive_window_bytes": 25_000}
    limit = analyse_test(data).limit
    assert limit is not None and limit.by is not LimitedBy.RECEIVER_WINDOW


@pytest.mark.parametrize(("key", "by"), [("asked_bps", LimitedBy.OFFERED_RATE), ("pacing_bps", LimitedBy.PACING)])
def test_rate_that_was_reached_comes_first(key: str, by: LimitedBy) -> None:
    data = with_kernel()
    data.spec = replace(data.spec, **{key: 8.1e6})  # type: ignore[arg-type]
    limit = analyse_test(data).limit
    assert limit is not None and limit.by is by and "98" in limit.evidence


def test_speed_of_the_only_device_is_the_line() -> None:
    data = with_kernel()
    devices: list[dict[str, Any]] = [{"name": "lo"}, {"name": "eth0", "speed_bps": 10_000_000}]
    data.facts["client1"] = {"interfaces": devices}
    assert values(data)["line_use_ratio"] == pytest.approx(8 / (10 * 1448 / 1514))
    devices.append({"name": "eth1", "speed_bps": 10_000_000})
    assert values(data)["line_use_ratio"] is None
