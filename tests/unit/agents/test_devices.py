"""What keeps a device from being opened: its absence, its rights, a container; each with its own remedy."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from leadline.agents.devices import check_devices, device_problem
from leadline.errors import ClosedDevice
from leadline.plan import Need


def test_a_device_that_opens_is_no_problem() -> None:
    assert device_problem("/dev/null") is None
    check_devices([Need("device", "/dev/null", "it is used"), Need("program", "/no/such", "it is not a device")])


def test_a_missing_device_needs_its_module(tmp_path: Path) -> None:
    problem = device_problem(str(tmp_path / "tun"))
    assert problem is not None and problem.why == f"{tmp_path}/tun: no such file or directory"
    assert problem.mend.startswith("sudo modprobe tun")


def test_rights_that_forbid_it_are_shown_with_their_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = tmp_path / "tun"
    device.touch()
    device.chmod(0o600)
    refuse(monkeypatch, errno.EACCES)
    problem = device_problem(str(device))
    assert problem is not None
    assert problem.why.startswith(f"the rights of {device} forbid it: -rw------- ")
    assert problem.mend == f"sudo chmod 0666 {device}, or run leadline as root"
    with pytest.raises(ClosedDevice, match=r"forbid it: -rw------- .*; it is used; sudo chmod 0666") as caught:
        check_devices([Need("device", str(device), "it is used")])
    assert caught.value.exit_code == 2
    assert "modprobe" not in str(caught.value)


def test_a_container_that_forbids_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, errno.EPERM)
    problem = device_problem("/dev/null")
    assert problem is not None and problem.mend == "start the container with --device /dev/net/tun"


def refuse(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def fail(path: str, *_: object) -> int:
        raise OSError(number, os.strerror(number), path)

    monkeypatch.setattr(os, "open", fail)
