"""Plans: what to measure, read from YAML, expanded to cases and ordered. Pure, except that `load_plan` reads the
file.

The model of a whole plan and the modules that read and describe one are imported on first use: a single-test command
needs only one test's model.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from leadline.plan.base_test import BaseTest
from leadline.plan.estimate import expected_seconds, needs, trial_seconds
from leadline.plan.host_address import HostAddress
from leadline.plan.hosts import Hosts, LabSpec, LinkSpec, Topology
from leadline.plan.limits import Limits
from leadline.plan.model import Case, Plan, Trial
from leadline.plan.need import Need
from leadline.plan.order import expand, one_round, schedule, select
from leadline.plan.sut import BaseSut
from leadline.plan.targets import Target

if TYPE_CHECKING:
    from leadline.plan.description import CaseLine, PlanDescription, TestLine, describe
    from leadline.plan.document import plan_schema
    from leadline.plan.load import load_plan

_WHOLE_PLANS = {
    "CaseLine": "description",
    "PlanDescription": "description",
    "TestLine": "description",
    "describe": "description",
    "plan_schema": "document",
    "load_plan": "load",
}
"""Names that are imported on first use, and their modules."""

__all__ = [
    "BaseSut",
    "BaseTest",
    "Case",
    "CaseLine",
    "HostAddress",
    "Hosts",
    "LabSpec",
    "Limits",
    "LinkSpec",
    "Need",
    "Plan",
    "PlanDescription",
    "Target",
    "TestLine",
    "Topology",
    "Trial",
    "describe",
    "expand",
    "expected_seconds",
    "load_plan",
    "needs",
    "one_round",
    "plan_schema",
    "schedule",
    "select",
    "trial_seconds",
]


def __getattr__(name: str) -> Any:
    if name not in _WHOLE_PLANS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"leadline.plan.{_WHOLE_PLANS[name]}"), name)
