"""Targets take the units of their metrics, and a name that there is not gets the likely one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline.plan.kinds import metrics_of, plan_kinds
from leadline.plan.target_words import read_value, suggestion
from leadline.plan.units import UnitError


@pytest.mark.parametrize(
    ("metric", "written", "expected"),
    [
        ("lost_ratio", "1%", 0.01),
        ("lost_ratio", "0.01", 0.01),
        ("latency_p99_us", "5ms", 5000),
        ("latency_p99_us", "5", 5),
        ("connect_p99_ms", "2s", 2000),
        ("connect_p99_ms", "1500us", 1.5),
        ("throughput_bps", "150mbit", 150_000_000),
        ("throughput_bps", "1e6", 1_000_000),
        ("requests_per_s", "10k", 10_000),
        ("requests_per_s", "500/s", 500),
        ("server_cpu_s", "500ms", 0.5),
        ("memory_bytes", "64MiB", 64 * 2**20),
        ("memory_per_client_bytes", "1kB", 1000),
        ("bytes_received", "1MB", 1_000_000),
        ("lost", "10", 10),
    ],
)
def test_a_value_has_the_metrics_unit_or_one_of_its_kind(metric: str, written: str, expected: float) -> None:
    assert read_value(written, metric, metrics_of("udp")) == expected


@pytest.mark.parametrize(
    ("metric", "written", "said"),
    [
        ("lost", "1%", "lost is a count; for a share write lost_ratio, as in 'lost_ratio < 1%'"),
        ("sent", "1%", "'1%' is not a number, and sent has no unit"),
        ("throughput_bps", "1%", "'1%' is not a rate"),
        ("latency_p99_us", "5mbit", "'5mbit' is not a duration; write 10s, 500ms or 1m"),
        ("lost_ratio", "5ms", "'5ms' is not a share; write 1% or 0.01"),
    ],
)
def test_a_value_of_another_kind_is_refused(metric: str, written: str, said: str) -> None:
    with pytest.raises(UnitError) as refused:
        read_value(written, metric, metrics_of("udp"))
    assert str(refused.value).startswith(said)


@pytest.mark.parametrize(
    ("kind", "word", "meant"),
    [
        ("rr", "p99", "latency_p99_us"),
        ("http", "p99", "latency_p99_us"),
        ("http", "p97", "latency_p97_us"),
        ("http", "latency_p99", "latency_p99_us"),
        ("http", "latency_p99_ms", "latency_p99_us"),
        ("rr", "latency", "latency_p99_us"),
        ("udp", "loss", "lost_ratio"),
        ("udp", "lost_ratoi", "lost_ratio"),
        ("udp", "jitter", "jitter_us"),
        ("tcp", "throughput", "throughput_bps"),
        ("tcp", "rtt", "rtt_mean_us"),
        ("http", "rps", "requests_per_s"),
        ("tunnel", "connect_p99", "connect_p99_ms"),
    ],
)
def test_an_unknown_metric_is_answered_with_the_likely_one(kind: str, word: str, meant: str) -> None:
    assert suggestion(word, metrics_of(kind)) == f"did you mean '{meant}'?"


def test_unrecognisable_metric_is_answered_with_the_choices() -> None:
    names = metrics_of("tcp")[:5]
    assert suggestion("zzz", names).startswith("there is ")
    assert all(name in suggestion("zzz", names) for name in names)
    assert suggestion("zzz", metrics_of("tcp")).endswith(", ...")


@given(st.text(max_size=12), st.sampled_from([name for kind in plan_kinds() for name in metrics_of(kind.name)]))
def test_any_text_is_a_value_or_refused(written: str, metric: str) -> None:
    try:
        assert isinstance(read_value(written, metric, metrics_of("http")), int | float)
    except UnitError as error:
        assert "\n" not in str(error)
