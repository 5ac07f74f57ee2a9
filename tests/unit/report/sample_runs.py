"""Builds run analyses with plausible synthetic figures: no run, no randomness, the same records every time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from leadline.analysis.answers import answers_of
from leadline.analysis.model import (
    ClientBringUp,
    ClientStatistics,
    Distribution,
    Generator,
    Interval,
    Metric,
    Percentiles,
    Reason,
    RunAnalysis,
    Series,
    ServerStatistics,
    Summary,
    TargetResult,
    TestResult,
    TrialResult,
    Validity,
    Verdict,
    Window,
)
from leadline.analysis.scope import judge_figures

VALID = Validity(Verdict.VALID)
GENERATOR_LIMITED = Validity(
    Verdict.GENERATOR_LIMITED,
    (Reason("thread-saturated", "the busiest generating thread on client1 was on a CPU for 97 % of the window"),),
)


def doubted(metrics: Mapping[str, Metric], validity: Validity) -> dict[str, Metric]:
    """The figures with a validity's reasons against those that they concern."""
    findings = [(validity.verdict, reason) for reason in validity.reasons]
    return judge_figures(metrics, findings, (), primary="", decisive=(), delivered=None).metrics


UNSTABLE = Validity(
    Verdict.UNSTABLE,
    (Reason("repeats-disagree", "the repeats' throughput spreads over 12.4 % of the mean; the plan allows 5 %"),),
)
SHARED = Reason("shared-cpus", "all 4 hosts are namespaces of one machine and share its 2 CPUs")

PLAN = """name: gateway
topology: remote-access
sut: {kind: route}
axes:
  sut.kind: [route, wireguard, openvpn]
tests:
  - {name: tcp-up, kind: tcp, flows: 4, duration: 10s}
  - {name: udp, kind: udp, rate: 20mbit, duration: 10s}
  - {name: rr, kind: rr, protocol: udp, duration: 10s}
  - {name: http, kind: http, connections: 20, duration: 10s}
repeat: 3
targets: ["udp.lost_ratio < 0.001", "rr.latency_p99_us < 1000"]
"""

# Per gateway: TCP bit/s, UDP loss, transactions/s, latency µs, requests/s, CPU of its own processes in percent.
_GATEWAYS: dict[str, tuple[float, float, float, float, float, float]] = {
    "route": (18.4e9, 0.0, 41_800, 22.0, 88_400, 0.0),
    "wireguard": (1.93e9, 0.000012, 17_300, 54.0, 21_900, 96.0),
    "openvpn": (0.874e9, 0.0042, 9_120, 103.0, 11_200, 91.0),
}
_TESTS = (("tcp-up", "tcp"), ("udp", "udp"), ("rr", "rr"), ("http", "http"))
_START_NS = 5_000_000_000_000


def gateway_run(**changes: Any) -> RunAnalysis:
    """Three gateways with four tests and three repeats each; the last OpenVPN trial failed, one target was missed."""
    if not changes:
        return _unchanged_run()
    run = replace(_unchanged_run(), **changes)
    return run if "answers" in changes else replace(run, answers=answers_of(run))


@cache
def _unchanged_run() -> RunAnalysis:
    trials = [
        _trial(f"c{number:02}", gateway, repeat)
        for number, gateway in enumerate(_GATEWAYS, start=1)
        for repeat in (1, 2, 3)
    ]
    trials[-1] = replace(
        trials[-1],
        status="failed",
        error="openvpn on gateway ended with status 1: Options error: --cipher AES-256-GCX is not supported",
        tests=trials[-1].tests[:1],
    )
    run = RunAnalysis(
        run_id="20260412-091500-gateway-7f3a",
        name="gateway",
        status="failed",
        started_at="2026-04-12T09:15:00+00:00",
        plan_text=PLAN,
        command="leadline run examples/gateway.yaml --set repeat=3",
        version="0.1.0",
        hosts=_hosts(),
        trials=tuple(trials),
        summaries=_summaries(trials),
        targets=_targets(),
        validity=Validity(
            Verdict.INCOMPLETE, (Reason("trials-failed", "1 of 9 trials failed: c03/3"), *GENERATOR_LIMITED.reasons)
        ),
        notes=(SHARED, Reason("counter-missing", "/proc/pressure/irq is not available on this kernel")),
        observer_cpu_share={"client1": 0.0031, "client2": 0.0030, "gateway": 0.0042, "server": None},
    )
    return replace(run, answers=answers_of(run))


