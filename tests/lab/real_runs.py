"""Calls the real `leadline` in a process of its own, on short plans, and looks at what it leaves; for test_run_*.py.

Each `CliSandbox` has a temp folder of its own. It is TMPDIR in the environment of each process of its runs, by which
the tests find them from outside the jail. Only the next run of the same sandbox sweeps what a killed run leaves there.
"""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from lab_scripts import UNPRIVILEGED_UID, cgroups_of, jail_user

from in_process import leadline
from leadline.agents import binary
from waiting import WITHIN_S

ROOT = Path(__file__).resolve().parents[2]
TUN = Path("/dev/net/tun")
_KEPT_VARIABLES = (
    *("PATH", "HOME", "LANG", "PYTHONPATH"),
    *("LEADLINE_AGENT", "LEADLINE_STRICT_JOURNAL", "LEADLINE_MACHINE_RULES"),
)
LEADLINE = Path(sys.executable).with_name("leadline")
Entry = dict[str, Any]
ROUTE, WIREGUARD, OPENVPN = {"kind": "route"}, {"kind": "wireguard"}, {"kind": "openvpn"}
SHORT = {"name": "short", "kind": "rr", "number": 100, "duration": "60s", "timeout": "60s"}
"""It ends by its number, even if a process stalls."""
LONG = {"name": "long", "kind": "tcp", "duration": "600s", "rate": "20mbit"}
"""Longer than any test waits: it ends because something ends it."""
ADDRESSES = {"client1": "10.81.1.1", "gateway": "10.81.0.1", "server": "10.82.0.2"}


def write_plan(
    folder: Path, suts: Sequence[Mapping[str, Any]], tests: Sequence[Mapping[str, Any]], **more: Any
) -> Path:
    """A plan in JSON, which is YAML too. Cases come in the order of `suts`, since no seed could be chosen for it."""
    plan = {"name": "short", "topology": "remote-access", "lab": {"link": {"rate": "1gbit"}}, "tests": list(tests)}
    path = folder / "plan.yaml"
    path.write_text(json.dumps(plan | {"axes": {"sut": list(suts)}} | more, indent=1))
    return path


@dataclass(slots=True)
class Ended:
    """A command that ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """Its stdout, which must be one JSON document."""
        return dict(json.loads(self.out))


@dataclass(slots=True)
class CliSandbox:
    """The folder and the user that commands run with."""

    folder: Path
    """Plans and run folders."""
    scratch: Path
    """TMPDIR."""
    command: tuple[str, ...] = (str(LEADLINE),)
    environment: dict[str, str] = field(default_factory=dict)
    started: list[Run] = field(default_factory=list)

    @property
    def out(self) -> Path:
        """Where run folders are made."""
        return self.folder / "runs"

    def start(self, *arguments: str | Path, wrap: Sequence[str] = (), **keywords: Any) -> Run:
        """Start a command; `wrap` goes before it."""
        given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": self.folder, **keywords}
        environment = {name: value for name, value in os.environ.items() if name in _KEPT_VARIABLES}
        environment |= {"TMPDIR": str(self.scratch), **self.environment}
        argv = [*wrap, *self.command, *map(str, arguments)]
        run = Run(subprocess.Popen(argv, env=environment, **given), self)
        self.started.append(run)
        return run

    def call(self, *arguments: str | Path, **keywords: Any) -> Ended:
        """Run a command to its end."""
        return self.start(*arguments, **keywords).finish()

    def run(self, plan: Path, *arguments: str, **keywords: Any) -> Run:
        """Start `leadline run`."""
        return self.start("run", plan, "--out", self.out, *arguments, **keywords)

    def folders(self) -> list[Path]:
        """The run folders that there are, oldest first."""
        return sorted(self.out.iterdir(), key=lambda path: path.stat().st_mtime_ns) if self.out.is_dir() else []

    def processes(self) -> set[int]:
        """Every living process that was started for this sandbox, in whatever namespace."""
        mark = f"TMPDIR={self.scratch}".encode()
        return {pid for pid in _pids() if mark in _read(pid, "environ").split(b"\0")}

    def left_behind(self) -> list[str]:
        """Processes, folders in TMPDIR and cgroups of this sandbox's runs."""
        words = [f"{pid} {_read(pid, 'cmdline')!r}" for pid in self.processes()]
        words += [path.name for path in self.scratch.iterdir()]
        return words + [str(group) for group in cgroups_of({run.process.pid for run in self.started})]


