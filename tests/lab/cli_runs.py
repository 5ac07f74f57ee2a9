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
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest

ROOT = Path(__file__).resolve().parents[2]
LEADLINE = Path(sys.executable).with_name("leadline")
SYSTEM_FOLDERS = "/usr/local/sbin:/usr/sbin:/sbin"
OPENVPN = shutil.which("openvpn", path=f"{os.environ['PATH']}:{SYSTEM_FOLDERS}")
WITHIN_S = 180


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


def call(*arguments: str | Path, within_s: float = WITHIN_S, **keywords: Any) -> subprocess.CompletedProcess[str]:
    """Run the command to its end, whatever that is."""
    return subprocess.run(
        [LEADLINE, *arguments],
        capture_output=True,
        text=True,
        timeout=within_s,
        check=False,
        env={**os.environ, "PATH": f"{os.environ['PATH']}:{SYSTEM_FOLDERS}"},
        **keywords,
    )


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
        done = call("results", self.folder, "--json")
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
        done = call("report", self.folder, "--json")
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
        with urllib.request.urlopen(self.url("/_leadline/stats"), timeout=10) as answer:
            counters: dict[str, int] = json.load(answer)
        return counters


@contextmanager
def serve(*arguments: str) -> Iterator[Server]:
    """A server on free ports, until the block ends."""
    server = Server(free_port(), free_port())
    ports = ("--port", str(server.port), "--http-port", str(server.http_port))
    with subprocess.Popen(
        [LEADLINE, "serve", *ports, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            assert re.match("listening at", said), said
            yield server
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(10)


def free_port() -> int:
    """A port that neither TCP nor UDP uses at the moment, on either loopback address."""
    with socket.socket(socket.AF_INET) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
