"""Rates of frames, and what lines can carry: the published figures of Ethernet."""

from __future__ import annotations

import pytest

from leadline.plan.packet_rates import line_packets_per_s, read_packet_rate, wire_bits
from leadline.plan.units import UnitError

IMIX = {60: 7, 590: 4, 1514: 1}


@pytest.mark.parametrize(
    ("with_fcs", "gbit", "mpps"),
    [
        (64, 1, 1.488095),
        (64, 10, 14.881),
        (64, 100, 148.81),
        (64, 400, 595.24),
        (128, 1, 0.844595),
        (512, 25, 5.8741),
        (1518, 1, 0.081274),
        (1518, 40, 3.2510),
        (9018, 400, 5.5322),
    ],
)
def test_line_carries_what_ethernet_allows(with_fcs: int, gbit: int, mpps: float) -> None:
    assert line_packets_per_s({with_fcs - 4: 1}, gbit * 1e9) / 1e6 == pytest.approx(mpps, rel=1e-4)


def test_simple_imix_at_10_gbit() -> None:
    assert line_packets_per_s(IMIX, 10e9) / 1e6 == pytest.approx(3.274, rel=1e-3)


def test_kernel_size_of_64_is_68_on_the_wire() -> None:
    assert line_packets_per_s({64: 1}, 1e9) / 1e6 == pytest.approx(1.420, rel=1e-3)


@pytest.mark.parametrize(
    ("text", "per_s"),
    [
        ("1Mpps", 1e6),
        ("100 kpps", 1e5),
        ("1.5Mpps", 1.5e6),
        ("10k/s", 1e4),
        ("500", 500.0),
        (500, 500.0),
        ("512mbit", 1e6),
        ("50%", 1e9 / 672 / 2),
        ("100%", 1e9 / 672),
    ],
)
def test_rate_in_packets_of_64_bytes_at_1_gbit(text: str | int, per_s: float) -> None:
    assert read_packet_rate(text).packets_per_s({60: 1}, 1e9) == pytest.approx(per_s)


def test_share_of_an_unknown_line_is_unknown() -> None:
    assert read_packet_rate("50%").packets_per_s({60: 1}, None) is None
    assert read_packet_rate("1Mpps").packets_per_s({60: 1}, None) == 1e6


@pytest.mark.parametrize("text", ["0", "0pps", "-1Mpps", "101%", "0%", "1MB/s", "1.2.3pps", "fast", "", "1e999pps"])
def test_wrong_rate_says_what_would_be_right(text: str) -> None:
    with pytest.raises(UnitError, match="write 1Mpps, 500mbit or 50%"):
        read_packet_rate(text)


def test_wire_bits_have_preamble_gap_and_fcs() -> None:
    assert wire_bits(10, 10 * 60) == 10 * 84 * 8
