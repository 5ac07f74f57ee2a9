"""Quotas of control groups, of both versions, from what the kernel shows."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from leadline.agents.host_ops import Completed
from leadline.errors import SutFailed
from leadline.sut.cpu_quotas import cpu_quotas, quota_files, smallest_quota

V1 = "5:cpu,cpuacct:/system.slice/openvpn.service\n3:cpuset:/\n0::/\n"


def test_files_of_the_own_group_and_of_those_above_are_read() -> None:
    found = list(quota_files("0::/system.slice/openvpn.service\n"))
    assert found[0] == "/sys/fs/cgroup/system.slice/openvpn.service/cpu.max"
    assert "/sys/fs/cgroup/system.slice/cpu.max" in found and "/sys/fs/cgroup/cpu.max" in found
    of_v1 = list(quota_files(V1))
    assert "/sys/fs/cgroup/cpu,cpuacct/system.slice/openvpn.service/cpu.cfs_quota_us" in of_v1
    assert not any("cpuset" in name for name in of_v1)


@pytest.mark.parametrize(
    ("lines", "quota"),
    [
        (["/sys/fs/cgroup/a/b/cpu.max:max 100000", "/sys/fs/cgroup/a/cpu.max:150000 100000"], 1.5),
        (["/sys/fs/cgroup/a/b/cpu.max:20000 100000", "/sys/fs/cgroup/a/cpu.max:150000 100000"], 0.2),
        (["/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us:1000", "/sys/fs/cgroup/cpu/a/cpu.cfs_period_us:10000"], 0.1),
        (["/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us:-1", "/sys/fs/cgroup/cpu/a/cpu.cfs_period_us:10000"], None),
        (["cat: no such file", ""], None),
    ],
)
def test_smallest_quota_counts(lines: list[str], quota: float | None) -> None:
    assert smallest_quota(lines) == quota


class Host:
    """A host that answers commands from a table."""

    def __init__(self, answers: dict[str, str]) -> None:
        self.answers = answers

    async def run(self, *argv: str, within_s: float = 10.0) -> Completed:
        if argv[0] not in self.answers:
            raise SutFailed(f"{argv[0]} did not end")
        return Completed(0, self.answers[argv[0]])


def test_processes_without_a_known_quota_are_left_out() -> None:
    limited = Host({"cat": "0::/a\n", "grep": "/sys/fs/cgroup/a/cpu.max:50000 100000\n"})
    free = Host({"cat": "0::/a\n", "grep": "/sys/fs/cgroup/a/cpu.max:max 100000\n"})
    hosts = cast(Any, {"gateway": limited, "gateway-a": free, "gateway-b": Host({})})
    pids = {(host, "vpn"): 7 for host in hosts}
    assert asyncio.run(cpu_quotas(hosts, pids)) == {"gateway": {"vpn": 0.5}}
