"""A guest's parts as values: modules in order, the archive that it boots from, and QEMU's command line."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from leadline.errors import EnvironmentLimit
from leadline.lab.guest import (
    Guest,
    Image,
    archive,
    find_image,
    first_file_system,
    launch_prefix,
    modules_in_order,
    qemu_argv,
)

DEPENDENCIES = """\
kernel/fs/9p/9p.ko: kernel/net/9p/9pnet.ko kernel/fs/fscache/fscache.ko kernel/fs/netfs/netfs.ko
kernel/net/9p/9pnet.ko:
kernel/net/9p/9pnet_virtio.ko: kernel/net/9p/9pnet.ko kernel/drivers/virtio/virtio.ko
kernel/drivers/virtio/virtio.ko:
kernel/fs/fscache/fscache.ko: kernel/fs/netfs/netfs.ko
kernel/fs/netfs/netfs.ko:
kernel/net/core/pktgen.ko.xz:
"""


def test_modules_come_behind_those_that_they_need() -> None:
    files = [Path(file).name for file in modules_in_order(DEPENDENCIES, ["9pnet-virtio", "9p", "built_in", "pktgen"])]
    assert files == ["9pnet.ko", "virtio.ko", "9pnet_virtio.ko", "netfs.ko", "fscache.ko", "9p.ko", "pktgen.ko.xz"]


@pytest.fixture
def image(tmp_path: Path) -> Image:
    folder = tmp_path / "lib/modules/6.1.0"
    folder.mkdir(parents=True)
    (folder / "modules.dep").write_text("kernel/overlay.ko:\n")
    (folder / "kernel").mkdir()
    (folder / "kernel/overlay.ko").write_bytes(b"module")
    (tmp_path / "busybox").write_bytes(b"program")
    return Image("6.1.0", tmp_path / "vmlinuz", tmp_path / "lib/modules", tmp_path / "busybox")


def entries(content: bytes) -> dict[str, tuple[int, bytes]]:
    """Names, modes and contents of an archive of the kind newc, as the kernel reads it."""
    found: dict[str, tuple[int, bytes]] = {}
    at = 0
    while True:
        assert content[at : at + 6] == b"070701"
        fields = [int(content[at + 6 + 8 * place : at + 14 + 8 * place], 16) for place in range(13)]
        mode, size, name_bytes = fields[1], fields[6], fields[11]
        name = content[at + 110 : at + 110 + name_bytes - 1].decode()
        begin = (at + 110 + name_bytes + 3) // 4 * 4
        at = (begin + size + 3) // 4 * 4
        if name == "TRAILER!!!":
            assert at == len(content)
            return found
        found[name] = (mode, content[begin : begin + size])


def test_archive_has_folders_before_files_that_can_be_run() -> None:
    found = entries(archive({"init": b"#!/bin/sh\n", "bin/busybox": b"12345"}))
    assert list(found) == ["bin", "init", "bin/busybox"]
    assert found["bin"] == (0o040755, b"")
    assert found["bin/busybox"] == (0o100755, b"12345")


def test_guest_boots_from_modules_and_its_command(image: Image) -> None:
    found = entries(first_file_system(image, ["/a b/agent", "--log", "it's"]))
    assert found["modules/000"][1] == b"module"
    script = found["command"][1].decode()
    assert "env '/a b/agent' --log 'it'\"'\"'s' <>$port >&0" in script
    assert subprocess.run(["sh", "-n"], input=script, text=True, check=False).returncode == 0
    assert subprocess.run(["sh", "-n"], input=found["init"][1], check=False).returncode == 0


def test_guest_is_emulated_and_reads_this_machine_without_changing_it(image: Image) -> None:
    argv = qemu_argv(image, Guest(cpus=2, memory_mib=512), "/proc/self/fd/5")
    assert argv[argv.index("-accel") + 1] == "tcg"
    assert argv[argv.index("-smp") + 1] == "2"
    assert "readonly=on" in argv[argv.index("-virtfs") + 1]
    assert argv[argv.index("-initrd") + 1] == "/proc/self/fd/5"


def test_prefix_runs_a_command_behind_its_options() -> None:
    assert launch_prefix(Guest(2, 512))[1:] == ("-m", "leadline.lab.guest", "--cpus", "2", "--memory", "512", "--")


def test_machine_of_another_kind_has_no_guest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    with pytest.raises(EnvironmentLimit, match="aarch64"):
        find_image()
