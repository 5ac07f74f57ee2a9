"""Quantities are written with stable digits, and what is not known is never a number."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

import leadline
from leadline import quantities


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (math.nan, "–"),
        (math.inf, "–"),
        (0.0, "0 bit/s"),
        (0.5, "0.500 bit/s"),
        (9.41e9, "9.41 Gbit/s"),
        (941.4e6, "941 Mbit/s"),
        (94.14e6, "94.1 Mbit/s"),
        (999.4e6, "999 Mbit/s"),
        (999.6e6, "1.00 Gbit/s"),
        (1000.0, "1.00 kbit/s"),
        (3.2e18, "3200 Pbit/s"),
    ],
)
def test_bit_rate(value: float | None, text: str) -> None:
    assert quantities.bit_rate(value) == text


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (None, "–"),
        (0.85, "850 ns"),
        (0.0004, "0.400 ns"),
        (21.34, "21.3 µs"),
        (999.7, "1.00 ms"),
        (4200.0, "4.20 ms"),
        (1.3e6, "1.30 s"),
        (99.9e6, "99.9 s"),
        (125e6, "2 min 5 s"),
        (3660e6, "1 h 1 min"),
    ],
)
def test_microseconds(us: float | None, text: str) -> None:
    assert quantities.microseconds(us) == text


@pytest.mark.parametrize(("ns", "text"), [(None, "–"), (0.308, "0.308 ns"), (1.16e4, "11.6 µs"), (1.14e5, "114 µs")])
def test_nanoseconds(ns: float | None, text: str) -> None:
    assert quantities.nanoseconds(ns) == quantities.metric(ns, "ns") == text


@pytest.mark.parametrize(
    ("rate", "text"),
    [(None, "–"), (0.5, "0.5/s"), (12.345, "12.35/s"), (999.9, "999.9/s"), (1000.0, "1,000/s"), (72247.7, "72,248/s")],
)
def test_rate_in_full(rate: float | None, text: str) -> None:
    assert quantities.rate_in_full(rate) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (0, "0 B"), (1023, "0.999 KiB"), (512, "512 B"), (8 * 2**20, "8.00 MiB"), (23.4 * 2**30, "23.4 GiB")],
)
def test_memory_is_binary(value: float | None, text: str) -> None:
    assert quantities.memory(value) == text


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(None, "–"), (0.0, "0 %"), (0.0002, "0.0200 %"), (0.125, "12.5 %"), (1.0, "100 %"), (1.98, "198 %")],
)
def test_share_is_written_in_percent(ratio: float | None, text: str) -> None:
    assert quantities.share(ratio) == text


@pytest.mark.parametrize(
    ("ratio", "decimals", "signed", "text"),
    [(0.666, 0, False, "67 %"), (0.0477, 1, False, "4.8 %"), (-0.158, 1, True, "-15.8 %"), (0.786, 1, True, "+78.6 %")],
)
def test_rounded_share_has_its_decimals(ratio: float, decimals: int, signed: bool, text: str) -> None:
    assert quantities.rounded_share(ratio, decimals, signed=signed) == text


def test_no_text_formats_a_share_by_itself() -> None:
    sources = [path for path in Path(leadline.__file__).parent.rglob("*.py") if path.parent.name != "contract"]
    own = re.compile(r"\{[^{}]+:[+]?(?:\.\d)?%\}")
    assert len(sources) > 100
    assert [str(path) for path in sources if own.search(path.read_text(encoding="utf-8"))] == []


def test_counts_are_written_in_full() -> None:
    assert quantities.count(656_123.0) == "656,123"
    assert quantities.count(None) == "–"


def test_plus_minus_is_the_wider_half_relative_to_the_value() -> None:
    assert quantities.plus_minus(100.0, 99.0, 102.0) == "±2.0 %"
    assert quantities.plus_minus(100.0, 100.0, 100.0) == "±0.0 %"
    assert quantities.plus_minus(100.0, None, 102.0) == ""
    assert quantities.plus_minus(0.0, 0.0, 0.0) == ""


def test_interval_that_is_wider_than_the_figure_names_the_few_repeats() -> None:
    assert quantities.plus_minus(100.0, -121.0, 321.0, repeats=2) == "2 repeats"
    assert quantities.plus_minus(100.0, 90.0, 110.0, repeats=2) == "±10 %"
    assert quantities.plus_minus(100.0, -50.0, 250.0, repeats=3) == "3 repeats"
    assert quantities.plus_minus(100.0, -121.0, 321.0, repeats=5) == "> ±100 %"
    assert quantities.plus_minus(100.0, -121.0, 321.0) == "> ±100 %"


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (131_200.0, "1/s", "131 k/s"),
        (1.5, "ms", "1.50 ms"),
        (0.01, "ratio", "1.00 %"),
        (12.0, "count", "12"),
        (12.34, "furlongs", "12.3 furlongs"),
        (None, "furlongs", "–"),
    ],
)
def test_the_unit_chooses_the_notation(value: float | None, unit: str, text: str) -> None:
    assert quantities.metric(value, unit) == text
