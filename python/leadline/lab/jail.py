"""The jail: a separate process tree in which a run creates hosts, and which the kernel removes when the run ends.

Owns: the process outside (the keeper), the process inside (pid 1 of the jail, the inmate), and how the jail is
entered. `hosts` creates hosts and links, inside. docs/decisions/0001-lab-jail.md has the reasons.

Entering takes three processes, since unshare(CLONE_NEWPID) applies only to children: the keeper forks a middle
process, which leaves the namespaces, forks the inmate and ends. The inmate then becomes the keeper's child (the
keeper is a subreaper during that time).
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from leadline.errors import EnvironmentLimit, LabError
from leadline.lab import kernel, sweep
from leadline.lab.limits import MachineFacts, Refusal, Step, explain

# At most: a client's certificate, key and configuration take a page each, and a lab may have a thousand clients.
_TMPFS = "mode=700,size=64m"
# Signals that are forwarded to the inmate. The keeper handles SIGQUIT itself: it ends everything at once.
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Jail:
    """The resources of the process inside."""

    label: str
    namespaces: Path  # a tmpfs, seen inside alone; one file per network namespace
    cgroup: Path | None  # parent of the hosts' groups
    cgroup_reason: str | None  # the reason if there is none
    rootless: bool

    @property
    def keys(self) -> Path:
        """Folder for keys and configurations: in memory, and gone with the jail however that ends."""
        return self.namespaces / "keys"


@dataclass(frozen=True, slots=True)
class Availability:
    """Whether `enter` would succeed."""

    possible: bool
    rootless: bool
    reason: str | None  # one line; set if it would not


_current: Jail | None = None


def current() -> Jail:
    """The jail of this process. Raises LabError outside of a jail."""
    if _current is None:
        raise LabError("hosts can only be made inside a jail", hint="call leadline.lab.jail.enter first")
    return _current


def enter(run_label: str) -> Jail:
    """Enter a new jail. Returns only inside; the caller's process stays outside, waits, and exits with the same
    status.

    Must be called once, by the command line, before threads, event loops or thread pools exist (polars must not have
    been used yet). `run_label` is recorded in the run's temp folder. First, remains of killed runs are removed.

    Inside, this process is pid 1 of the jail, in its own session, so that a terminal's Ctrl-C reaches it exactly
    once: through the keeper, which forwards SIGINT, SIGTERM and SIGHUP. Two rules of pid_namespaces(7) apply. Signals
    without a handler are ignored: SIGTERM and SIGHUP get a handler that raises SystemExit(128 + number), SIGINT has
    Python's KeyboardInterrupt; the command line installs its own later. And orphans become its children: they stay
    zombies until the jail ends. Nothing here reaps them, and code that waits for any child (`waitpid(-1)`) would
    receive them.

    Raises EnvironmentLimit, outside, if this machine allows no jail.
    """
    global _current  # noqa: PLW0603 - a process enters at most one jail, and never leaves it
    if _current is not None:
        raise LabError("this process is in a jail already")
    if threading.active_count() > 1:
        raise LabError("a jail can't be entered once threads run")
    rootless = _needs_user_namespace()
    with _Signals() as signals:
        sweep.sweep()
        trace = sweep.leave_trace(run_label)
        try:
            inmate = _fork_inside(trace, rootless)
        except BaseException:
            sweep.erase(trace)
            raise
        if inmate is None:
            signals.restore_inside()
            _current = Jail(run_label, trace.namespaces, trace.cgroup, trace.cgroup_reason, rootless)
            return _current
        status = _keep(inmate, signals)
        sweep.erase(trace)
        # Without interpreter shutdown: the inmate has flushed and closed everything.
        os._exit(status)


def available() -> Availability:
    """Try a jail, and leave it at once."""
    rootless = _needs_user_namespace()
    try:
        trace = sweep.leave_trace("probe")
        try:
            inmate = _fork_inside(trace, rootless)
            if inmate is None:
                os._exit(0)
            os.waitpid(inmate, 0)
        finally:
            sweep.erase(trace)
    except (EnvironmentLimit, LabError) as error:
        return Availability(False, rootless, str(error))
    return Availability(True, rootless, None)


def _needs_user_namespace() -> bool:
    return not kernel.has_capabilities(kernel.CAP_SYS_ADMIN, kernel.CAP_NET_ADMIN)


# --- entering -------------------------------------------------------------------------------------------------------


def _fork_inside(trace: sweep.Trace, rootless: bool) -> int | None:
    """Create the jail. Returns the inmate's pid in the keeper, None in the inmate. Raises in the keeper if
    refused."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError, OSError):
            stream.flush()  # or the inmate would write the buffer a second time
    report_in, report_out = os.pipe()
    life_in, life_out = os.pipe()  # the keeper holds the write end and writes only once: end of file means that it died
    kernel.adopt_orphans(True)
    middle = os.fork()
    if middle == 0:
        _guard(_go_inside, trace.namespaces, rootless, report_out, life_in, (report_in, life_out))
        return None
    os.close(report_out)
    os.close(life_in)
    try:
        with os.fdopen(report_in) as reports:
            inmate = _expect_report(reports.readline(), rootless, middle)["pid"]
            os.waitpid(middle, 0)  # from here on the inmate is the keeper's child
            kernel.adopt_orphans(False)
            os.write(life_out, b"1")
            _expect_report(reports.readline(), rootless, inmate)
    finally:
        kernel.adopt_orphans(False)
        os.close(life_out)
    return int(inmate)


