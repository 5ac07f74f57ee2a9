"""The long journal of the benchmarks: a short run's trial, as repeats of a case and as more cases."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import made_journal
import polars as pl

BEGAN_NS = 100_000_000_000_000
LINES = [
    {"record": "run-begin", "at_ns": BEGAN_NS},
    {"record": "trial-begin", "at_ns": BEGAN_NS + 5, "trial": "c01/1", "case": "c01", "repeat": 1, "parameters": {}},
    {"host": "client1", "event": {"trial": "c01/1/tcp", "t_ns": BEGAN_NS + 7, "length_ns": 9}},
    {"record": "trial-end", "at_ns": BEGAN_NS + 105, "trial": "c01/1", "case": "c01"},
    {"record": "run-end", "at_ns": BEGAN_NS + 110},
]


def test_trials_become_repeats_of_new_cases(tmp_path: Path) -> None:
    short, folder = tmp_path / "short", tmp_path / "long"
    short.mkdir()
    lines = (json.dumps(line, separators=(",", ":")) for line in LINES)
    (short / "journal.ndjson").write_text("".join(f"{line}\n" for line in lines))
    (short / "run.json").write_text(json.dumps({"run_id": "short", "cases": [{"id": "c01", "parameters": {}}]}))
    pl.DataFrame({"value": [1.0] * 10}).write_parquet(short / "samples.parquet")

    # Four copies hold 40 rows; whole cases have three each.
    assert made_journal.make(short, folder, 40) == 60

    made = [json.loads(line) for line in (folder / "journal.ndjson").read_text().splitlines()]
    begun = [line for line in made if line.get("record") == "trial-begin"]
    assert [(line["trial"], line["case"], line["repeat"]) for line in begun] == [
        (f"c01{case}/{repeat}", f"c01{case}", repeat) for case in ("0000", "0001") for repeat in (1, 2, 3)
    ]
    instants = [line["at_ns"] for line in begun]
    assert len({later - earlier for earlier, later in pairwise(instants)}) == 1
    event = made[-3]["event"]
    assert (event["trial"], event["length_ns"]) == ("c010001/3/tcp", 9)
    assert event["t_ns"] - begun[-1]["at_ns"] == 2
    assert [made[0], made[-1]] == [LINES[0], LINES[-1]]
    manifest = json.loads((folder / "run.json").read_text())
    assert [case["id"] for case in manifest["cases"]] == ["c010000", "c010001"]
