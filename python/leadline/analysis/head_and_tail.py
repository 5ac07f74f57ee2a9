"""What the usual averages would say of a test's rates, and why they are wrong: the head and tail effect.

Owns the naive figures that stand beside the true ones. Not all flows run from the first start to the last end: the
total divided by that time is too low where flows leave the path idle, and averages over each flow's own time add up to
too much where flows share it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from leadline.analysis.flows import Curve, Flow
from leadline.analysis.model import Metric, NaiveRate, Reason, Window
from leadline.analysis.test_spec import TestSpec
from leadline.analysis.window import NS_PER_S, named_rates
from leadline.quantities import rounded_share

HEAD_AND_TAIL = "head-and-tail"
LEAST_DIFFERENCE = 0.01
"""Of the rate: a smaller difference is not worth a line."""
LEAST_WITHOUT_INTERVAL = 0.05
"""The same where the rate has no interval."""


def naive_rates(
    spec: TestSpec, flows: Sequence[Flow], window: Window | None, metrics: Mapping[str, Metric]
) -> dict[str, NaiveRate]:
    """The rates of which one of the usual averages differs by more than half of the interval, and by more than 1 %."""
    if window is None or window.last_end_ns <= window.first_start_ns:
        return {}
    times_s = dict(_times_s(flows))
    found = {}
    for name, (_, factor, curves) in named_rates(spec, flows).items():
        metric = metrics.get(name)
        # A curve that was made of others is of no flow by itself, and has no average of its own.
        if metric is None or not metric.value or not curves or any(id(curve) not in times_s for curve in curves):
            continue
        whole = factor * sum(curve.total for curve in curves) * NS_PER_S / (window.last_end_ns - window.first_start_ns)
        own = factor * sum(curve.total / times_s[id(curve)] for curve in curves if times_s.get(id(curve)))
        if metric.high is None:
            allowed = LEAST_WITHOUT_INTERVAL * metric.value
        else:
            allowed = max(LEAST_DIFFERENCE * metric.value, metric.high - metric.value)
        if max(abs(whole - metric.value), abs(own - metric.value)) > allowed:
            found[name] = NaiveRate(whole, own)
    return found


def note(naive: Mapping[str, NaiveRate], metrics: Mapping[str, Metric], window: Window | None) -> Iterator[Reason]:
    """How far off the usual averages of the leading rate are, and why."""
    name = next(iter(naive), None)
    if name is None or window is None:
        return
    value, rate = metrics[name].value or 0.0, naive[name]
    head_s, tail_s = (window.start_ns - window.first_start_ns) / 1e9, (window.last_end_ns - window.end_ns) / 1e9
    why = f"{head_s:.3g} s of head and {tail_s:.3g} s of tail are cut off here"
    if not head_s and not tail_s:
        why = "they count what arrived after the end, too"
    text = (
        f"{name} would be {rounded_share(rate.whole / value - 1, 1, signed=True)} from the first start to the last "
        f"end, and {rounded_share(rate.flows / value - 1, 1, signed=True)} by the flows' own averages: {why}"
    )
    yield Reason(HEAD_AND_TAIL, text, metrics=tuple(naive))


def _times_s(flows: Sequence[Flow]) -> Iterator[tuple[int, float]]:
    """The time of the flow that each curve belongs to, s, by the curve's identity."""
    for flow in flows:
        if flow.start_ns is not None and flow.end_ns is not None:
            for curve in (flow.delivered_bytes, flow.delivered_units):
                if isinstance(curve, Curve):
                    yield id(curve), (flow.end_ns - flow.start_ns) / NS_PER_S
