"""Notes on the figures of an http test: the generator's ceiling, and the server."""

from __future__ import annotations

from collections.abc import Iterator

from leadline.analysis.model import CeilingBasis, Reason
from leadline.analysis.rules import had_spare_time, primary_rate_per_s, written
from leadline.analysis.validity import NEAR_CEILING, Evidence


def ceiling_known(evidence: Evidence) -> Iterator[Reason]:
    """A note if the ceiling was not measured, or was measured too low."""
    data = evidence.data
    rate, ceiling = primary_rate_per_s(evidence), evidence.ceiling
    if ceiling is None:
        if not had_spare_time(data):
            yield Reason("ceiling-unknown", "the generator's maximum rate for these requests was not measured")
        return
    measured = ceiling.basis is CeilingBasis.NULL_RESPONDER
    if measured and rate is not None and rate >= NEAR_CEILING * ceiling.per_s and had_spare_time(data):
        text = f"the generator's ceiling ({written(ceiling)}) was measured too low: its threads were not busy"
        yield Reason("ceiling-doubtful", text)


def server_unknown(evidence: Evidence) -> Iterator[Reason]:
    """A note if the server reports nothing about itself."""
    if any(found.outcome.get("receiver") is None for found in evidence.data.load_outcomes()):
        text = "an HTTP server does not report to its clients how busy its threads are"
        yield Reason("answering-side-unknown", text)
