"""Runs the installed `leadline` command as a user would, and reads what it left; for the tests of this folder.

Owns starting, waiting and parsing. Says nothing about what is right: that is the tests'.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import waiting
from in_process import leadline
from waiting import free_port, until

WITHIN_S = waiting.WITHIN_S
ROOT = Path(__file__).resolve().parents[2]
LEADLINE = Path(sys.executable).with_name("leadline")
quick_command = LEADLINE
"""What does the same without its start, where the tests' session has it: for commands whose process no test reads."""
SYSTEM_FOLDERS = "/usr/local/sbin:/usr/sbin:/sbin"
OPENVPN = shutil.which("openvpn", path=f"{os.environ['PATH']}:{SYSTEM_FOLDERS}")


@functools.cache
def why_not() -> str:
    """Why no lab can be made here; empty where one can. Asked of another process, for it tries."""
    if not LEADLINE.exists():
        return "the leadline command is not installed (make build)"
    script = "from leadline.lab import jail; print(jail.available().reason or '')"
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False).stdout.strip()


def skip_unless_possible() -> None:
    """For a module's fixture."""
    if why_not():
        pytest.skip(why_not())


@functools.cache
def own_network() -> tuple[str, ...] | None:
    """What runs a program in a network namespace of its own, with rights in it; None where nothing does."""
    for flags in (("--net",), ("--map-root-user", "--net")):
        command = ("unshare", *flags)
        if (
            shutil.which("unshare")
            and subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0
        ):
            return command
    return None


def wire_counters(run: Run) -> dict[str, dict[str, Any]]:
    """What the only emulated link says that it did, when it ended, by direction."""
    lines = (run.folder / "journal.ndjson").read_text().splitlines()
    events = [entry["event"] for line in lines if "event" in (entry := json.loads(line))]
    [last] = [event for event in events if event["type"] == "emulated" and event["ended"]]
    return {"up": last["a_to_b"], "down": last["b_to_a"]}


