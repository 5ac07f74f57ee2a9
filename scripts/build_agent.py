#!/usr/bin/env python3
"""Builds the agent and shows how far it is: scripts/build_agent.py PROFILE

On a terminal, one line that changes; elsewhere, a line every ten seconds. Errors and warnings are cargo's own. How far
it is comes from cargo's own progress bar; how long it still takes, from how far builds of all parts were at that point.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from bisect import bisect_left
from collections.abc import Iterator

PARTS = re.compile(r"\[[=> ]*\] +(\d+)/(\d+)(?:: (.*))?")
# What cargo does, as `   Compiling aws-lc-sys`: its verb ends in the twelfth column.
STATUS = re.compile(r"(?= *[A-Z][a-z]+ )[ \w]{12} ")
# Of a build of everything: the share of its parts that were done, and the share of its time that had passed.
PASSED = (
    (0.0, 0.0),
    (0.15, 0.13),
    (0.3, 0.29),
    (0.57, 0.42),
    (0.61, 0.6),
    (0.81, 0.68),
    (0.97, 0.77),
    (0.985, 0.87),
    (1.0, 1.0),
)
LINE_EVERY_S = 10.0


def main(profile: str) -> int:
    """Run cargo; returns its exit code."""
    environment = {**os.environ, "CARGO_TERM_PROGRESS_WHEN": "always", "CARGO_TERM_PROGRESS_WIDTH": "200"}
    command = ["cargo", "build", "--locked", "--profile", profile, "--package", "leadline-agent"]
    began_s = time.monotonic()
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) as cargo:
        assert cargo.stderr is not None
        shown = BuildProgress(began_s)
        for line in read_lines(cargo.stderr.fileno()):
            shown.take(line)
        shown.end()
    if cargo.returncode == 0 and shown.parts:
        print(f"the agent is built, after {format_time(time.monotonic() - began_s)}", file=sys.stderr)
    return cargo.returncode


def read_lines(source: int) -> Iterator[str]:
    """The lines of a stream as they come; each drawing of cargo's bar is one too."""
    rest = b""
    while chunk := os.read(source, 65536):
        *whole, rest = re.split(rb"[\r\n]", rest + chunk)
        yield from (line.decode(errors="replace") for line in whole)
    yield rest.decode(errors="replace")


class BuildProgress:
    """What is on the screen."""

    def __init__(self, began_s: float) -> None:
        self.parts = 0
        self._began_s = began_s
        self._next_s = began_s
        self._is_terminal = sys.stderr.isatty()

    def take(self, line: str) -> None:
        """One line of cargo's: its bar, an error, or what it does."""
        text = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", line).rstrip()
        if found := PARTS.search(text):
            self._draw(int(found[1]), int(found[2]), found[3] or "")
        elif text and not STATUS.match(text):
            self._print(text)

    def end(self) -> None:
        """Take the line that changes away."""
        if self._is_terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def _draw(self, done: int, parts: int, names: str) -> None:
        now_s = time.monotonic()
        self.parts = parts
        if now_s < self._next_s:
            return
        self._next_s = now_s + (0.2 if self._is_terminal else LINE_EVERY_S)
        text = f"building the agent: {done} of {parts} parts{format_left(done / parts, now_s - self._began_s)}"
        names = ", ".join(re.sub(r"\(.*?\)|\.\.\.", "", names).replace(" ", "").split(",")[:2])
        self._print(f"{text}; {names}" if names else text, is_bar=True)

    def _print(self, text: str, is_bar: bool = False) -> None:
        if not self._is_terminal:
            print(text, file=sys.stderr, flush=True)
            return
        cut = text[: shutil.get_terminal_size().columns - 1]
        print(f"\r\x1b[K{cut if is_bar else text}", end="" if is_bar else "\n", file=sys.stderr, flush=True)


def format_left(done: float, passed_s: float) -> str:
    """How long the rest takes, as `, about 2 min left`; empty while too little is known."""
    at = max(1, bisect_left([share for share, _ in PASSED], done))
    (below, time_below), (above, time_above) = PASSED[at - 1 : at + 1]
    of_time = time_below + (time_above - time_below) * (done - below) / (above - below)
    if passed_s < 5 or of_time < 0.05:
        return ""
    return f", about {format_time(passed_s * (1 - of_time) / of_time)} left"


def format_time(seconds: float) -> str:
    """`40 s`, `2 min 10 s`: in steps of ten seconds above a minute."""
    if seconds < 60:
        return f"{max(1, round(seconds))} s"
    minutes, rest = divmod(round(seconds / 10) * 10, 60)
    return f"{minutes} min {rest} s" if rest else f"{minutes} min"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        print(
            "scripts/build_agent.py: give a profile of Cargo.toml, as in scripts/build_agent.py release",
            file=sys.stderr,
        )
        raise SystemExit(2)
    raise SystemExit(main(sys.argv[1]))
