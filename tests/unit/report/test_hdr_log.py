"""The HdrHistogram log: read by HdrHistogram's own reader, it holds what the agent recorded, no more and no less."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader

from leadline.report import hdr_log

START_NS = 7_000_000_000
EPOCH_NS = 1_700_000_000_000_000_000
S = 1_000_000_000
OFFSET_NS = 40 * S


def report(metric: str, values: list[int]) -> dict[str, Any]:
    made = HdrHistogram(1, 3_600_000_000_000, 3)
    for value in values:
        made.record_value(value)
    return {"metric": metric, "count": len(values), "hdr_v2": made.encode().decode("ascii")}


def progress(t_ns: int, *reports: dict[str, Any]) -> dict[str, Any]:
    event = {"type": "progress", "t_ns": t_ns + OFFSET_NS, "flows": [], "histograms": list(reports)}
    return {"host": "here", "at_ns": t_ns, "event": event}


def journal(*events: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"record": "clock", "at_ns": 1, "host": "here", "offset_ns": OFFSET_NS, "bound_ns": 0},
        {"record": "test-begin", "at_ns": 2, "label": "c01/1/http", "start_at_ns": START_NS},
        *events,
    ]


def finished(t_ns: int, *reports: dict[str, Any]) -> dict[str, Any]:
    event = {"type": "finished", "t_ns": t_ns + OFFSET_NS, "outcome": {"histograms": list(reports)}}
    return {"host": "here", "at_ns": t_ns, "event": event}


def read(text: str, folder: Path) -> dict[str, list[Any]]:
    """Each tag's histograms as HdrHistogram's reader decodes them."""
    path = folder / "out.hlog"
    path.write_text(text)
    reader = HistogramLogReader(str(path), HdrHistogram(1, 3_600_000_000_000, 3))
    found: dict[str, list[Any]] = defaultdict(list)
    try:
        while (histogram := reader.get_next_interval_histogram()) is not None:
            found[histogram.get_tag() or ""].append(histogram)
    finally:
        reader.input_file.close()
    return found


def test_intervals_and_the_rest_add_up_to_the_total(tmp_path: Path) -> None:
    first, second, rest = [1_000_000, 2_000_000], [3_000_000] * 5, [9_000_000]
    text = hdr_log(
        journal(
            progress(START_NS + 1 * S, report("latency", first), report("connect", [50_000])),
            progress(START_NS + 2 * S, report("latency", second)),
            finished(START_NS + 2 * S + S // 2, report("latency", first + second + rest), report("connect", [50_000])),
        ),
        EPOCH_NS,
    )
    found = read(text, tmp_path)
    assert set(found) == {"", "connect"}
    assert [one.get_total_count() for one in found[""]] == [2, 5, 1]
    assert [one.get_total_count() for one in found["connect"]] == [1]
    assert found[""][2].get_max_value() == pytest.approx(9_000_000, rel=1e-3)
    start_ms = (START_NS + EPOCH_NS) / 1e6
    stamps = [(one.get_start_time_stamp() - start_ms, one.get_end_time_stamp() - start_ms) for one in found[""]]
    assert [pytest.approx(pair, abs=1) for pair in stamps] == [(0, 1000), (1000, 2000), (2000, 2500)]


def test_the_head_is_of_format_1_3_and_lines_are_in_order() -> None:
    text = hdr_log(
        journal(
            progress(START_NS + S, report("late", [10]), report("latency", [1_234_567])),
            progress(START_NS + 2 * S, report("latency", [1]), report("warmup_latency", [2])),
        ),
        EPOCH_NS,
    )
    lines = text.splitlines()
    assert lines[1] == "#[Histogram log format version 1.3]"
    assert lines[2] == "#[StartTime: 1700000007.000 (seconds since epoch), Tue Nov 14 22:13:27 UTC 2023]"
    assert lines[3] == "#[BaseTime: 1700000007.000 (seconds since epoch)]"
    assert lines[4].startswith("#[") and "Tag=latency_censored" in lines[4]
    assert lines[5] == '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"'
    assert re.fullmatch(r"Tag=late,0\.000,1\.000,0\.000,HISTFAAA\S+", lines[6])
    assert re.fullmatch(r"0\.000,1\.000,1\.235,HISTFAAA\S+", lines[7])
    starts = [float(line.split(",")[1 if line.startswith("Tag=") else 0]) for line in lines[6:]]
    assert starts == sorted(starts)
    assert lines[8].startswith("Tag=warmup_latency,")


def test_a_load_that_was_cut_off_leaves_its_intervals(tmp_path: Path) -> None:
    found = read(hdr_log(journal(progress(START_NS + S, report("latency", [5, 6, 7]))), EPOCH_NS), tmp_path)
    assert [one.get_total_count() for one in found[""]] == [3]


@pytest.mark.usefixtures("damaged_journals")
def test_what_cannot_be_read_is_left_out_and_counted(tmp_path: Path) -> None:
    broken = {"metric": "latency", "count": 3, "hdr_v2": "AAAA"}
    text = hdr_log(
        journal(progress(START_NS + S, broken), progress(START_NS + 2 * S, report("latency", [5]))), EPOCH_NS
    )
    assert [one.get_total_count() for one in read(text, tmp_path)[""]] == [1]
    assert "#[1 histogram could not be read: values are missing]" in text


def test_a_load_that_never_began_leaves_a_head_alone() -> None:
    assert len(hdr_log([], EPOCH_NS).splitlines()) == 6
