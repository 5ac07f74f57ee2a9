"""The tests of RFC 2544 on a made device: it forwards 100,000 packets a second, and has room for 500."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from leadline.analysis.model import Metric
from leadline.kinds.packets import rfc2544, rfc2544_page
from leadline.kinds.packets.model import PacketsTest
from leadline.registry import KINDS
from leadline.trial.interrupt import Interrupt
from leadline.trial.single import Single

CAPACITY, BUFFER, TOP = 100_000.0, 500, 200_000.0


def forwarded(test: PacketsTest) -> dict[str, float]:
    """What the device does with a test's packets."""
    if test.number is not None:
        # A burst at the full rate fills the buffer by what the device does not forward meanwhile.
        lost = max(0.0, test.number * (1 - CAPACITY / TOP) - BUFFER)
        return {"sent": test.number, "lost": lost, "unsent": 0.0}
    rate = test.rate_pps or TOP
    sent = rate * test.duration_ms / 1000
    return {"sent": sent, "lost": max(0.0, sent * (1 - CAPACITY / rate)), "unsent": 0.0, "one_way_delay_p50_us": 7.0}


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> rfc2544.Benchmark:
    async def measure(single: Single, *_: Any) -> Any:
        assert isinstance(single.test, PacketsTest)
        figures = forwarded(single.test)
        return SimpleNamespace(metrics={name: Metric(value, "count") for name, value in figures.items()})

    monkeypatch.setattr(rfc2544, "measure", measure)
    kind = KINDS.get("packets")
    work = kind.workload(PacketsTest(name="packets", dst="198.18.0.2"), SimpleNamespace(host="198.18.0.2"))
    interrupt = Interrupt(lambda: None, lambda: None)
    return rfc2544.Benchmark(kind, _test(), lambda test: Single(test, work, []), [], interrupt)


def _test() -> PacketsTest:
    return PacketsTest(name="packets", dst="198.18.0.2", duration_ms=1000)


def test_frame_loss_curve_ends_with_two_clean_trials(benchmark: rfc2544.Benchmark) -> None:
    curve = asyncio.run(benchmark._loss_curve(_test(), TOP))
    assert [round(rate / TOP, 1) for rate, _ in curve] == [1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4]
    assert [lost for _, lost in curve][-2:] == [0, 0]
    assert curve[0][1] == pytest.approx(0.5)
    assert all(lost for _, lost in curve[:-2])


def test_longest_burst_is_what_the_buffer_takes(benchmark: rfc2544.Benchmark) -> None:
    burst = asyncio.run(benchmark._longest_burst(_test(), TOP))
    # Twelve halvings of a second's packets.
    assert burst is not None
    assert 1000 - TOP / 2**12 <= burst <= 1000


def test_burst_that_always_passes_has_no_length(benchmark: rfc2544.Benchmark, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("test_rfc2544.BUFFER", 10**9)
    assert asyncio.run(benchmark._longest_burst(_test(), TOP)) is None


def test_delays_are_those_at_the_throughput(benchmark: rfc2544.Benchmark) -> None:
    delays = asyncio.run(benchmark._delays(_test(), CAPACITY))
    assert (delays["delay_p50_us"], delays["delay_p99_us"]) == (7.0, None)
    assert set(asyncio.run(benchmark._delays(_test(), None)).values()) == {None}


def test_missing_packets_are_lost_or_never_sent() -> None:
    def result(**figures: float | None) -> Any:
        return SimpleNamespace(metrics={name: Metric(value, "count") for name, value in figures.items()})

    assert rfc2544.missing_ratio(result(sent=90.0, lost=10.0, unsent=10.0)) == 0.2
    assert rfc2544.missing_ratio(result(sent=90.0, lost=None, unsent=0.0)) is None


def test_table_has_a_share_of_the_line_where_its_rate_is_known() -> None:
    one = rfc2544.SizeResult(64, 1_488_095.0, False, 1.0, 2.0, 3.0, 2.0, ((2e6, 0.25),), None, None)
    head, row = rfc2544.rows([one], 1e9)
    assert dict(zip(head, row, strict=True)) | {"line": "", "throughput": ""} == {
        **{"size": "64 B", "throughput": "", "layer 2": "762 Mbit/s", "line": "", "delay p50": "2.00 µs"},
        **{"p99": "3.00 µs", "at full rate": "25.0 % missing", "burst": "no loss"},
    }
    assert "100" in row[3]
    assert len(next(iter(rfc2544.rows([one], None)))) == len(head) - 1


def test_buffer_is_what_a_burst_fills_of_it() -> None:
    """1,000 packets at 200,000/s take 5 ms, in which half of them are forwarded (RFC 9004)."""
    assert rfc2544.buffer_us(1000, TOP, CAPACITY) == pytest.approx(2500)
    assert rfc2544.buffer_us(1000, TOP, 2 * TOP) == 0
    assert rfc2544.buffer_us(None, TOP, CAPACITY) is None


def test_page_has_the_four_tests_and_marks_bounds(benchmark: rfc2544.Benchmark) -> None:
    sizes = [
        rfc2544.SizeResult(size, rate, is_bound, 1.0, 2.0, None, None, ((TOP, 0.5), (CAPACITY, 0.0)), 2500.0, 1000)
        for size, rate, is_bound in ((64, CAPACITY, False), (1518, 8e4, True))
    ]
    page = rfc2544_page.render(sizes, "<eth1> to eth2", 1.0, 1e9)
    assert [page.count(f'<section id="{one}">') for one in ("throughput", "latency", "frame-loss", "back-to-back")] == [
        1
    ] * 4
    assert "≥ 80.0 k/s" in page
    assert "100 k/s" in page
    assert "&lt;eth1&gt;" in page
    assert "2.50 ms" in page
    assert "1.49 M/s" in page, "the rate of a line of 1 Gbit/s"
