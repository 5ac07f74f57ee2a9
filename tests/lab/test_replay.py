"""Recorded requests sent again by `leadline replay` to servers that write down what they get."""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from http_servers import counting
from real_runs import LEADLINE

from in_process import leadline
from waiting import until

pytestmark = [pytest.mark.agent, pytest.mark.takes(12)]

SEPARATOR = "\n\U0001f435\U0001f648\U0001f649\n".encode()
SESSIONS, REQUESTS = 500, 10_000
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def replay(*arguments: str | Path, **options: Any) -> dict[str, Any]:
    """The document of a replay that ended well."""
    done = leadline("replay", *map(str, arguments), "--json", **options)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def figure(found: dict[str, Any], name: str) -> float | None:
    value: float | None = found["metrics"][name]["value"]
    return value


def _made_log() -> tuple[list[str], dict[str, list[str]]]:
    """Lines in the order in which requests ended, and each session's targets in the order in which they began."""
    chance = random.Random(31)
    began = sorted(chance.uniform(0, 20) for _ in range(REQUESTS))
    # Each session has its requests one after the other.
    free = dict.fromkeys(range(SESSIONS), 0.0)
    sessions: dict[str, list[str]] = defaultdict(list)
    lines = []
    for number, at_s in enumerate(began):
        user = chance.choice(
            [user for user in chance.sample(range(SESSIONS), 40) if free[user] <= at_s] or [number % 7]
        )
        start_s = max(at_s, free[user])
        lasts_s = chance.choice([0.001, 0.01, 0.4])
        free[user] = start_s + lasts_s + 0.005  # beyond what is rounded
        target = f"/user{user}/page{number}"
        sessions[f"user{user}"].append(target)
        times = f"{1_770_000_000 + start_s + lasts_s:.3f} {lasts_s:.3f}"
        text = f'192.0.2.{user % 250} {times} u{user} "GET {target} HTTP/1.1" 200'
        lines.append((start_s + lasts_s, text))
    return [text for _, text in sorted(lines)], sessions


def test_each_request_of_a_log_comes_once_and_in_its_session_s_order(tmp_path: Path) -> None:
    lines, sessions = _made_log()
    log = tmp_path / "access.log.gz"
    log.write_bytes(gzip.compress("\n".join([*lines, "no line of a log", ""]).encode()))
    log_format = '$remote_addr $msec $request_time $remote_user "$request" $status'
    with counting(tmp_path, "--keep") as server:
        found = replay(log, server.url(""), "--format", log_format, "--speed", "4", "-t", "3")
    targets = [str(line).split(" ")[1] for _, line, _, _ in server.account.kept]
    assert sorted(targets) == sorted(target for own in sessions.values() for target in own)
    came: dict[str, list[str]] = defaultdict(list)
    for target in targets:
        came[target.split("/")[1]].append(target)
    assert came == sessions
    source = found["scenario"]["replay"]
    assert (source["read"], source["left_out"], source["sessions"]) == (REQUESTS, {"malformed": 1}, len(sessions))
    assert (figure(found, "requests_due"), figure(found, "unanswered")) == (REQUESTS, 0)