def _expect_report(line: str, rootless: bool, pid: int) -> dict[str, int]:
    """Read a report of a process that enters the jail; for a refusal or an end of file, reap the process and
    raise."""
    report = json.loads(line) if line else None
    if report is not None and "step" not in report:
        return dict(report)
    _, status = os.waitpid(pid, 0)
    if report is None:
        raise LabError(f"the jail ended before it was ready (status {os.waitstatus_to_exitcode(status)})")
    refusal = Refusal(Step(report["step"]), report["error"])
    raise explain(refusal, MachineFacts.read(), rootless=rootless)


def _go_inside(namespaces: Path, rootless: bool, report: int, life: int, keepers: tuple[int, int]) -> None:
    """Run in the middle process; returns in the inmate, ready."""
    for descriptor in keepers:
        os.close(descriptor)
    os.setsid()  # first: a Ctrl-C must not reach this group
    try:
        _leave_namespaces(rootless)
        pid = os.fork()
        if pid != 0:
            _tell(report, {"pid": pid})
            os._exit(0)
        _settle_in(namespaces, life)
    except _Refused as refused:
        _tell(report, {"step": refused.step.value, "error": refused.error})
        os._exit(1)
    _tell(report, {"ready": 1})
    os.close(report)
    os.close(life)


def _leave_namespaces(rootless: bool) -> None:
    """Leave one namespace at a time, so that a refusal names the kind."""
    if rootless:
        uid, gid = os.geteuid(), os.getegid()
        with _step(Step.USER):
            kernel.unshare(kernel.CLONE_NEWUSER)
        with _step(Step.USER_MAP):
            # user_namespaces(7): "deny" must be written before gid_map when the writer lacks CAP_SETGID outside.
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
            Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
    with _step(Step.MOUNT):
        kernel.unshare(kernel.CLONE_NEWNS)
    with _step(Step.PRIVATE):
        kernel.mount("none", Path("/"), None, kernel.MS_REC | kernel.MS_PRIVATE)
    with _step(Step.NET):
        kernel.unshare(kernel.CLONE_NEWNET)
    with _step(Step.PID):
        kernel.unshare(kernel.CLONE_NEWPID)  # applies to the next child, which becomes pid 1


