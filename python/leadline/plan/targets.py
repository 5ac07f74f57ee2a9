"""Targets of a plan: `TEST.METRIC < VALUE`. The kinds of test have the names of the figures.

A value may have a unit if the metric's name ends with one. `analysis` judges targets. Pure.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from leadline.errors import PlanError
from leadline.plan import units
from leadline.plan.gateway_metrics import GATEWAY_METRICS, of_gateway
from leadline.plan.kinds import metrics_of, tagged_metrics_of
from leadline.plan.percentiles import histogram_of
from leadline.plan.source import Node, did_you_mean
from leadline.plan.tags import split_figure
from leadline.plan.target_words import read_value, suggestion
from leadline.plan.tier_metrics import TAG, TIER_METRICS, is_of_tier

OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
}


@dataclass(frozen=True, slots=True)
class Target:
    """One target; `value` is in the metric's own unit, and None as `test` means every test that has the metric."""

    text: str
    test: str | None
    metric: str
    op: str
    value: float

    @property
    def figure(self) -> str:
        """The metric without its tags."""
        return split_figure(self.metric)[0]

    def met_by(self, figure: float) -> bool:
        """Whether a figure, in the metric's unit, meets the target."""
        return OPERATORS[self.op](figure, self.value)


def has_metric(kind: str, metric: str) -> bool:
    """Whether a test of a kind can have a figure with this name: a metric of the kind or of a gateway, or any
    percentile of a metric with p99. With tags, one that can be of a part of the test."""
    metric, tags = split_figure(metric)
    if is_of_tier(metric, tags):
        return True
    known = tagged_metrics_of(kind) if tags else metrics_of(kind)
    asked = histogram_of(metric)
    return metric in known or of_gateway(metric) or (asked is not None and asked.sibling in known)


def named_metrics(texts: Iterable[str]) -> tuple[str, ...]:
    """The metrics in these targets, each once; invalid targets are ignored."""
    matches = (_TARGET.fullmatch(str(text).strip()) for text in texts)
    return tuple(dict.fromkeys(match[2] for match in matches if match is not None))


def read_target(node: Node, kinds: Mapping[str, str]) -> Target:
    """Parse one target of a plan; `kinds` has the kinds of its tests by name.

    Raises:
        PlanError: it does not have the right form, or names an unknown test, metric or value.
    """
    text = str(node.value)
    match = _TARGET.fullmatch(text.strip())
    if match is None:
        raise _error(node, text, "not of the form 'METRIC < VALUE'", "as in 'lost_ratio < 0.1%'")
    test, metric, op, value = match.groups()
    figure, tags = split_figure(metric)
    if test is not None and test not in kinds:
        raise _error(node, text, f"unknown test '{test}'", did_you_mean(test, kinds))
    meant = [kinds[test]] if test else list(kinds.values())
    known = [name for kind in meant for name in metrics_of(kind)] + [spec.name for spec in GATEWAY_METRICS]
    known += [spec.name for spec in TIER_METRICS if figure.startswith(f"{TAG}_")]
    if tags and not any(has_metric(kind, metric) for kind in meant) and any(has_metric(kind, figure) for kind in meant):
        raise _error(node, text, f"{figure} is of a whole test: it has no tags", "leave out {...}")
    if not any(has_metric(kind, metric) for kind in meant):
        of_test = f" of a {kinds[test]} test" if test else ""
        raise _error(node, text, f"unknown metric '{metric}'{of_test}", suggestion(figure, known))
    try:
        return Target(text, test, metric, op, read_value(value, figure, known))
    except units.UnitError as error:
        raise _error(node, text, str(error), None) from None


def _error(node: Node, text: str, words: str, hint: str | None) -> PlanError:
    """An error about one target; the place of an option already contains its text."""
    names_target = node.mark.line is None and node.mark.file.endswith(repr(text))
    return node.mark.error(words if names_target else f"target {text!r}: {words}", hint=hint)


_TARGET = re.compile(
    r"(?:([A-Za-z0-9][\w-]*)\s*\.\s*)?([a-z][a-z0-9_]*(?:\{[^{}]*\})?)\s*(<=|>=|==|<|>)\s*([^\s<>=].*?)", re.ASCII
)
