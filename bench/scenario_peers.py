"""The generators of scenarios that ours is compared with: how each runs the session of `scenarios/`, and what a request
costs it once it has started.

A run is measured from some seconds after its first request, so that neither the start of a program nor the compiling of
its code counts: CPU time of its processes, and the requests that the server counted meanwhile.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen

import fetched
from peers import CONNECTIONS, Cost
from programs import GENERATOR_CPU, first_group, pinned

SCENARIOS = Path(__file__).resolve().parent / "scenarios"
_START_LIMIT_S = 60
_SPARE_S = 2
"""A run goes on for this long after it was measured, so that its end is not measured."""


@dataclass(frozen=True, slots=True)
class _Run:
    """How a peer runs the session."""

    argv: Sequence[str]
    warm_s: int
    """Time after its first request that is not measured: a program that compiles while it runs is not at its best."""
    all_well: str
    """A pattern of what it says where no request has failed."""
    is_stopped: bool = False
    """It goes on until it is stopped."""


def k6(url: str, seconds: int) -> Cost:
    """k6 with as many users as connections."""
    warm_s = 1
    argv = [str(fetched.k6()), "run", "--quiet", "--no-usage-report", "--address", "", "-e", f"URL={url}"]
    length = f"SECONDS={warm_s + seconds + _SPARE_S}"
    script = str(SCENARIOS / "session.js")
    return _measured(_Run([*argv, "-e", length, script], warm_s, r"\d+ requests, 0 failed"), url, seconds)


def jmeter(url: str, seconds: int) -> Cost:
    """JMeter without its windows and without listeners."""
    warm_s, home = 4, fetched.jmeter()
    flags = ["-Djava.awt.headless=true", "-Xmx1g", f"-Djmeter.home={home}", "-cp", f"{home}/jars/*"]
    plan = ["-n", "-t", str(SCENARIOS / "session.jmx"), "-j", "/dev/null", f"-Jport={urlsplit(url).port}"]
    argv = ["java", *flags, "org.apache.jmeter.NewDriver", *plan, f"-Jseconds={warm_s + seconds + _SPARE_S}"]
    return _measured(_Run(argv, warm_s, r"(?s)\A(?!.*Err:\s+[1-9]).*summary ="), url, seconds)


def locust(url: str, seconds: int) -> Cost:
    """Locust with FastHttpUser. It is stopped, since it counts the time of its own start into the length of a run."""
    users = ["-u", str(CONNECTIONS), "-r", str(CONNECTIONS), "-H", url.rstrip("/")]
    script = str(SCENARIOS / "session_locust.py")
    argv = [str(fetched.locust()), "-f", script, "--headless", *users, "--only-summary"]
    return _measured(_Run(argv, 1, r"Aggregated\s+\d+\s+0\(0", is_stopped=True), url, seconds)


def _measured(run: _Run, url: str, seconds: int) -> Cost:
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(pinned(GENERATOR_CPU, run.argv), stdout=output, stderr=output)
        try:
            _await_first(process, url)
            time.sleep(run.warm_s)
            first, first_s, first_at_s = _requests(url), _cpu_s(process.pid), time.monotonic()
            time.sleep(seconds)
            last, last_s, last_at_s = _requests(url), _cpu_s(process.pid), time.monotonic()
            is_whole = process.poll() is None
            if run.is_stopped:
                process.send_signal(signal.SIGTERM)
            process.wait(_START_LIMIT_S)
        finally:
            process.kill()
            process.wait()
        output.seek(0)
        said = output.read()
    if not is_whole or re.search(run.all_well, said) is None:
        raise RuntimeError(f"{Path(run.argv[0]).name} ended early, or requests failed: {said[-500:]}")
    # Each reading is a request itself.
    requests = last - first - 1
    return Cost(requests, requests / (last_at_s - first_at_s), last_s - first_s)


def _await_first(process: subprocess.Popen[bytes], url: str) -> None:
    """Wait until the program has sent more requests than connections."""
    deadline = time.monotonic() + _START_LIMIT_S
    asked, before = 0, _requests(url)
    while _requests(url) - before - asked - 1 < CONNECTIONS:
        asked += 1
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{process.args!r} sent no requests")
        time.sleep(0.1)


def _requests(url: str) -> int:
    """Requests that nginx has counted, this one included."""
    with urlopen(f"{url}status", timeout=10) as response:
        return int(first_group(r"requests\s+\d+ \d+ (\d+)", response.read().decode()))


def _cpu_s(pid: int) -> float:
    """CPU time of a process and all that it started, user and system, so far, s."""
    ticks: dict[int, int] = {}
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            # It ended meanwhile.
            continue
        number = int(stat.parent.name)
        parents[number] = int(fields[1])
        # Its own, and that of children that it has waited for.
        ticks[number] = sum(int(field) for field in fields[11:15])
    tree = {pid}
    while more := {child for child, parent in parents.items() if parent in tree} - tree:
        tree |= more
    return sum(ticks.get(one, 0) for one in tree) / os.sysconf("SC_CLK_TCK")
