"""A trend with a new regression and a comparison with three words, as records: what pages are drawn from."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from leadline.analysis.comparison import ComparedFigure, ComparedRuns, Difference
from leadline.analysis.model import Metric, Summary, Validity, Verdict
from leadline.analysis.trend import RecordedRun, Trend, trend_of
from leadline.statistics import Comparison


def _night(number: int, kernel: str = "6.18") -> RecordedRun:
    value = 941e6 * (1 if number < 14 else 0.9) * (1 + (number * 7 % 5) / 1000)
    verdict = Verdict.DISTURBED if number == 5 else Verdict.VALID
    metric = Metric(value, "bit/s", 0.99 * value, 1.01 * value, verdict=verdict)
    summary = Summary("c01", "tcp-up", "tcp", {"sut": "openvpn"}, 3, 0, {"throughput_bps": metric}, Validity(verdict))
    return RecordedRun(
        run=f"20260101T020000Z-nightly-{number:06}",
        plan="nightly",
        started_at=(datetime(2026, 1, 1, 2, tzinfo=UTC) + timedelta(days=number)).isoformat(),
        machine=(("CPU model", "AMD EPYC"), ("CPUs", "2"), ("kernel", kernel)),
        software=(("Leadline", "0.1.0" if number < 14 else "0.2.0"),),
        systems={"c01": "OpenVPN 2.6.14"},
        loads={("c01", "tcp-up"): (("duration_ms", "10000"),)},
        tests={((("sut", "openvpn"),), "tcp-up"): (("duration_ms", "10000"),)},
        summaries=(summary,),
    )


def regressed() -> Trend:
    """Twenty nights, of which the last six are slower by a tenth; one is disturbed. Two more have another kernel."""
    return trend_of([_night(number) for number in range(20)] + [_night(number, "6.19") for number in (20, 21)])


def stopped(newest: int) -> Trend:
    """The first twenty nights, and three whose test failed."""
    failed = [replace(_night(number), summaries=()) for number in (20, 21, 22)]
    return trend_of([_night(number) for number in range(20)] + failed, newest=newest)


def compared() -> ComparedRuns:
    """A run that is slower in one figure, equivalent in another, and not known in a third."""

    def figure(metric: str, unit: str, ratio: tuple[float, float, float] | None, word: Comparison) -> ComparedFigure:
        value, low, high = ratio or (None, None, None)
        after = None if value is None else 900e6 * value
        reason = "no repeat is left that can be compared" if word is Comparison.CANNOT_TELL else None
        return ComparedFigure(
            {"sut": "route"}, "tcp-up", "tcp", metric, unit, 900e6, after, value, low, high, word, reason
        )

    return ComparedRuns(
        baseline="20260101T020000Z-gateway-before",
        candidate="20260102T020000Z-gateway-after",
        margin=0.05,
        figures=(
            figure("throughput_bps", "bit/s", (0.82, 0.79, 0.85), Comparison.SLOWER),
            figure("rtt_mean_us", "us", (1.01, 0.98, 1.03), Comparison.EQUIVALENT),
            figure("retransmits", "count", None, Comparison.CANNOT_TELL),
        ),
        differences=(Difference("kernel", "6.18", "6.19", blocking=False),),
        missing=("udp (sut=route): only in 20260101T020000Z-gateway-before",),
    )
