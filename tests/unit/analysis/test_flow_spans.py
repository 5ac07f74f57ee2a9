"""When flows ran: instants after the first start, in order, and neighbours together where there are many."""

from __future__ import annotations

from leadline.analysis.flow_spans import MOST_SPANS, spans_of
from leadline.analysis.flows import Flow
from leadline.analysis.model import Window
from leadline.analysis.test_data import FlowKey

S = 1_000_000_000


def flow(number: int, due_s: float | None, start_s: float | None, end_s: float | None) -> Flow:
    due, start, end = (None if at is None else round(at * S) for at in (due_s, start_s, end_s))
    return Flow(FlowKey("client1", "load", number), "up", due, start, end, None, None, None, None, "receiver", None)


WINDOW = Window(first_start_ns=5 * S, start_ns=6 * S, end_ns=14 * S, last_end_ns=15 * S)


def test_span_counts_from_the_first_start() -> None:
    late, early = spans_of([flow(1, 5.5, 6, 15), flow(0, None, 5, 14)], WINDOW)[::-1]
    assert (early.name, early.due_s, early.start_s, early.end_s) == ("client1 0 up", None, 0.0, 9.0)
    assert (late.name, late.due_s, late.start_s, late.end_s) == ("client1 1 up", 0.5, 1.0, 10.0)


def test_flow_that_never_began_has_no_span() -> None:
    assert spans_of([flow(0, 5, None, None)], WINDOW) == ()
    assert spans_of([flow(0, 5, 5, 6)], None) == ()


def test_many_flows_share_spans_and_none_is_lost() -> None:
    spans = spans_of([flow(number, 5, 5 + number / 1000, 14 + number / 1000) for number in range(1001)], WINDOW)
    assert len(spans) <= MOST_SPANS
    assert sum(span.flows for span in spans) == 1001
    first = spans[0]
    assert (first.start_s, first.all_from_s, first.all_until_s, first.end_s) == (0.0, 0.005, 9.0, 9.005)
