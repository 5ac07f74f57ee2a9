"""Trials and runs: sets up hosts, starts all load at one instant, collects the results, tears down.

`Campaign` is the run of a whole plan, `measure` a single measurement from this host. Both send `notifications`;
progress bars, journals and JSON subscribe to them.

The modules of a whole run are imported on first use: a single measurement needs no lab, no gateways and no tables,
and starts faster without them. `conclude` and `read_findings` need no lab and no gateways either.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from leadline.trial.interrupt import Interrupt
from leadline.trial.notifications import (
    FirstRoundMeasured,
    HostLost,
    HostSilent,
    IntervalEnded,
    LiveFigures,
    LiveLabel,
    Notification,
    Observer,
    PhaseBegan,
    RoundAdded,
    RoundsOutOfTime,
    RunBegan,
    RunEnded,
    ScriptOutput,
    TargetOpen,
    TestBegan,
    TestEnded,
    TrialBegan,
    TrialEnded,
    TrialMeasured,
    Waiting,
)
from leadline.trial.single import Single, analysed, has_figures, measure
from leadline.trial.watch import TargetWatch

if TYPE_CHECKING:
    from leadline.trial.campaign import Campaign
    from leadline.trial.conclusion import RunOutcome, conclude, read_findings

__all__ = [
    "Campaign",
    "FirstRoundMeasured",
    "HostLost",
    "HostSilent",
    "Interrupt",
    "IntervalEnded",
    "LiveFigures",
    "LiveLabel",
    "Notification",
    "Observer",
    "PhaseBegan",
    "RoundAdded",
    "RoundsOutOfTime",
    "RunBegan",
    "RunEnded",
    "RunOutcome",
    "ScriptOutput",
    "Single",
    "TargetOpen",
    "TargetWatch",
    "TestBegan",
    "TestEnded",
    "TrialBegan",
    "TrialEnded",
    "TrialMeasured",
    "Waiting",
    "analysed",
    "conclude",
    "has_figures",
    "measure",
    "read_findings",
]


def __getattr__(name: str) -> Any:
    if name == "Campaign":
        return getattr(import_module("leadline.trial.campaign"), name)
    if name in ("RunOutcome", "conclude", "read_findings"):
        return getattr(import_module("leadline.trial.conclusion"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
