"""What ended runs leave behind is removed, and what living ones have stays."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from leadline.errors import EnvironmentLimit
from leadline.lab import cgroups, sweep

OWN_NAMESPACE = Path("/proc/self/ns/pid").stat().st_ino
NO_PARENT = cgroups.CgroupParent(None, "none wanted")


@pytest.fixture(autouse=True)
def own_temp_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leadline.lab.sweep.tempfile.gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(cgroups, "find_parent", lambda: NO_PARENT)


def gone() -> int:
    """A pid that was in use and is free again."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return ended.pid


def leavings(folder: Path, name: str, **record: object) -> Path:
    made = folder / name
    (made / "ns").mkdir(parents=True)
    whole = {"label": "x", "pid_namespace": OWN_NAMESPACE, "cgroup": None, **record}
    (made / "owner.json").write_text(json.dumps(whole))
    return made


def test_a_trace_can_be_erased_twice(tmp_path: Path) -> None:
    parent = tmp_path / "cgroup"
    parent.mkdir()
    trace = sweep.leave_trace("c01", parent=cgroups.CgroupParent(parent, None))
    assert trace.namespaces.is_dir()
    assert trace.folder.stat().st_mode & 0o777 == 0o700
    assert trace.cgroup is not None
    assert (trace.cgroup.parent, trace.cgroup.name) == (parent, trace.folder.name)
    assert trace.cgroup.is_dir()
    sweep.erase(trace)
    sweep.erase(trace)
    assert (list(parent.iterdir()), trace.folder.exists()) == ([], False)


def test_a_group_that_cannot_be_made_is_a_reason_not_an_error(tmp_path: Path) -> None:
    trace = sweep.leave_trace("c01", parent=cgroups.CgroupParent(tmp_path / "absent", None))
    assert trace.cgroup is None
    assert "cannot be created: No such file or directory" in (trace.cgroup_reason or "")


def test_no_folder_for_temporary_files_is_a_limit_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr("leadline.lab.sweep.tempfile.gettempdir", refuse)
    said = r"cannot be written: No usable temporary directory found in \['/tmp'\]; set TMPDIR"
    with pytest.raises(EnvironmentLimit, match=said):
        sweep.sweep()
    with pytest.raises(EnvironmentLimit, match=said):
        sweep.leave_trace("c01", parent=NO_PARENT)


def test_a_trace_that_cannot_be_recorded_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", refuse)
    with pytest.raises(EnvironmentLimit, match="No space left on device; set TMPDIR"):
        sweep.leave_trace("c01", parent=NO_PARENT)
    assert list(tmp_path.iterdir()) == []


def test_a_living_owners_leavings_stay(tmp_path: Path) -> None:
    trace = sweep.leave_trace("c01", parent=NO_PARENT)
    assert sweep.sweep() == []
    assert trace.folder.is_dir()


def test_a_gone_owners_leavings_go(tmp_path: Path) -> None:
    name = f"leadline-{gone()}-12345-0123abcd"
    group = tmp_path / "groups" / name
    (group / "server").mkdir(parents=True)
    leavings(tmp_path, name, cgroup=str(group))
    assert sweep.sweep() == [name]
    assert (list((tmp_path / "groups").iterdir()), (tmp_path / name).exists()) == ([], False)


def test_a_pid_in_use_again_by_another_does_not_count(tmp_path: Path) -> None:
    name = f"leadline-{os.getpid()}-1-0123abcd"
    leavings(tmp_path, name)
    assert sweep.sweep() == [name]


def test_a_zombie_is_gone(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    start_ticks = int(Path(f"/proc/{ended.pid}/stat").read_text().rsplit(")", 1)[1].split()[19])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    name = f"leadline-{ended.pid}-{start_ticks}-0123abcd"
    leavings(tmp_path, name)
    assert sweep.sweep() == [name]
    ended.wait()


def test_what_cannot_be_judged_or_is_not_ours_stays(tmp_path: Path) -> None:
    pid = gone()
    elsewhere = leavings(tmp_path, f"leadline-{pid}-1-0123abcd", pid_namespace=OWN_NAMESPACE + 1)
    misnamed = leavings(tmp_path, f"leadline-{pid}-notes")
    link = tmp_path / f"leadline-{pid}-2-0123abcd"
    link.symlink_to(misnamed)
    assert sweep.sweep() == []
    assert elsewhere.is_dir()
    assert misnamed.is_dir()
    assert link.is_symlink()


def test_a_record_cannot_name_anothers_group(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    name = f"leadline-{gone()}-1-0123abcd"
    leavings(tmp_path, name, cgroup=str(precious))
    assert sweep.sweep() == [name]
    assert precious.is_dir()


def test_groups_without_a_record_go_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if OWN_NAMESPACE != 0xEFFFFFFC:
        pytest.skip("not in the first pid namespace, from where every owner can be seen")
    parent = tmp_path / "groups"
    name = f"leadline-{gone()}-1-0123abcd"
    (parent / name / "server").mkdir(parents=True)
    monkeypatch.setattr(cgroups, "find_parent", lambda: cgroups.CgroupParent(parent, None))
    assert sweep.sweep() == [name]
    assert list(parent.iterdir()) == []
