"""One case on real hosts: set up, start together, collect, tear down; and a run, which is many of these in order.

`Campaign` is a plan's whole run, `measure` a single measurement from this host. Both send `notifications`; progress
bars, journals and JSON subscribe to them.

What belongs to a whole run is imported when it is first asked for: a single measurement needs no lab, no gateways and
no tables, and starts in a fraction of the time.
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
    from leadline.trial.campaign import Campaign, RunOutcome, conclude

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
]


def __getattr__(name: str) -> Any:
    if name in ("Campaign", "RunOutcome", "conclude"):
        return getattr(import_module("leadline.trial.campaign"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