@dataclass(slots=True)
class Run:
    """A command that runs."""

    process: subprocess.Popen[str]
    sandbox: CliSandbox
    seen: int = 0

    def finish(self) -> Ended:
        """Its end, which must come in time."""
        out, err = self.process.communicate(timeout=WITHIN_S)
        return Ended(self.process.returncode, out or "", err or "")

    def journal(self) -> list[Entry]:
        """What is in the newest run folder's journal by now, whole lines only."""
        folders = self.sandbox.folders()
        path = folders[-1] / "journal.ndjson" if folders else None
        return journal_of(path) if path is not None and path.exists() else []

    def wait_for(self, what: Callable[[Entry], bool]) -> Entry:
        """The first journal entry of which `what` holds, once it is there."""
        found: Entry = self.until(lambda: next((entry for entry in self.journal() if what(entry)), None))
        return found

    def until(self, happened: Callable[[], Any]) -> Any:
        """What `happened` gives, as soon as it gives something; fails where the command ends before."""
        deadline = time.monotonic() + WITHIN_S
        while not (found := happened()):
            if self.process.poll() is not None and not (found := happened()):
                pytest.fail(f"it ended with {self.finish()}")
            assert time.monotonic() < deadline, f"waited in vain; the journal: {self.journal()[-3:]}"
            self._pause()
        return found

    def _pause(self) -> None:
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=0.02)

    def process_of(self, host: str, program: str) -> int:
        """The pid, out here, of the one process on a lab host whose program has this name."""
        found = [pid for pid in self.sandbox.processes() if _program(pid) == program and _has_address(pid, host)]
        assert len(found) == 1, f"{program} on {host}: {found}"
        return found[0]


def journal_of(path: Path) -> list[Entry]:
    """The whole lines of a journal."""
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1] if line.strip()]


def records(entries: Sequence[Entry], kind: str) -> list[Entry]:
    """The controller's records of one kind."""
    return [entry for entry in entries if entry.get("record") == kind]


def progress_of(test: str) -> Callable[[Entry], bool]:
    """Whether an entry tells that a test is under way and has moved something."""

    def tells(entry: Entry) -> bool:
        event = entry.get("event") or {}
        if event.get("type") != "progress" or not str(event.get("trial")).endswith(f"/{test}"):
            return False
        return any(flow["received_bytes"] for flow in event["flows"])

    return tells


def record(kind: str, **fields: Any) -> Callable[[Entry], bool]:
    """Whether an entry is such a record."""
    return lambda entry: entry.get("record") == kind and fields.items() <= entry.items()


def figures(folder: Path) -> dict[tuple[str, str, str], Any]:
    """What `leadline results` tells of a run: (trial, test, metric) -> value."""
    ended = leadline("results", folder, "--json")
    assert (ended.returncode, ended.stderr) == (0, "")
    rows = json.loads(ended.stdout)["rows"]
    return {(row["trial"], row["test"], row["metric"]): row["value"] for row in rows if row["trial"]}


def report(folder: Path) -> tuple[dict[str, Any], str]:
    """What `leadline report` makes of a run: its JSON, and the page's text."""
    (folder / "report.html").unlink(missing_ok=True)
    ended = leadline("report", folder, "--json")
    assert ended.returncode == 0, ended.stderr
    page = (folder / "report.html").read_text()
    return json.loads(ended.stdout), re.sub(r"<script.*?</script>|<[^>]*>", " ", page, flags=re.DOTALL)


