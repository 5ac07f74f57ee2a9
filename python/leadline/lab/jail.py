"""The jail: a process tree of its own in which a run makes hosts, and which the kernel removes whole when the run ends.

Owns: the process outside (the keeper), the process inside (pid 1 of the jail), and the way from one to the other.
Refuses: hosts and links (`hosts` makes them, inside). Why it is so: docs/decisions/0001-lab-jail.md.

The way in takes three processes, since unshare(CLONE_NEWPID) holds for children only: the keeper forks a middle one,
which leaves the namespaces, forks the inmate and ends; the inmate becomes the keeper's child (it is a subreaper
meanwhile).
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

# Passed on to the inmate. SIGQUIT is the keeper's own: it ends everything at once.
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Jail:
    """What the process inside may use."""

    label: str
    namespaces: Path  # a tmpfs; one file per network namespace
    cgroup: Path | None  # parent of the hosts' groups
    cgroup_reason: str | None  # why there is none
    rootless: bool


@dataclass(frozen=True, slots=True)
class Availability:
    """Whether `enter` would succeed."""

    possible: bool
    rootless: bool
    reason: str | None  # one line, set when it would not


_current: Jail | None = None


def current() -> Jail:
    """The jail that this process is in. Raises LabError outside of one."""
    if _current is None:
        raise LabError("hosts can only be made inside a jail", hint="call leadline.lab.jail.enter first")
    return _current


def enter(run_label: str) -> Jail:
    """Go into a new jail. Returns inside only; the caller's process stays outside, waits and exits with the same
    status.

    To be called once, by the command line, before threads, event loops or thread pools exist (polars must not have been
    used yet). `run_label` says in the run's temp folder whose it is. First, what killed runs left is swept away.

    Inside, this process is pid 1 of the jail, in a session of its own, so that a terminal's Ctrl-C reaches it exactly
    once: through the keeper, which forwards SIGINT, SIGTERM and SIGHUP. Two rules of pid_namespaces(7) hold for it.
    Signals without a handler are ignored: SIGTERM and SIGHUP get one here that raises SystemExit(128 + number), SIGINT
    has Python's KeyboardInterrupt; the command line puts its own in place. And orphans become its children: they stay
    as zombies until the jail ends, which is soon enough, so nothing here reaps them (waiting for any child,
    `waitpid(-1)`, would meet them).

    Raises EnvironmentLimit, outside, when this machine allows no jail.
    """
    global _current  # noqa: PLW0603 - a process is in one jail at most, and stays there
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
        # Without interpreter shutdown: whatever was to be flushed or closed was the inmate's.
        os._exit(status)


def available() -> Availability:
    """Try a jail out and leave it again at once."""
    rootless = _needs_user_namespace()
    trace = sweep.leave_trace("probe")
    try:
        inmate = _fork_inside(trace, rootless)
        if inmate is None:
            os._exit(0)
        os.waitpid(inmate, 0)
    except (EnvironmentLimit, LabError) as error:
        return Availability(False, rootless, str(error))
    finally:
        sweep.erase(trace)
    return Availability(True, rootless, None)


def _needs_user_namespace() -> bool:
    return not kernel.has_capabilities(kernel.CAP_SYS_ADMIN, kernel.CAP_NET_ADMIN)


# --- the way in -------------------------------------------------------------------------------------------------------


def _fork_inside(trace: sweep.Trace, rootless: bool) -> int | None:
    """Make the jail. Returns the inmate's pid in the keeper, None in the inmate. Raises in the keeper when refused."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError, OSError):
            stream.flush()  # or the inmate would write the buffer a second time
    report_in, report_out = os.pipe()
    life_in, life_out = (
        os.pipe()
    )  # the keeper holds its writing end and never writes but once: end of file means it died
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
            os.waitpid(middle, 0)  # from here on the inmate is our own child
            kernel.adopt_orphans(False)
            os.write(life_out, b"1")
            _expect_report(reports.readline(), rootless, inmate)
    finally:
        kernel.adopt_orphans(False)
        os.close(life_out)
    return int(inmate)


def _expect_report(line: str, rootless: bool, pid: int) -> dict[str, int]:
    """A report from a process on its way in; when it is a refusal or none, reap that process and raise."""
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
    os.setsid()  # first of all: a Ctrl-C must not reach this group
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
    """One at a time, so that a refusal names the kind."""
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
        kernel.unshare(kernel.CLONE_NEWPID)  # holds for the next child: that one will be pid 1


def _settle_in(namespaces: Path, life: int) -> None:
    """Run in the inmate: tie it to the keeper's life, then make the jail habitable."""
    os.setsid()
    if os.read(life, 1) == b"":
        os._exit(1)
    # Only now is the keeper the parent, so only now does its death mean ours. It may have died since it wrote.
    kernel.die_with_parent(signal.SIGKILL)
    if _hung_up(life):
        os._exit(1)
    with _step(Step.PROC):
        kernel.mount("proc", Path("/proc"), "proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)
    with _step(Step.TMPFS):
        kernel.mount("tmpfs", namespaces, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=700,size=1m")
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
    """A forked process must never come back into the caller's code by way of an exception."""
    try:
        function(*arguments)
    except BaseException:
        traceback.print_exc()
        os._exit(70)


# --- the keeper -------------------------------------------------------------------------------------------------------


def _keep(inmate: int, signals: _Signals) -> int:
    """Forward each signal once, wait for the inmate, and return the status to exit with."""
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
    """The keeper's signals as a queue. Handlers and a pipe rather than sigwait(2): a library's native threads may
    have the signals unblocked, and a handler catches them on whichever thread they arrive.
    """

    def __enter__(self) -> _Signals:
        # What was ignored before (nohup, a shell's background job) stays ignored, for the inmate too.
        taken = [s for s in (*_FORWARDED, signal.SIGQUIT) if signal.getsignal(s) is not signal.SIG_IGN]
        self._taken: tuple[signal.Signals, ...] = (*taken, signal.SIGCHLD)
        # Blocked meanwhile: a child must not run with the keeper's handlers, nor write into its queue.
        self._old_mask = signal.pthread_sigmask(signal.SIG_BLOCK, self._taken)
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._old_descriptor = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._old_handlers = {number: signal.signal(number, _queue_only) for number in self._taken}
        return self

    def __exit__(self, *_: object) -> None:
        """Put back what was there before, in the keeper when no jail came about, and in the inmate."""
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
        """As pid 1, only a signal with a handler is delivered; `__exit__` puts back the rest."""
        for number in (signal.SIGTERM, signal.SIGHUP):
            if self._old_handlers.get(number) is signal.SIG_DFL:
                signal.signal(number, _leave)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def _queue_only(_number: int, _frame: FrameType | None) -> None:
    """The byte that the interpreter writes to the wake-up pipe is all that is wanted."""


def _leave(number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)
