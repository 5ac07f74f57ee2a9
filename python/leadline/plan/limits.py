"""The limits for verdicts in a plan; `analysis` reads them from a run's manifest. Pure."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from leadline.plan.field_types import PlanModel, Share


class StabilityLimit(PlanModel):
    """When a figure counts as unstable."""

    spread: Annotated[Share, Field(gt=0, le=10)] = 0.1
    """Maximum half of the 95 % interval of a figure, over repeats or within a test, as a share of the figure."""


class Limits(PlanModel):
    """The limits for verdicts."""

    stability: StabilityLimit = StabilityLimit()
    """When a figure counts as unstable."""
    margin: Annotated[Share, Field(gt=0, lt=1)] = 0.05
    """Figures that differ from the baseline's by less than this share are equivalent."""
