"""The queries over many runs (`examples/queries`) find what is known to be in tables of several versions."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

from leadline.dataset import Journal, RunFolder, write_results
from leadline.dataset.samples import SAMPLES_SCHEMA
from leadline.dataset.tables import FLOWS_SCHEMA
from leadline.trial import conclude

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "examples" / "queries").glob("*.sql"))
QUERIES = {path.name: path.read_text(encoding="utf-8") for path in FILES}
DOCUMENTS = sorted((ROOT / "docs").rglob("*.md"))

sys.path[:0] = [str(ROOT / "tests" / "unit" / "analysis")]

from made_journals import EPOCH_NS, MadeRun, S  # noqa: E402

OLD, NEW, NEWEST = "20260101T000000Z-nightly-a", "20260102T000000Z-nightly-b", "20260103T000000Z-nightly-c"


def asked(query: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """The rows of a query that is asked in a folder."""
    monkeypatch.chdir(folder)
    with duckdb.connect() as connection:
        return connection.execute(QUERIES[query]).fetchall()


def figure(trial: str | None, value: float, validity: str = "valid", **others: Any) -> dict[str, Any]:
    reasons = [] if validity == "valid" else ["other-work"]
    row: dict[str, Any] = {
        "case": "c01",
        "trial": trial,
        "test": "udp",
        "kind": "udp",
        "parameters": {},
        "metric": "throughput_bps",
    }
    return {**row, "value": value, "unit": "bit/s", "validity": validity, "reasons": reasons, **others}


def samples(host: str, trial: str, steps: Iterable[int], bytes_per_s: int) -> list[dict[str, Any]]:
    """A counter of each of two interfaces, each half second, from an instant that is no whole second on."""
    return [
        {"host": host, "trial": trial, "t_ns": EPOCH_NS + 7 + step * S // 2, "metric": "interface_tx_bytes"}
        | {"labels": json.dumps({"interface": name}), "value": step * each / 2}
        for step in steps
        for name, each in (("wan", bytes_per_s), ("lo", 1e9))
    ]


def flow(host: str, number: int, latency_us: float, lost: int = 0) -> dict[str, Any]:
    at = {"host": host, "trial": "c01/1/udp", "task": "load", "flow": number, "direction": "up"}
    return {**at, "latency_mean_us": latency_us, "latency_max_us": 2 * latency_us, "sent_units": 1000, "lost": lost}


def write_run(
    runs: Path,
    run_id: str,
    version: str,
    results: list[dict[str, Any]],
    tables: Mapping[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {},
) -> Path:
    folder = runs / run_id
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"run_id": run_id, "version": version, "name": "nightly", "cases": []}))
    write_results(RunFolder(folder), results)
    for name, (rows, schema) in tables.items():
        pl.DataFrame(rows, schema=schema).write_parquet(folder / f"{name}.parquet")
    return folder


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """Three runs of a case of two trials: the second run lost a host, the third is of a version that is slower."""
    runs = tmp_path / "runs"
    both: dict[str, Any] = {"low": 9e7, "high": 1.1e8}
    old = write_run(
        runs,
        OLD,
        "0.1.0",
        [figure("c01/1", 1.0e8), figure("c01/2", 1.02e8), figure(None, 1.01e8, **both)],
        {
            "samples": (samples("client1", "c01/1/udp", range(9), 1000), SAMPLES_SCHEMA),
            "flows": ([flow("client1", number, 100.0) for number in range(4)], FLOWS_SCHEMA),
        },
    )
    # An older version's table has fewer columns, and in another order.
    table = pl.read_parquet(old / "results.parquet")
    table.select(sorted(set(table.columns) - {"censored", "bound", "ratio"})).write_parquet(old / "results.parquet")
    lost = samples("client1", "c01/1/udp", range(21), 1000) + samples("client2", "c01/1/udp", range(9), 3000)
    slow = [flow("client1", 0, 100.0), *(flow("client2", number, 900.0, lost=10) for number in range(2))]
    write_run(
        runs,
        NEW,
        "0.1.0",
        [figure("c01/1", 1.0e8, "disturbed"), figure("c01/2", 1.0e8), figure(None, 1.0e8, "disturbed", **both)],
        {"samples": (lost, SAMPLES_SCHEMA), "flows": (slow, FLOWS_SCHEMA)},
    )
    newest = write_run(
        runs,
        NEWEST,
        "0.2.0",
        [figure("c01/1", 8.0e7), figure("c01/2", 8.0e7), figure(None, 8.0e7, **both)],
    )
    # A newer version's table has one more.
    table = pl.read_parquet(newest / "results.parquet").with_columns(lost_hosts=pl.lit("client7"))
    table.write_parquet(newest / "results.parquet")
    return tmp_path


def test_case_over_runs(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = asked("case-over-runs.sql", made, monkeypatch)
    assert [(run, value, validity) for run, _, value, _, _, _, validity in rows] == [
        (OLD, 1.01e8, "valid"),
        (NEW, 1.0e8, "disturbed"),
        (NEWEST, 8.0e7, "valid"),
    ]


def test_worst_hosts(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked("worst-hosts.sql", made, monkeypatch) == [
        ("client2", 2, 900.0, 1800.0, 0.01),
        ("client1", 5, 100.0, 200.0, 0.0),
    ]


def test_lost_hosts(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked("lost-hosts.sql", made, monkeypatch) == [(NEW, "c01/1", "client2", 6.0)]


def test_valid_share(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [row] = asked("valid-share.sql", made, monkeypatch)
    assert row == ("udp", "throughput_bps", 6, pytest.approx(5 / 6), '["other-work"]')


def test_between_versions(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [row] = asked("between-versions.sql", made, monkeypatch)
    assert row == ("c01", "udp", "throughput_bps", 1.0e8, 8.0e7, pytest.approx(-0.2), 3, 2)


def test_traffic_over_time(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = asked("traffic-over-time.sql", made, monkeypatch)
    of_old = [(second, bits) for run, _, second, bits in rows if run == OLD]
    # The first half second has no difference, and the last sample begins another second.
    assert of_old == [(0, 4_000.0), (1, 8_000.0), (2, 8_000.0), (3, 8_000.0), (4, 4_000.0)]
    of_new = [bits for run, _, _, bits in rows if run == NEW]
    assert of_new[1:4] == [32_000.0] * 3
    assert of_new[5:10] == [8_000.0] * 5


@pytest.mark.parametrize("query", QUERIES)
def test_query_runs_over_what_a_run_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: str) -> None:
    made_run = MadeRun()
    made_run.begin()
    made_run.begin_trial("c01/1", clients=1)
    made_run.test("c01/1", 1.0e6)
    made_run.end_trial("c01/1")
    made_run.end()
    run = RunFolder.create(tmp_path / "runs", "made")
    run.write_manifest({"name": "made", "run_id": run.run_id, "version": "0.1.0"})
    with Journal(run.journal_path) as journal:
        for entry in made_run.entries:
            journal.append(entry)
    assert conclude(run).problems == ()
    rows = asked(query, tmp_path, monkeypatch)
    if query == "case-over-runs.sql":
        assert [(row[0], row[1], row[2]) for row in rows] == [(run.run_id, "tcp-up", pytest.approx(8.0e6, rel=0.02))]


def test_queries_of_the_documents_are_those_of_the_examples() -> None:
    texts = [document.read_text(encoding="utf-8") for document in DOCUMENTS]
    shown = [block for text in texts for block in re.findall(r"^```sql\n(.*?)^```", text, re.S | re.M)]
    assert [block for block in shown if block not in QUERIES.values()] == []
