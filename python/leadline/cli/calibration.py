"""Finds the generator's ceiling before a load, and reports on stderr while it is measured."""

from __future__ import annotations

import sys
from typing import Any, Protocol

from leadline.analysis.model import Ceiling
from leadline.cli.output import print_note
from leadline.cli.progress import Progress
from leadline.contract.models import HttpWorkload
from leadline.registry import KINDS
from leadline.trial import Interrupt, PhaseBegan
from leadline.trial.ceiling import ceiling_for
from leadline.trial.workloads import LoadWorkload

_DOING = "calibrating: measuring this generator's maximum rate"


class CalibratedKind(Protocol):
    """The attributes of a kind of test that this module uses."""

    def calibration(self, workload: Any) -> HttpWorkload | None:
        """The load whose ceiling is measured against a null responder; None if the kind has no ceiling."""


def _calibration(load: LoadWorkload) -> HttpWorkload | None:
    kind: CalibratedKind = KINDS.get(load.kind)
    return kind.calibration(load)


def is_calibrated(load: LoadWorkload) -> bool:
    """Whether the load's kind has a ceiling."""
    return _calibration(load) is not None


async def calibrated(load: LoadWorkload, enabled: bool, interrupt: Interrupt, progress: Progress) -> Ceiling | None:
    """The ceiling for a load, from the cache or measured now; None if the load has no ceiling or the caller wants
    none."""
    measured = _calibration(load)
    if not enabled or measured is None:
        return None

    def began() -> None:
        progress(PhaseBegan("", _DOING))
        if not progress.quiet and not sys.stderr.isatty():
            print_note(_DOING)

    def warn(text: str) -> None:
        if not progress.quiet:
            progress.note(f"leadline: {text}")

    return await ceiling_for(measured, interrupt, began, warn)
