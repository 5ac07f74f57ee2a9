"""Figures that are valid, and known less well than the plan asks: the result says that they are rough. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from leadline.analysis.model import Metric, Reason, Verdict
from leadline.quantities import rounded_share

ROUGHLY_KNOWN = "roughly-known"


def note(metrics: Mapping[str, Metric], decisive: Iterable[str], limit: float) -> Iterator[Reason]:
    """The main figures, beside the leading one, half of whose interval is more than `limit`, a share of them."""
    halves = {name: half for name in decisive if (half := _half_width(metrics.get(name))) is not None and half > limit}
    if halves:
        found = ", ".join(f"{name} (±{rounded_share(half)})" for name, half in halves.items())
        text = f"known roughly: {found}; the limit is {rounded_share(limit)}"
        yield Reason(ROUGHLY_KNOWN, text, metrics=tuple(halves))


def has_rough_figures(notes: Iterable[Reason]) -> bool:
    """Whether one of these notes names figures that are known roughly."""
    return any(one.code == ROUGHLY_KNOWN for one in notes)


def _half_width(metric: Metric | None) -> float | None:
    if metric is None or not metric.value or metric.verdict is not Verdict.VALID or metric.side is not None:
        return None
    if metric.low is None or metric.high is None:
        return None
    return (metric.high - metric.low) / 2 / abs(metric.value)
