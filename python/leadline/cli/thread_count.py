"""Parses `-t`, a number of threads. Users of iperf3 write a time there; the error explains the difference."""

from __future__ import annotations

import os
from collections.abc import Callable

import typer

from leadline.cli.output import print_note
from leadline.plan.units import looks_like_a_time


def threads(most: int) -> Callable[[str | int], int]:
    """A parser for a number of threads, of a command that also has a duration."""

    def parse(text: str | int) -> int:
        written = str(text).strip()
        if looks_like_a_time(written):
            raise typer.BadParameter(f"{written} is a time; -t is threads; -d/--duration is the time")
        if not (written.isascii() and written.isdecimal() and len(written) < _MOST_DIGITS):
            raise typer.BadParameter(f"{written!r} is not a number of threads; write 1 to {most}")
        number = int(written)
        if not 1 <= number <= most:
            raise typer.BadParameter(f"{number} is not possible; 1 to {most} threads")
        cpus = len(os.sched_getaffinity(0))
        if number > cpus:
            on = "1 CPU" if cpus == 1 else f"{cpus} CPUs"
            print_note(f"-t {number} means {number} threads, on {on}; -d/--duration is the time")
        return number

    return parse


_MOST_DIGITS = 10