def _settle_in(namespaces: Path, life: int) -> None:
    """Runs in the inmate: tie its life to the keeper's, then prepare the jail."""
    os.setsid()
    if os.read(life, 1) == b"":
        os._exit(1)
    # Only now is the keeper the parent, so only now can its death end this process. It may have died since it wrote.
    kernel.die_with_parent(signal.SIGKILL)
    if _hung_up(life):
        os._exit(1)
    with _step(Step.PROC):
        kernel.mount("proc", Path("/proc"), "proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)
    with _step(Step.TMPFS):
        kernel.mount("tmpfs", namespaces, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, _TMPFS)
    with _step(Step.LOOPBACK), IPRoute() as route:
        route.link("set", index=1, state="up")


def _hung_up(life: int) -> bool:
    poll = select.poll()
    poll.register(life, 0)
    return any(events & select.POLLHUP for _, events in poll.poll(0))


class _Refused(Exception):
    def __init__(self, step: Step, error: int) -> None:
        super().__init__(step)
        self.step = step
        self.error = error


@contextlib.contextmanager
def _step(step: Step) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _Refused(step, error.errno or 0) from error
    except NetlinkError as error:
        raise _Refused(step, error.code) from error


def _tell(report: int, message: dict[str, int] | dict[str, int | str]) -> None:
    os.write(report, json.dumps(message).encode() + b"\n")


def _guard(function: Any, *arguments: Any) -> None:
    """Ensures that a forked process never returns to the caller's code through an exception."""
    try:
        function(*arguments)
    except BaseException:
        traceback.print_exc()
        os._exit(70)


# --- the keeper -------------------------------------------------------------------------------------------------------


def _keep(inmate: int, signals: _Signals) -> int:
    """Forward each signal once, wait for the inmate, and return its exit status."""
    while True:
        number = signals.next()
        if number == signal.SIGCHLD:
            pid, status = os.waitpid(inmate, os.WNOHANG)
            if pid == inmate:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code
        elif number == signal.SIGQUIT:
            os.kill(inmate, signal.SIGKILL)
        else:
            os.kill(inmate, number)


class _Signals:
    """The keeper's signals as a queue. Uses handlers and a pipe rather than sigwait(2): a library's native threads
    may have the signals unblocked, and a handler catches them on any thread.
    """

    def __enter__(self) -> _Signals:
        # Signals that were ignored before (nohup, a shell's background job) stay ignored, for the inmate too.
        taken = [s for s in (*_FORWARDED, signal.SIGQUIT) if signal.getsignal(s) is not signal.SIG_IGN]
        self._taken: tuple[signal.Signals, ...] = (*taken, signal.SIGCHLD)
        # Blocked during the fork: a child must not run with the keeper's handlers, nor write into its queue.
        self._old_mask = signal.pthread_sigmask(signal.SIG_BLOCK, self._taken)
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._old_descriptor = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._old_handlers = {number: signal.signal(number, _queue_only) for number in self._taken}
        return self

    def __exit__(self, *_: object) -> None:
        """Restore the previous handlers, in the keeper if no jail was created, and in the inmate."""
        signal.set_wakeup_fd(self._old_descriptor)
        for number, handler in self._old_handlers.items():
            if signal.getsignal(number) is _queue_only:
                signal.signal(number, handler)
        os.close(self._read)
        os.close(self._write)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._old_mask)

    def next(self) -> int:
        """The next signal's number; waits for it."""
        signal.pthread_sigmask(signal.SIG_SETMASK, self._old_mask)
        return os.read(self._read, 1)[0]

    def restore_inside(self) -> None:
        """Keep handlers for pid 1, which only receives signals with a handler; `__exit__` restores the rest."""
        for number in (signal.SIGTERM, signal.SIGHUP):
            if self._old_handlers.get(number) is signal.SIG_DFL:
                signal.signal(number, _leave)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def _queue_only(_number: int, _frame: FrameType | None) -> None:
    """Does nothing: the byte that the interpreter writes to the wake-up pipe is sufficient."""


def _leave(number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)
