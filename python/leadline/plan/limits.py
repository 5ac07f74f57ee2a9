"""The bounds behind the verdicts, as a plan gives them; `analysis` reads them back from a run's manifest. Pure."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from leadline.plan.field_types import PlanModel, Share


class StabilityLimit(PlanModel):
    """When a figure is called unstable."""

    spread: Annotated[Share, Field(gt=0, le=10)] = 0.1
    """Most that repeats or intervals may differ, as a share of their mean."""


class Limits(PlanModel):
    """Bounds behind the verdicts."""

    stability: StabilityLimit = StabilityLimit()
    """When a figure is called unstable."""
