"""Control groups (v2) for a lab's hosts, so that all CPU time of a host can be attributed to it.

Owns: finding the group in which this user may create others; creating groups; removing them with the processes in
them. Does not use v1, and does not enable controllers: `cpu.stat` is in every v2 group without any. See cgroups(7)
and the kernel's admin-guide/cgroup-v2.
"""

from __future__ import annotations

import errno
import os
import re
import select
import signal
import time
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

_EMPTY_WITHIN_S = 5.0


@dataclass(frozen=True, slots=True)
class CgroupParent:
    """The group in which groups can be created, or the reason why none can."""

    path: Path | None
    reason: str | None  # set if there is no path


def find_parent(mountinfo: str | None = None, membership: str | None = None) -> CgroupParent:
    """This process's own v2 group, if children can be created in it and processes moved there.

    A child of the own group is always right: it needs only what systemd or a container delegated, and the limits of
    this process hold for its hosts too. The arguments replace /proc/self/mountinfo and /proc/self/cgroup.
    """
    mountinfo = Path("/proc/self/mountinfo").read_text() if mountinfo is None else mountinfo
    membership = Path("/proc/self/cgroup").read_text() if membership is None else membership
    own = next((line[3:] for line in membership.splitlines() if line.startswith("0::")), None)
    if own is None:
        return CgroupParent(None, "the kernel has no cgroup v2")
    mounts = _mounts(mountinfo)
    if not mounts:
        return CgroupParent(None, "no cgroup2 file system is mounted")
    for root, point in mounts:
        if PurePosixPath(own).is_relative_to(root):
            path = point / PurePosixPath(own).relative_to(root)
            if os.access(path, os.W_OK | os.X_OK) and os.access(path / "cgroup.procs", os.W_OK):
                return CgroupParent(path, None)
            return CgroupParent(None, f"{path} is not writable for this user")
    return CgroupParent(None, f"the own group {own} is outside what is mounted")


def remove(group: Path) -> None:
    """Remove a group and its children; kills the processes in it. A missing group is not an error.

    Raises OSError if it cannot be removed.
    """
    children = sorted((entry for entry in group.glob("*/")), reverse=True) if group.is_dir() else []
    for child in children:
        remove(child)
    try:
        group.rmdir()
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        _kill_all(group)
        _wait_until_empty(group)
        group.rmdir()


def _mounts(mountinfo: str) -> list[tuple[PurePosixPath, Path]]:
    """(root inside the file system, mount point) of every cgroup2 mount. proc_pid_mountinfo(5)."""
    found = []
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        if after.split(" ", 1)[0] == "cgroup2":
            fields = before.split(" ")
            found.append((PurePosixPath(_unescape(fields[3])), Path(_unescape(fields[4]))))
    return found


def _unescape(field: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)


def _kill_all(group: Path) -> None:
    try:
        (group / "cgroup.kill").write_text("1")
    except FileNotFoundError:  # before Linux 5.14
        for pid in (group / "cgroup.procs").read_text().split():
            if int(pid) > 0:  # 0 means a process of another pid namespace
                os.kill(int(pid), signal.SIGKILL)


def _wait_until_empty(group: Path) -> None:
    """Wait until the group has no processes; the kernel wakes pollers of cgroup.events with POLLPRI on every
    change."""
    deadline = time.monotonic() + _EMPTY_WITHIN_S
    with (group / "cgroup.events").open() as events:
        poll = select.poll()
        poll.register(events, select.POLLPRI)
        while True:
            events.seek(0)
            if "populated 0" in events.read():
                return
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise OSError(
                    errno.EBUSY, f"{group} is still in use {_EMPTY_WITHIN_S:.0f} s after all in it were killed"
                )
            poll.poll(left_s * 1000)
