"""Figures whose histograms could not be read: they are unknown, and the result says so. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from leadline.analysis.metrics import CENSORED, Histograms
from leadline.analysis.model import Metric, Reason, Verdict
from leadline.analysis.validity import JOURNAL_DAMAGED
from leadline.quantities import counted


def findings(figures: Mapping[str, Metric], histograms: Histograms) -> Iterator[tuple[Verdict, Reason]]:
    """What leaves the figures of a damaged histogram undetermined."""
    names = sorted({name.removesuffix(CENSORED) for name in histograms.damaged})
    starts = tuple(f"{name}_" for name in names)
    unknown = [name for name, metric in figures.items() if name.startswith(starts) and metric.value is None]
    if names and unknown:
        text = f"{counted(sum(histograms.damaged.values()), 'histogram')} of {', '.join(names)} could not be read"
        reason = Reason(JOURNAL_DAMAGED, f"{text}: these figures are unknown", metrics=tuple(unknown))
        yield Verdict.UNDETERMINED, reason
