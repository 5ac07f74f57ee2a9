"""What a command line costs before anything happens: which heavy modules it imports. Counted, not timed."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

# Libraries that take longer to import than the rest of a command line does to run.
LIBRARIES = (
    *("cryptography", "hdrh", "jinja2", "MLRsearch", "numpy", "polars", "pyroute2", "scipy"),
    *("asyncio", "rich", "leadline.contract.models", "leadline.trial", "leadline.analysis", "leadline.report"),
)
# What one measurement has no use for: a lab's, a gateway's and a run folder's.
OF_RUNS = (
    *("cryptography", "jinja2", "MLRsearch", "polars", "pyroute2", "scipy"),
    *("leadline.lab", "leadline.sut", "leadline.plan.document", "leadline.trial.campaign", "leadline.report.html"),
)
# What draws on a terminal alone.
OF_TERMINALS = ("rich.live",)

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples" / "gateway.yaml"

PROGRAM = str(ROOT / "tests" / "unit" / "imported_modules.py")
COMMAND_LINES = {
    "--help": 0,
    "--version": 0,
    "http --help": 0,
    "http http://192.0.2.7/ --rate bad": 2,
    "http ftp://192.0.2.7/": 2,
    "tcp 192.0.2.7 --size 0": 2,
    "udp 192.0.2.7 --reverse --bidir": 2,
    "tunnel --help": 0,
    "tunnel client.ovpn --number many": 2,
    "run": 2,
}


def outcome_of(use: str, *arguments: str) -> tuple[Any, set[str]]:
    done = subprocess.run([sys.executable, PROGRAM, use, *arguments], capture_output=True, text=True, check=True)
    found, modules = json.loads(done.stderr.splitlines()[-1])
    return found, set(modules)


@pytest.mark.processes
def test_help_and_refusals_import_nothing_heavy() -> None:
    found, modules = outcome_of("commands", json.dumps(list(COMMAND_LINES)), json.dumps(LIBRARIES))
    assert found == {line: [status, []] for line, status in COMMAND_LINES.items()}
    assert "leadline.cli.app" in modules


@pytest.mark.processes
def test_version_is_printed_without_the_commands() -> None:
    status, modules = outcome_of("version")
    assert status == 0
    assert "leadline.cli.version" in modules
    assert modules & {"leadline.cli.app", "pydantic", "typer"} == set()


@pytest.mark.processes
def test_one_measurement_imports_what_measures_it_alone() -> None:
    _, modules = outcome_of("measurement")
    assert "leadline.trial.single" in modules
    assert modules & set(OF_RUNS) == set()


@pytest.mark.processes
@pytest.mark.agent
def test_a_whole_measurement_imports_nothing_of_a_run() -> None:
    line = "tcp -d 100ms --json"
    found, _ = outcome_of("commands", json.dumps([line]), json.dumps([*OF_RUNS, *OF_TERMINALS]))
    assert found == {line: [0, []]}


@pytest.mark.processes
def test_of_all_workloads_only_the_one_that_is_sent_is_built() -> None:
    built, _ = outcome_of("workload", "RrWorkload")
    assert built == ["RrWorkload"]


@pytest.mark.processes
def test_a_plan_is_read_without_what_acts_on_hosts() -> None:
    cases, modules = outcome_of("cases", str(EXAMPLE))
    assert cases == 3
    assert {"leadline.sut.route", "leadline.sut.wireguard", "leadline.sut.openvpn"} <= modules
    assert modules & {*OF_RUNS, "leadline.agents", "leadline.contract.models"} == {
        *("leadline.sut", "leadline.plan.document")
    }


PACKAGES = ("leadline.dataset", "leadline.plan", "leadline.report", "leadline.trial")


@pytest.mark.processes
def test_every_name_of_a_package_is_there_when_it_is_asked_for() -> None:
    missing, _ = outcome_of("missing_names", *PACKAGES)
    assert missing == []
    for package in PACKAGES:
        with pytest.raises(AttributeError, match="no_such_name"):
            vars(importlib.import_module(package))["__getattr__"]("no_such_name")


def test_only_a_search_imports_its_library() -> None:
    sources = {path: path.read_text(encoding="utf-8") for path in (ROOT / "python" / "leadline").rglob("*.py")}
    library = [path.name for path, text in sources.items() if re.search(r"^\s*(from|import) MLRsearch", text, re.M)]
    users = [path.name for path, text in sources.items() if re.search(r"^(from|import) .*mlr_search", text, re.M)]
    assert (library, users) == (["mlr_search.py"], [])
