"""The journal survives whatever cuts it short: every byte offset, full disks, NUL blocks and garbage."""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from leadline.dataset import Journal, RunFolder, read_journal
from leadline.dataset.atomic import replace
from leadline.errors import DatasetError


def entries_of(path: Path) -> tuple[list[dict[str, Any]], bool, int]:
    reader = read_journal(path)
    entries = list(reader)
    return entries, reader.torn, reader.damaged


def written(path: Path, count: int) -> list[dict[str, Any]]:
    entries = [{"record": "phase", "at_ns": n, "text": f"Zeile {n} ↯\n{'x' * n}"} for n in range(count)]
    with Journal(path) as journal:
        for entry in entries:
            journal.append(entry)
    return entries


def test_reads_back_what_was_appended(tmp_path: Path) -> None:
    entries = written(tmp_path / "j", 20)
    assert entries_of(tmp_path / "j") == (entries, False, 0)
    assert (tmp_path / "j").read_bytes().count(b"\n") == 20


def test_torn_at_every_byte_of_the_last_three_lines(tmp_path: Path) -> None:
    entries = written(tmp_path / "j", 6)
    whole = (tmp_path / "j").read_bytes()
    ends = [at + 1 for at, byte in enumerate(whole) if byte == 0x0A]
    torn = tmp_path / "torn"
    for length in range(ends[2], len(whole) + 1):
        torn.write_bytes(whole[:length])
        # A line is whole once its last brace is there, even when its newline is not.
        expected = sum(1 for end in ends if length >= end - 1)
        read, was_torn, damaged = entries_of(torn)
        assert read == entries[:expected]
        assert was_torn == (length not in ends and length + 1 not in ends)
        assert damaged == 0


@pytest.mark.usefixtures("damaged_journals")
def test_appending_to_a_journal_torn_at_every_byte_keeps_both_sides(tmp_path: Path) -> None:
    entries = written(tmp_path / "j", 3)
    whole = (tmp_path / "j").read_bytes()
    ends = [at + 1 for at, byte in enumerate(whole) if byte == 0x0A]
    torn = tmp_path / "torn"
    later = {"record": "run-end", "status": "done"}
    for length in range(ends[1], len(whole) + 1):
        torn.write_bytes(whole[:length])
        with Journal(torn) as journal:
            journal.append(later)
        expected = sum(1 for end in ends if length >= end - 1)
        read, was_torn, damaged = entries_of(torn)
        assert read == [*entries[:expected], later]
        assert not was_torn
        assert damaged == (0 if length in ends or length + 1 in ends else 1)


@pytest.mark.usefixtures("damaged_journals")
def test_nul_blocks_and_garbage_are_counted_and_cost_no_other_line(tmp_path: Path) -> None:
    path = tmp_path / "j"
    first, second, third = ({"record": "phase", "n": n} for n in range(3))
    path.write_bytes(
        json.dumps(first).encode()
        + b"\n\xff\xfe garbage {\n123\n[1]\n\n"
        + bytes(5000)
        + json.dumps(second).encode()
        + b"\n"
        + json.dumps(third).encode()
        + b"\n"
        + bytes(4096)
    )
    read, torn, damaged = entries_of(path)
    assert read == [first, second, third]
    assert torn
    assert damaged == 4  # three lines of garbage and the freed one; the block at the end is the torn line


@pytest.mark.usefixtures("damaged_journals")
@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e400", "-1E+999", "9" * 400])
def test_line_with_a_number_that_is_none_is_damaged(tmp_path: Path, number: str) -> None:
    path = tmp_path / "j"
    texts = {"record": "phase", "said": "NaN Infinity 1e400", "n": 1e308}
    path.write_text(f'{json.dumps(texts)}\n{{"record": "phase", "n": [{{"m": {number}}}]}}\n')
    assert entries_of(path) == ([texts], False, 1)


