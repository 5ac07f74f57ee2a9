"""Whether this machine lets a device be opened, the same for the checks before a run and for its trials. Creates
nothing: an opened TUN device has no interface yet.
"""

from __future__ import annotations

import errno
import grp
import os
import pwd
import stat
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from leadline.errors import ClosedDevice
from leadline.plan import Need

_LOAD = "sudo modprobe tun (in a container: --device /dev/net/tun)"
_ALLOW_IN_CONTAINER = "start the container with --device /dev/net/tun"


@dataclass(frozen=True, slots=True)
class DeviceProblem:
    """Why a device cannot be opened, and the command that changes it."""

    why: str
    mend: str


def check_devices(needs: Iterable[Need]) -> None:
    """Check each device among the needs.

    Raises:
        ClosedDevice: a device is missing, or the rights forbid it.
    """
    for need in needs:
        if need.kind == "device" and (problem := device_problem(need.name)) is not None:
            raise ClosedDevice(f"{problem.why}; {need.why}", hint=problem.mend)


def device_problem(path: str) -> DeviceProblem | None:
    """What keeps this process from reading and writing a device; None if nothing does."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        if error.errno == errno.EACCES:
            return DeviceProblem(_rights(path), f"sudo chmod 0666 {path}, or run leadline as root")
        mend = _ALLOW_IN_CONTAINER if error.errno == errno.EPERM else _LOAD
        return DeviceProblem(f"{path}: {(error.strerror or str(error)).lower()}", mend)
    return None


def _rights(path: str) -> str:
    """Whose the device is, and with which mode, as `ls -l` shows it."""
    try:
        found = Path(path).stat()
    except OSError as error:
        return f"the rights of {Path(path).parent} forbid it: {(error.strerror or str(error)).lower()}"
    owner, group = str(found.st_uid), str(found.st_gid)
    with suppress(KeyError):
        owner = pwd.getpwuid(found.st_uid).pw_name
    with suppress(KeyError):
        group = grp.getgrgid(found.st_gid).gr_name
    return f"the rights of {path} forbid it: {stat.filemode(found.st_mode)} {owner} {group}"
