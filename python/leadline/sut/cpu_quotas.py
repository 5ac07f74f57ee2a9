"""The CPU quotas of the control groups that a system's processes are in, on its gateways.

A process that uses all of its quota is at its end, although it leaves most of a CPU idle. Reads what the kernel shows
of both versions of control groups; a host that shows nothing has no quota that is known.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath

from leadline.agents.host_ops import HostOps
from leadline.errors import LeadlineError

_V2_MOUNTS = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")
_V1_MOUNTS = ("/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct")
_V2_FILES: tuple[str, ...] = ("cpu.max",)
_V1_FILES: tuple[str, ...] = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
_LINE = re.compile(r"(?P<group>/.*)/(?P<file>cpu\.[a-z_]+):(?P<text>.*)")


async def cpu_quotas(hosts: Mapping[str, HostOps], pids: Mapping[tuple[str, str], int]) -> dict[str, dict[str, float]]:
    """CPUs that each process may use by its control groups, by host and name; `pids` are by host and name. Processes
    without a quota are left out, and so are those whose quota cannot be read."""
    found: dict[str, dict[str, float]] = {}
    for (host, name), pid in pids.items():
        try:
            quota = await _quota(hosts[host], pid)
        except LeadlineError:
            continue
        if quota is not None:
            found.setdefault(host, {})[name] = quota
    return found


async def _quota(host: HostOps, pid: int) -> float | None:
    membership = await host.run("cat", f"/proc/{pid}/cgroup")
    files = list(quota_files(membership.output)) if membership.status == 0 else []
    if not files:
        return None
    # Most of them do not exist.
    shown = await host.run("grep", "-sH", "", *files)
    return smallest_quota(shown.output.splitlines())


def quota_files(membership: str) -> Iterator[str]:
    """The files in which the quotas of a process's groups, and of those above, may stand; `membership` is its
    /proc/PID/cgroup."""
    for line in membership.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if not group.startswith("/"):
            continue
        if not controllers:
            mounts, names = _V2_MOUNTS, _V2_FILES
        elif "cpu" in controllers.split(","):
            mounts, names = _V1_MOUNTS, _V1_FILES
        else:
            continue
        own = PurePosixPath(group)
        for above in (own, *own.parents):
            yield from (f"{mount}{str(above).rstrip('/')}/{name}" for mount in mounts for name in names)


def smallest_quota(lines: Iterable[str]) -> float | None:
    """The smallest quota in `FILE:TEXT` lines, in CPUs; None if no group has one."""
    read: dict[str, dict[str, str]] = {}
    for line in lines:
        match = _LINE.fullmatch(line)
        if match is not None:
            read.setdefault(match["group"], {})[match["file"]] = match["text"]
    quotas = [quota for files in read.values() if (quota := _of_group(files)) is not None]
    return min(quotas, default=None)


def _of_group(files: Mapping[str, str]) -> float | None:
    numbers = " ".join(files.get(name, "") for name in (*_V2_FILES, *_V1_FILES)).split()
    if len(numbers) != 2 or not all(number.isdecimal() for number in numbers):
        return None  # `max`, or -1
    quota, period = map(int, numbers)
    return quota / period if quota and period else None
