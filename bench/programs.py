"""How a program is run for a comparison: where it is, on which CPU, what it said and what it took.

Owns the two CPUs (servers on the first, generators on the second) and a process's whole account of CPU time. Knows no
program's options: `servers`, `peers` and `agent` do.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from leadline.agents.binary import AGENT_NAME, AGENT_VARIABLE

SERVER_CPU, GENERATOR_CPU = 0, 1


class PeerMissing(Exception):
    """A program that a row needs is not installed."""


def program(name: str) -> str:
    """Where it is.

    Raises:
        PeerMissing: nowhere.
    """
    path = shutil.which(name)
    if path is None:
        raise PeerMissing(f"{name} is not installed")
    return path


@contextmanager
def agent_binary(binary: Path) -> Iterator[None]:
    """Make every agent that starts meanwhile this one, whether the bench starts it or `leadline`."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / AGENT_NAME).symlink_to(binary.resolve())
        before = dict(os.environ)
        os.environ.update({"PATH": f"{folder}:{before['PATH']}", AGENT_VARIABLE: str(binary.resolve())})
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)


def pinned(cpu: int, argv: Sequence[str]) -> list[str]:
    """The command on one of the CPUs that this process may use."""
    return ["taskset", "-c", str(_cpu(cpu)), *argv]


def _cpu(number: int) -> int:
    available = sorted(os.sched_getaffinity(0))
    return available[number % len(available)]


def run(argv: Sequence[str]) -> str:
    """What a program says."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(argv)} exited with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def timed(argv: Sequence[str]) -> tuple[str, float]:
    """What a generator says, and the CPU time of its whole process, user and system, s."""
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(pinned(GENERATOR_CPU, argv), stdout=output, stderr=output)
        try:
            cpu_s = cpu_until_end(process)
        finally:
            process.kill()
        output.seek(0)
        said = output.read()
    if process.returncode != 0:
        raise RuntimeError(f"{argv[0]} exited with {process.returncode}: {said}")
    return said, cpu_s


@contextmanager
def compiled(source: str) -> Iterator[str]:
    """A program in C of this folder; gives its path."""
    with tempfile.TemporaryDirectory() as folder:
        built = f"{folder}/{Path(source).stem}"
        run([program("cc"), "-O2", "-o", built, str(Path(__file__).with_name(source))])
        yield built


def cpu_until_end(process: subprocess.Popen[Any]) -> float:
    """Wait for a process; CPU time that it and the children it waited for took, user and system, s."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_utime + usage.ru_stime


def stolen_s(cpu: int) -> float:
    """Time that a CPU wanted to run and its host let it wait, s, since the machine was started."""
    name = f"cpu{_cpu(cpu)}"
    fields = next(line.split() for line in Path("/proc/stat").read_text().splitlines() if line.startswith(f"{name} "))
    return int(fields[8]) / os.sysconf("SC_CLK_TCK")


@contextmanager
def server(argv: Sequence[str], port: int) -> Iterator[None]:
    """A server that answers at `port` of loopback, for as long as this lasts."""
    process = subprocess.Popen(pinned(SERVER_CPU, argv), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 10
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                if time.monotonic() > deadline or process.poll() is not None:
                    raise
        yield
    finally:
        process.terminate()
        process.wait()


def free_port() -> int:
    """A port without a listener."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def first_group(pattern: str, text: str) -> str:
    """The first group of the first match."""
    match = re.search(pattern, text)
    if match is None:
        raise RuntimeError(f"{pattern!r} is not in: {text}")
    return match[1]
