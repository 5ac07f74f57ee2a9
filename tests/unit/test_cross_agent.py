"""`scripts/cross_agent`: the tools that it uses, and the one line about each that is missing."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "cross_agent"
TARGET = "aarch64-unknown-linux-gnu"

pytestmark = pytest.mark.processes

# The compiler has the library of a target once the folder has it; rustup puts it there.
PROGRAMS = {
    "rustc": 'echo "{folder}/$4"',
    "rustup": 'mkdir -p "{folder}/$3" && : >"{folder}/$3/libstd-1.rlib"; echo "$*" >>{folder}/said',
    "aarch64-linux-gnu-gcc": "",
    "cargo": 'echo "$CARGO_BUILD_TARGET $CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER $CC_aarch64_unknown_linux_gnu'
    ' $RUSTFLAGS $4" >>{folder}/said',
}


def run_script(
    folder: Path, *missing: str, architecture: str = "aarch64", **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run the script for the profile `quick` where nothing but these programs and a shell's own is in PATH."""
    for name in ("bash", "sh", "env", "dirname", "tr", "mkdir"):
        (folder / name).symlink_to(shutil.which(name) or name)
    (folder / "python3").symlink_to(sys.executable)
    for name, does in PROGRAMS.items():
        if name not in missing:
            (folder / name).write_text(f"#!/bin/sh\n{does.format(folder=folder)}\n")
            (folder / name).chmod(0o755)
    argv = [str(SCRIPT), architecture, "quick"]
    return subprocess.run(argv, env={"PATH": str(folder), **variables}, capture_output=True, text=True, check=False)


def test_rustup_adds_the_library_and_cargo_builds_one_static_file(tmp_path: Path) -> None:
    done = run_script(tmp_path)
    assert (done.returncode, done.stderr) == (0, f"rustup adds {TARGET}\n")
    assert done.stdout == f"target/{TARGET}/quick/leadline-agent\n"
    compiler = "aarch64-linux-gnu-gcc"
    assert (tmp_path / "said").read_text().splitlines() == [
        f"target add {TARGET}",
        f"{TARGET} {compiler} {compiler} -C target-feature=+crt-static quick",
    ]


def test_a_library_that_is_there_needs_no_rustup(tmp_path: Path) -> None:
    (tmp_path / TARGET).mkdir()
    (tmp_path / TARGET / "libstd-1.rlib").touch()
    done = run_script(tmp_path, "rustup")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_linker_that_is_named_is_used(tmp_path: Path) -> None:
    done = run_script(
        tmp_path, "aarch64-linux-gnu-gcc", CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=str(tmp_path / "sh")
    )
    assert done.returncode == 0, done.stderr
    assert f"{TARGET} {tmp_path}/sh {tmp_path}/sh " in (tmp_path / "said").read_text()


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        ("cargo", "cargo is missing: install Rust"),
        ("rustup", f"`rustup target add {TARGET}`; on Debian and Ubuntu `make agents RUST=debian`"),
        ("aarch64-linux-gnu-gcc", "`apt install gcc-aarch64-linux-gnu libc6-dev-arm64-cross`"),
    ],
)
def test_what_is_missing_is_named_in_one_line(tmp_path: Path, missing: str, words: str) -> None:
    done = run_script(tmp_path, missing)
    assert (done.returncode, done.stdout) == (2, "")
    line = done.stderr.splitlines()[-1]
    assert line.startswith("no agent for aarch64: ")
    assert words in line


def test_another_architecture_is_refused(tmp_path: Path) -> None:
    done = run_script(tmp_path, architecture="riscv64")
    assert done.returncode == 2
    assert done.stderr == "no agent for riscv64: the architectures of agents are x86_64 and aarch64\n"
