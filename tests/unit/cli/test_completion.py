"""Shell completion: each shell's script is printed, and what it asks the command for is answered."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import in_process

pytestmark = pytest.mark.processes
LEADLINE = Path(sys.executable).with_name("leadline")
SHELLS = ("bash", "zsh", "fish")


def leadline(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **variables}
    return subprocess.run([LEADLINE, *arguments], env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("shell", SHELLS)
def test_script_is_printed_for_each_shell(shell: str) -> None:
    done = leadline("--show-completion", shell, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"_LEADLINE_COMPLETE=complete_{shell}" in done.stdout and "leadline" in done.stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("leadline tc", {"tcp"}),
        ("leadline r", {"run", "rr", "results", "report", "record", "replay"}),
        ("leadline tcp --bid", {"--bidir"}),
    ],
)
def test_bash_completes_commands_and_options(words: str, expected: set[str]) -> None:
    last = str(len(words.split()) - 1)
    asked = {"_LEADLINE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": last}
    done = in_process.leadline(variables=asked)
    assert (done.returncode, done.stderr) == (0, "")
    assert {line.strip() for line in done.stdout.split("\n") if line.strip()} == expected


@pytest.mark.parametrize(
    "words", ["leadline observe -- ", "leadline observe -- make ", "leadline record -- ", "leadline tcp --bind --port "]
)
def test_command_line_that_is_not_whole_yet_is_no_error(words: str) -> None:
    asked = {"_LEADLINE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()))}
    done = in_process.leadline(variables=asked)
    assert (done.returncode, done.stderr) == (0, "")


def test_script_works_in_bash() -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed")
    script = leadline("--show-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1").stdout
    program = (
        f'{script}\nCOMP_WORDS=(leadline rep) COMP_CWORD=1\n_leadline_completion leadline\necho "${{COMPREPLY[@]}}"\n'
    )
    environment = {**os.environ, "PATH": f"{LEADLINE.parent}:{os.environ['PATH']}"}
    done = subprocess.run([bash, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["replay", "report"], done.stderr
