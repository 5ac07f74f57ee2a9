"""A system under test that Leadline does not have goes from plan to report through its one module (`own_system.py`)."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from waiting import WITHIN_S

PROGRAM = [sys.executable, str(Path(__file__).resolve().parent / "own_system.py")]
RATES = {"c01": 5_000_000, "c02": 20_000_000}

PLAN = """
name: throttled
axes: {sut.rate: [5mbit, 20mbit]}
sut: {kind: throttle}
tests:
  - {name: bulk, kind: tcp, duration: 3s}
"""

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(shutil.which("tc") is None, reason="tc is not installed"),
    pytest.mark.takes(18),
]


def leadline(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    argv = [*PROGRAM, *map(str, arguments)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=WITHIN_S, check=False)


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("own") / "plan.yaml"
    path.write_text(PLAN)
    return path


@pytest.fixture(scope="module")
def measured(plan: Path) -> subprocess.CompletedProcess[str]:
    return leadline("run", plan, "--json", "--out", plan.parent / "runs")


def test_plan_has_the_systems_keys_needs_and_estimate(plan: Path) -> None:
    described = json.loads(leadline("plan", plan, "--json").stdout)
    assert [case["sut"] for case in described["cases"]] == [
        {"optional": False, "kind": "throttle", "rate_bps": rate} for rate in RATES.values()
    ]
    assert ["program", "tc"] in [[need["kind"], need["name"]] for need in described["needs"]]
    assert "ThrottleSut" in json.loads(leadline("plan", "--schema").stdout)["$defs"]


@pytest.mark.full_matrix  # Kinds of test are refused in the same way.
def test_wrong_key_of_the_system_is_named_with_its_place(plan: Path) -> None:
    wrong = plan.with_name("wrong.yaml")
    wrong.write_text(PLAN.replace("kind: throttle", "kind: throttle, rat: 5mbit").replace("axes", "# axes"))
    refused = leadline("plan", wrong)
    assert refused.returncode == 2
    assert "wrong.yaml:4: unknown key 'rat' in sut; did you mean 'rate'?" in refused.stderr


@pytest.mark.decided_by("a bucket of 5 Mbit/s, which is always full")
def test_run_brings_the_system_up_and_measures_through_it(
    plan: Path, measured: subprocess.CompletedProcess[str]
) -> None:
    assert measured.returncode == 0, measured.stderr
    document = json.loads(measured.stdout)
    assert document["status"] == "done"
    [folder] = (plan.parent / "runs").iterdir()
    entries = [json.loads(line) for line in (folder / "journal.ndjson").read_text().splitlines()]
    up = {entry["trial"]: entry for entry in entries if entry.get("record") == "bring-up"}
    for case, rate in RATES.items():
        record = up[f"{case}/1"]
        assert (record["sut"]["kind"], record["version"], record["processes"]) == (
            "throttle",
            f"tc at {rate} bit/s",
            [],
        )
        assert [client["state"] for client in record["clients"]] == ["connected"]
    # The bucket is the gateway's, not the lab's, whose links have no rate: its queue is full.
    limits = {one["case"]: one["limit"]["by"] for one in document["summaries"]}
    assert limits["c01"] == "gateway" and limits["c02"] != "link", document["summaries"]
    # What arrives is payload, without headers; the bucket lets its burst of 32 kB through besides.
    throughput = {one["case"]: one["metrics"]["throughput_bps"]["value"] for one in document["summaries"]}
    assert all(0 < throughput[case] <= 1.1 * rate for case, rate in RATES.items())


def test_report_names_the_system(plan: Path, measured: subprocess.CompletedProcess[str]) -> None:
    [folder] = (plan.parent / "runs").iterdir()
    shown = leadline("report", folder)
    assert shown.returncode == 0, shown.stderr
    assert "throttle tc at 5000000 bit/s" in " ".join(shown.stdout.split())
    findings = json.loads((folder / "findings.json").read_text())
    systems = {(trial["sut"], trial["sut_version"], trial["on_given_hosts"]) for trial in findings["run"]["trials"]}
    assert systems == {("throttle", f"tc at {rate} bit/s", False) for rate in RATES.values()}
    assert (folder / "report.html").exists()


@pytest.mark.full_matrix  # Kinds of test are refused in the same way.
def test_without_the_module_there_is_no_such_system(plan: Path) -> None:
    plain = [str(Path(sys.executable).parent / "leadline"), "plan", str(plan)]
    refused = subprocess.run(plain, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert refused.returncode == 2
    assert "unknown axis 'sut.rate'" in refused.stderr
