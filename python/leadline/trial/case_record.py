"""A case as a run's manifest stores it; analysis reads it from there."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from leadline.plan import Case


def case_record(case: Case) -> dict[str, Any]:
    """A case as the manifest stores it."""
    return {
        "id": case.id,
        "title": case.title,
        "parameters": dict(case.labels),
        "topology": case.topology,
        "clients": case.clients if case.fleet is None else {"fleet": True, "count": case.fleet},
        "sut": case.sut.model_dump(),
        "link": case.link.model_dump() if case.link else None,
        "tests": [test.model_dump() for test in case.tests],
        "baseline": case.baseline,
        **({} if case.ladder is None else {"ladder": asdict(case.ladder)}),
        "lab": {
            "cpus": "split" if case.split_cpus else None,
            "idle": "poll" if case.idle_poll else None,
            **({} if case.gateway_cpus is None else {"gateway_cpus": case.gateway_cpus}),
        },
    }
