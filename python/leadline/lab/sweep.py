"""The remains of a run outside its jail (a temp folder, cgroups): recorded, found and removed.

Names contain the owner: leadline-<pid>-<start time>-<random>. A later start can thus distinguish the remains of a
killed run from a living run. The kernel removes everything else of a jail (namespaces, links, mounts, processes); see
jail.py. Never touches what belongs to another user, to another pid namespace, or to a living process.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

from leadline.errors import EnvironmentLimit
from leadline.lab import cgroups

_NAME = re.compile(r"leadline-(\d+)-(\d+)-[0-9a-f]{8}")
_RECORD = "owner.json"
# The kernel's own number of the first pid namespace (PROC_PID_INIT_INO).
_FIRST_PID_NAMESPACE = 0xEFFFFFFC


@dataclass(frozen=True, slots=True)
class Trace:
    """The resources of one run outside its jail."""

    folder: Path  # mode 700; `namespaces` below it is the mount point of the jail's tmpfs
    cgroup: Path | None
    cgroup_reason: str | None  # the reason if there is none

    @property
    def namespaces(self) -> Path:
        """Folder of the jail's files for network namespaces; exists inside the jail only."""
        return self.folder / "ns"


def leave_trace(label: str, *, parent: cgroups.CgroupParent | None = None) -> Trace:
    """Create the folder and, if possible, the cgroup of a run owned by this process.

    The record is written before the cgroup is created, so that a kill between the two leaves nothing unrecorded.

    Raises EnvironmentLimit if the folder cannot be created.
    """
    pid = os.getpid()
    name = f"leadline-{pid}-{_start_ticks(pid)}-{secrets.token_hex(4)}"
    folder = _temp_folder() / name
    parent = cgroups.find_parent() if parent is None else parent
    cgroup = parent.path / name if parent.path else None
    record = {"label": label, "pid_namespace": _pid_namespace(), "cgroup": str(cgroup) if cgroup else None}
    try:
        folder.mkdir(mode=0o700)
        (folder / "ns").mkdir(mode=0o700)
        (folder / _RECORD).write_text(json.dumps(record))
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise _no_temp_folder(error) from error
    reason = parent.reason
    if cgroup is not None:
        try:
            cgroup.mkdir()
        except OSError as error:
            cgroup, reason = None, f"{cgroup} cannot be created: {error.strerror}"
    return Trace(folder, cgroup, reason)


def erase(trace: Trace) -> None:
    """Remove the remains of a run; may be called again. If a cgroup cannot be removed, its record stays for the next
    sweep.
    """
    if trace.cgroup is not None:
        try:
            cgroups.remove(trace.cgroup)
        except OSError:
            return
    shutil.rmtree(trace.folder, ignore_errors=True)


def sweep() -> list[str]:
    """Remove the remains of runs whose owner is gone; returns their names. Ignores what cannot be removed.

    Raises EnvironmentLimit if there is no folder for temporary files.
    """
    swept = []
    for folder in sorted(_temp_folder().glob("leadline-*")):
        if _is_ours(folder) and _is_abandoned(folder.name, _recorded_namespace(folder)):
            erase(Trace(folder, _recorded_cgroup(folder), None))
            swept.append(folder.name)
    return swept + _sweep_unrecorded_cgroups()


def _temp_folder() -> Path:
    try:
        return Path(tempfile.gettempdir())
    except OSError as error:
        raise _no_temp_folder(error) from error


def _no_temp_folder(error: OSError) -> EnvironmentLimit:
    return EnvironmentLimit(
        f"the temporary files of a lab cannot be written: {error.strerror or error}",
        hint="set TMPDIR to a folder that is writable and has space",
    )


def _sweep_unrecorded_cgroups() -> list[str]:
    """Remove groups whose record is missing because a program cleaned the temp folders. Their names do not contain
    the pid namespace, so this runs only in the first one, where every pid is visible."""
    parent = cgroups.find_parent()
    if parent.path is None or _pid_namespace() != _FIRST_PID_NAMESPACE:
        return []
    swept = []
    for group in sorted(parent.path.glob("leadline-*")):
        if _is_ours(group) and _is_abandoned(group.name, _FIRST_PID_NAMESPACE):
            try:
                cgroups.remove(group)
            except OSError:
                continue
            swept.append(group.name)
    return swept


def _is_ours(path: Path) -> bool:
    try:
        status = path.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and _NAME.fullmatch(path.name) is not None


def _is_abandoned(name: str, pid_namespace: int) -> bool:
    """Whether the owner in the name is gone. From another pid namespace that is unknown, so the answer is no."""
    match = _NAME.fullmatch(name)
    return match is not None and pid_namespace == _pid_namespace() and not _lives(int(match[1]), int(match[2]))


def _record(folder: Path) -> dict[str, object]:
    try:
        record = json.loads((folder / _RECORD).read_text())
    except (OSError, ValueError):  # killed before it was written completely
        return {}
    return record if isinstance(record, dict) else {}


def _recorded_namespace(folder: Path) -> int:
    namespace = _record(folder).get("pid_namespace")
    return namespace if isinstance(namespace, int) else _FIRST_PID_NAMESPACE


def _recorded_cgroup(folder: Path) -> Path | None:
    """The cgroup in a record, if it can only be that folder's own."""
    cgroup = _record(folder).get("cgroup")
    return Path(cgroup) if isinstance(cgroup, str) and Path(cgroup).name == folder.name else None


def _pid_namespace() -> int:
    return Path("/proc/self/ns/pid").stat().st_ino


def _lives(pid: int, start_ticks: int) -> bool:
    return _start_ticks(pid) == start_ticks


def _start_ticks(pid: int) -> int | None:
    """The start of a process in clock ticks since boot (field 22 of proc_pid_stat(5)); None if it is gone or a
    zombie.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text[text.rindex(")") + 2 :].split()  # the name before ")" may contain anything
    return None if fields[0] in "ZX" else int(fields[19])
