"""Names that are longer than their column: broken into lines, or shortened. Numbers and verdicts are never cut."""

from __future__ import annotations

import re

_PART = re.compile(r"[^-_./ ]*[-_./ ]?")


def name_lines(name: str, width: int) -> list[str]:
    """A name in lines of at most this width, broken after a dash, dot, slash or space where there is one."""
    lines = [""]
    for part in _PART.findall(name):
        if len(lines[-1]) + len(part.rstrip()) > width and lines[-1]:
            lines.append("")
        lines[-1] += part
        while len(lines[-1].rstrip()) > width:
            lines[-1:] = [lines[-1][:width], lines[-1][width:]]
    return [line.rstrip() for line in lines]


def shortened(name: str, width: int) -> str:
    """A name with its middle left out, where ends tell more than beginnings alone."""
    if len(name) <= width:
        return name
    before = width // 2
    return f"{name[:before]}…{name[len(name) - (width - 1 - before) :]}"
