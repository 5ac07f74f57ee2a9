"""What `leadline http` prints and writes, against a real nginx and beside the real wrk and ab: layouts, logs, view."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import signal
import socket
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cli_runs as cli
import pytest
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader

from in_process import leadline
from waiting import free_port, until

NGINX = shutil.which("nginx", path=f"{os.environ['PATH']}:{cli.SYSTEM_FOLDERS}")
# Of loads whose truth is no rate: as fast as they can, they would take the CPUs of the tests beside them.
RATE = ("--rate", "500")
pytestmark = [
    pytest.mark.takes(28),
    pytest.mark.skipif(not cli.LEADLINE.exists(), reason="the leadline command is not installed"),
    pytest.mark.skipif(NGINX is None, reason="nginx is not installed"),
]
HIGHEST_NS = 3_600_000_000_000


@pytest.fixture(scope="module")
def nginx(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One worker: 12 bytes for everything, 404 for /missing; gives its URL without a path."""
    folder, port = tmp_path_factory.mktemp("nginx"), free_port()
    config = folder / "nginx.conf"
    config.write_text(
        f"daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/log;\n"
        "events { worker_connections 1024; }\n"
        f"http {{ access_log off; keepalive_requests 100000000; client_body_temp_path {folder};\n"
        f"server {{ listen 127.0.0.1:{port}; location / {{ return 200 'hello world\\n'; }}\n"
        "location /missing { return 404 'no\\n'; } } }\n"
    )
    assert NGINX is not None
    with subprocess.Popen([NGINX, "-c", str(config)], stderr=subprocess.DEVNULL) as process:
        try:
            until(lambda: listens(port))
            yield f"http://127.0.0.1:{port}"
        finally:
            process.send_signal(signal.SIGTERM)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def said(*command: str) -> str:
    """What a program prints on stdout."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=cli.WITHIN_S, check=True)
    return done.stdout


def ours(url: str, *options: str) -> str:
    done = cli.call("http", url, "--no-calibrate", *options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def skeleton(text: str) -> list[str]:
    """Lines with their figures, and the units that figures choose, masked; columns that figures widen made one."""
    masked = re.sub(r"(?<![\w.:/])\d+(\.\d+)?(us|ms|s|m|k|M|G|[KMGT]B|B)?(?![\w:])", "#", text)
    return [re.sub(r"\s+", " ", line).rstrip() for line in masked.splitlines()]


# --- Layouts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", pytest.param("/missing?of=all", marks=pytest.mark.full_matrix)])
def test_wrks_layout_is_wrks(nginx: str, path: str) -> None:
    # Long enough for answers, and patient enough to have no error even if a process stalls.
    with ThreadPoolExecutor() as pool:
        theirs = pool.submit(said, program("wrk"), "-t2", "-c6", "-d4s", "--timeout", "60s", "--latency", nginx + path)
        made = ours(nginx + path, "-t", "2", "-c", "6", "-d", "4s", "--timeout", "60s", "--format", "wrk")
        real = theirs.result()
    assert skeleton(made) == skeleton(real)
    assert ("Non-2xx or 3xx responses" in made) == (path != "/")
    # Names and what follows the figures stand in the same columns.
    for name in ("Thread Stats", "Latency ", "Req/Sec", "Requests/sec:", "Transfer/sec:"):
        ends = [[len(line) for line in text.splitlines() if name in line] for text in (real, made)]
        assert ends[0] == ends[1], name


AB_CASES = {
    "keep-alive": (["-k"], []),
    "connections of their own": ([], ["--no-keep-alive"]),
    "a body": (["-k", "-p", "BODY", "-T", "text/plain"], ["-X", "POST", "--body", "x" * 50]),
}


@pytest.mark.parametrize(
    ("case", "path"),
    [
        ("keep-alive", "/missing"),
        ("connections of their own", "/"),
        ("a body", "/"),
        pytest.param("keep-alive", "/", marks=pytest.mark.full_matrix),
        pytest.param("connections of their own", "/missing", marks=pytest.mark.full_matrix),
        pytest.param("a body", "/missing", marks=pytest.mark.full_matrix),
    ],
)
def test_abs_layout_is_abs(nginx: str, path: str, case: str, tmp_path: Path) -> None:
    body = tmp_path / "body"
    body.write_text("x" * 50)
    theirs, own = AB_CASES[case]
    theirs = [str(body) if option == "BODY" else option for option in theirs]
    real = said(program("ab"), "-q", "-n", "400", "-c", "4", *theirs, nginx + path)
    made = ours(nginx + path, "-n", "400", "-c", "4", "-d", "30s", *own, "--format", "ab")
    # The first lines name the program; ab also tells the server's name, and comments on its spread.
    named = re.sub(r"Software:.*", "Software:", real)
    expected = [line for line in skeleton(named)[3:] if not re.match(r"(WARNING|ERROR|\s*(These|deviation))", line)]
    assert [line for line in skeleton(made)[3:] if line] == [line for line in expected if line]
    assert re.search(r"^Complete requests:      400$", made, re.MULTILINE)
    assert re.search(rf"^Document Length:        {12 if path == '/' else 3} bytes$", made, re.MULTILINE)


def test_the_summary_fits_into_80_columns(nginx: str) -> None:
    done = subprocess.run(
        [cli.LEADLINE, "http", nginx + "/", "-n", "2000", "-d", "60s", "--rate", "2000", "--no-calibrate", "--verbose"],
        capture_output=True,
        text=True,
        timeout=cli.WITHIN_S,
        check=False,
        env={**os.environ, "COLUMNS": "80"},
    )
    assert done.returncode == 0, done.stderr
    assert max(len(line) for line in done.stdout.splitlines()) <= 80
    for word in ("2,000 due", "p99.9", "status", "connect", "busiest thread", "engine", "latency", "service"):
        assert word in done.stdout, word


# --- HdrHistogram logs ------------------------------------------------------------------------------------------------


def totals(path: Path) -> dict[str, Any]:
    """Each tag's intervals added up by HdrHistogram's own code."""
    reader = HistogramLogReader(str(path), HdrHistogram(1, HIGHEST_NS, 3))
    found: dict[str, Any] = defaultdict(lambda: HdrHistogram(1, HIGHEST_NS, 3))
    try:
        while (histogram := reader.get_next_interval_histogram()) is not None:
            found[histogram.get_tag() or "latency"].add(histogram)
    finally:
        reader.input_file.close()
    return found


def check_log(path: Path, metrics: dict[str, dict[str, Any]]) -> None:
    """The log's latencies are the document's."""
    tags = totals(path)
    latency = tags["latency"]
    # On a machine that stalls, requests may be due and never sent: those have no age in the log.
    ages = tags["latency_censored"].get_total_count() + int(metrics["unsent"]["value"] or 0)
    count = latency.get_total_count()
    # A request that is stalled at the end took at least its age, which may be longer than any answer took.
    with_ages = HdrHistogram(1, HIGHEST_NS, 3)
    with_ages.add(latency)
    with_ages.add(tags["latency_censored"])
    assert count == metrics["latency_samples"]["value"] > 0
    for name, percentile in (("p50", 50), ("p90", 90), ("p99", 99), ("p999", 99.9), ("p99999", 99.999)):
        wanted = metrics[f"latency_{name}_us"]["value"]
        # hdrh rounds the rank to the nearest where the nearest-rank method rounds it up. Each request without an answer
        # can raise the rank by one, as its latency may be longer than any, and lower it by one where its age counts.
        ranks = [max(0.0, min(100.0, percentile + step * 100 / count)) for step in (-1 - ages, 1 + ages)]
        low = latency.get_value_at_percentile(ranks[0]) / 1000
        high = max(known.get_value_at_percentile(ranks[1]) for known in (latency, with_ages)) / 1000
        assert low * 0.998 <= wanted <= high * 1.002, name
    assert with_ages.get_max_value() / 1000 == pytest.approx(metrics["latency_max_us"]["value"], rel=2e-3)


@pytest.mark.parametrize(
    "options",
    [
        ("-n", "20000", "-d", "60s"),
        pytest.param(("--rate", "3000", "-n", "6000", "-d", "60s"), marks=pytest.mark.full_matrix),
        ("--warmup", "1s", "-d", "3s", "-t", "2", "--rate", "3000"),
    ],
    ids=" ".join,
)
def test_a_log_holds_what_the_document_says(nginx: str, options: tuple[str, ...], tmp_path: Path) -> None:
    log = tmp_path / "out.hlog"
    document = json.loads(ours(nginx + "/", "-d", "5s", "--json", "--hdr", str(log), *options))
    check_log(log, document["metrics"])
    assert log.read_text().startswith("#[Logged with leadline")
    found = totals(log)
    assert found["connect"].get_total_count() == document["metrics"]["connections_opened"]["value"]
    assert ("warmup_latency" in found) == ("--warmup" in options)


def test_an_interrupted_load_leaves_its_log(nginx: str, tmp_path: Path) -> None:
    log = tmp_path / "out.hlog"
    command: list[str | Path] = [cli.quick_command, "http", nginx + "/", "-d", "60s", *RATE, "--json"]
    command += ["--no-calibrate", "--hdr", str(log), "--out", str(tmp_path / "runs")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while not any('"latency"' in path.read_text() for path in tmp_path.glob("runs/*/journal.ndjson")):
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=cli.WITHIN_S)
    assert process.returncode == 130
    check_log(log, json.loads(out)["metrics"])


def test_an_unwritable_log_is_reported_before_the_load(nginx: str, tmp_path: Path) -> None:
    done = leadline("http", nginx + "/", "-d", "600s", "--hdr", str(tmp_path / "none" / "out.hlog"))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "--hdr" in done.stderr and "No such file" in done.stderr


# --- A target that is missed ------------------------------------------------------------------------------------------


@pytest.mark.decided_by("a bound that no server can meet")
def test_a_missed_target_ends_the_load_and_keeps_what_was_measured(nginx: str, tmp_path: Path) -> None:
    log = tmp_path / "out.hlog"
    options = ("--target", "latency_p50_us < 0.001", "--stop-on-miss", "--json", "--no-calibrate", "--hdr", str(log))
    done = cli.call("http", nginx + "/", "-d", "600s", *options)
    assert done.returncode == 3, done.stderr
    document = json.loads(done.stdout)
    (target,) = document["targets"]
    assert (target["outcome"], target["target"]) == ("missed", "latency_p50_us < 0.001")
    # From when it was due: a thread that is kept from its processor begins later.
    assert 1.9 < document["intervals"][-1]["end_s"] < 600
    assert document["metrics"]["requests"]["value"] > 0
    assert document["validity"]["verdict"] == "incomplete"
    check_log(log, document["metrics"])


@pytest.mark.decided_by("a bound of a minute; a load that hardly ran has no interval, which leaves it undecided")
def test_a_target_that_is_met_ends_nothing(nginx: str) -> None:
    """The load lasts beyond two looks at the target, of which the first one comes after 2 s."""
    options = ("--json", "--target", "latency_p50_us < 60s", "--stop-on-miss", "--no-calibrate")
    done = cli.call("http", nginx + "/", "-d", "3500ms", *RATE, *options)
    document = json.loads(done.stdout)
    assert (done.returncode, document["targets"][0]["outcome"]) in ((0, "met"), (4, "undecided"))
    assert document["intervals"][-1]["end_s"] > 3.4


# --- Live view --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("colour", [True, False])
def test_the_live_view_is_on_the_terminal_and_nowhere_else(nginx: str, colour: bool) -> None:
    own, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80"}
    environment.pop("NO_COLOR", None)
    if not colour:
        environment["NO_COLOR"] = "1"
    command: list[str | Path] = [cli.LEADLINE, "http", nginx + "/", "-d", "6s", *RATE, "--json", "--no-calibrate"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, env=environment) as process:
        os.close(theirs)
        screen = read_terminal(own)
        assert process.stdout is not None
        document = json.loads(process.stdout.read())
    os.close(own)
    assert document["schema"] == "leadline.result/1"
    for pattern in (r"[\d.]+ [kM]?/s", r"bit/s", r"about \d s left", r"p50 [\d.]+ .s, p99 [\d.]+ .s"):
        assert re.search(pattern, screen), (pattern, screen)
    assert not re.search(r"\x1b\[(3|9)\d", screen) or colour


def read_terminal(descriptor: int) -> str:
    """Everything until the other side hangs up, which a pty tells as an input error."""
    parts = []
    while True:
        try:
            part = os.read(descriptor, 65_536)
        except OSError:
            break
        if not part:
            break
        parts.append(part)
    return b"".join(parts).decode()
