"""A note on a scenario's figures: why the generator's ceiling is unknown."""

from __future__ import annotations

from collections.abc import Iterator

from leadline.analysis.model import Reason
from leadline.analysis.validity import Evidence
from leadline.kinds.scenario.own_ceiling import too_short


def run_too_short(evidence: Evidence) -> Iterator[Reason]:
    """A note if the run was too short for its CPU time to tell the ceiling."""
    why = too_short(evidence.data, evidence.window)
    if why is not None:
        yield Reason("ceiling-too-short", f"the generator's ceiling is not known: {why}")
