"""`leadline http` against a server that resets, hangs, stops short and sends nonsense, each a counted number of times:
every failure has its name and its number, the other requests are answered, and memory stays what it was."""

from __future__ import annotations

import re
import subprocess
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cli_runs as cli
import http_servers as servers
import pytest
from counting_server import SAYS

pytestmark = [
    pytest.mark.skipif(not cli.LEADLINE.exists(), reason="the leadline command is not installed"),
    pytest.mark.takes(25),
]

# What each path's answer is: whole, or an error of this name.
WHOLE = {"ok", "failed", "old", "old_length", "old_kept", "some_interim", "reset_after"}
NAMES = {
    "reset": "reset",
    "reset_in_head": "reset",
    "reset_in_body": "reset",
    "hang": "response_timeout",
    "long_body": "response_timeout",
    "early": "closed_early",
    "truncated": "closed_early",
    "truncated_head": "closed_early",
    "truncated_chunk": "closed_early",
    "no_http": "malformed_status_line",
    "version": "malformed_version",
    "long_head": "malformed_head_too_long",
    "endless_head": "malformed_head_too_long",
    "endless_line": "malformed_head_too_long",
    "no_colon": "malformed_field_line",
    "control": "malformed_control_character",
    "folded": "malformed_folded_field",
    "length": "malformed_content_length",
    "lengths": "malformed_content_length_conflict",
    "both": "malformed_length_and_coding",
    "coding": "malformed_transfer_encoding",
    "old_coding": "malformed_transfer_encoding_in_http10",
    "chunk_size": "malformed_chunk_size",
    "chunk_line": "malformed_chunk_line_too_long",
    "chunk_end": "malformed_chunk_end",
    "trailer": "malformed_trailer_too_long",
    "endless_trailer": "malformed_trailer_too_long",
    "upgrade": "malformed_unexpected_upgrade",
    "interim": "malformed_too_many_interim",
    "endless_interim": "malformed_too_many_interim",
    "too_much": "malformed_unsolicited_bytes",
}
EACH = 4


def agents_peak_kib(command: subprocess.Popen[str]) -> int:
    """The most memory that the command's agent has had so far; 0 before there is one."""
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            text = status.read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if re.search(rf"^PPid:\s*{command.pid}$", text, re.MULTILINE) and text.startswith("Name:\tleadline-agent"):
            found = re.search(r"^VmHWM:\s*(\d+)", text, re.MULTILINE)
            return int(found[1]) if found else 0
    return 0


def load_and_peak(run: str, engine: str, *arguments: str | Path) -> tuple[cli.Load, int]:
    """As `cli.load`, with its agent's peak of memory, KiB, which is looked at until the command is over."""
    command = ["http", "--json", "--no-calibrate", "-H", f"X-Run: {run}", *arguments]
    environment = {"LEADLINE_HTTP_ENGINE": engine}
    peaks, over = [0], threading.Event()
    with cli.start(*command, variables=environment) as process:

        def watch() -> None:
            while not over.wait(0.05):
                peaks.append(agents_peak_kib(process))

        watcher = threading.Thread(target=watch)
        watcher.start()
        out, err = process.communicate(timeout=cli.WITHIN_S)
        over.set()
        watcher.join()
    return cli.Load(run, process.returncode, out, err), max(peaks)


def test_everything_wrong_has_its_name_and_its_number(tmp_path: Path) -> None:
    assert WHOLE | NAMES.keys() >= SAYS.keys() - {"leaves"}
    with servers.counting(tmp_path) as server:
        kinds = sorted(WHOLE | NAMES.keys())
        (tmp_path / "urls").write_text("".join(f"{server.url(kind)}\n" for kind in kinds))
        number = EACH * len(kinds)
        options = (
            server.url(""),
            "--urls",
            tmp_path / "urls",
            "-n",
            str(number),
            "-d",
            "60s",
            "-c",
            "12",
            "--timeout",
            "6s",
        )
        with ThreadPoolExecutor() as pool:
            over_both = list(pool.map(lambda engine: load_and_peak(engine, engine, *options), cli.ENGINES))
    assert server.account.requests == dict.fromkeys(kinds, EACH * 2)
    expected = Counter(dict.fromkeys(NAMES.values(), 0))
    for name in NAMES.values():
        expected[name] += EACH
    for load, peak_kib in over_both:
        assert load.code == 0, load.err
        assert load.errors == expected
        assert set(load.document["error_examples"]) == set(expected) | {"status_5xx"}
        assert load.statuses == {"2xx": EACH * (len(WHOLE) - 1), "5xx": EACH}
        assert (load.count("requests_sent"), load.count("unanswered"), load.count("unsent")) == (number, 0, 0)
        # Answers of a megabyte and without an end are read and not kept.
        assert 0 < peak_kib < 40 * 1024


@pytest.mark.parametrize("rate", [1000, *(pytest.param(rate, marks=pytest.mark.full_matrix) for rate in (200, 3000))])
def test_requests_and_bytes_are_the_servers_at_every_rate(tmp_path: Path, rate: int) -> None:
    """Half a second's requests, paced; each fifth fails in some way, and those that hang take as long as they may."""
    shares = {"ok": 80, "failed": 10, "reset": 4, "early": 3, "truncated": 2, "hang": 1}
    with servers.counting(tmp_path) as server:
        (tmp_path / "urls").write_text("".join(f"weight={part} {server.url(kind)}\n" for kind, part in shares.items()))
        options = (server.url(""), "--urls", tmp_path / "urls", "--rate", str(rate), "-d", "60s", "-n", str(rate // 2))
        loads = cli.load_over_both("mixed", *options, "-c", "500", "--timeout", "6s")
    account = server.account
    assert account.requests == {kind: rate // 2 * part // 100 * 2 for kind, part in shares.items()}
    for load in loads:
        assert load.code == 0, load.err
        each = {kind: count // 2 for kind, count in account.requests.items()}
        errors = {"reset": each["reset"], "closed_early": each["early"] + each["truncated"]}
        assert load.errors == errors | {"response_timeout": each["hang"]}
        assert load.statuses == {"2xx": each["ok"], "5xx": each["failed"]}
        assert load.count("requests_due") == load.count("requests_sent") == rate // 2
        failed = sum(load.errors.values()) + each["failed"]
        assert load.value("error_ratio") == pytest.approx(failed / (rate // 2))
    assert sum(load.count("bytes_sent") for load in loads) == account.received_bytes
    assert sum(load.count("bytes_received") for load in loads) == account.sent_bytes
