"""Runs command lines of `leadline fleet` in the environment that has libcloud, all in one process there: an interpreter
with libcloud starts once. As a program it is that process: it reads a JSON list of [arguments, folder, variables] from
each line, and answers with a JSON list of [exit code, stdout, stderr].
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from in_process import leadline
from leadline.cli import fleet

ENVIRONMENT = Path(__file__).resolve().parents[2] / ".venv-cloud" / "bin"
REASON = "libcloud is not installed (make .venv-cloud/.installed)"
SECRET = "geheim-4711"
"""The only secret of all accounts. It may be in no output."""


class FleetLines:
    """The process, and what it runs."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(
        self, folder: Path, variables: Mapping[str, str], *lines: tuple[str, ...]
    ) -> list[subprocess.CompletedProcess[str]]:
        """Run commands in a folder, one after the other."""
        assert self._process.stdin is not None and self._process.stdout is not None
        asked = [[["fleet", *words], str(folder), dict(variables)] for words in lines]
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert SECRET not in answer and "Traceback" not in answer
        ended: list[list[Any]] = json.loads(answer)
        return [
            subprocess.CompletedProcess(words, code, out, err)
            for words, (code, out, err) in zip(lines, ended, strict=True)
        ]


def examples(provider: str) -> list[tuple[str, ...]]:
    """The arguments of all examples in the help of `leadline fleet` for a provider. What makes machines asks nothing,
    and waits for nothing."""
    found = []
    for text in (fleet.EXAMPLE_UP, fleet.EXAMPLE, fleet.EXAMPLE_LIST, fleet.EXAMPLE_DOWN):
        for line in re.findall(r"leadline fleet (.*)", text):
            words = tuple(shlex.split(line))
            if provider in words:
                found.append((*words, "--yes", "--wait", "0s") if words[0] == "up" else words)
    return list(dict.fromkeys(found))


def clean_environment(folder: Path) -> dict[str, str]:
    """The variables of a user who has no account anywhere, and whose files are in a folder of the test."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "OS_", "PYTHON"))}
    return {**own, "HOME": str(folder), "XDG_DATA_HOME": str(folder / "data"), "COLUMNS": "120"}


@contextmanager
def fleet_lines(folder: Path) -> Iterator[FleetLines]:
    """The process, for as long as the block."""
    with subprocess.Popen(
        [ENVIRONMENT / "python", __file__], env=clean_environment(folder), stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        yield FleetLines(process)


def serve() -> None:
    """Answer lines until stdin ends."""
    for line in sys.stdin:
        ended = [
            leadline(*words, folder=Path(folder), variables=variables) for words, folder, variables in json.loads(line)
        ]
        print(json.dumps([[one.returncode, one.stdout, one.stderr] for one in ended]), flush=True)


if __name__ == "__main__":
    serve()