class _Shop(BaseHTTPRequestHandler):
    """Gives each visitor a token of its own, and wants it back; one price has changed."""

    protocol_version = "HTTP/1.1"
    asked: list[tuple[str, str, bool]]

    def do_GET(self) -> None:
        token = self.headers.get("X-Token", "")
        self.asked.append((self.command, self.path, token.startswith("new-")))
        if self.path == "/login":
            body = json.dumps({"token": f"new-{len(self.asked)}", "at": time.time_ns()})
        else:
            item = int(self.path.rsplit("/", 1)[1])
            body = json.dumps({"item": item, "price": 6 if item == 3 else 5, "at": time.time_ns()})
        self.send_response(200 if self.path == "/login" or token.startswith("new-") else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


@contextmanager
def shop() -> Iterator[tuple[str, list[tuple[str, str, bool]]]]:
    asked: list[tuple[str, str, bool]] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Shop", (_Shop,), {"asked": asked}))
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/", asked
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.decided_by("counts of requests")
def test_more_threads_than_sessions_lose_nothing(tmp_path: Path) -> None:
    with counting(tmp_path, "--keep") as server:
        found = replay(EXAMPLES / "access.log", server.url("").replace("/ok", ""), "-t", "8", "--speed", "10")
    source = found["scenario"]["replay"]
    assert len(server.account.kept) == figure(found, "requests_due") == source["passed_on"] == 117
    codes = {reason["code"] for reason in found["validity"]["reasons"]}
    assert codes.isdisjoint({"flows-not-started", "requests-lost", "no-steady-window"})


def test_source_without_a_request_is_named_as_the_cause() -> None:
    with shop() as (url, asked):
        done = leadline("replay", EXAMPLES / "access.log", url, "--format", "haproxy")
    assert (done.returncode, asked) == (1, [])
    assert "no request was sent: left out: 120 malformed" in " ".join((done.stdout + done.stderr).split())


def _made_gor(visits: int, items: int) -> bytes:
    """Visits that log in and look at items with the token of that time, each with its answers."""
    out, at_ns = b"", 1_770_000_000 * 10**9
    for visit in range(visits):
        connection = f"{40_000 + visit:04x}00507f000001"
        for step in range(items + 1):
            number, token = f"{connection}{step:08x}", f"old-{visit}-token"
            if step == 0:
                request, answer = "GET /login HTTP/1.1\r\nHost: shop.test\r\n\r\n", {"token": token, "at": at_ns}
            else:
                request = f"GET /item/{step} HTTP/1.1\r\nHost: shop.test\r\nX-Token: {token}\r\n\r\n"
                answer = {"item": step, "price": 5, "at": at_ns}
            body = json.dumps(answer)
            head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n"
            out += f"1 {number} {at_ns} 0\n{request}".encode() + SEPARATOR
            out += f"2 {number} {at_ns + 1_000_000} 1000\n{head}{body}".encode() + SEPARATOR
            at_ns += 5_000_000
    return out


def test_changed_answer_is_found_and_a_noisy_field_is_not(tmp_path: Path) -> None:
    recording = tmp_path / "visits.gor"
    recording.write_bytes(_made_gor(10, 5))
    with shop() as (url, asked):
        found = replay(recording, url, "--noise")
    assert len(asked) == 120, "each of 60 requests twice"
    assert all(has_token for _, path, has_token in asked if path != "/login"), "the token of now, not that of the file"
    source = found["scenario"]["replay"]
    differences: Counter[tuple[str, bool]] = Counter()
    for one in source["differences"]:
        differences[one["part"], one["is_noise"]] += one["count"]
    assert differences == {("price", False): 10, ("at", True): 60, ("token", True): 10}
    assert (source["compared"], source["differing"]) == (60, 10)
    assert figure(found, "differing_ratio") == pytest.approx(10 / 60)
    shown = {one["part"]: (one["before"], one["after"]) for one in source["differences"]}
    assert shown["price"] == ("5", "6")
    assert shown["token"] == (None, None), "what may be a secret is not shown"


def test_two_targets_are_compared(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    log.write_text(
        "".join(
            f'192.0.2.{n} - - [01/Mar/2026:10:00:0{n % 3} +0000] "GET /ok HTTP/1.1" 200 5 "-" "x"\n' for n in range(30)
        )
    )
    (tmp_path / "two").mkdir()
    with counting(tmp_path) as one, counting(tmp_path / "two") as two:
        found = replay(log, one.url(""), "--against", two.url("").replace("/ok", ""), "--speed", "10")
    assert (one.account.requests["ok"], two.account.requests["ok"]) == (30, 30)
    assert (figure(found, "answers_compared"), figure(found, "answers_differing")) == (30, 0)
    names = [label["name"] for label in found["scenario"]["labels"]]
    assert names == ["GET /ok", "GET /ok (against)"]


def test_log_is_followed_while_it_is_written() -> None:
    """Lines of now, which come through a pipe: they are sent while the pipe stays open."""
    with shop() as (url, asked):
        command: list[str | Path] = [LEADLINE, "replay", "-", url, "--json", "--format", '$msec "$request"']
        pipe = subprocess.PIPE
        with subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe, stderr=pipe) as process:
            assert process.stdin is not None
            for _ in range(5):
                print(f'{time.time():.3f} "GET /login HTTP/1.1"', file=process.stdin, flush=True)
            until(lambda: len(asked) == 5)
            out, errors = process.communicate()
    assert process.returncode == 0, errors
    source = json.loads(out)["scenario"]["replay"]
    assert (source["read"], source["read_late"], len(asked)) == (5, None, 5)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["missing.log", "http://127.0.0.1:1/"], "missing.log: there is no such file"),
        (["x.log", "127.0.0.1"], "--url"),
        (["x.log", "http://127.0.0.1:1/", "--rate", "5", "--speed", "2"], "rate and speed exclude each other"),
        (["x.log", "http://127.0.0.1:1/", "--from", "noon"], "is no time of the source"),
        (["x.log", "http://127.0.0.1:1/", "--format", "$what"], "the log format"),
        (["x.log", "http://127.0.0.1:1/"], "the log's format is not known"),
        (["http://127.0.0.1:1/", "--capture", "lo", "--port", "80"], "copies the live traffic of others"),
    ],
)
def test_mistakes_cost_one_line(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.log").write_text("this is no log\n" * 5)
    done = leadline("replay", *arguments)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
