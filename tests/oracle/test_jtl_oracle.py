"""JMeter is the oracle of its result files: what users did is in the same rows, and JMeter's report generator reads
them. `jtl/` has JMeter's rows, without times and sizes; `make test-all` asks it again.

LEADLINE_RECORD_ORACLE=1 with `-m full_matrix` writes the answers again.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
from pathlib import Path

import pytest
from jmeter import HOME, is_available, jars, jmeter
from recording_server import RecordingServer, recording_server
from test_jmeter_oracle import CASES, written

from in_process import leadline

NAMES = ("bodies", "other-assertions", "transactions-as-parents")
SAME = (
    "label", "responseMessage", "threadName", "dataType", "success", "grpThreads", "allThreads", "URL",
)  # fmt: skip
ANSWERS = Path(__file__).parent / "jtl"
pytestmark = [pytest.mark.agent, pytest.mark.takes(5)]


@pytest.mark.parametrize("name", NAMES)
def test_rows_are_those_of_jmeter(name: str, tmp_path: Path) -> None:
    with recording_server() as server:
        rows = ours(name, server, tmp_path)
        expected = json.loads((ANSWERS / f"{name}.json").read_text(encoding="utf-8"))
        assert facts(rows, server.port) == expected
    for row in rows:
        assert 0 <= int(row["Connect"]) <= int(row["Latency"]) <= int(row["elapsed"]) + 1 or row["URL"] == "null"
        assert int(row["bytes"]) > 0 and int(row["sentBytes"]) > 0


@pytest.mark.full_matrix
@pytest.mark.skipif(not is_available(), reason="JMeter needs Maven and a JDK")
def test_jmeter_writes_the_recorded_rows_and_its_report_generator_reads_ours(tmp_path: Path) -> None:
    with recording_server() as server:
        with jmeter(tmp_path) as oracle:
            for name in NAMES:
                plan = written(CASES[name], tmp_path)
                oracle.run(plan, port=str(server.port))
                found = facts(rows_of(plan.with_suffix(".jtl")), server.port)
                file = ANSWERS / f"{name}.json"
                if os.environ.get("LEADLINE_RECORD_ORACLE"):
                    lines = ",\n".join(f"  {json.dumps(row)}" for row in found)
                    file.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
                assert found == json.loads(file.read_text(encoding="utf-8"))
        rows = ours("bodies", server, tmp_path)
    report = tmp_path / "report"
    flags = ["-Djava.awt.headless=true", f"-Djmeter.home={HOME}", "-cp", f"{jars()}/*", "org.apache.jmeter.NewDriver"]
    for folder in ("lib/ext", "lib/junit"):
        (HOME / folder).mkdir(parents=True, exist_ok=True)
    command: list[str | Path] = [
        "java",
        *flags,
        "-g",
        tmp_path / "ours.jtl",
        "-o",
        report,
        "-j",
        tmp_path / "jmeter-g.log",
    ]
    subprocess.run(command, check=True, timeout=120, cwd=tmp_path)
    total = json.loads((report / "statistics.json").read_text(encoding="utf-8"))["Total"]
    requests = [row for row in rows if row["URL"] != "null"]
    counts = (len(requests), sum(row["success"] != "true" for row in requests))
    assert (total["sampleCount"], total["errorCount"]) == counts


def ours(name: str, server: RecordingServer, folder: Path) -> list[dict[str, str]]:
    """The rows that Leadline writes."""
    file = folder / "ours.jtl"
    done = leadline("scenario", written(CASES[name], folder), "-J", f"port={server.port}", "--jtl", file)
    assert done.returncode == 0, done.stderr
    return rows_of(file)


def rows_of(file: Path) -> list[dict[str, str]]:
    """The rows of a result file."""
    with file.open(encoding="utf-8", newline="") as opened:
        return list(csv.DictReader(opened))


def facts(rows: list[dict[str, str]], port: int) -> list[list[str]]:
    """What is the same in each run, in order of names: rows are written when a request ends, and a transaction after
    its requests or before them."""
    return sorted([row[column].replace(str(port), "PORT") for column in SAME] for row in rows)
