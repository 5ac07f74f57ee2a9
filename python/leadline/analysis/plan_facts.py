"""What a plan asks for, as flat facts: by these, runs are comparable or are not.

What a plan leaves open counts as absent, so that runs stay comparable when a version of Leadline adds an option. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

ENVIRONMENT = ("topology", "clients", "link", "lab")
"""What surrounds the system under test, as a run's manifest stores it for each case."""
SYSTEM = "sut"
"""The system under test, there."""


def environment_facts(case: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What the plan asks for around the system under test in one case."""
    return flat({name: case[name] for name in ENVIRONMENT if name in case})


def system_facts(case: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What the plan asks of the system under test in one case."""
    return flat({SYSTEM: case[SYSTEM]} if SYSTEM in case else {})


def flat(record: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Each value with its name in full: `link.rate_bps`."""
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{name}.")
        elif value not in (None, False, "", [], ()):
            yield f"{prefix}{name}", value if isinstance(value, str) else json.dumps(value, default=str)
