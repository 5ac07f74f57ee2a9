"""The cost of a protocol from its figures: the line through the sizes, and what makes figures doubtful."""

# Figures are compared with pytest.approx within tuples.
# mypy: disable-error-code=comparison-overlap
from __future__ import annotations

import pytest

from leadline.analysis.crypto import CryptoFigure, fit, judge_crypto, stolen_share
from leadline.analysis.model import Verdict
from leadline.contract.models import CpuSample


def figure(size: int | None, ns: int, what: str = "seal", wall_ns: int | None = None) -> CryptoFigure:
    return CryptoFigure(what, "AES-256-GCM", size, 1000, ns * 1000, wall_ns or ns * 1000)


def test_a_figure_is_given_per_operation_second_and_byte() -> None:
    one = figure(1400, 700)
    assert (one.ns_each, one.per_s, one.bytes_per_s) == (700, pytest.approx(1e9 / 700), pytest.approx(2e9))
    nothing = CryptoFigure("seal", "AES-256-GCM", 64, 0, 0, 0)
    assert (nothing.ns_each, nothing.per_s, nothing.bytes_per_s) == (None, None, None)
    assert figure(None, 700, "handshake").bytes_per_s is None


def test_the_line_is_found_where_there_is_one() -> None:
    found = fit("seal", "AES-256-GCM", [(size, 150 + size / 4) for size in (64, 576, 1400, 9000)])
    assert (found.ns_per_packet, found.ns_per_byte) == (pytest.approx(150), pytest.approx(0.25))
    assert found.worst == pytest.approx(0, abs=1e-9)


def test_small_sizes_weigh_as_much_as_large_ones() -> None:
    # One size is 10 % slower than the line; which one changes nothing about how far off the line is.
    for slow in (64, 9000):
        points = [(size, (150 + size / 4) * (1.1 if size == slow else 1)) for size in (64, 576, 1400, 9000)]
        assert fit("seal", "AES-256-GCM", points).worst < 0.1


def test_no_cost_is_below_zero() -> None:
    by_bytes = fit("cipher", "DES-EDE3-CBC", [(64, 5800), (576, 58_500), (1400, 140_500)])
    assert by_bytes.ns_per_packet == 0
    assert by_bytes.ns_per_byte == pytest.approx(97, rel=0.1)
    by_packets = fit("seal", "AES-256-GCM", [(64, 500), (576, 490), (1400, 480)])
    assert (by_packets.ns_per_packet, by_packets.ns_per_byte) == (pytest.approx(490, rel=0.01), 0)


def test_a_line_needs_three_sizes() -> None:
    assert judge_crypto([figure(64, 200), figure(1400, 500)], whole=True).fits == ()
    three = judge_crypto(
        [figure(64, 200), figure(576, 300), figure(1400, 500), figure(None, 9, "handshake")], whole=True
    )
    assert [(one.what, one.algorithm) for one in three.fits] == [("seal", "AES-256-GCM")]


@pytest.mark.parametrize(
    ("keywords", "verdict", "codes"),
    [
        ({"whole": True}, Verdict.VALID, []),
        ({"whole": True, "waited": 0.01, "stolen": 0.005}, Verdict.VALID, []),
        ({"whole": True, "waited": 0.2}, Verdict.UNDETERMINED, ["cpu-shared"]),
        ({"whole": True, "stolen": 0.1}, Verdict.UNDETERMINED, ["cpu-stolen"]),
        ({"whole": False, "waited": 0.2}, Verdict.INCOMPLETE, ["ended-early", "cpu-shared"]),
    ],
)
def test_what_makes_figures_doubtful(keywords: dict[str, float], verdict: Verdict, codes: list[str]) -> None:
    validity = judge_crypto([figure(64, 200)], **keywords).validity  # type: ignore[arg-type]
    assert validity.verdict is verdict
    assert [reason.code for reason in validity.reasons] == codes


def test_a_thread_that_often_stood_still_shared_its_cpu() -> None:
    found = judge_crypto([figure(64, 200, wall_ns=250_000)], whole=True)
    assert found.validity.reasons[0].text.startswith("the measuring thread waited for a CPU 20 % of the time")


def test_what_is_stolen_is_a_share_of_busy_time() -> None:
    """One CPU of 16 works, and a tenth of its time is taken: the 15 that are idle make that no smaller."""

    def cpus(*, worked: float, stolen: float, idled: float) -> list[CpuSample]:
        nothing = {"nice_s": 0.0, "system_s": 0.0, "iowait_s": 0.0, "irq_s": 0.0, "softirq_s": 0.0}
        busy = CpuSample(cpu=0, user_s=5 + worked, steal_s=3 + stolen, idle_s=0.0, **nothing)
        idle = [CpuSample(cpu=cpu, user_s=1.0, steal_s=0.5, idle_s=9 + idled, **nothing) for cpu in range(1, 16)]
        return [busy, *idle]

    first = cpus(worked=0, stolen=0, idled=0)
    assert stolen_share(first, cpus(worked=0.9, stolen=0.1, idled=1)) == pytest.approx(0.1)
    assert stolen_share(first, cpus(worked=0, stolen=0, idled=1)) is None
