"""What a reader of an http test's figures should know: how near the generator was to its ceiling, and the server."""

from __future__ import annotations

from collections.abc import Iterator

from leadline.analysis.model import Reason
from leadline.analysis.rules import had_spare_time, primary_rate_per_s, written
from leadline.analysis.validity import NEAR_CEILING, Evidence


def ceiling_known(evidence: Evidence) -> Iterator[Reason]:
    """A ceiling that was not measured, or measured too low."""
    data = evidence.data
    rate, ceiling = primary_rate_per_s(evidence), data.ceiling
    if ceiling is None:
        if not had_spare_time(data):
            yield Reason("ceiling-unknown", "what the generator could do at most with such requests was not measured")
    elif rate is not None and rate >= NEAR_CEILING * ceiling.per_s and had_spare_time(data):
        text = f"the generator's ceiling ({written(ceiling)}) was measured too low: its threads had time to spare"
        yield Reason("ceiling-doubtful", text)


def server_unknown(evidence: Evidence) -> Iterator[Reason]:
    """A server that reports nothing of itself."""
    if any(found.outcome.get("receiver") is None for found in evidence.data.load_outcomes()):
        text = "an HTTP server keeps no account of its threads for its clients: whether it was the limit is not known"
        yield Reason("answering-side-unknown", text)
