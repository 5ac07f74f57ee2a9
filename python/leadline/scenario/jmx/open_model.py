"""The schedule of JMeter's open model thread group: `rate(10/s) random_arrivals(1 min) pause(2 s)`. Pure."""

from __future__ import annotations

import re
from typing import Any

LONGEST = 20_000
MOST_STEPS = 1000
_PER_MS = {"ms": 1, "s": 1000, "sec": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "hour": 3_600_000,
           "d": 86_400_000, "day": 86_400_000}  # fmt: skip


def rate_stages(text: str) -> list[dict[str, Any]]:
    """The native stages of a schedule. Raises ValueError with the part that cannot be read.

    Arrivals have the rate before them; if a rate follows at once, they change to it linearly.
    """
    if len(text) > LONGEST:
        raise ValueError(f"{len(text)} characters are too many for a schedule")
    steps = list(_steps(re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.S)))
    stages: list[dict[str, Any]] = []
    rate, reached = "0", "0"
    for index, (kind, value) in enumerate(steps):
        if kind == "rate":
            rate = value
            continue
        following = steps[index + 1] if index + 1 < len(steps) else ("", "")
        start, end = ("0", "0") if kind == "pause" else (rate, following[1] if following[0] == "rate" else rate)
        if start != reached:
            stages.append({"to": _rate(start), "over": "0s"})
        stage = {"to": _rate(end), "over": value}
        if kind != "pause":
            stage["spacing"] = "poisson" if kind == "random_arrivals" else "even"
        stages.append(stage)
        reached = end
    if not any(stage["to"] != "0/s" for stage in stages):
        raise ValueError("its schedule has no arrivals")
    return stages


def _steps(text: str) -> list[tuple[str, str]]:
    """Each step: a rate as `10/s`, or what arrives with its duration."""
    found: list[tuple[str, str]] = []
    position = 0
    text = text.rstrip()
    while position < len(text):
        match = _STEP.match(text, position)
        if match is None or (match[1].lower() == "rate") != (match[4] is not None or (match[3] is None)):
            raise ValueError(f"'{' '.join(text[position : position + 100].split())[:40]}' is no step of a schedule")
        if len(found) == MOST_STEPS:
            raise ValueError(f"more than {MOST_STEPS} steps are too many for a schedule")
        kind, number, unit = match[1].lower(), match[2], (match[3] or match[4] or "s").lower()
        if unit not in _PER_MS:
            raise ValueError(f"'{unit}' is no unit of time")
        if kind == "rate":
            found.append((kind, number if float(number) == 0 else f"{number}/{unit}"))
        else:
            found.append((kind, f"{round(float(number) * _PER_MS[unit])}ms"))
        position = match.end()
    return found


def _rate(text: str) -> str:
    """A rate per s, min or h; those per ms or day are computed."""
    number, _, unit = text.partition("/")
    if unit in ("", "s", "sec"):
        return f"{number}/s"
    if unit in ("m", "min", "h", "hour"):
        return f"{number}/{unit[0]}"
    return f"{float(number) * 1000 / _PER_MS[unit]:.9f}/s"


_STEP = re.compile(
    r"\s*(rate|random_arrivals|even_arrivals|pause)\s*\(\s*(\d{1,12}(?:\.\d{1,12})?)\s*"
    r"(?:([a-z]+)|(?:/|per\b)\s*([a-z]+))?\s*\)",
    re.IGNORECASE,
)
