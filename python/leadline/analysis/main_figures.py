"""Which figures of a kind of test stand for it in comparisons and histories, and which way of each is better. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from leadline.plan.kinds import spec_of
from leadline.plan.metric_specs import Better
from leadline.plan.percentiles import histogram_of
from leadline.plan.tags import split_figure
from leadline.registry import KINDS


class LedKind(Protocol):
    """The attributes of a kind of test that this module uses."""

    @property
    def primary(self) -> str:
        """The figure that stands for a test."""

    @property
    def decisive(self) -> tuple[str, ...]:
        """The figures whose verdicts make that of a test, beside the primary one."""

    @property
    def headline(self) -> tuple[str, ...]:
        """The figures that stand beside the leading one in a line."""


def chosen_figures(kind: str, asked: Sequence[str] = (), others: Sequence[str] = ()) -> tuple[str, ...]:
    """The figures that are asked for, or else what a line of the kind shows and some others, if one way is better."""
    if asked:
        return tuple(asked)
    main = dict.fromkeys((*line_figures(kind), *others))
    return tuple(name for name in main if better_of(kind, name) is not Better.NEITHER)


def line_figures(kind: str) -> tuple[str, ...]:
    """The figures that a line of the kind shows, the leading one first."""
    known: LedKind = KINDS.find(kind)
    return tuple(dict.fromkeys((known.primary, *known.decisive, *known.headline)))


def better_of(kind: str, metric: str) -> Better:
    """Which way of a figure is better; neither for one that the kind does not have. A figure of a part of the test is
    like that of the whole, and a percentile like the p99 of the same values."""
    figure, _ = split_figure(metric)
    spec = spec_of(kind, figure)
    if spec is None and (asked := histogram_of(figure)) is not None:
        spec = spec_of(kind, asked.sibling)
    return spec.better if spec is not None else Better.NEITHER
