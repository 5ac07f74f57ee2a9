"""Histograms: what the agent's library encodes is read exactly, and merging equals having recorded into one."""

from __future__ import annotations

import base64
import statistics
import struct
import zlib

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram
from hypothesis import given, settings
from hypothesis import strategies as st
from made_journals import histogram

from leadline.analysis.hdr_v2 import DEFLATED_COOKIE
from leadline.analysis.histograms import EMPTY, DamagedHistogram, decode, merge, merge_readable, remainder
from leadline.errors import DatasetError

# i times the value i² µs for i = 1..40, and one 0 ns, as the Rust crate `hdrhistogram` 7.5 encodes them with bounds of
# 1 ns and an hour: plain V2, and V2 deflated. Its own answers are in the test.
PLAIN = (
    "HISTEwAAAHgAAAAAAAAAAwAAAAAAAAABAAADRjC4oAA/8AAAAAAAAALNDwLNHwSnEgbTDQiRCQqTCQypBg6nBxC/BBLPBBSNBRaDBBiDAxqjAxzBAx7j"
    "AyCtAiKPAiSfAiatAii9AirNAizLAi61ATC7ATLFATTLATbVATjbATrjATzrAT71AUCrAUJ/RIUBRocBSIsBSpEBTJMBTpcBUA=="
)
DEFLATED = (
    "HISTFAAAAKt4nAGgAF//HISTEwAAAHgAAAAAAAAAAwAAAAAAAAABAAADRjC4oAA/8AAAAAAAAALNDwLNHwSnEgbTDQiRCQqTCQypBg6nBxC/BBLPBBSN"
    "BRaDBBiDAxqjAxzBAx7jAyCtAiKPAiSfAiatAii9AirNAizLAi61ATC7ATLFATTLATbVATjbATrjATzrAT71AUCrAUJ/RIUBRocBSIsBSpEBTJMBTpcB"
    "UHH/J5A="
)

VALUES_NS = st.lists(st.integers(0, 3_600_000_000_000), max_size=60)


@pytest.mark.parametrize("encoded", [PLAIN, DEFLATED])
def test_reads_what_the_rust_library_writes(encoded: str) -> None:
    read = decode({"metric": "latency", "count": 821, "hdr_v2": encoded})
    assert read.count == 821
    assert read.min_us == 0
    assert read.max_us == 1600.511
    assert read.mean_us == pytest.approx(818.9972302070644, rel=1e-12)
    assert [read.percentile_us(p) for p in (50, 90, 99, 99.9, 100)] == [841.215, 1444.863, 1600.511, 1600.511, 1600.511]


def test_an_empty_histogram_knows_nothing() -> None:
    for empty in (EMPTY, decode(histogram("latency", [])), merge([])):
        assert empty.count == 0
        assert (empty.min_us, empty.mean_us, empty.max_us, empty.percentile_us(99)) == (None, None, None, None)


@pytest.mark.parametrize(
    "report",
    [
        {"count": 821, "hdr_v2": DEFLATED[:-8]},
        {"count": 820, "hdr_v2": DEFLATED},
        {"count": 1, "hdr_v2": ""},
        {"count": 1, "hdr_v2": "not base64 !"},
        {"count": 1, "hdr_v2": base64.b64encode(b"\x1c\x84\x93\x14\x00\x00\x00\x04abcd").decode()},
        {"count": 1, "hdr_v2": base64.b64encode(bytes(64)).decode()},
        {"count": 1, "hdr_v2": None},
        {"count": 1},
    ],
)
@pytest.mark.usefixtures("damaged_journals")
def test_a_damaged_histogram_is_named_as_such(report: dict[str, object]) -> None:
    with pytest.raises(DamagedHistogram):
        decode(report)
    assert merge_readable([histogram("latency", [1]), report]) == (EMPTY, 1)


def test_a_damaged_histogram_fails_a_test_and_names_its_metric() -> None:
    with pytest.raises(DatasetError, match="histogram of latency, of 821 values, cannot be read"):
        decode({"metric": "latency", "count": 821, "hdr_v2": DEFLATED[:-2] + "***"})


@settings(max_examples=60, deadline=None)
@given(st.lists(VALUES_NS, min_size=1, max_size=5))
def test_merged_equals_recorded_into_one(parts: list[list[int]]) -> None:
    together = decode(histogram("latency", [value for part in parts for value in part]))
    merged = merge([decode(histogram("latency", part)) for part in parts])
    assert merged.count == together.count
    assert merged.lows_ns.tolist() == together.lows_ns.tolist()
    assert merged.highs_ns.tolist() == together.highs_ns.tolist()
    assert merged.counts.tolist() == together.counts.tolist()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 3_600_000_000_000), min_size=1, max_size=200), st.floats(0, 100))
