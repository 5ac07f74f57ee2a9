"""Tables from a journal: every number in one row, times on the controller's clock, the same again after a kill."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from leadline.dataset import Journal, RunFolder, parquet, rebuild, write_results
from leadline.errors import DatasetError

CPU = {
    "cpu": 1,
    "user_s": 1.5,
    "system_s": 2.5,
    "idle_s": 3.0,
    "iowait_s": 0.25,
    "irq_s": 0.0,
    "softirq_s": 0.5,
    "steal_s": 0.0,
}
INTERFACE = {
    "name": "wan",
    "rx_bytes": 10,
    "rx_packets": 1,
    "rx_errors": 0,
    "rx_dropped": 0,
    "tx_bytes": 20,
    "tx_packets": 2,
    "tx_errors": 0,
    "tx_dropped": 0,
}
OBSERVATION = {
    "type": "observation",
    "trial": None,
    "t_ns": 1_500,
    "observer_cpu_s": 0.125,
    "machine": {
        "cpus": [CPU],
        "memory": {"total_bytes": 100, "available_bytes": 40},
        "pressure": {"cpu": {"some_us": 7, "full_us": None}, "memory": None},
        "softnet": [{"cpu": 1, "processed": 5, "dropped": 6, "squeezed": 7}],
        "clocks": [{"cpu": 1, "mhz": 2900.5, "core_throttles": 11, "package_throttles": None}],
    },
    "network": {"interfaces": [INTERFACE], "tcp": {"in_segments": 3, "listen_drops": None}, "udp": None},
    "cgroup": None,
    "quota": {"group": "/box", "cpus": 1.5, "throttled_periods": 12, "throttled_s": 0.75},
    "processes": [{"name": "openvpn", "pid": 9, "user_s": 0.5, "system_s": 0.25, "resident_bytes": 8, "threads": 1}],
}
HISTOGRAM = {"metric": "latency", "count": 0, "hdr_v2": "HISTFAAAABx4nJNpmSzMwMDAyAABzFAaxmey/wBlAQA8yQJ9"}
PROGRESS = {
    "type": "progress",
    "trial": "c01/1/rr",
    "task": "load",
    "t_ns": 2_500,
    "side": "local",
    "flows": [{"flow": 0, "sent_bytes": 11, "received_bytes": 12, "sent_units": 3, "received_units": None}],
    "histograms": [HISTOGRAM],
}
FINISHED = {
    "type": "finished",
    "trial": "c01/1/rr",
    "task": "load",
    "t_ns": 3_500,
    "outcome": {
        "flows": [
            {
                "flow": 0,
                "direction": "up",
                "due_ns": 1_400,
                "start_ns": 1_450,
                "end_ns": None,
                "sent_bytes": 11,
                "jitter_us": 1.5,
            }
        ],
        "histograms": [HISTOGRAM],
        "errors": {},
        "generator": {"side": "local", "wall_s": 1.0, "threads": [], "pushback": 0},
        "receiver": None,
        "counts": {},
    },
}


SAMPLES = {
    "type": "samples",
    "trial": "c01/1/shop",
    "task": "load",
    "t_ns": 4_500,
    "samples": {
        "wall_offset_ns": 10_000,
        "names": [
            {"name": "log in", "kind": "request", "population": "buyers"},
            {"name": "buy", "kind": "transaction", "population": "buyers"},
        ],
        "name": [0, 1],
        "user": [7, 7],
        "due_ns": [3_500, 3_400],
        "elapsed_ns": [300, 500],
        "before_sent_ns": [20, None],
        "first_byte_ns": [100, None],
        "status": [503, None],
        "sent_bytes": [80, 80],
        "received_bytes": [90, 90],
        "group_active": [2, 2],
        "all_active": [3, 3],
        "urls": [],
        "failures": [{"row": 0, "cause": "status_503", "message": "503 /login"}],
        "openings": [{"row": 0, "dns_ns": None, "connect_ns": 11, "tls_ns": 12}],
        "transactions": [{"row": 1, "waits_ns": 40, "requests": 1, "failed": 1}],
        "left_out": 0,
    },
}


def run_with(tmp_path: Path, *entries: dict[str, Any]) -> RunFolder:
    run = RunFolder.create(tmp_path, "x")
    with Journal(run.journal_path) as journal:
        for entry in entries:
            journal.append(entry)
    return run


def full_run(tmp_path: Path) -> RunFolder:
    return run_with(
        tmp_path,
        {"record": "clock", "host": "gateway", "offset_ns": 500, "bound_ns": 10, "at_ns": 1},
        {"record": "trial-begin", "trial": "c01/1", "at_ns": 2},
        {"host": "gateway", "at_ns": 1_010, "event": OBSERVATION},
        {"host": "gateway", "at_ns": 2_010, "event": PROGRESS},
        {"host": "gateway", "at_ns": 3_010, "event": FINISHED},
        {"host": "gateway", "at_ns": 3_012, "event": {"type": "output", "line": "x", "t_ns": 9}},
        {"record": "trial-end", "trial": "c01/1", "status": "done", "at_ns": 9},
    )


def test_samples_hold_each_number_once_with_labels(tmp_path: Path) -> None:
    run = full_run(tmp_path)
    rebuild(run)
    samples = pl.read_parquet(run.path / "samples.parquet")
    assert samples.columns == ["host", "trial", "t_ns", "metric", "labels", "value"]
    found = {(row["metric"], row["labels"]): row["value"] for row in samples.iter_rows(named=True)}
    assert found[("cpu_user_s", '{"cpu": 1}')] == 1.5
    assert found[("cpu_iowait_s", '{"cpu": 1}')] == 0.25
    assert found[("memory_available_bytes", "{}")] == 40
    assert found[("pressure_some_us", '{"resource": "cpu"}')] == 7
    assert found[("softnet_dropped", '{"cpu": 1}')] == 6
    assert found[("clock_mhz", '{"cpu": 1}')] == 2900.5
    assert found[("clock_core_throttles", '{"cpu": 1}')] == 11
    assert found[("quota_cpus", '{"group": "/box"}')] == 1.5
    assert found[("quota_throttled_s", '{"group": "/box"}')] == 0.75
    assert found[("interface_tx_bytes", '{"interface": "wan"}')] == 20
    assert found[("tcp_in_segments", "{}")] == 3
    assert found[("process_resident_bytes", '{"pid": 9, "process": "openvpn"}')] == 8
    assert found[("observer_cpu_s", "{}")] == 0.125
    assert found[("flow_sent_units", '{"flow": 0, "side": "local", "task": "load"}')] == 3
    assert not any(name in ("pressure_full_us", "tcp_listen_drops", "flow_received_units") for name, _ in found)
    assert len(found) == samples.height


def test_times_are_on_the_controllers_clock_and_trials_are_filled_in(tmp_path: Path) -> None:
    run = full_run(tmp_path)
    rebuild(run)
    samples = pl.read_parquet(run.path / "samples.parquet")
    assert set(samples.filter(pl.col("metric") == "cpu_user_s").select("trial", "t_ns").rows()) == {("c01/1", 1_000)}
    assert set(samples.filter(pl.col("metric").str.starts_with("flow_"))["t_ns"]) == {2_000}
    flows = pl.read_parquet(run.path / "flows.parquet").row(0, named=True)
    assert (flows["due_ns"], flows["start_ns"], flows["end_ns"]) == (900, 950, None)
    assert (flows["host"], flows["trial"], flows["jitter_us"], flows["received_bytes"]) == (
        "gateway",
        "c01/1/rr",
        1.5,
        None,
    )
    histograms = pl.read_parquet(run.path / "histograms.parquet")
    assert histograms["interval_end_ns"].to_list() == [2_000, None]
    assert set(histograms["hdr_v2"]) == {HISTOGRAM["hdr_v2"]}


MALFORMED = {"host": "gateway", "at_ns": 3_011, "event": {"type": "observation", "t_ns": 5}}


@pytest.mark.usefixtures("damaged_journals")
def test_incomplete_event_is_counted_and_has_no_row(tmp_path: Path) -> None:
    entry = {"host": "far", "at_ns": 70, "event": PROGRESS}
    assert rebuild(run_with(tmp_path, entry)) == 0
    run = run_with(tmp_path, MALFORMED, entry, MALFORMED)
    assert rebuild(run) == 2
    assert pl.read_parquet(run.path / "samples.parquet").height == 3


def test_incomplete_event_of_our_own_journal_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        rebuild(run_with(tmp_path, MALFORMED))


def test_without_a_comparison_an_event_is_placed_where_it_was_received(tmp_path: Path) -> None:
    run = run_with(tmp_path, {"host": "far", "at_ns": 70, "event": {**PROGRESS, "t_ns": 10**15}})
    rebuild(run)
    assert set(pl.read_parquet(run.path / "samples.parquet")["t_ns"]) == {70}


def test_rebuilding_twice_gives_the_same_and_leaves_no_other_file(tmp_path: Path) -> None:
    run = full_run(tmp_path)
    names = ("samples.parquet", "flows.parquet", "histograms.parquet")
    rebuild(run)
    first = [pl.read_parquet(run.path / name) for name in names]
    rebuild(run)
    assert all(before.equals(pl.read_parquet(run.path / name)) for before, name in zip(first, names, strict=True))
    assert {path.name for path in run.path.iterdir()} == {"logs", "journal.ndjson", *names}


def test_an_empty_journal_gives_empty_tables_with_their_columns(tmp_path: Path) -> None:
    run = run_with(tmp_path)
    rebuild(run)
    assert pl.read_parquet(run.path / "flows.parquet").height == 0
    assert "hdr_v2" in pl.read_parquet(run.path / "histograms.parquet").columns


def test_results_are_plain_rows(tmp_path: Path) -> None:
    run = run_with(tmp_path)
    write_results(
        run,
        [
            {
                "case": "c01",
                "trial": "c01/1",
                "test": "tcp-up",
                "kind": "tcp",
                "parameters": {"clients": 5},
                "metric": "throughput_bps",
                "value": 1e9,
                "unit": "bit/s",
                "validity": "valid",
                "reasons": ["shared-cpus"],
            },
            {"case": "c01", "metric": "jitter_us", "value": None},
        ],
    )
    rows = pl.read_parquet(run.path / "results.parquet").rows(named=True)
    assert json.loads(rows[0]["parameters"]) == {"clients": 5}
    assert json.loads(rows[0]["reasons"]) == ["shared-cpus"]
    assert rows[0]["low"] is None
    assert rows[1]["value"] is None


def long_run(tmp_path: Path, events: int) -> RunFolder:
    entries = [{"host": "gateway", "at_ns": n, "event": {**PROGRESS, "t_ns": 1000 * n}} for n in range(events)]
    return run_with(tmp_path, *entries, {"host": "gateway", "at_ns": 9, "event": FINISHED})


@pytest.mark.parametrize("max_parts_bytes", [0, 5_000, 1 << 30])
def test_a_table_of_many_chunks_is_the_same_and_leaves_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_parts_bytes: int
) -> None:
    run = long_run(tmp_path, 100)
    rebuild(run)
    names = ("samples.parquet", "flows.parquet", "histograms.parquet")
    whole = [pl.read_parquet(run.path / name) for name in names]
    assert [table.height for table in whole] == [300, 1, 101]
    held: list[int] = []
    add = parquet.ParquetFile.add

    def noted(file: parquet.ParquetFile, make: Callable[[], pl.DataFrame]) -> None:
        held.append(make().height)
        add(file, make)

    monkeypatch.setattr(parquet, "CHUNK_ROWS", 7)
    monkeypatch.setattr(parquet, "MAX_PARTS_BYTES", max_parts_bytes)
    monkeypatch.setattr(parquet.ParquetFile, "add", noted)
    rebuild(run)
    assert len(held) > 30
    assert max(held) <= 9, "a chunk and the rest of the event that fills it"
    for name, before in zip(names, whole, strict=True):
        assert pl.read_parquet(run.path / name).equals(before)
    assert {path.name for path in run.path.iterdir()} == {"logs", "journal.ndjson", *names}


@pytest.mark.parametrize("max_parts_bytes", [0, 1 << 30])
def test_a_disk_that_is_full_in_a_table_of_many_chunks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_parts_bytes: int
) -> None:
    run = long_run(tmp_path, 20)
    monkeypatch.setattr(parquet, "CHUNK_ROWS", 7)
    monkeypatch.setattr(parquet, "MAX_PARTS_BYTES", max_parts_bytes)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(parquet._Sink, "_write_out", full)
    with pytest.raises(DatasetError, match=r"samples\.parquet: no space left on the device"):
        rebuild(run)
    assert {path.name for path in run.path.iterdir()} == {"logs", "journal.ndjson"}


def test_single_requests_have_a_row_each(tmp_path: Path) -> None:
    run = run_with(
        tmp_path,
        {"record": "clock", "host": "client", "offset_ns": 500, "bound_ns": 10, "at_ns": 1},
        {"host": "client", "at_ns": 4_010, "event": SAMPLES},
    )
    rebuild(run)
    request, transaction = pl.read_parquet(run.path / "requests.parquet").rows(named=True)
    assert [request[name] for name in ("group", "user", "kind", "name", "status")] == [
        "buyers", 7, "request", "log in", 503
    ]  # fmt: skip
    assert (request["due_ns"], request["at_ns"]) == (3_000, 13_500)
    assert (request["cause"], request["connect_ns"], request["dns_ns"]) == ("status_503", 11, None)
    assert (transaction["kind"], transaction["waits_ns"], transaction["status"]) == ("transaction", 40, None)
    assert transaction["cause"] is None
