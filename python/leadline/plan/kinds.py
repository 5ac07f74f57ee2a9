"""The attributes of a kind of test that plans use: its model, and the names of its figures."""

from __future__ import annotations

from typing import Annotated, Protocol

from leadline.plan.base_test import BaseTest
from leadline.plan.gateway_metrics import GATEWAY_METRICS
from leadline.plan.metric_specs import MetricSpec
from leadline.plan.open_union import OpenUnion
from leadline.plan.tier_metrics import TIER_METRICS
from leadline.registry import KINDS


class PlanKind(Protocol):
    """A kind of test, as plans use it."""

    @property
    def name(self) -> str:
        """The value of `kind` in a plan."""

    @property
    def model(self) -> type[BaseTest]:
        """The test's parameters."""

    @property
    def metrics(self) -> tuple[MetricSpec, ...]:
        """Its figures, which can be targets."""

    @property
    def tagged(self) -> tuple[str, ...]:
        """The metrics that can be of a part of the test, by tags."""


def plan_kinds() -> list[PlanKind]:
    """All kinds, in the order in which plans list them."""
    return [KINDS.get(name) for name in KINDS.names]


def metrics_of(kind: str) -> tuple[str, ...]:
    """The names of a kind's figures; empty for an unknown kind."""
    if kind not in KINDS:
        return ()
    found: PlanKind = KINDS.get(kind)
    return tuple(metric.name for metric in found.metrics)


def tagged_metrics_of(kind: str) -> tuple[str, ...]:
    """The metrics that can be of a part of the test, by tags; empty for an unknown kind."""
    if kind not in KINDS:
        return ()
    found: PlanKind = KINDS.get(kind)
    return found.tagged


def spec_of(kind: str, metric: str) -> MetricSpec | None:
    """A figure of a kind of test, or of the gateway on its path; None for an unknown name."""
    own: tuple[MetricSpec, ...] = KINDS.get(kind).metrics if kind in KINDS else ()
    return next((spec for spec in (*own, *GATEWAY_METRICS, *TIER_METRICS) if spec.name == metric), None)


AnyTest = Annotated[BaseTest, OpenUnion(lambda: [kind.model for kind in plan_kinds()])]
"""A test of any kind, as the type of a field."""
