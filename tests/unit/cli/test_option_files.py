"""Files that options name: replaced at once, checked without a trace, and pipes and links as they are."""

from __future__ import annotations

import errno
import os
import tempfile
import threading
from pathlib import Path
from typing import BinaryIO

import pytest

from leadline.cli.output import check_writable, write_option_bytes, write_option_stream
from leadline.errors import InputError


def test_failed_write_keeps_the_old_content(tmp_path: Path) -> None:
    file = tmp_path / "figures.prom"
    file.write_bytes(b"old")

    def write_half(opened: BinaryIO) -> None:
        opened.write(b"new c")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(InputError, match=r"^--output .*figures.prom: No space left on device"):
        write_option_stream("--output", file, write_half)
    assert file.read_bytes() == b"old" and list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("is_there", [False, True])
def test_private_file_is_its_owners_alone(tmp_path: Path, is_there: bool) -> None:
    file = tmp_path / "shop.har"
    if is_there:
        file.write_bytes(b"old")
        file.chmod(0o644)
    write_option_stream("--output", file, lambda opened: opened.write(b"new"), is_private=True)
    assert file.read_bytes() == b"new" and file.stat().st_mode & 0o777 == 0o600


def test_link_and_mode_stay(tmp_path: Path) -> None:
    target, link = tmp_path / "target.csv", tmp_path / "latest.csv"
    target.write_bytes(b"old")
    target.chmod(0o640)
    link.symlink_to("target.csv")
    before = target.stat().st_ino
    check_writable("--output", link)
    write_option_bytes("--output", link, b"new")
    assert link.is_symlink() and target.read_bytes() == b"new"
    assert target.stat().st_mode & 0o777 == 0o640 and target.stat().st_ino != before


def test_owner_stays_or_the_file_is_written_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "figures.prom"
    file.write_bytes(b"old")
    os.chown(file, os.geteuid(), os.getegid())
    given: list[tuple[int, int]] = []

    def refuse(_path: Path, owner: int, group: int) -> None:
        given.append((owner, group))
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "chown", refuse)
    before = file.stat()
    write_option_bytes("--output", file, b"new")
    assert given == [(before.st_uid, before.st_gid)] and file.stat().st_ino == before.st_ino
    assert file.read_bytes() == b"new" and list(tmp_path.iterdir()) == [file]


def test_all_names_of_a_file_have_the_new_content(tmp_path: Path) -> None:
    file, other = tmp_path / "a", tmp_path / "b"
    file.write_bytes(b"old")
    other.hardlink_to(file)
    write_option_bytes("--output", file, b"new")
    assert other.read_bytes() == b"new"


def test_check_of_a_link_to_no_file_leaves_the_link_alone(tmp_path: Path) -> None:
    target, link = tmp_path / "target.csv", tmp_path / "latest.csv"
    link.symlink_to("target.csv")
    check_writable("--output", link)
    assert link.is_symlink() and not target.exists()
    write_option_bytes("--output", link, b"new")
    assert link.is_symlink() and target.read_bytes() == b"new"


def test_reader_of_a_pipe_gets_the_content_and_no_early_end(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()), daemon=True)
    reader.start()
    check_writable("--output", pipe)
    reader.join(0.1)
    assert reader.is_alive() and got == []
    write_option_bytes("--output", pipe, b"content")
    reader.join(10)
    assert got == [b"content"] and pipe.is_fifo()


def test_file_that_is_open_already_is_written_in_place(tmp_path: Path) -> None:
    file = tmp_path / "redirected"
    with file.open("wb") as opened:
        path = Path(f"/dev/fd/{opened.fileno()}")
        check_writable("--output", path)
        write_option_bytes("--output", path, b"content")
        assert os.path.samestat(os.fstat(opened.fileno()), file.stat())
    assert file.read_bytes() == b"content"


def test_file_that_cannot_be_renamed_over_is_written_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "mounted"
    file.write_bytes(b"old")

    def refuse(_path: Path, _target: Path) -> None:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    monkeypatch.setattr(Path, "replace", refuse)
    write_option_bytes("--output", file, b"new")
    assert file.read_bytes() == b"new" and list(tmp_path.iterdir()) == [file]


def test_check_of_an_open_file_without_a_name_makes_none(tmp_path: Path) -> None:
    with tempfile.TemporaryFile(dir=tmp_path) as unnamed:
        path = Path(f"/dev/fd/{unnamed.fileno()}")
        check_writable("--output", path)
        write_option_bytes("--output", path, b"content")
        assert list(tmp_path.iterdir()) == []
        assert os.pread(unnamed.fileno(), 100, 0) == b"content"


@pytest.mark.parametrize("name", [".", "none/file", "\udcff" * 300])
def test_path_that_cannot_be_written_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"^--html .*; name a file that can be written$"):
        check_writable("--html", tmp_path / name)
    with pytest.raises(InputError, match=r"^--html .*; name a file that can be written$"):
        write_option_bytes("--html", tmp_path / name, b"")
    assert list(tmp_path.iterdir()) == []
