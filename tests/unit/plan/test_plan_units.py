"""Quantities: what is read, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline.plan import units
from leadline.plan.units import UnitError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("20mbit", 20_000_000),
        ("20Mbit/s", 20_000_000),
        ("20 Mbps", 20_000_000),
        ("20M", 20_000_000),
        ("1gbit", 10**9),
        ("1.5gbit", 1_500_000_000),
        ("9600bps", 9600),
        ("1000", 1000),
        (1000, 1000),
        (1e9, 10**9),
    ],
)
def test_rate_is_parsed_to_bits_per_second(text: str | float, expected: int) -> None:
    assert units.rate_bps(text) == expected


@pytest.mark.parametrize("text", ["20MB/s", "20MBps", "3furlong", "", "-1mbit", "0.5bit", float("nan"), True, None, {}])
def test_malformed_rate_is_refused(text: str) -> None:
    with pytest.raises(UnitError):
        units.rate_bps(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10s", 10_000_000),
        ("500ms", 500_000),
        ("250us", 250),
        ("250µs", 250),
        ("1m", 60_000_000),
        ("1m30s", 90_000_000),
        ("1min", 60_000_000),
        ("2h", 7_200_000_000),
        ("1.5 s", 1_500_000),
        (0, 0),
        (10, 10_000_000),
        ("10", 10_000_000),
        (0.1, 100_000),
        ("0.25", 250_000),
    ],
)
def test_duration_is_parsed(text: str | int, expected: int) -> None:
    assert units.duration_us(text) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (-10, "-10 is negative"),
        ("-1s", "negative"),
        ("10x", "'10x' is not a duration; write 10s, 500ms or 1m"),
        (1e-7, "whole number of µs"),
        ("soon", "write 10s"),
        ("1 fortnight", "is not a duration"),
    ],
)
def test_malformed_duration_is_refused(text: str | int, words: str) -> None:
    with pytest.raises(UnitError, match=words):
        units.duration_us(text)


def test_a_part_of_a_millisecond_is_not_rounded_away() -> None:
    with pytest.raises(UnitError, match="whole number of milliseconds"):
        units.duration_ms("1500us")


@pytest.mark.parametrize(
    ("text", "expected"),
    [(64, 64), ("64", 64), ("1400B", 1400), ("128KiB", 131_072), ("128kB", 128_000), ("1MB", 10**6), ("1GiB", 2**30)],
)
def test_size_is_parsed_to_bytes(text: str | int, expected: int) -> None:
    assert units.size_bytes(text) == expected


@pytest.mark.parametrize("text", ["128K", "128Kb", "1iB", "-1", "1.5", 1.5, -1])
def test_malformed_size_is_refused(text: str | float) -> None:
    with pytest.raises(UnitError):
        units.size_bytes(text)


@pytest.mark.parametrize(("text", "expected"), [("1%", 0.01), ("0.1 %", 0.001), (0.01, 0.01), ("150%", 1.5)])
def test_share_is_parsed_to_a_fraction(text: str | float, expected: float) -> None:
    assert units.fraction(text) == expected


@pytest.mark.parametrize(("text", "expected"), [(1000, 1000.0), ("1000/s", 1000.0), ("1k", 1000.0), ("0.5/s", 0.5)])
def test_rate_per_second_is_parsed(text: str | int, expected: float) -> None:
    assert units.per_second(text) == expected


PREFIXES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


@given(st.integers(0, 10**6), st.sampled_from(sorted(PREFIXES)), st.sampled_from(["bit", "bit/s", "bps", "Bit"]))
def test_a_rate_is_its_number_times_its_prefix(number: int, prefix: str, unit: str) -> None:
    assert units.rate_bps(f"{number}{prefix}{unit}") == number * PREFIXES[prefix]


@given(st.integers(0, 99), st.integers(0, 59), st.integers(0, 999))
def test_a_duration_is_the_sum_of_its_parts(minutes: int, seconds: int, milliseconds: int) -> None:
    assert units.duration_ms(f"{minutes}m{seconds}s{milliseconds}ms") == (minutes * 60 + seconds) * 1000 + milliseconds


@given(st.text(max_size=20) | st.integers() | st.floats() | st.none() | st.booleans())
@pytest.mark.parametrize(
    "parse", [units.rate_bps, units.duration_us, units.duration_ms, units.size_bytes, units.fraction, units.per_second]
)
def test_anything_is_read_or_refused(parse: Callable[[object], float], value: object) -> None:
    try:
        assert isinstance(parse(value), int | float)
    except UnitError as error:
        assert str(error)
