"""Scripts of each of the nine kinds that come with wrk, run by wrk and by `leadline http` against a server that writes
down each request: both ask for the same, and both print the same but for figures."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import cli_runs as cli
import http_servers as servers
import pytest
from counting_server import Account

pytestmark = [
    pytest.mark.skipif(not cli.LEADLINE.exists(), reason="the leadline command is not installed"),
    pytest.mark.takes(30),
]

SCRIPTS = cli.ROOT / "crates" / "wrk-lua" / "tests" / "scripts"
NUMBER = re.compile(r"\d+")
PRINTED = re.compile(r"^(?:this )?thread .*$|^[\d.]+% \d+ us$|^\d+ requests$", re.MULTILINE)
LINES = {"name_threads": 4, "pick_address": 2, "tell_latency": 4}
Asked = tuple[str, tuple[str, ...], str]


@dataclass(frozen=True)
class Both:
    """What a script's run by wrk, and ours, asked for and printed."""

    wrk: Account
    wrk_out: str
    ours: Account
    out: str
    err: str

    def asked(self) -> tuple[set[Asked], set[Asked]]:
        """The requests of each, told apart by line, fields and body; numbers that count up and ports are as one."""
        return _asked(self.wrk), _asked(self.ours)

    def printed(self) -> tuple[list[str], list[str]]:
        """Lines that the script printed, numbers as one."""
        return _printed(self.wrk_out), _printed(self.out)


def _asked(account: Account) -> set[Asked]:
    found = set()
    for _, line, fields, body in account.kept:
        assert isinstance(line, str) and isinstance(fields, list) and isinstance(body, str)
        found.add((NUMBER.sub("N", line), tuple(NUMBER.sub("N", field) for field in fields), body))
    return found


def _printed(text: str) -> list[str]:
    return sorted(NUMBER.sub("N", line) for line in PRINTED.findall(text))


def run_both(folder: Path, script: str, *options: str, path: str = "list") -> Both:
    """The script by each, two threads with two connections each unless `options` say otherwise; long enough that all of
    them send requests even if a process stalls."""
    wrk = servers.program("wrk", "wrk")
    for name in ("wrk", "ours"):
        (folder / name).mkdir()
    shape = ("-t", "2", "-c", "4", "-d", "4s", "--timeout", "60s", *options, "-s", str(SCRIPTS / script))
    with servers.counting(folder / "wrk", "--keep") as one, servers.counting(folder / "ours", "--keep") as other:
        with ThreadPoolExecutor() as pool:
            command = [wrk, *shape, one.url(path)]
            theirs = pool.submit(subprocess.run, command, capture_output=True, text=True, check=True)
            ours = cli.call("http", "--no-calibrate", *shape, other.url(path))
        assert ours.returncode == 0, ours.stderr
    return Both(one.account, theirs.result().stdout, other.account, ours.stdout, ours.stderr)


@pytest.mark.parametrize(
    "script",
    [
        "count_up",
        "name_threads",
        "tell_latency",
        *(
            pytest.param(script, marks=pytest.mark.full_matrix)
            for script in ("login_first", "pick_address", "send_form", "think_time")
        ),
    ],
)
def test_wrk_and_leadline_ask_for_the_same(tmp_path: Path, script: str) -> None:
    both = run_both(tmp_path, f"{script}.lua")
    theirs, ours = both.asked()
    assert theirs == ours and theirs
    printed, said = both.printed()
    assert printed == said and len(said) == LINES.get(script, 0)
    assert len({connection for connection, *_ in both.ours.kept}) == 4
    if script == "count_up":
        for account in (both.wrk, both.ours):
            numbers = Counter(str(line).split()[1] for _, line, _, _ in account.kept)
            # The first thread's first one is not sent: it is asked for to see how many requests it holds.
            assert numbers["/item/0"] == 1 and numbers["/item/1"] == 2
    if script == "name_threads":
        sent = sum(int(found) for found in re.findall(r"thread \d+: (\d+) sent", both.out))
        seen = sum(int(found) for found in re.findall(r"(\d+) seen", both.out))
        assert sent == len(both.ours.kept) + 1
        assert sent - 1 - 4 <= seen <= sent - 1


def test_several_requests_at_once_are_counted_each(tmp_path: Path) -> None:
    both = run_both(tmp_path, "three_at_once.lua")
    theirs, ours = both.asked()
    assert theirs == ours and len(theirs) == 3
    assert set(both.ours.requests) == {"one", "two", "three"} and len(set(both.ours.requests.values())) == 1
    with servers.counting(tmp_path, "--keep") as server:
        load = cli.load("three", server.url(), "-c", "2", "-d", "300ms", "-s", SCRIPTS / "three_at_once.lua")
    answered, unanswered = sum(load.statuses.values()), load.count("unanswered")
    assert load.count("requests_sent") == len(server.account.kept) == answered + unanswered


def test_a_script_that_stops_leaves_the_true_rate(tmp_path: Path) -> None:
    """Each of two threads stops after five answers of 40 ms: what remains of the ten seconds is not counted."""
    with servers.counting(tmp_path) as server:
        options = ("-t", "2", "-c", "2", "-d", "10s", "-s", SCRIPTS / "stop_early.lua")
        loads = cli.load_over_both("stop", server.url("ok/40"), *options)
    assert server.account.requests == {"ok": 20}
    for load in loads:
        assert (load.errors, load.statuses, load.count("unanswered")) == ({}, {"2xx": 10}, 0)
        elapsed_s, rate = load.document["generator"]["wall_s"], load.value("requests_per_s")
        assert 0.2 <= elapsed_s < 8 and rate is not None
        # Those of the time in which both threads had requests, which is most of it unless one begins late.
        assert rate > 10 / 8 and rate * load.document["window"]["length_s"] < 10.1
