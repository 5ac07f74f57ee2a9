"""A host of another architecture: this machine, on which the agent for aarch64 runs by qemu's user-mode emulation.

It has the kernel, the addresses and the clock of this machine. What the emulation lacks (io_uring, BPF) is missing
there, as on hosts with an old kernel.
"""

from __future__ import annotations

import os
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from leadline.agents import agent_binary
from leadline.agents.deployment import agents_by_architecture
from leadline.agents.launchers.processes import Exec
from leadline.errors import MissingBinary

ARCHITECTURE = "aarch64"
ROOT = Path(__file__).resolve().parents[1]
BUILT = ROOT / "target" / "aarch64-unknown-linux-gnu" / "checked" / "leadline-agent"
UNPACKED = ROOT / "target" / "qemu-user" / "usr" / "bin" / "qemu-aarch64-static"

# Gets a command as several words, and runs it with the host's own `uname`, and the agent by the emulator.
HOST = """#!/bin/sh
export PATH={programs}:"$PATH" HOME={home} XDG_CACHE_HOME=
case "$1" in */leadline-agent) exec {emulator} "$@" ;; esac
exec "$@"
"""


@dataclass(frozen=True, slots=True)
class EmulatedHost:
    """The host, and the agent for it."""

    folder: Path
    agent: Path
    emulator: str

    @property
    def command(self) -> Path:
        """The program that carries commands to it: what `exec:` names."""
        return self.folder / "on-the-host"

    @property
    def launcher(self) -> Exec:
        """The same, as a launcher."""
        return Exec((str(self.command),))

    @property
    def argv(self) -> tuple[str, str]:
        """Starts its agent from where it was built."""
        return (self.emulator, str(self.agent))


def make_emulated_host(folder: Path) -> EmulatedHost:
    """The host, with its folders below `folder`. Skips the test where there is no emulator, or no agent of now."""
    emulator = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64") or str(UNPACKED)
    if not os.access(emulator, os.X_OK):
        pytest.skip("needs qemu-aarch64-static, which `make test-all` unpacks")
    host = EmulatedHost(folder, _built_agent(), emulator)
    programs = folder / "bin"
    programs.mkdir(parents=True)
    (programs / "uname").write_text(f"#!/bin/sh\necho {ARCHITECTURE}\n")
    words = {"programs": programs, "home": folder / "home", "emulator": emulator}
    host.command.write_text(HOST.format(**{name: shlex.quote(str(word)) for name, word in words.items()}))
    for program in (programs / "uname", host.command):
        program.chmod(0o755)
    return host


def _built_agent() -> Path:
    """The agent for it, of the same sources as this machine's."""
    try:
        own, others = agent_binary(), agents_by_architecture()
    except MissingBinary as error:
        pytest.skip(str(error))
    agent = BUILT if BUILT.exists() else others.get(ARCHITECTURE)
    if agent is None:
        pytest.skip("needs an agent for aarch64, which `make test-all` and `make agents` build")
    if agent.stat().st_mtime < own.stat().st_mtime:
        pytest.skip(f"{agent} is older than {own}: `make test-all` and `make agents` build it again")
    return agent
