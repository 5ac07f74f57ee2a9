"""Every example of the documents runs: shell blocks as they stand, in a network of their own; plans as they stand.

What is shortened, so that a test takes seconds: plans, also those that the commands name, are copies with short tests
and without repeats, which a command does not ask for either; of the seconds of a measurement a fifth passes, and of
that of a calibration a twentieth. Everything else of a command is verbatim.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from leadline.agents import binary

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.apart, pytest.mark.takes(20)]
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "ARCHITECTURE.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
MEASUREMENTS = tuple(f"leadline {kind} " for kind in ("tcp", "udp", "rr", "http", "tunnel", "packets", "ladder"))
NAMESPACE = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--net"]


def blocks(document: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", document.read_text(encoding="utf-8"), re.S | re.M)


def commands(document: Path) -> list[str]:
    lines = [line for block in blocks(document, "sh") for line in block.splitlines()]
    return [line.partition("  #")[0].rstrip() for line in lines if line.strip()]


def shell_lines(document: Path) -> list[str]:
    return [line for line in commands(document) if not line.startswith("make ")]


def make_targets(document: Path) -> list[str]:
    inline = re.findall(r"`make ([a-z-]+)`", document.read_text(encoding="utf-8"))
    return [*inline, *(line.split()[1] for line in commands(document) if line.startswith("make "))]


def plans(document: Path) -> list[str]:
    return blocks(document, "yaml")


def links(document: Path) -> list[str]:
    """Files that the document links to, of this project."""
    return re.findall(r"\]\(([^)#:]+)\)", document.read_text(encoding="utf-8"))


def documents_with(parts: Callable[[Path], list[str]]) -> list[Path]:
    """The documents that have such parts: a test of the others would check nothing."""
    found = [document for document in DOCUMENTS if parts(document)]
    assert found != []
    return found


def name_of(document: Path) -> str:
    return str(document.relative_to(ROOT))


def shortened(line: str) -> str:
    """A measurement's second becomes 200 ms, and a run's repeats one."""
    if not line.startswith(MEASUREMENTS):
        return re.sub(r"--set repeat=\d+", "--set repeat=1", line)
    return re.sub(r"\b(\d+)s\b", lambda found: f"{int(found[1]) * 200}ms", line)


def shortened_plan(text: str) -> str:
    """A plan whose tests take 400 ms each, once."""
    text = re.sub(r"\b(duration: )\d+m?s", r"\g<1>400ms", text)
    text = re.sub(r"\b(warmup: )\d+m?s", r"\g<1>50ms", text)
    return re.sub(r"^(repeat: )(\{.*\}|\d+)$", r"\g<1>1", text, flags=re.MULTILINE)


def script(lines: list[str]) -> str:
    """The lines as one script that stops at the first failure and ends what it put into the background."""
    parts = ["set -euo pipefail", "ip link set lo up", "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT"]
    for line in lines:
        # On a machine that others use too, a target may be missed (exit code 3) or undecided (4) because of them.
        parts.append(f"{line} || [[ $? = [34] ]]" if re.search("--target|--find-rate", line) else line)
        if line.endswith("&"):
            parts.append(listening(line))
    return "\n".join(parts)


def listening(line: str) -> str:
    """Waits until a server that a line has started answers on all its ports; OpenVPN, until it says so in its log.

    Fails where the server ends before.
    """
    otherwise = "do kill -0 $!; sleep 0.02; done"
    if line.startswith("openvpn "):
        log = line.rpartition(">")[2].strip(" &")
        return f"until grep -q 'Initialization Sequence Completed' {log} 2>/dev/null; {otherwise}"
    named = re.findall(r"--https?-port (\d+)", line)
    port = re.findall(r"--port (\d+)", line) or ["5201"]
    ports = [
        *([] if "--http " in line else port),
        *([] if "--http-port" in line or "--no-http" in line else ["8080"]),
        *named,
    ]
    return f"until {' && '.join(f'(: > /dev/tcp/127.0.0.1/{port}) 2>/dev/null' for port in ports)}; {otherwise}"


@pytest.fixture
def workplace(tmp_path: Path, quick_command: Path) -> Path:
    """A folder that looks like a checkout after `make build`, with short plans."""
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "leadline").symlink_to(quick_command)
    (programs / "leadline-agent").symlink_to(binary.agent_binary())
    (tmp_path / "examples").mkdir()
    for plan in sorted((ROOT / "examples").glob("*.yaml")):
        text = shortened_plan(plan.read_text(encoding="utf-8"))
        (tmp_path / "examples" / plan.name).write_text(text, encoding="utf-8")
    for other in sorted((ROOT / "examples").iterdir()):
        if other.is_dir():
            shutil.copytree(other, tmp_path / "examples" / other.name)
        elif other.suffix != ".yaml":
            shutil.copy(other, tmp_path / "examples")
    return tmp_path


def run_here(lines: list[str], workplace: Path) -> subprocess.CompletedProcess[str]:
    path = f"{workplace / '.venv' / 'bin'}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "COLUMNS": "80", "LEADLINE_CALIBRATION_MS": "50"}
    argv = [*NAMESPACE, "bash", "-c", script(lines)]
    return subprocess.run(
        argv,
        cwd=workplace,
        env=environment,
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
        stdin=subprocess.DEVNULL,
    )


@pytest.mark.lab
@pytest.mark.parametrize("document", documents_with(shell_lines), ids=name_of)
@pytest.mark.decided_by("nothing: any exit code of a target is right")
def test_shell_examples_run(document: Path, workplace: Path) -> None:
    lines = shell_lines(document)
    if shutil.which("openvpn") is None and any(line.startswith("openvpn ") for line in lines):
        pytest.skip("openvpn is not installed, and cannot be without root")
    done = run_here([shortened(line) for line in lines], workplace)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"


@pytest.mark.parametrize("document", documents_with(make_targets), ids=name_of)
def test_make_targets_exist(document: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    existing = set(re.findall(r"^([a-z-]+):", makefile, re.M))
    assert set(make_targets(document)) - existing == set()


@pytest.mark.lab
@pytest.mark.parametrize("document", documents_with(plans), ids=lambda path: path.name)
@pytest.mark.decided_by("the exit code follows from the outcomes, whatever they are")
def test_plans_in_documents_run(document: Path, workplace: Path) -> None:
    if shutil.which("openvpn") is None:
        pytest.skip("openvpn is not installed, and cannot be without root")
    for number, text in enumerate(plans(document)):
        plan = workplace / f"plan{number}.yaml"
        plan.write_text(shortened_plan(text), encoding="utf-8")
        done = run_here([f"leadline plan {plan.name} > plan.txt", f"leadline run {plan.name} --json"], workplace)
        found = json.loads(done.stdout)
        assert {trial["status"] for trial in found["trials"]} == {"done"}, done.stderr[-3000:]
        # As above, of the plans' targets.
        outcomes = {target["outcome"] for target in found["targets"]}
        code = 3 if "missed" in outcomes else 4 if "undecided" in outcomes else 0
        assert done.returncode == code, done.stderr[-3000:]


@pytest.mark.parametrize("document", documents_with(links), ids=name_of)
def test_links_have_a_target(document: Path) -> None:
    assert [target for target in links(document) if not (document.parent / target).exists()] == []