def test_no_infinite_number_is_written(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:
        journal.append({"record": "phase", "n": float("nan"), "m": [float("inf"), 1.5]})
        journal.append({"record": "phase", "n": float("nan"), "said": "\ud800"})
    read, _, _ = entries_of(tmp_path / "j")
    assert [entry["n"] for entry in read] == [None, None]
    assert read[0]["m"] == [None, 1.5]


def test_reading_from_an_entry_on_leaves_out_what_was_before(tmp_path: Path) -> None:
    path = tmp_path / "journal.ndjson"
    with Journal(path) as journal:
        assert journal.size_bytes == 0
        journal.append({"number": 1})
        path.write_bytes(path.read_bytes() + b"garbage\n")
        begin_byte = journal.size_bytes
        journal.append({"number": 2})
        journal.append({"number": 3})
    reader = read_journal(path, begin_byte)
    for _ in range(2):
        assert [entry["number"] for entry in reader] == [2, 3]
        assert reader.damaged == 0


def test_text_with_lone_surrogates_is_kept(tmp_path: Path) -> None:
    entry = {"record": "note", "text": "a\udcffb", "nothing": None, "path": tmp_path}
    with Journal(tmp_path / "j") as journal:
        journal.append(entry)
        journal.append({"value": float("nan")})
    read, _, damaged = entries_of(tmp_path / "j")
    assert read[0]["text"] == "a\udcffb"
    assert read[1] == {"value": None}
    assert damaged == 0


def test_a_full_disk_is_named_in_one_line() -> None:
    with Journal(Path("/dev/full")) as journal, pytest.raises(DatasetError) as caught:
        journal.append({"record": "phase"})
    assert "/dev/full: no space left on the device" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """From now on a disk with as many bytes as the list says, and what the journal has in reserve."""
    room: list[int] = []
    write, release = os.write, Journal._release

    def take(fd: int, line: bytes) -> int:
        if room and room[0] < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if room:
            room[0] -= len(line)
        return write(fd, line)

    def give_back(journal: Journal) -> None:
        if journal._reserve is not None:
            room[0] += os.fstat(journal._reserve.fileno()).st_size
        release(journal)

    monkeypatch.setattr(os, "write", take)
    monkeypatch.setattr(Journal, "_release", give_back)
    return room


def test_records_of_the_end_fit_on_a_full_disk_and_events_do_not(tmp_path: Path, full_disk: list[int]) -> None:
    event = json.dumps({"type": "interval", "fill": "x" * 1000}).encode()
    with Journal(tmp_path / "j") as journal:
        full_disk.append(2_000)
        for number in range(100):
            with suppress(DatasetError):
                journal.append_event("client1", number, event)
        journal.append({"record": "trial-end", "error": {"message": "no space" * 50}})
        journal.append({"record": "run-end"})
        assert full_disk[0] > 0
    read, torn, damaged = entries_of(tmp_path / "j")
    assert [entry.get("record") for entry in read] == [None, "trial-end", "run-end"]
    assert (torn, damaged) == (False, 0)


def test_reserve_leaves_no_file(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:
        assert journal._reserve is not None
        assert os.fstat(journal._reserve.fileno()).st_size == 16 * 1024
        assert [path.name for path in tmp_path.iterdir()] == ["j"]
    assert journal._reserve is None


LIMITED_WRITER = """
import resource, signal, sys
from pathlib import Path
from leadline.dataset import Journal
from leadline.errors import DatasetError
limit = int(sys.argv[2])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
journal = Journal(Path(sys.argv[1]))
count, failures = 0, 0
for n in range(40):
    try:
        journal.append({"n": n, "fill": "x" * 100})
        count += 1
    except DatasetError as error:
        assert "limit" in str(error), error
        failures += 1
assert failures
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
journal.append({"last": count})
journal.close()
"""


@pytest.mark.parametrize("limit", [1, 60, 115, 116, 117, 1000, 2331])
def test_a_write_cut_short_by_the_kernel_leaves_whole_lines_only(tmp_path: Path, limit: int) -> None:
    if resource.getrlimit(resource.RLIMIT_FSIZE)[1] != resource.RLIM_INFINITY:
        pytest.skip("the file size limit cannot be lifted again here")
    path = tmp_path / "j"
    subprocess.run([sys.executable, "-c", LIMITED_WRITER, str(path), str(limit)], check=True)
    read, torn, damaged = entries_of(path)
    assert [entry.get("n") for entry in read[:-1]] == list(range(len(read) - 1))
    assert read[-1] == {"last": len(read) - 1}
    assert (torn, damaged) == (False, 0)


def test_events_for_later_are_written_at_once_and_before_what_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_write, writes = os.write, []

    def write(fd: int, data: bytes) -> int:
        writes.append(data)
        return real_write(fd, data)

    with Journal(tmp_path / "j") as journal:
        monkeypatch.setattr(os, "write", write)
        for number in range(3):
            journal.append_event_later("client1", number, b'{"type":"observation"}')
        assert writes == []
        journal.append_event("client1", 3, b'{"type":"started"}')
        journal.append_event_later("client1", 4, b'{"type":"observation"}')
        journal.append({"record": "phase", "at_ns": 5})
        journal.append_event_later("client1", 6, b'{"type":"observation"}')
        journal.flush()
        journal.flush()
        assert [data.count(b"\n") for data in writes] == [4, 1, 1, 1]
        journal.append_event_later("client1", 7, b'{"type":"observation"}')
    read, _, _ = entries_of(tmp_path / "j")
    assert [entry["at_ns"] for entry in read] == list(range(8))


@pytest.mark.parametrize("room", [0, 40, 100, 150, 1000])
def test_of_events_written_at_once_those_that_fit_stay_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    real_write, left = os.write, [room]

    def write(fd: int, data: bytes) -> int:
        if left[0] == 0 and b"record" not in data:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = real_write(fd, data if b"record" in data else data[: left[0]])
        left[0] = max(0, left[0] - taken)
        return taken

    with Journal(tmp_path / "j") as journal:
        for number in range(30):
            journal.append_event_later("client1", number, b'{"type":"observation"}')
        monkeypatch.setattr(os, "write", write)
        with pytest.raises(DatasetError, match="no space left"):
            journal.append({"record": "trial-end"})
    line = len(b'{"host":"client1","at_ns":0,"event":{"type":"observation"}}\n')
    read, torn, damaged = entries_of(tmp_path / "j")
    assert [entry.get("at_ns") for entry in read[:-1]] == list(range(len(read) - 1))
    assert len(read) - 1 in (room // line, room // (line + 1))
    assert read[-1] == {"record": "trial-end"}
    assert (torn, damaged) == (False, 0)


@pytest.mark.usefixtures("damaged_journals")
def test_next_entry_starts_a_new_line_when_truncation_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_write = os.write

    def half(fd: int, data: bytes) -> int:
        if b"torn" in data:
            if data.startswith(b"{"):
                return real_write(fd, data[: len(data) // 2])
            raise OSError(5, "Input/output error")
        return real_write(fd, data)

    def refuse(fd: int, length: int) -> None:
        raise OSError(5, "Input/output error")

    with Journal(tmp_path / "j") as journal:
        journal.append({"n": 1})
        monkeypatch.setattr(os, "write", half)
        monkeypatch.setattr(os, "ftruncate", refuse)
        with pytest.raises(DatasetError, match="input/output error"):
            journal.append({"a_long_key_before_the_word": "t", "torn": "torn"})
        journal.append({"n": 2})
    assert entries_of(tmp_path / "j") == ([{"n": 1}, {"n": 2}], False, 1)


def test_a_missing_journal_is_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="cannot read"):
        list(read_journal(tmp_path / "none"))


def test_a_garbled_line_of_our_own_journal_is_an_error(tmp_path: Path) -> None:
    """As all tests read: see `damaged_journals`."""
    (tmp_path / "j").write_bytes(b'{"record": "phase"}\n{"record"; "phase"}\n')
    with pytest.raises(DatasetError, match="line 2 is not an entry"):
        list(read_journal(tmp_path / "j"))


def synchronised(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bytes]]:
    """Each fdatasync, fsync of a folder and rename from now on, with what the file, or the folder's name, was then."""
    done: list[tuple[str, bytes]] = []
    calls = {"fdatasync": os.fdatasync, "fsync": os.fsync}

    def note(name: str) -> Any:
        def call(fd: int) -> None:
            path = Path(f"/proc/self/fd/{fd}").readlink()
            done.append((name, path.name.encode() if path.is_dir() else path.read_bytes()))
            calls[name](fd)

        return call

    rename = Path.replace

    def renamed(path: Path, target: Path) -> Path:
        done.append(("rename", target.name.encode()))
        return rename(path, target)

    for name in calls:
        monkeypatch.setattr(os, name, note(name))
    monkeypatch.setattr(Path, "replace", renamed)
    return done


def test_the_end_of_each_trial_is_on_the_disk_when_it_is_appended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    done = synchronised(monkeypatch)
    with Journal(folder / "j") as journal:
        assert done == [("fsync", b"run")]
        journal.append({"record": "trial-begin"})
        journal.append({"host": "a", "event": {}})
        assert len(done) == 1
        journal.append({"record": "trial-end", "trial": "c01/1"})
        assert done[1:] == [("fdatasync", (folder / "j").read_bytes())]
        journal.append({"record": "run-end"})
        assert [name for name, _ in done[2:]] == ["fdatasync"]


def test_a_trial_whose_end_does_not_reach_the_disk_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", fail)
    with Journal(tmp_path / "j") as journal:
        journal.append({"record": "phase"})
        with pytest.raises(DatasetError, match="input/output error"):
            journal.append({"record": "trial-end"})


def test_a_file_is_on_the_disk_before_it_takes_its_place_and_its_name_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = synchronised(monkeypatch)
    replace(tmp_path / "page.html", lambda path: path.write_text("all of it"))
    assert done == [("fsync", b"all of it"), ("rename", b"page.html"), ("fsync", tmp_path.name.encode())]


def test_a_read_only_file_system_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel refuses to remove any name there, even one that does not exist."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(DatasetError, match=r"cannot write .*/page.html: Read-only file system"):
        replace(tmp_path / "page.html", refuse)


def test_a_new_run_folder_is_on_the_disk_with_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = synchronised(monkeypatch)
    run = RunFolder.create(tmp_path, "x")
    assert done == [("fsync", run.run_id.encode()), ("fsync", tmp_path.name.encode())]
