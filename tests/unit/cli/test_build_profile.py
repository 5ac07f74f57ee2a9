"""The profile that built the agent: `--version`, `doctor`, a measurement's document and a run's files name it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from in_process import leadline
from leadline.agents import binary
from leadline.cli import host_checks
from leadline.cli.version import version_text
from leadline.contract.models import Hello

GOLDEN = Path(__file__).resolve().parents[3] / "contract" / "golden" / "events.jsonl"


def program(folder: Path, lines: str) -> Path:
    made = folder / "leadline-agent"
    made.write_text(f"#!/bin/sh\n{lines}\n")
    made.chmod(0o755)
    return made


def hello(**changes: str | None) -> Hello:
    greeting = next(line for line in GOLDEN.read_text().splitlines() if json.loads(line)["type"] == "hello")
    return Hello.model_validate_json(greeting).model_copy(update=changes)


def test_version_names_the_agent_with_its_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = program(tmp_path, "echo 'leadline-agent 0.1.0 (checked)'")
    monkeypatch.setenv(binary.AGENT_VARIABLE, str(agent))
    first, second = version_text().splitlines()
    assert first.startswith("leadline 0.1.0 (commit ")
    assert second == f"leadline-agent 0.1.0 (checked) at {agent}"
    program(tmp_path, "exit 3")
    assert "leadline-agent: version unknown: " in version_text()
    monkeypatch.setenv(binary.AGENT_VARIABLE, str(tmp_path / "none"))
    assert version_text().splitlines()[1] == "leadline-agent is not installed"


@pytest.mark.parametrize(
    ("profile", "works", "says"),
    [
        ("release", True, "built as release"),
        ("quick", True, "built as quick"),
        ("checked", False, "built as checked"),
        (None, True, "build profile unknown"),
    ],
)
def test_doctor_warns_of_an_agent_for_tests(profile: str | None, works: bool, says: str) -> None:
    check = host_checks.agent_check(hello(build_profile=profile), Path("/opt/leadline-agent"))
    assert (check.works, check.mend is None) == (works, works)
    assert check.why == f"0.1.0, {says}, /opt/leadline-agent"


@pytest.mark.agent
def test_documents_name_the_profile_that_the_agent_states() -> None:
    said = subprocess.run([binary.agent_binary(), "--version"], capture_output=True, text=True, check=True).stdout
    profile = said.strip().rpartition("(")[2].rstrip(")")
    (check,) = [one for one in json.loads(leadline("doctor", "--json").stdout)["findings"] if one["what"] == "agent"]
    assert f"built as {profile}" in check["why"]
    for command in (("observe", "-d", "300ms"), ("crypto", "-d", "1ms", "-l", "64", "--no-handshakes")):
        ended = leadline(*command, "--json")
        assert json.loads(ended.stdout)["build_profile"] == profile, ended.stderr
