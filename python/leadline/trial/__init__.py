"""One case on real hosts: set up, start together, collect, tear down; and a run, which is many of these in order.

`Campaign` is a plan's whole run, `measure` a single measurement from this host. Both tell what happens as `notices`;
progress bars, journals and JSON subscribe to them.
"""

from leadline.trial.campaign import Campaign, RunOutcome, conclude
from leadline.trial.interrupt import Interrupt
from leadline.trial.notices import (
    LiveFigures,
    Notice,
    Observer,
    PhaseBegan,
    RunBegan,
    RunEnded,
    Said,
    TestBegan,
    TestEnded,
    TrialBegan,
    TrialEnded,
)
from leadline.trial.single import Single, measure
from leadline.trial.watch import TargetWatch

__all__ = [
    "Campaign",
    "Interrupt",
    "LiveFigures",
    "Notice",
    "Observer",
    "PhaseBegan",
    "RunBegan",
    "RunEnded",
    "RunOutcome",
    "Said",
    "Single",
    "TargetWatch",
    "TestBegan",
    "TestEnded",
    "TrialBegan",
    "TrialEnded",
    "conclude",
    "measure",
]
