"""Rows of request-response: TCP transactions over a link of its own, beside a ping-pong in C."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from namespaces import GATEWAY, inside, linked, namespace
from programs import GENERATOR_CPU, SERVER_CPU, first_group, pinned, program, run
from rows import Rounds, Row, at_least, compared

_PORT, _BARE_PORT = 5201, 5202


def transactions(rounds: Rounds) -> Iterator[Row]:
    """One connection, one byte each way, one at a time."""
    with tempfile.TemporaryDirectory() as folder, namespace() as gateway, namespace() as clients:
        linked(gateway, clients)
        bare = f"{folder}/pingpong"
        run([program("cc"), "-O2", "-o", bare, str(Path(__file__).with_name("pingpong.c"))])
        ours = ["leadline-agent", "serve", "--bind", GATEWAY, "--port", str(_PORT)]
        with served(gateway, ours), served(gateway, [bare, "serve", GATEWAY, str(_BARE_PORT)]):
            pairs = [
                (_leadline(clients, rounds.seconds), _bare(clients, bare, rounds.seconds)) for _ in range(rounds.count)
            ]
    yield compared("TCP request-response, 1 at a time", "1/s", "ping-pong over epoll", pairs, bound=at_least(0.97))


@contextmanager
def served(pid: int, argv: Sequence[str]) -> Iterator[None]:
    """A server in a namespace, which says a line when it is ready."""
    process = subprocess.Popen(pinned(SERVER_CPU, inside(pid, argv)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdout is not None
    try:
        if not process.stdout.readline():
            raise RuntimeError(f"{argv[0]} did not come up")
        yield
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def _leadline(pid: int, seconds: int) -> float:
    argv = ["leadline", "rr", GATEWAY, "--port", str(_PORT), "-d", f"{seconds}s", "--warmup", "0s", "--json"]
    return float(json.loads(run(pinned(GENERATOR_CPU, inside(pid, argv))))["metrics"]["transactions_per_s"]["value"])


def _bare(pid: int, program_path: str, seconds: int) -> float:
    said = run(pinned(GENERATOR_CPU, inside(pid, [program_path, "ask", GATEWAY, str(_BARE_PORT), str(seconds)])))
    return int(first_group(r"(\d+) transactions", said)) / float(first_group(r"in ([\d.]+) s", said))
