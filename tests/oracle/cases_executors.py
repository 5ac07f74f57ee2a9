"""Loads by k6's executors: options that k6 and Leadline both read as they are, and how long an iteration takes.

No iteration ends when another is due, and none is due at the end, so that counts do not depend on a millisecond.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Executor:
    """One load."""

    name: str
    iteration_ms: int
    options: dict[str, Any]


def _load(name: str, executor: str, iteration_ms: int, **options: Any) -> Executor:
    return Executor(name, iteration_ms, {"executor": executor, **options})


def _stages(*rows: tuple[int, str]) -> list[dict[str, Any]]:
    return [{"target": target, "duration": duration} for target, duration in rows]


EXECUTORS = (
    _load("shared-iterations", "shared-iterations", 110, vus=3, iterations=10),
    _load(
        "shared-iterations-end", "shared-iterations", 330, vus=3, iterations=30, maxDuration="1s", gracefulStop="50ms"
    ),
    _load("per-vu-iterations", "per-vu-iterations", 110, vus=3, iterations=4),
    _load("per-vu-iterations-end", "per-vu-iterations", 220, vus=2, iterations=9, maxDuration="1s"),
    _load("constant-vus", "constant-vus", 230, vus=3, duration="1s"),
    _load("constant-vus-interrupted", "constant-vus", 350, vus=3, duration="1s", gracefulStop="10ms"),
    _load("constant-vus-later", "constant-vus", 230, vus=2, duration="1s", startTime="400ms"),
    _load(
        "ramping-vus",
        "ramping-vus",
        310,
        startVUs=0,
        stages=_stages((5, "1s"), (5, "500ms"), (0, "1s")),
    ),
    _load(
        "ramping-vus-at-once",
        "ramping-vus",
        230,
        startVUs=2,
        stages=_stages((2, "500ms"), (6, "0s"), (6, "500ms"), (1, "0s"), (1, "500ms")),
        gracefulRampDown="0s",
    ),
    _load(
        "ramping-vus-up-and-down",
        "ramping-vus",
        170,
        startVUs=1,
        stages=_stages((4, "600ms"), (1, "600ms"), (3, "400ms")),
        gracefulRampDown="50ms",
        gracefulStop="50ms",
    ),
    _load("constant-arrival-rate", "constant-arrival-rate", 20, rate=20, duration="1020ms", preAllocatedVUs=5),
    _load(
        "constant-arrival-rate-unit",
        "constant-arrival-rate",
        20,
        rate=900,
        timeUnit="1m",
        duration="1020ms",
        preAllocatedVUs=5,
    ),
    _load("constant-arrival-rate-dropped", "constant-arrival-rate", 230, rate=20, duration="1020ms", preAllocatedVUs=2),
    _load(
        "constant-arrival-rate-more-users",
        "constant-arrival-rate",
        330,
        rate=10,
        duration="1480ms",
        preAllocatedVUs=1,
        maxVUs=3,
    ),
    _load(
        "ramping-arrival-rate",
        "ramping-arrival-rate",
        20,
        startRate=0,
        stages=_stages((40, "1s"), (40, "490ms")),
        preAllocatedVUs=5,
    ),
    _load(
        "ramping-arrival-rate-at-once",
        "ramping-arrival-rate",
        20,
        startRate=10,
        stages=_stages((10, "500ms"), (40, "0s"), (40, "500ms"), (10, "500ms")),
        preAllocatedVUs=5,
    ),
    _load(
        "ramping-arrival-rate-dropped",
        "ramping-arrival-rate",
        375,
        startRate=5,
        stages=_stages((25, "1500ms")),
        preAllocatedVUs=2,
    ),
)
