"""What /proc says of a process: read from this process and from files made here."""

from __future__ import annotations

import os
from pathlib import Path

from leadline.agents.process_usage import process_usage


def made(folder: Path, schedstat: str | None = None) -> Path:
    own = folder / "7"
    for thread in ("7", "8"):
        (own / "task" / thread).mkdir(parents=True)
        if schedstat is not None:
            (own / "task" / thread / "schedstat").write_text(schedstat)
    (own / "statm").write_text("100 25 3 1 0 9 0\n")
    fields = " ".join(["S", *["0"] * 10, "150", "50", *["0"] * 30])
    (own / "stat").write_text(f"7 (a ) name) {fields}\n")
    return folder


def test_all_threads_count_by_the_schedulers_clock(tmp_path: Path) -> None:
    reading = process_usage(7, made(tmp_path, "1500000000 10 3\n"))
    assert reading is not None
    assert reading.cpu_s == 3.0
    assert reading.resident_bytes == 25 * os.sysconf("SC_PAGE_SIZE")


def test_ticks_stand_in_where_the_scheduler_keeps_no_clock(tmp_path: Path) -> None:
    reading = process_usage(7, made(tmp_path))
    assert reading is not None
    assert reading.cpu_s == 200 / os.sysconf("SC_CLK_TCK"), "a name may hold brackets and blanks"


def test_a_process_that_is_gone_is_not_known(tmp_path: Path) -> None:
    assert process_usage(8, tmp_path) is None
    own = process_usage(os.getpid())
    assert own is not None and own.cpu_s > 0 and own.resident_bytes > 0