def test_percentiles_are_the_sorted_values_within_the_resolution(values: list[int], percentile: float) -> None:
    read = decode(histogram("latency", values)).percentile_us(percentile)
    ordered = sorted(values)
    exact = ordered[max(0, -(-int(percentile * 1e9) * len(ordered) // int(100e9)) - 1)]
    assert read is not None
    assert exact / 1000 <= read * (1 + 1e-9)
    assert read <= exact / 1000 * 1.001 + 0.001 or read <= max(values) / 1000


def test_merging_is_not_averaging_percentiles() -> None:
    fast = decode(histogram("latency", [1000] * 990 + [2000] * 10))
    slow = decode(histogram("latency", [100_000] * 10))
    assert merge([fast, slow]).percentile_us(50) == pytest.approx(1.0, rel=1e-3)
    assert merge([fast, slow]).percentile_us(99.5) == pytest.approx(100.0, rel=1e-3)


@given(VALUES_NS, VALUES_NS)
@settings(max_examples=50, deadline=None)
def test_a_remainder_is_what_a_part_does_not_hold(part: list[int], rest: list[int]) -> None:
    whole, first, second = (decode(histogram("latency", values)) for values in (part + rest, part, rest))
    left = remainder(whole, first)
    assert left.count == len(rest)
    assert (left.lows_ns.tolist(), left.counts.tolist()) == (second.lows_ns.tolist(), second.counts.tolist())


@given(VALUES_NS)
@settings(max_examples=50, deadline=None)
def test_the_standard_deviation_is_that_of_the_values(values: list[int]) -> None:
    read = decode(histogram("latency", values))
    if not values:
        assert (read.stdev_us, read.within_stdev) == (None, None)
        return
    wanted_us = statistics.pstdev(values) / 1000
    assert read.stdev_us == pytest.approx(wanted_us, rel=2e-3, abs=max(values) / 1000 * 1e-3)
    assert read.within_stdev is not None and 0 < read.within_stdev <= 1


@given(VALUES_NS, st.integers(1, 3))
@settings(max_examples=30, deadline=None)
def test_buckets_are_those_that_the_library_decodes(values: list[int], digits: int) -> None:
    recorded = HdrHistogram(1, 3_600_000_000_000, digits)
    for value in values:
        recorded.record_value(value)
    encoded = recorded.encode().decode()
    library = HdrHistogram.decode(encoded)
    indexes = np.flatnonzero(np.frombuffer(library.counts, dtype=np.uint64)).tolist()
    lows = [library.get_value_from_index(index) for index in indexes]
    read = decode({"count": len(values), "hdr_v2": encoded})
    assert read.lows_ns.tolist() == lows
    assert read.highs_ns.tolist() == [library.get_highest_equivalent_value(low) for low in lows]
    assert read.counts.tolist() == [library.get_count_at_index(index) for index in indexes]


@given(VALUES_NS)
@settings(max_examples=30, deadline=None)
def test_made_histogram_is_that_of_its_single_values(values: list[int]) -> None:
    single = HdrHistogram(1, 3_600_000_000_000, 3)
    for value in values:
        single.record_value(value)
    assert histogram("latency", values) == {
        "metric": "latency",
        "count": len(values),
        "hdr_v2": single.encode().decode(),
    }


@given(VALUES_NS, st.lists(st.floats(0, 100), max_size=5))
@settings(max_examples=50, deadline=None)
def test_percentiles_read_together_equal_those_read_one_by_one(values: list[int], percentiles: list[float]) -> None:
    read = decode(histogram("latency", values))
    one_by_one = [read.percentile_us(percentile) for percentile in percentiles]
    assert one_by_one == ([None] * len(percentiles) if not values else read.percentiles_us(percentiles))


@pytest.mark.usefixtures("damaged_journals")
@pytest.mark.parametrize(("at", "byte"), [(0, 0x1D), (7, 0xFF), (11, 1), (15, 9), (-1, 0xFF), (-2, 0xFF)], ids=str)
def test_a_changed_byte_of_an_encoding_is_named_or_changes_its_count(at: int, byte: int) -> None:
    content = bytearray(base64.b64decode(PLAIN))
    content[at] = byte
    with pytest.raises(DamagedHistogram):
        decode({"count": 821, "hdr_v2": base64.b64encode(content).decode()})


@pytest.mark.usefixtures("damaged_journals")
def test_an_encoding_that_inflates_beyond_any_histogram_is_refused() -> None:
    packed = zlib.compress(bytes(64 * 1024 * 1024))
    bomb = base64.b64encode(struct.pack(">II", DEFLATED_COOKIE, len(packed)) + packed).decode()
    with pytest.raises(DamagedHistogram, match="too long"):
        decode({"count": 1, "hdr_v2": bomb})