def await_end(pids: set[int]) -> None:
    """Return when none of these runs any longer."""
    for pid in pids:
        with suppress(ProcessLookupError):
            descriptor = os.pidfd_open(pid)
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            assert poll.poll(WITHIN_S * 1000), f"{pid} still runs"
            os.close(descriptor)


@contextmanager
def open_sandbox(folder: Path) -> Iterator[CliSandbox]:
    """A sandbox for the user who runs the tests; skips where no lab can be made."""
    with jail_user("root" if os.geteuid() == 0 else "nobody"):
        pass
    scratch = Path(tempfile.mkdtemp(prefix="run-test-"))
    sandbox = CliSandbox(folder, scratch)
    try:
        yield sandbox
    finally:
        _clear(sandbox)


@contextmanager
def unprivileged_sandbox(folder: Path) -> Iterator[CliSandbox]:
    """A sandbox for a user without rights. Other users may be unable to read root's interpreter and checkout, so
    these are mounted at another place, in a mount namespace that ends with the command.
    """
    with jail_user("nobody"):
        pass
    if os.geteuid() != 0:
        with open_sandbox(folder) as sandbox:
            yield sandbox
        return
    scratch = Path(tempfile.mkdtemp(prefix="run-test-"))
    agent = binary.agent_binary()
    shown = {"python": Path(sys.base_prefix), "tree": ROOT / "python", "venv": Path(sys.prefix), "agent": agent.parent}
    for name in shown:
        (scratch / name).mkdir()
    (scratch / "tmp").mkdir()
    for path in (scratch, scratch / "tmp"):
        os.chown(path, UNPRIVILEGED_UID, UNPRIVILEGED_UID)
    # TUN devices are open to every user where udev makes their node (mode 0666); a bare machine's node may be root's.
    tun = scratch / "tun"
    os.mknod(tun, stat.S_IFCHR | 0o666, os.makedev(10, 200))
    tun.chmod(0o666)
    binds = " && ".join(
        f"mount --bind {source} {place}"
        for source, place in [
            *((source, scratch / name) for name, source in shown.items()),
            *([(tun, TUN)] if TUN.exists() else []),
        ]
    )
    library = (scratch / "venv").joinpath(*Path(pytest.__file__).parents[1].relative_to(sys.prefix).parts)
    interpreter = scratch / "python" / Path(sys.executable).resolve().relative_to(sys.base_prefix)
    command = (
        *("unshare", "--mount", "--propagation", "private", "sh", "-c", f'{binds} && exec "$@"', "sh"),
        *("setpriv", f"--reuid={UNPRIVILEGED_UID}", f"--regid={UNPRIVILEGED_UID}", "--clear-groups", "env"),
        *(str(interpreter), "-c", "from leadline.cli import main; main()"),
    )
    environment = {
        "PYTHONPATH": f"{scratch / 'tree'}:{library}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "LD_LIBRARY_PATH": str(scratch / "python/lib"),
        "LEADLINE_AGENT": str(scratch / "agent" / agent.name),
        "HOME": str(scratch),
    }
    work = scratch / "work"
    work.mkdir()
    os.chown(work, UNPRIVILEGED_UID, UNPRIVILEGED_UID)
    sandbox = CliSandbox(work, scratch / "tmp", command, environment)
    try:
        yield sandbox
    finally:
        _clear(sandbox)
        shutil.rmtree(scratch)


def _clear(sandbox: CliSandbox) -> None:
    for run in sandbox.started:
        if run.process.poll() is None:
            run.process.kill()
            run.process.wait()
    for pid in sandbox.processes():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    shutil.rmtree(sandbox.scratch)


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:  # it ended meanwhile, or is another user's
        return b""


def _program(pid: int) -> str:
    return Path(_read(pid, "cmdline").split(b"\0")[0].decode(errors="replace")).name


def _has_address(pid: int, host: str) -> bool:
    """Whether a process lives on the lab host: by the address that only this host has (proc_pid_net(5), fib_trie)."""
    return f"|-- {ADDRESSES[host]}\n".encode() in _read(pid, "net/fib_trie")
