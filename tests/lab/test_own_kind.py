"""A kind of test that Leadline does not have goes from plan to report through its one module (`own_kind.py`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from report_page import packed_cases
from waiting import WITHIN_S

PROGRAM = [sys.executable, str(Path(__file__).resolve().parent / "own_kind.py")]
# A network of its own, where no other process uses the ports.
NAMESPACE = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--net"]
INSIDE = [*NAMESPACE, "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]

pytestmark = [
    pytest.mark.lab,
    pytest.mark.takes(35),
    pytest.mark.decided_by("the number of pulses, and a bound of ten seconds"),
]

PLAN = """
name: own
hosts: {gateway: local, server: local, clients: [local]}
sut: {kind: given, label: loopback of this machine}
axes: {tests.beat.size: [64, 128]}
tests:
  - {name: beat, kind: pulse, number: 200, duration: 60s}
targets: ["beat.pulses >= 200", "latency_p99_us < 10s"]
"""


def leadline(*arguments: str | Path, inside: bool = False) -> subprocess.CompletedProcess[str]:
    argv = [*(INSIDE if inside else []), *PROGRAM, *map(str, arguments)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=WITHIN_S, check=False)


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("own") / "plan.yaml"
    path.write_text(PLAN)
    return path


@pytest.fixture(scope="module")
def measured(plan: Path) -> subprocess.CompletedProcess[str]:
    return leadline("run", plan, "--json", "--out", plan.parent / "runs", inside=True)


def test_plan_has_the_kinds_keys_and_schema(plan: Path) -> None:
    described = json.loads(leadline("plan", plan, "--json").stdout)
    [tests] = {json.dumps([test["kind"] for test in case["tests"]]) for case in described["cases"]}
    assert json.loads(tests) == ["pulse"]
    assert [case["tests"][0]["parameters"]["size_bytes"] for case in described["cases"]] == [64, 128]
    assert "PulseTest" in json.loads(leadline("plan", "--schema").stdout)["$defs"]


def test_wrong_key_of_the_kind_is_named_with_its_place(plan: Path) -> None:
    wrong = plan.with_name("wrong.yaml")
    wrong.write_text(PLAN.replace("number: 200", "nummer: 200"))
    refused = leadline("plan", wrong)
    assert refused.returncode == 2
    assert "wrong.yaml:7: unknown key 'nummer' in tests.beat; did you mean 'number'?" in refused.stderr


def test_run_measures_the_kind_and_judges_its_targets(measured: subprocess.CompletedProcess[str]) -> None:
    assert measured.returncode in (0, 4), measured.stderr
    document = json.loads(measured.stdout)
    assert document["status"] == "done"
    figures = [summary["metrics"] for summary in document["summaries"]]
    assert [one["pulses"]["value"] for one in figures] == [200, 200]
    assert all(one["pulses_per_s"]["value"] > 0 for one in figures)
    assert {target["target"] for target in document["targets"]} == {"beat.pulses >= 200", "latency_p99_us < 10s"}
    assert "missed" not in {target["outcome"] for target in document["targets"]}


def test_tables_and_page_show_the_kinds_figures(plan: Path, measured: subprocess.CompletedProcess[str]) -> None:
    [folder] = (plan.parent / "runs").iterdir()
    shown = leadline("report", folder)
    assert shown.returncode == 0, shown.stderr
    assert "beat" in shown.stdout and "p50" in shown.stdout
    page = (folder / "report.html").read_text()
    assert "<h3>beat <small>pulses that came back</small></h3>" in page
    assert [" pulses</small>" in case for case in packed_cases(page)] == [True, True]
    rows = leadline("results", folder, "--json")
    assert '"pulses_per_s"' in rows.stdout


def test_kind_has_a_command_made_of_its_options() -> None:
    shown = leadline("pulse", "--help")
    assert "Send pulses to a server." in shown.stdout
    assert "UDP payload of each pulse, bytes." in shown.stdout
    refused = leadline("pulse", "192.0.2.7", "--size", "10")
    assert refused.returncode == 2
    assert "--size: 10 bytes is too small; at least 40 bytes" in refused.stderr


def test_without_the_module_there_is_no_such_kind(plan: Path) -> None:
    plain = [str(Path(sys.executable).parent / "leadline"), "plan", str(plan)]
    refused = subprocess.run(plain, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert refused.returncode == 2
    assert "pulse" in refused.stderr
