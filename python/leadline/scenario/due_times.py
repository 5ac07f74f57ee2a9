"""The instants at which users of an open load arrive, computed before the test: where an agent's stages do not suffice.

Pure. What is random has one seed, so that a load is the same in each run.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from statistics import NormalDist
from typing import Any

MOST_DUE = 1_000_000


def stress_peak(users: int, length_us: int) -> list[int]:
    """Gatling's smooth step: instants of users 1 to n by the inverse of the error function."""
    if users > MOST_DUE:
        raise ValueError(f"more than {MOST_DUE} users are too many for a stress peak")
    if not users:
        return []
    steps = [NormalDist().inv_cdf(number / (users + 2)) for number in range(1, users + 1)]
    first = abs(steps[0])
    return [int(length_us / (2 * first) * (step + first)) for step in steps]


def even_due(stage: Mapping[str, Any], length_us: int) -> list[int]:
    """The instants at which the area below a linear rate reaches 0, 1, 2 ..."""
    first, slope = stage["from_per_s"], (stage["to_per_s"] - stage["from_per_s"]) / max(length_us / 1e6, 1e-9)
    total = (stage["from_per_s"] + stage["to_per_s"]) / 2 * length_us / 1e6
    count = math.ceil(total - 1e-9)
    if count > MOST_DUE:
        raise ValueError(f"more than {MOST_DUE} users are too many to compute the instant of each")
    if abs(slope) < 1e-12:
        return [int(index / first * 1e6) for index in range(count)]
    return [int((math.sqrt(max(0.0, first**2 + 2 * slope * index)) - first) / slope * 1e6) for index in range(count)]


def random_due(stage: Mapping[str, Any], length_us: int, seed: int) -> list[int]:
    """Random instants, as many as are due evenly, as dense as the rate is high."""
    source = random.Random(seed)
    count = len(even_due(stage, length_us))
    first, last = stage["from_per_s"], stage["to_per_s"]
    shares = sorted(source.random() for _ in range(count))
    if abs(last - first) < 1e-12:
        return [int(share * length_us) for share in shares]
    # The area below the rate up to an instant, as a share of the whole, is the share that was drawn.
    rates = (math.sqrt(first**2 + share * (last**2 - first**2)) for share in shares)
    return [int((rate - first) / (last - first) * length_us) for rate in rates]
