"""The journal of a recording: what a kill leaves, and the HAR file that is made of it."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

from in_process import leadline
from leadline.errors import InputError
from leadline.recording.journal import append, is_being_written, open_journal, read_recording, write_har


def entry(number: int, **content: str) -> dict[str, Any]:
    """An entry, as the proxy writes it."""
    return {
        "startedDateTime": f"2026-01-01T00:00:{number:02}.000000+00:00",
        "time": 10,
        "request": {"method": "GET", "url": f"http://shop.test/{number}", "headers": []},
        "response": {
            "status": 200,
            "redirectURL": "",
            "headers": [],
            "content": {"mimeType": "text/html", "text": f"<title>{number}</title>", **content},
        },
        "timings": {},
    }


def journal_of(path: Path, *numbers: int, **content: str) -> Path:
    """A journal whose entries begin at these seconds; it is closed."""
    fd = open_journal(path)
    for number in numbers:
        append(fd, float(number), number + 0.01, entry(number, **content))
    os.close(fd)
    return path


def har_of(path: Path, *, with_binary: bool = True) -> dict[str, Any]:
    """The HAR file of a journal."""
    out = io.BytesIO()
    write_har(read_recording(path), out, with_binary=with_binary)
    log: dict[str, Any] = json.loads(out.getvalue())["log"]
    return log


def test_entries_are_in_the_order_in_which_they_began(tmp_path: Path) -> None:
    log = har_of(journal_of(tmp_path / "a.jsonl", 3, 1, 2))
    assert [one["request"]["url"][-1] for one in log["entries"]] == ["1", "2", "3"]
    assert [(one["pageref"], page["title"]) for one, page in zip(log["entries"], log["pages"], strict=True)] == [
        ("page_1", "1"), ("page_2", "2"), ("page_3", "3"),
    ]  # fmt: skip


def test_line_that_a_kill_has_cut_is_counted_and_the_others_are_read(tmp_path: Path) -> None:
    path = journal_of(tmp_path / "a.jsonl", 1, 2)
    path.write_bytes(path.read_bytes()[:-20])
    recording = read_recording(path)
    assert (len(recording.rows), recording.unreadable) == (1, 1)
    done = leadline("record", "--recover", path, "-o", tmp_path / "a.har")
    assert done.returncode == 0 and "1 line of the journal cannot be read" in done.stderr
    assert path.exists(), "the user's own file"


def test_binary_bodies_are_left_out_for_a_conversion(tmp_path: Path) -> None:
    path = journal_of(tmp_path / "a.jsonl", 1, text="AAAA", encoding="base64")
    assert har_of(path)["entries"][0]["response"]["content"]["text"] == "AAAA"
    assert "text" not in har_of(path, with_binary=False)["entries"][0]["response"]["content"]


def test_journal_is_its_owners_alone_and_known_as_long_as_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    fd = open_journal(path)
    assert path.stat().st_mode & 0o777 == 0o600 and is_being_written(path)
    os.close(fd)
    assert not is_being_written(path)


@pytest.mark.parametrize(
    "content", [b"no JSON\n", b"{}\n", b"[" * 100_000, b'{"start_s": 1, "end_s": 2, "entry": []}\n']
)
def test_file_that_is_no_journal_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    with pytest.raises(InputError, match="it is no journal of a recording"):
        read_recording(path)


def test_empty_recording_is_a_failure_that_says_why(tmp_path: Path) -> None:
    done = leadline("record", "--recover", journal_of(tmp_path / "a.jsonl"))
    assert done.returncode == 1 and "nothing was recorded: no request came through the proxy" in done.stderr
