"""One case on real hosts: set up, start together, collect, tear down; and a run, which is many of these in order.

`Campaign` is a plan's whole run, `measure` a single measurement from this host. Both send `notifications`; progress
bars, journals and JSON subscribe to them.

What belongs to a whole run is imported when it is first asked for: a single measurement needs no lab, no gateways and
no tables, and starts in a fraction of the time. `conclude` and `read_findings` need no lab and no gateways either.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from leadline.trial.interrupt import Interrupt
from leadline.trial.notifications import (
    IntervalEnded,
    LiveFigures,
    Notification,
    Observer,
    PhaseBegan,
    RunBegan,
    RunEnded,
    ScriptOutput,
    TestBegan,
    TestEnded,
    TrialBegan,
    TrialEnded,
    TrialMeasured,
    Waiting,
)
from leadline.trial.single import Single, measure
from leadline.trial.watch import TargetWatch

if TYPE_CHECKING:
    from leadline.trial.campaign import Campaign
    from leadline.trial.conclusion import RunOutcome, conclude, read_findings

__all__ = [
    "Campaign",
    "Interrupt",
    "IntervalEnded",
    "LiveFigures",
    "Notification",
    "Observer",
    "PhaseBegan",
    "RunBegan",
    "RunEnded",
    "RunOutcome",
    "ScriptOutput",
    "Single",
    "TargetWatch",
    "TestBegan",
    "TestEnded",
    "TrialBegan",
    "TrialEnded",
    "TrialMeasured",
    "Waiting",
    "conclude",
    "measure",
    "read_findings",
]


def __getattr__(name: str) -> Any:
    if name == "Campaign":
        return getattr(import_module("leadline.trial.campaign"), name)
    if name in ("RunOutcome", "conclude", "read_findings"):
        return getattr(import_module("leadline.trial.conclusion"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
