"""What a command line costs before anything happens: which heavy modules it imports. Counted, not timed."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

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

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "gateway.yaml"

_PROGRAM = """
import json, sys
from leadline.cli import app
sys.argv = ["leadline", *{arguments!r}]
status = app._status()
print(json.dumps([status, sorted(sys.modules)]), file=sys.stderr)
"""


def outcome_of(program: str) -> tuple[int, set[str]]:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    status, modules = json.loads(done.stderr.splitlines()[-1])
    return status, set(modules)


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["--help"], 0),
        (["--version"], 0),
        (["http", "--help"], 0),
        (["http", "http://192.0.2.7/", "--rate", "bad"], 2),
        (["http", "ftp://192.0.2.7/"], 2),
        (["tcp", "192.0.2.7", "--size", "0"], 2),
        (["udp", "192.0.2.7", "--reverse", "--bidir"], 2),
        (["tunnel", "--help"], 0),
        (["tunnel", "client.ovpn", "--number", "many"], 2),
        (["run"], 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_help_and_refusals_import_nothing_heavy(arguments: list[str], status: int) -> None:
    found, modules = outcome_of(_PROGRAM.format(arguments=arguments))
    assert found == status
    assert "leadline.cli.app" in modules
    assert modules & set(LIBRARIES) == set()


def test_one_measurement_imports_what_measures_it_alone() -> None:
    program = (
        "import json, sys\nimport leadline.cli.run_single\nprint(json.dumps([0, sorted(sys.modules)]), file=sys.stderr)"
    )
    _, modules = outcome_of(program)
    assert "leadline.trial.single" in modules
    assert modules & set(OF_RUNS) == set()


def test_a_plan_is_read_without_what_acts_on_hosts() -> None:
    program = f"""
import json, sys
from pathlib import Path
from leadline.plan import describe, load_plan
cases = describe(load_plan(Path({str(EXAMPLE)!r}))).cases
print(json.dumps([len(cases), sorted(sys.modules)]), file=sys.stderr)
"""
    cases, modules = outcome_of(program)
    assert cases == 3
    assert {"leadline.sut.route", "leadline.sut.wireguard", "leadline.sut.openvpn"} <= modules
    assert modules & {*OF_RUNS, "leadline.agents", "leadline.contract.models"} == {
        *("leadline.sut", "leadline.plan.document")
    }


@pytest.mark.parametrize("package", ["leadline.dataset", "leadline.plan", "leadline.report", "leadline.trial"])
def test_every_name_of_a_package_is_there_when_it_is_asked_for(package: str) -> None:
    program = f"""
import importlib, json, sys
package = importlib.import_module({package!r})
missing = [name for name in package.__all__ if not hasattr(package, name)]
print(json.dumps([len(missing), sorted(missing)]), file=sys.stderr)
"""
    assert outcome_of(program) == (0, set())
    with pytest.raises(AttributeError, match="no_such_name"):
        vars(importlib.import_module(package))["__getattr__"]("no_such_name")