def call(
    *arguments: str | Path, variables: Mapping[str, str] | None = None, **keywords: Any
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end, whatever that is."""
    return subprocess.run(
        [quick_command, *arguments],
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
        env=environment(variables),
        **keywords,
    )


def start(*arguments: str | Path, variables: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """Begin to run the command, which its caller waits for."""
    pipe = subprocess.PIPE
    return subprocess.Popen([LEADLINE, *arguments], stdout=pipe, stderr=pipe, text=True, env=environment(variables))


def environment(variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's, in which daemons of the system are found, with some variables more."""
    return {**os.environ, "PATH": f"{os.environ['PATH']}:{SYSTEM_FOLDERS}", **(variables or {})}


ENGINES = ("io_uring", "epoll")


@dataclass(frozen=True)
class Load:
    """What `leadline http --json` said."""

    run: str
    """Its requests' field X-Run."""
    code: int
    out: str
    err: str

    @functools.cached_property
    def document(self) -> dict[str, Any]:
        assert self.out, self.err
        document: dict[str, Any] = json.loads(self.out)
        return document

    @property
    def errors(self) -> dict[str, int]:
        errors: dict[str, int] = self.document["errors"]
        return errors

    def value(self, metric: str) -> float | None:
        value: float | None = self.document["metrics"][metric]["value"]
        return value

    def count(self, metric: str) -> int:
        """A count that is known."""
        value = self.value(metric)
        assert value is not None and value == int(value), metric
        return int(value)

    @property
    def statuses(self) -> dict[str, int]:
        """Answers by their class, those that came."""
        counts = {f"{digit}xx": self.count(f"status_{digit}xx") for digit in range(1, 6)}
        return {name: count for name, count in counts.items() if count}


def load(run: str, *arguments: str | Path, engine: str = "io_uring") -> Load:
    """`leadline http --json` over an engine, its requests marked with `X-Run: run`. One that ends by a number may take
    as long as a busy machine needs for that."""
    patience = ("-d", "60s") if "-n" in arguments and "-d" not in arguments else ()
    variables = {"LEADLINE_HTTP_ENGINE": engine}
    options = ("--json", "--no-calibrate", "-H", f"X-Run: {run}")
    # The environment and the streams are the process's: only one load at a time can have them.
    is_alone = threading.current_thread() is threading.main_thread()
    done = (leadline if is_alone else call)("http", *options, *patience, *arguments, variables=variables)
    found = Load(run, done.returncode, done.stdout, done.stderr)
    if done.stdout and found.document["schema"] == "leadline.result/1":
        assert found.document["generator"]["engine"] == engine, found.document["generator"]
    return found


def load_over_both(name: str, *arguments: str | Path) -> list[Load]:
    """The same load over each engine, side by side."""
    with ThreadPoolExecutor() as pool:
        return list(pool.map(lambda engine: load(f"{name}-{engine}", *arguments, engine=engine), ENGINES))


@dataclass(frozen=True)
class Run:
    """A run's folder and what `results` and `report` say of it."""

    folder: Path
    code: int
    out: str
    err: str

    @property
    def samples(self) -> pl.DataFrame:
        """Every sample, with the `process` and `side` labels as columns."""
        frame = pl.read_parquet(self.folder / "samples.parquet")
        label = [pl.col("labels").str.json_path_match(f"$.{name}").alias(name) for name in ("process", "side")]
        return frame.with_columns(label)

    @functools.cached_property
    def rows(self) -> list[dict[str, Any]]:
        """What `leadline results --json` prints."""
        done = leadline("results", self.folder, "--json")
        assert done.returncode == 0, done.stderr
        document = json.loads(done.stdout)
        assert document["schema"] == "leadline.results/1"
        rows: list[dict[str, Any]] = document["rows"]
        return rows

    def figures(self, test: str, case: str = "c01", repeat: int = 1) -> dict[str, float | None]:
        """One test's figures of one trial, by name."""
        trial = f"{case}/{repeat}"
        found = {row["metric"]: row["value"] for row in self.rows if (row["trial"], row["test"]) == (trial, test)}
        assert found, f"{trial} has no {test}"
        return found

    def verdict(self, test: str, case: str = "c01") -> str:
        """The verdict on a case's test over its repeats."""
        found = {row["validity"] for row in self.rows if (row["case"], row["trial"], row["test"]) == (case, None, test)}
        assert len(found) == 1, found
        return str(found.pop())

    def report(self) -> dict[str, Any]:
        """What `leadline report --json` prints."""
        done = leadline("report", self.folder, "--json")
        assert done.returncode == 0, done.stderr
        document: dict[str, Any] = json.loads(done.stdout)
        return document


def run(plan: str | Path, folder: Path, *arguments: str) -> Run:
    """`leadline run` on a plan's file, or on a plan's text."""
    if isinstance(plan, str):
        text, plan = plan, folder / "plan.yaml"
        plan.write_text(text)
    done = call("run", plan, "--out", folder / "runs", *arguments)
    made = sorted((folder / "runs").iterdir()) if (folder / "runs").exists() else []
    assert made, done.stderr
    return Run(made[-1], done.returncode, done.stdout, done.stderr)


@dataclass(frozen=True, slots=True)
class Server:
    """`leadline serve` on loopback."""

    port: int
    http_port: int

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.http_port}{path}"

    def stats(self) -> dict[str, int]:
        """The HTTP server's own counters."""
        with urllib.request.urlopen(self.url("/_leadline/stats"), timeout=WITHIN_S) as answer:
            counters: dict[str, int] = json.load(answer)
        return counters

    def stats_once(self, are_so: Callable[[dict[str, int]], bool]) -> dict[str, int]:
        """The counters as soon as they are so: a server may still be reading what has been sent to it."""
        found: dict[str, int] = until(lambda: now if are_so(now := self.stats()) else None, self.stats)
        return found


@contextmanager
def serve(*arguments: str, variables: Mapping[str, str] | None = None) -> Iterator[Server]:
    """A server on free ports, until the block ends; with `variables` added to its environment."""
    server = Server(free_port(), free_port())
    ports: tuple[str, ...] = () if "--http" in arguments else ("--port", str(server.port))
    ports += () if "--no-http" in arguments else ("--http-port", str(server.http_port))
    with subprocess.Popen(
        [quick_command, "serve", *ports, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **(variables or {})},
    ) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            assert re.match("listening at", said), said
            yield server
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(WITHIN_S)
