"""The summary of a fleet: what it says of its clients, and that it fits into 80 columns; the scaling beside several."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import Console, RenderableType
from sample_runs import VALID

from leadline.analysis.fleet_model import FleetFindings, Misfortune
from leadline.analysis.model import Distribution, Generator, Metric
from leadline.analysis.model import TestResult as Result
from leadline.analysis.scaling import fit
from leadline.kinds.tunnel.summary import tunnel_rows
from leadline.report import measurement, scaling_table

_COUNTS = {"clients": 103, "configured": 60, "partial": 40, "failed": 3, "attempts": 109, "retransmits": 15}
_REACHED = {"child_up": 100, "traffic_both_ways": 60, "cookies_received": 7}


def shown(drawn: RenderableType) -> str:
    console = Console(width=80, color_system=None, legacy_windows=False)
    with console.capture() as capture:
        console.print(drawn)
    return capture.get()


def times(metric: str, count: int, us: float) -> Distribution:
    spread = {50.0: us, 90.0: 1.5 * us, 99.0: 3 * us, 99.9: 4 * us}
    return Distribution(metric, count, 0.5 * us, 1.1 * us, 0.2 * us, 0.7, 5 * us, spread)


def fleet(count: int = 1000, **changes: object) -> Result:
    metrics = {name: Metric(float(value), "count") for name, value in _COUNTS.items()} | {
        "handshakes_per_s": Metric(812.4, "1/s"),
        "memory_bytes": Metric(42e6, "bytes"),
        "memory_per_client_bytes": Metric(41_000.0, "bytes"),
        "pings_sent": Metric(600.0, "count"),
        "pings_lost": Metric(3.0, "count"),
        "pings_unsent": Metric(2.0, "count"),
        "recovered_partial": Metric(4.0, "count"),
        "reconnects_begun": Metric(50.0, "count"),
        "returned": Metric(48.0, "count"),
        "renegotiations_asked": Metric(20.0, "count"),
        "renegotiated": Metric(19.0, "count"),
        "actions_skipped": Metric(5.0, "count"),
        "server_cpu_s": Metric(1.9, "s"),
        "server_cpu_per_client_ms": Metric(1.84, "ms"),
        "server_memory_bytes": Metric(8e6, "bytes"),
        "server_memory_per_client_bytes": Metric(80_000.0, "bytes"),
        "throughput_bps": Metric(2.1e7, "bit/s"),
        "packets_per_s": Metric(3000.0, "1/s"),
        "lost_ratio": Metric(0.001, "ratio"),
        "sends_late_p99_us": Metric(80.0, "us"),
    }
    findings = FleetFindings(
        failed=(Misfortune("reset_unanswered", 3, (100, 101, 102)),),
        partial=(Misfortune("partial_no_address", 40, (60, 61, 62)),),
        waiting=0,
        recovered=7,
        ciphers={"AES-256-GCM": 100},
        ignored_options=("line 3: persist-tun", "line 4: verb 3", "line 9: mute 5", "line 11: nobind"),
    )
    steps = (
        "connect",
        "answer",
        "tls",
        "keys",
        "push",
        "first_data",
        "reconnect",
        "recovered",
        "ping_during",
        "latency",
    )
    made = Result(
        case="c01",
        repeat=1,
        test="tunnel",
        kind="tunnel",
        parameters={},
        status="done",
        error=None,
        metrics=metrics,
        validity=VALID,
        window=None,
        generator=Generator(0.4, 2.0, 0.31, 90.0, 4e5),
        errors={"reset_unanswered": 3, "tls_alert_bad_certificate": 5},
        error_examples={"reset_unanswered": "no answer in 60 s"},
        distributions=tuple(times(step, count, 4200.0) for step in steps),
        fleet=findings,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [1, 60, 100_000])
def test_no_line_of_a_fleet_is_wider_than_the_terminal(count: int) -> None:
    text = shown(measurement(fleet(count), verbose=True))
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    assert "…" not in text


def test_end_states_and_their_causes_lead() -> None:
    text = " ".join(shown(measurement(fleet(), verbose=True)).split())
    assert "812 /s VPN clients connected" in text
    assert "103: 60 configured, 40 partial, 3 failed" in text
    assert "3 × reset unanswered (clients 100, 101, 102): no answer in 60 s" in text
    assert "errors 5 × tls_alert_bad_certificate" in text and "3 × reset_unanswered" not in text
    assert "40 × no address (clients 60, 61, 62, ...)" in text
    handshakes = (
        "109 attempts, 15 control packets retransmitted, 7 clients connected after a failure, 4 partial after a failure"
    )
    assert f"{handshakes}; AES-256-GCM" in text
    done = "50 reconnects, 48 back at the first attempt; 20 renegotiations; keys renewed 19 times by either side"
    assert f"later {done}; 5 skipped: the client was not connected" in text
    assert "600 sent, 3 lost; 2 due and not sent" in text
    assert "1.90 s of CPU, 1.84 ms per client; 7.63 MiB more memory, 78.1 KiB per client" in text
    assert "21.0 Mbit/s, 3.00 k/s, 0.100 % lost, sends late by p99 80.0 µs" in text
    assert "line 3: persist-tun; line 4: verb 3; line 9: mute 5; and 1 more" in text
    assert "per client" in text, "what generating cost"


def test_steps_of_tunnels_are_shown_for_the_protocols_that_have_them() -> None:
    result = fleet()
    metrics = {
        **result.metrics,
        **{name: Metric(float(value), "count") for name, value in _REACHED.items()},
        "ike_up": Metric(None, "count"),
    }
    rows = dict(tunnel_rows(replace(result, metrics=metrics)))
    assert rows["tunnels"] == "100 data keys, 60 traffic both ways"
    assert "the gateway was under load and asked for 7 cookies" in rows["handshakes"]
    assert "tunnels" not in dict(tunnel_rows(result))


def test_errors_are_none_only_where_no_client_failed() -> None:
    with_errors = shown(measurement(fleet(errors={"reset_unanswered": 3}), verbose=True))
    assert "errors" not in with_errors, "the clients' causes already show them"
    nothing = FleetFindings((), (), 0, 0, {"AES-256-GCM": 103}, ())
    assert "errors none" in " ".join(shown(measurement(fleet(errors={}, fleet=nothing), verbose=True)).split())


def test_each_step_has_its_times_as_far_as_its_clients_carry_them() -> None:
    few = shown(measurement(fleet(60), verbose=True)).splitlines()
    connect = next(line.split() for line in few if line.split()[:1] == ["connect"])
    assert connect == ["connect", "60", "4.62", "ms", "4.20", "ms", "6.30", "ms", "21.0", "ms"], "60 carry no p99"
    many = shown(measurement(fleet(1000), verbose=True)).splitlines()
    assert "12.6 ms" in next(line for line in many if "pushed options" in line)
    empty = shown(measurement(fleet(distributions=(), fleet=None), verbose=True))
    assert "pushed options" not in empty and "× " not in empty.split("errors")[0]


def test_scaling_shows_exponent_interval_answer_and_doubts() -> None:
    linear = fit("connect_p99_ms", "ms", [(number, 0.4 * number) for number in (50, 100, 200, 400)])
    short = fit("server_memory_bytes", "bytes", [(50, 1e6), (100, 2e6)])
    text = shown(scaling_table((linear, short), "clients"))
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    row = next(line for line in text.splitlines() if line.strip().startswith("connect p99"))
    assert row.rstrip().endswith("linear")
    assert row.split()[:9] == ["connect", "p99", "20.0", "ms", "160", "ms", "1.00", "1.00", "to"]
    assert "cannot tell" in text
    assert "server memory: 2 numbers give no interval" in " ".join(text.split())
