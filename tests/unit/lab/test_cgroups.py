"""The parent of a lab's control groups, found from the mounts and memberships that /proc shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from leadline.lab import cgroups

HYBRID = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n30 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"


def mounted(point: Path, root: str = "/") -> str:
    escaped = str(point).replace(" ", r"\040")
    return f"{HYBRID}41 31 0:38 {root} {escaped} rw,relatime shared:9 - cgroup2 cgroup2 rw\n"


def group(path: Path) -> Path:
    path.mkdir(parents=True)
    (path / "cgroup.procs").touch()
    return path


def test_own_group_is_the_parent(tmp_path: Path) -> None:
    own = group(tmp_path / "user.slice" / "session-1.scope")
    parent = cgroups.find_parent(mounted(tmp_path), "9:cpu:/x\n0::/user.slice/session-1.scope\n")
    assert parent == cgroups.CgroupParent(own, None)


def test_a_container_sees_a_part_of_the_tree(tmp_path: Path) -> None:
    own = group(tmp_path / "inner")
    parent = cgroups.find_parent(mounted(tmp_path, "/docker/abc"), "0::/docker/abc/inner\n")
    assert parent == cgroups.CgroupParent(own, None)


def test_mount_points_may_hold_spaces(tmp_path: Path) -> None:
    own = group(tmp_path / "a mount")
    assert cgroups.find_parent(mounted(own), "0::/\n").path == own


@pytest.mark.parametrize(
    ("mountinfo", "membership", "reason"),
    [
        (HYBRID, "9:cpu:/x\n", "the kernel has no cgroup v2"),
        (HYBRID, "0::/\n", "no cgroup2 file system is mounted"),
        (mounted(Path("/nowhere")), "0::/a\n", "/nowhere/a is not writable for this user"),
        (mounted(Path("/nowhere"), "/docker/abc"), "0::/a\n", "the own group /a is outside what is mounted"),
    ],
)
def test_missing_parent_group_has_a_reason(mountinfo: str, membership: str, reason: str) -> None:
    assert cgroups.find_parent(mountinfo, membership) == cgroups.CgroupParent(None, reason)


def test_removing_takes_children_along_and_is_repeatable(tmp_path: Path) -> None:
    (tmp_path / "run" / "gateway").mkdir(parents=True)
    (tmp_path / "run" / "server" / "deeper").mkdir(parents=True)
    cgroups.remove(tmp_path / "run")
    cgroups.remove(tmp_path / "run")
    assert list(tmp_path.iterdir()) == []
