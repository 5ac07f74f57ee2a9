"""Notes on the figures of an http test: the generator's ceiling, the server, and what it did to uploads and
connections."""

from __future__ import annotations

from collections.abc import Iterator

from leadline.analysis.metrics import counter, error_counts
from leadline.analysis.model import CeilingBasis, Reason
from leadline.analysis.rules import had_spare_time, primary_rate_per_s, written
from leadline.analysis.validity import NEAR_CEILING, Evidence

MOSTLY = 0.5
"""Of the answers, from where on connections that are opened for them are a property of the server."""


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


def requests_cut_off(evidence: Evidence) -> Iterator[Reason]:
    """A note on requests that were not sent completely, because the server answered or closed the connection before."""
    count, due = counter(evidence.data, "cut_off"), counter(evidence.data, "requests_due")
    if count:
        whole = "" if due is None else f" of {due:,}"
        text = f"{count:,}{whole} requests were cut off: the server answered, or closed the connection, before all of"
        yield Reason("requests-cut-off", f"{text} them was sent; they do not count as sent")


def connection_per_request(evidence: Evidence) -> Iterator[Reason]:
    """A note if the server kept few connections open, although the test lets it. A request that failed or was cut off
    ends its connection, too."""
    data = evidence.data
    opened, answers = counter(data, "connections_opened") or 0, counter(data, "responses") or 0
    ended = sum(error_counts(data).values()) + (counter(data, "cut_off") or 0)
    first = data.connections or 0
    if data.spec.keeps_connections and answers and opened - ended - first >= MOSTLY * answers:
        text = f"{opened:,} connections were opened for {answers:,} answers: the server keeps few of them open"
        yield Reason("connection-per-request", f"{text}, so that rate and latency have the cost of connecting in them")
