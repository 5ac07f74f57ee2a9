"""Explains a refusal by the kernel in one line: what is not possible here, and the command that would allow it.

Pure, except `MachineFacts.read`. Owns the wording for Debian, Ubuntu and containers; tries nothing itself.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from leadline.errors import EnvironmentLimit


class Step(StrEnum):
    """The steps of building a jail, in order; the user sees the value."""

    USER = "make a user namespace"
    USER_MAP = "become root inside a user namespace"
    MOUNT = "make a mount namespace"
    NET = "make a network namespace"
    PID = "make a process namespace"
    PRIVATE = "make mounts private"
    PROC = "mount /proc"
    TMPFS = "mount a tmpfs"
    LOOPBACK = "bring the loopback interface up"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A step that the kernel refused."""

    step: Step
    error: int  # errno


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """The machine's settings; None if it has no such setting."""

    root: bool  # the user is root (perhaps without its capabilities)
    unprivileged_userns_clone: int | None  # Debian's own switch
    apparmor_restrict_userns: int | None  # Ubuntu 23.10 and later
    max_namespaces: dict[str, int]  # user.max_*_namespaces by kind: "user", "mnt", "net", "pid"

    @classmethod
    def read(cls) -> MachineFacts:
        """Read /proc/sys as it is now."""
        kinds = {kind: _number(f"/proc/sys/user/max_{kind}_namespaces") for kind in ("user", "mnt", "net", "pid")}
        return cls(
            root=os.geteuid() == 0,
            unprivileged_userns_clone=_number("/proc/sys/kernel/unprivileged_userns_clone"),
            apparmor_restrict_userns=_number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
            max_namespaces={kind: number for kind, number in kinds.items() if number is not None},
        )


_KIND = {Step.USER: "user", Step.MOUNT: "mnt", Step.NET: "net", Step.PID: "pid"}
_CONTAINER = "in a container, start it with `--privileged`"


def explain(refusal: Refusal, facts: MachineFacts, *, rootless: bool) -> EnvironmentLimit:
    """The error for a refusal. `rootless`: the attempt used a user namespace."""
    who = "root here lacks CAP_SYS_ADMIN or CAP_NET_ADMIN" if facts.root else "this is not root"
    what = (
        f"hosts cannot be created on this machine: {who}, and "
        if rootless
        else "hosts cannot be created on this machine: "
    )
    otherwise = f"or, {_CONTAINER}" if facts.root else "or run leadline as root"
    cause, command = _cause(refusal, facts, rootless)
    return EnvironmentLimit(what + cause, hint=f"allow it with `{command}`, {otherwise}" if command else _plain(facts))


def _cause(refusal: Refusal, facts: MachineFacts, rootless: bool) -> tuple[str, str | None]:
    """The cause, and the command that fixes it if there is one."""
    kind = _KIND.get(refusal.step)
    if refusal.error == errno.ENOSPC and kind is not None:
        # user_namespaces(7): "unshare(2) fails with ENOSPC" if a limit of /proc/sys/user would be exceeded, here or
        # above.
        limit = facts.max_namespaces.get(kind)
        setting = f"user.max_{kind}_namespaces"
        return f"{setting} is {limit}", f"sudo sysctl -w {setting}=15000"
    if rootless and refusal.error in (errno.EPERM, errno.EACCES):
        if refusal.step is Step.USER and facts.unprivileged_userns_clone == 0:
            return "kernel.unprivileged_userns_clone is 0", "sudo sysctl -w kernel.unprivileged_userns_clone=1"
        if facts.apparmor_restrict_userns == 1:
            setting = "kernel.apparmor_restrict_unprivileged_userns"
            return f"{setting} is 1", f"sudo sysctl -w {setting}=0"
    if refusal.step is Step.USER and refusal.error in (errno.EINVAL, errno.ENOSYS):
        return "the kernel is built without user namespaces", None
    said = f"the system refused to {refusal.step} ({os.strerror(refusal.error)})"
    if refusal.step is Step.PROC:
        # A user namespace may mount /proc only if the parent's /proc is not partly hidden
        # (mount_too_revealing).
        return f"{said}, which a container with a masked /proc does", "docker run --security-opt systempaths=unconfined"
    return said, None


def _plain(facts: MachineFacts) -> str:
    return _CONTAINER if facts.root else f"run leadline as root (`sudo leadline ...`); {_CONTAINER}"


def _number(path: str) -> int | None:
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):
        return None