def many_trials(number: int = 200) -> RunAnalysis:
    """One short test for each of many trials: 5 repeats of each case, `clients` and `packet` as axes."""
    trials = []
    for index in range(number):
        case, repeat = divmod(index, 5)
        parameters = {"clients": (5, 20, 50, 100)[case % 4], "packet": 64 * (1 + case // 4)}
        test = replace(_test(f"c{case + 1:02}", repeat + 1, "throughput", "udp", "openvpn"), parameters=parameters)
        trials.append(
            TrialResult(
                f"c{case + 1:02}/{repeat + 1}", test.case, test.repeat, "done", None, "openvpn", "2.6.14", None, (test,)
            )
        )
    return gateway_run(
        name="many", status="done", trials=tuple(trials), summaries=_summaries(trials), targets=(), validity=VALID
    )


def many_cases(number: int = 100) -> RunAnalysis:
    """The gateway run's trials, which have four tests of 10 s, over and over as cases of three repeats."""
    trials = []
    for index in range(number):
        case, gateway = f"c{index + 1:03}", list(_GATEWAYS)[index % len(_GATEWAYS)]
        for repeat in (1, 2, 3):
            made = _trial(case, gateway, repeat)
            tests = tuple(
                replace(
                    test,
                    parameters={"sut": gateway, "copy": index},
                    series=tuple(
                        replace(line, values=_uneven(line.values, index + 7 * repeat)) for line in test.series
                    ),
                )
                for test in made.tests
            )
            trials.append(replace(made, tests=tests))
    return gateway_run(name="cases", trials=tuple(trials), summaries=_summaries(trials), targets=())


def _uneven(values: tuple[float | None, ...], seed: int) -> tuple[float | None, ...]:
    """Values that pack no better than measured ones: each up to a tenth off, in no order."""
    return tuple(
        None if value is None else value * factor
        for value, factor in zip(values, _factors(seed, len(values)), strict=True)
    )


@cache
def _factors(seed: int, number: int) -> tuple[float, ...]:
    """Factors around 1, each up to a tenth off."""
    return tuple(1 + (math.sin((step + seed) * 12.9898) * 43758.5453 % 1 - 0.5) / 5 for step in range(number))


def one_result(kind: str = "http", **changes: Any) -> TestResult:
    """One test, as the single-test commands measure it."""
    return replace(_test("", 1, kind, kind, "route"), parameters={}, server=None, clients=None, **changes)


def _trial(case: str, gateway: str, repeat: int) -> TrialResult:
    tests = tuple(_test(case, repeat, name, kind, gateway) for name, kind in _TESTS)
    version = {"route": None, "wireguard": "boringtun 0.6.0", "openvpn": "2.6.14"}[gateway]
    bring_up = None
    if gateway == "openvpn":
        bring_up = ClientBringUp(19, 1, 0, 0.412 + 0.01 * repeat, 0.94, {"no address: the pool is used up": 1})
    elif gateway == "wireguard":
        bring_up = ClientBringUp(20, 0, 0, 0.021, 0.034)
    title = {"route": "the plain route", "wireguard": "WireGuard", "openvpn": "OpenVPN"}[gateway]
    return TrialResult(
        f"{case}/{repeat}", case, repeat, "done", None, gateway, version, bring_up, tests, sut_title=title
    )


def _test(case: str, repeat: int, name: str, kind: str, gateway: str) -> TestResult:
    limited = gateway == "route" and kind == "http"
    rate = _GATEWAYS[gateway][0] if kind == "tcp" else 20e6
    rate *= 1 + 0.004 * (repeat - 2)
    moved = kind in ("tcp", "udp")
    own_cpu = _GATEWAYS[gateway][5]
    server = ServerStatistics(10.31, 24.1, 61.7, 38.2, 131.4, 0.3, 2, True, own_cpu * 0.3, own_cpu * 0.7, 9.4e6)
    return TestResult(
        case=case,
        repeat=repeat,
        test=name,
        kind=kind,
        parameters={"sut.kind": gateway, "clients": 2},
        status="done",
        error=None,
        metrics=doubted(_metrics(kind, gateway, repeat), GENERATOR_LIMITED)
        if limited
        else _metrics(kind, gateway, repeat),
        validity=GENERATOR_LIMITED if limited else VALID,
        window=Window(_START_NS, _START_NS + 420_000_000, _START_NS + 10_010_000_000, _START_NS + 10_310_000_000),
        generator=Generator(6.42, 10.31, 0.97 if limited else 0.61, 14.0, 3120.0)
        if kind != "http"
        else Generator(
            6.42, 10.31, 0.97 if limited else 0.61, 14.0, 3120.0, "epoll", "io_uring_setup: Operation not permitted"
        ),
        errors={"connect_timeout": 2} if kind == "http" and gateway == "openvpn" else {},
        intervals=_intervals(kind, rate),
        clients=ClientStatistics(2, rate * 10.31 / 8, rate, rate / 2) if moved else None,
        server=server,
        percentiles=() if moved else (_percentiles(_GATEWAYS[gateway][3], repeat),),
        series=_series(own_cpu),
        error_examples={"connect_timeout": "192.0.2.7:8080 did not accept within 5 s"} if kind == "http" else {},
        distributions=_distributions(_GATEWAYS[gateway][3] * 4) if kind == "http" else (),
    )


def _distributions(base_us: float) -> tuple[Distribution, ...]:
    """What an http test's histograms come to: twice the latency, a lateness, phases, and a thread's rates."""

    def spread(metric: str, count: int, median: float) -> Distribution:
        factors = {
            50: 1,
            66: 1.1,
            75: 1.2,
            80: 1.25,
            90: 1.4,
            95: 1.7,
            98: 2.4,
            99: 3.1,
            99.9: 9.4,
            99.99: 31,
            99.999: 50,
        }
        percentiles = {float(percentile): median * factor for percentile, factor in factors.items()}
        return Distribution(metric, count, median * 0.7, median * 1.1, median * 0.9, 0.968, median * 60, percentiles)

    return (
        spread("latency", 91_430, base_us),
        spread("service", 91_430, base_us * 0.9),
        spread("late", 91_430, 4.5),
        spread("connect", 20, 310.0),
        spread("tls_full", 1, 1850.0),
        spread("tls_resumed", 19, 920.0),
        spread("first_byte", 91_430, base_us * 0.8),
        spread("transfer", 91_430, base_us * 0.1),
        spread("thread_rate", 100, 8_800.0),
    )


def _metrics(kind: str, gateway: str, repeat: int) -> dict[str, Metric]:
    tcp, loss, transactions, latency, requests, _ = _GATEWAYS[gateway]
    wobble = 1 + 0.004 * (repeat - 2)
    if kind == "tcp":
        return {
            "throughput_bps": Metric(tcp * wobble, "bit/s"),
            "retransmits": Metric(17.0, "count"),
            "rtt_mean_us": Metric(412.0, "us"),
        }
    if kind == "udp":
        return {
            "throughput_bps": Metric(20e6 * (1 - loss) * wobble, "bit/s"),
            "packets_per_s": Metric(1786.0 * (1 - loss), "1/s"),
            "sent": Metric(17_857.0, "count"),
            "lost": Metric(round(17_857 * loss), "count"),
            "lost_ratio": Metric(loss, "ratio"),
            "jitter_us": Metric(11.2, "us"),
            "reordered": Metric(0.0, "count"),
        }
    named = ("transactions", transactions) if kind == "rr" else ("requests", requests)
    scale = wobble * (1.0 if kind == "rr" else 4.0)
    spread = {"min": 0.7, "mean": 1.1, "p50": 1.0, "p90": 1.4, "p99": 3.1, "p999": 9.4, "max": 60.0}
    served = round(requests * 10.31)
    http = {
        "requests_due": Metric(served + 11.0, "count"),
        "requests_sent": Metric(served + 8.0, "count"),
        "unanswered": Metric(8.0, "count"),
        "unsent": Metric(3.0, "count"),
        "status_2xx": Metric(served - 30.0, "count"),
        "status_5xx": Metric(30.0, "count"),
        "error_ratio": Metric(0.00035, "ratio"),
        "bytes_sent": Metric(3.66e6, "bytes"),
        "bytes_received": Metric(served * 160.0, "bytes"),
        "body_bytes": Metric(served * 12.0, "bytes"),
        "transfer_bps": Metric(11.4e6, "bit/s"),
        "connections_opened": Metric(20.0, "count"),
        "handshakes_full": Metric(1.0, "count"),
        "handshakes_resumed": Metric(19.0, "count"),
        "late_p99_us": Metric(14.0, "us"),
    }
    return {
        **(http if kind == "http" else {}),
        named[0]: Metric(round(named[1] * 10.31), "count"),
        f"{named[0]}_per_s": Metric(named[1] * wobble, "1/s"),
        **{f"latency_{name}_us": Metric(latency * factor * scale, "us") for name, factor in spread.items()},
    }


def _percentiles(base_us: float, repeat: int) -> Percentiles:
    steps = (0, 10, 25, 50, 75, 90, 95, 99, 99.5, 99.9, 99.95, 99.99, 100)
    growth = (0.7, 0.8, 0.9, 1.0, 1.2, 1.4, 1.7, 3.1, 4.2, 9.4, 12, 31, 60)
    points = tuple((float(p), base_us * g * (1 + 0.02 * repeat)) for p, g in zip(steps, growth, strict=True))
    return Percentiles("latency", 430_000, points)


@cache
def _intervals(kind: str, rate: float) -> tuple[Interval, ...]:
    name = {"tcp": "throughput_bps", "udp": "throughput_bps", "rr": "transactions_per_s", "http": "requests_per_s"}[
        kind
    ]
    level = rate if kind in ("tcp", "udp") else 20_000.0
    found = []
    for step in range(103):
        ramp = min(1.0, step / 4, (103 - step) / 3)
        value = level * ramp * (1 + 0.03 * math.sin(step * 0.9) + 0.02 * math.sin(step * 2.3))
        found.append(Interval(step / 10, (step + 1) / 10, {name: value}, 4 < step < 100))
    return tuple(found)


@cache
def _series(own_cpu: float) -> tuple[Series, ...]:
    times = tuple(step / 10 - 0.5 for step in range(115))

    def wave(level: float, phase: float) -> tuple[float | None, ...]:
        return tuple(
            None
            if step == 50
            else max(0.0, level * (1 + 0.06 * math.sin(step * 0.7 + phase))) * (0.05 if step < 6 else 1)
            for step in range(115)
        )

    series = [
        Series("cpu user", "machine", "percent", times, wave(24.1, 0.0)),
        Series("cpu system", "machine", "percent", times, wave(61.7, 0.3)),
        Series("cpu softirq", "machine", "percent", times, wave(38.2, 0.6)),
        Series("memory in use", "machine", "bytes", times, wave(2.1e9, 0.1)),
        Series("system under test", "gateway", "percent", times, wave(own_cpu, 1.0)),
        Series("all processes", "clients", "percent", times, wave(38.0, 2.0)),
        Series("all processes", "server", "percent", times, wave(44.0, 3.0)),
        Series("system under test", "gateway", "bytes", times, wave(9.4e6, 0.2)),
    ]
    return tuple(series)


def _summaries(trials: list[TrialResult]) -> tuple[Summary, ...]:
    grouped: dict[tuple[str, str], list[TestResult]] = {}
    for trial in trials:
        for test in trial.tests:
            grouped.setdefault((test.case, test.test), []).append(test)
    summaries = []
    for (case, name), tests in grouped.items():
        metrics = {}
        for metric, first in tests[0].metrics.items():
            values = [value for test in tests if (value := test.metrics[metric].value) is not None]
            mean = sum(values) / len(values)
            metrics[metric] = Metric(mean, first.unit, mean * 0.991, mean * 1.009)
        failed = 3 - len(tests) if len(tests) < 3 else 0
        unstable = name == "rr" and tests[0].parameters.get("sut.kind") == "openvpn"
        validity = UNSTABLE if unstable else tests[0].validity
        metrics = doubted(metrics, validity)
        summaries.append(Summary(case, name, tests[0].kind, tests[0].parameters, len(tests), failed, metrics, validity))
    return tuple(summaries)


def _targets() -> tuple[TargetResult, ...]:
    loss, p99 = "udp.lost_ratio < 0.001", "rr.latency_p99_us < 1000"
    return (
        TargetResult(loss, "c01", "met", 0.0, "0 %, below 0.1 %"),
        TargetResult(loss, "c02", "met", 0.000012, "0.0012 %, below 0.1 %"),
        TargetResult(loss, "c03", "missed", 0.0042, "0.42 %, not below 0.1 %"),
        TargetResult(p99, "c01", "met", 68.2, "68.2 µs, below 1.00 ms"),
        TargetResult(p99, "c02", "met", 167.0, "167 µs, below 1.00 ms"),
        TargetResult(p99, "c03", "undecided", 319.0, "the result is unstable"),
    )


def _hosts() -> dict[str, dict[str, Any]]:
    def facts(name: str, interfaces: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "hostname": name,
            "boot_id": "1f0c0c5e-9a4e-4c7e-9d5c-0d5e4a1b2c3d",
            "kernel": "6.18.5",
            "distribution": "Debian GNU/Linux 12 (bookworm)",
            "architecture": "x86_64",
            "cpu_model": "Example CPU 9000 @ 2.60 GHz",
            "cpus": 2,
            "memory_bytes": 25_165_824_000,
            "tcp_congestion": "cubic",
            "clock": {"source": "tsc", "synchronised": False, "max_error_us": None, "resolution_ns": 24},
            "interfaces": interfaces,
            "capabilities": [
                {"name": "tun", "available": True, "reason": None},
                {"name": "irq_pressure", "available": False, "reason": "/proc/pressure/irq does not exist"},
            ],
        }

    def link(name: str) -> dict[str, Any]:
        return {"name": name, "mtu": 1500, "tso": True, "gso": True, "gro": False}

    return {
        "client1": facts("bench", [link("wan")]),
        "client2": facts("bench", [link("wan")]),
        "gateway": facts("bench", [link("wan"), link("lan")]),
        "server": facts("bench", [link("lan")]),
    }
