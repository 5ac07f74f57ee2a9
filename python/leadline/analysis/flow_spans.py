"""When each flow of a test was due, began and ended: what makes its head and its tail. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from leadline.analysis.flows import Flow
from leadline.analysis.model import Window
from leadline.analysis.trial_records import FlowSpan

MOST_SPANS = 200
"""With more flows, neighbours by their start share a span."""


def spans_of(flows: Sequence[Flow], window: Window | None) -> tuple[FlowSpan, ...]:
    """The spans of the flows that began, in the order of their starts; a flow without a known end is left out."""
    if window is None:
        return ()
    zero_ns = window.first_start_ns
    ran = sorted(
        ((flow.start_ns, flow.end_ns, flow) for flow in flows if flow.start_ns is not None and flow.end_ns is not None),
        key=lambda one: one[:2],
    )
    size = -(-len(ran) // MOST_SPANS)
    groups = [ran[first : first + size] for first in range(0, len(ran), size)] if ran else []
    return tuple(_span(group, zero_ns) for group in groups)


def _span(group: Sequence[tuple[int, int, Flow]], zero_ns: int) -> FlowSpan:
    starts, ends = [start for start, _, _ in group], [end for _, end, _ in group]
    due = [flow.due_ns for _, _, flow in group if flow.due_ns is not None]
    first = group[0][2]
    name = f"{first.key.host} {first.key.flow} {first.direction}" if len(group) == 1 else f"{len(group)} flows"
    return FlowSpan(
        name=name,
        flows=len(group),
        due_s=(min(due) - zero_ns) / 1e9 if due else None,
        start_s=(min(starts) - zero_ns) / 1e9,
        all_from_s=(max(starts) - zero_ns) / 1e9,
        all_until_s=(min(ends) - zero_ns) / 1e9,
        end_s=(max(ends) - zero_ns) / 1e9,
    )
