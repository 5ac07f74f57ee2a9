"""Runs small programs that go into a jail, as root and as a user without rights; for the tests of this folder.

The programs get a temp folder of their own (TMPDIR), so that they sweep and leave things there only, and a tag among
their arguments, by which every process of theirs is found again, from outside the jail too.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import re
import secrets
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyroute2
import pytest

from waiting import WITHIN_S

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
UNPRIVILEGED_UID = 65534
# `env` after it, because setpriv itself still starts the next program with root's right to read everything.
DROP = ("setpriv", f"--reuid={UNPRIVILEGED_UID}", f"--regid={UNPRIVILEGED_UID}", "--clear-groups", "env")
# What a program begins with that is given as a text.
PROLOGUE = """
import json, os, signal, socket, subprocess, sys, time
from jailed import enter, print_json, udp, wait
from leadline.errors import LeadlineError
from leadline.lab import jail, kernel, topology
from leadline.lab.hosts import Lab
from leadline.lab.topology import LinkSpec
"""
PROGRAMS = ("jailed.py", "lab_programs.py", "spin_loop.py")
"""Files of this folder that programs are made of."""


@dataclass(slots=True)
class JailUser:
    """Who runs the programs, and with which interpreter and library path."""

    name: str
    prefix: tuple[str, ...]
    interpreter: str
    library: str
    folder: Path  # TMPDIR
    started: list[Program] = field(default_factory=list)

    def start(
        self, script: str | Callable[..., None], *given: object, wrap: Sequence[str] = (), **keywords: Any
    ) -> Program:
        """Start a program: a function of `lab_programs` with what it is given, or a text, which PROLOGUE goes before.
        `wrap` goes before the whole command.
        """
        if callable(script):
            script = f"import {script.__module__}\n{script.__module__}.{script.__name__}(*{given!r})"
        else:
            script = PROLOGUE + script
        tag = f"tag-{secrets.token_hex(8)}"
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": self.library, "TMPDIR": str(self.folder)}
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
        process = subprocess.Popen(
            [*wrap, *self.prefix, self.interpreter, "-c", script, tag],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd="/",
            env=environment,
            **keywords,
        )
        program = Program(process, tag)
        self.started.append(program)
        return program

    def run(self, script: str | Callable[..., None], *given: object, **keywords: Any) -> list[dict[str, Any]]:
        """Run a program to its end, which must be a good one; what it said."""
        out, err, code = self.start(script, *given, **keywords).finish()
        assert code == 0, err
        return [json.loads(line) for line in out.splitlines()]

    def folders(self) -> list[str]:
        """Folders in TMPDIR of this user's runs that are still there; no other user's start can sweep them."""
        return [path.name for path in self.folder.glob("leadline-*")]

    def left_behind(self) -> list[str]:
        """Folders in TMPDIR and cgroups of this user's runs that are still there."""
        return self.folders() + [str(group) for group in cgroups_of({program.process.pid for program in self.started})]


@dataclass(slots=True)
class Program:
    """A running program."""

    process: subprocess.Popen[str]
    tag: str

    def next_message(self) -> dict[str, Any]:
        """The next line that it says; waits for it."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            assert self.process.stderr is not None
            pytest.fail(f"the program ended with {self.process.wait()}: {self.process.stderr.read()}")
        return dict(json.loads(line))

    def finish(self) -> tuple[str, str, int]:
        """What else it says on stdout and stderr, and its status."""
        out, err = self.process.communicate(timeout=WITHIN_S)
        return out, err, self.process.returncode

    def inmate(self) -> int:
        """The pid, out here, of the process that is pid 1 in the jail."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        assert len(children) == 1
        return int(children[0])

    def processes(self) -> set[int]:
        """Every living process that was started with this program's tag."""
        return {pid for pid in _pids() if _has_argument(pid, self.tag)}


def await_death(pids: set[int]) -> None:
    """Wait until none of these processes runs; fails after a time limit."""
    for pid in pids:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        assert poll.poll(WITHIN_S * 1000), f"{pid} still runs"
        os.close(descriptor)


def network_names() -> set[str]:
    """`ip netns list` and `ip link` of this machine, as far as the lab's names go: others may be at work here."""
    lab_names = {"wan", "lan", "bridge", "switch", "gateway", "server", "client1", "gateway-a", "gateway-b"}
    with pyroute2.IPRoute() as route:
        links = {link.get_attr("IFLA_IFNAME") for link in route.get_links()}
    return lab_names & (links | set(pyroute2.netns.listnetns()))


_OWNED = re.compile(r"leadline-\d+-.*-.*")


def cgroups_of(pids: set[int]) -> list[Path]:
    """Groups, anywhere, that are named after one of these owners."""
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines() if line.split()[2] == "cgroup2"]
    # Others make and remove groups meanwhile: os.walk, unlike a path's glob, goes on where one is gone.
    found = [Path(above, name) for mount in mounts for above, names, _ in os.walk(mount) for name in names]
    return [group for group in found if _OWNED.fullmatch(group.name) and int(group.name.split("-")[1]) in pids]


@contextmanager
def jail_user(name: str) -> Iterator[JailUser]:
    """Root, or a user without rights ("nobody"), whose programs can make jails here; skips, with the reason,
    otherwise.
    """
    scratch = Path(tempfile.mkdtemp(prefix="lab-test-"))
    user = _jail_user(name, scratch)
    try:
        reason = _obstacle(user)
        if reason is not None:
            pytest.skip(reason)
        yield user
    finally:
        for program in user.started:
            if program.process.poll() is None:
                program.process.kill()
            program.process.communicate()
        shutil.rmtree(scratch)


def _jail_user(name: str, scratch: Path) -> JailUser:
    is_root = os.geteuid() == 0
    if name == "root" and not is_root:
        pytest.skip("this test run is not root")
    if name == "root" or not is_root:
        library = [str(ROOT / "python"), str(FOLDER), *(path for path in sys.path if path.endswith("site-packages"))]
        return JailUser(name, (), sys.executable, os.pathsep.join(library), scratch)
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv is not installed, so root can't run as another user")
    os.chown(scratch, UNPRIVILEGED_UID, UNPRIVILEGED_UID)
    for interpreter in (sys.executable, "/usr/bin/python3"):
        asked = [*DROP, interpreter, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]
        if subprocess.run(asked, capture_output=True, cwd="/", check=False).returncode == 0:
            return JailUser(name, DROP, interpreter, str(_public_library()), scratch)
    pytest.skip("a user without rights can run no Python 3.11 here")


@functools.cache
def _public_library() -> Path:
    """Copies of what a program imports: the checkout and its environment may be readable by their owner alone."""
    folder = Path(tempfile.mkdtemp(prefix="lab-test-library-"))
    atexit.register(shutil.rmtree, folder)
    for package in (ROOT / "python" / "leadline", Path(pyroute2.__file__).parent):
        shutil.copytree(package, folder / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    for program in PROGRAMS:
        shutil.copy(FOLDER / program, folder)
    subprocess.run(["chmod", "-R", "a+rX", str(folder)], check=True)
    return folder


_obstacles: dict[str, str | None] = {}


def _obstacle(user: JailUser) -> str | None:
    """Why this user can make no jail here; asked once for each."""
    if user.name not in _obstacles:
        [said] = user.run("tried = jail.available(); print_json(possible=tried.possible, reason=tried.reason)")
        assert user.left_behind() == []
        _obstacles[user.name] = None if said["possible"] else said["reason"]
    return _obstacles[user.name]


def _pids() -> set[int]:
    return {int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()}


def _has_argument(pid: int, argument: str) -> bool:
    try:
        return argument.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return False
