"""Finds the generator's ceiling, and reports on stderr while it is measured.

One that was measured before is looked up before a load. Another is measured before a load that is judged while it runs;
otherwise afterwards, and only if the load's threads were busy, because else it decides nothing.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any, Protocol

from leadline.analysis.model import Ceiling
from leadline.cli.output import print_note
from leadline.cli.progress import Progress
from leadline.contract.models import HttpWorkload
from leadline.registry import KINDS
from leadline.trial import Interrupt, PhaseBegan
from leadline.trial.ceiling import ceiling_for, known_ceiling
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


def known(load: LoadWorkload, enabled: bool, progress: Progress) -> Ceiling | None:
    """The ceiling for a load as it was measured before; None if it was not."""
    measured = _calibration(load)
    return known_ceiling(measured, partial(_warn, progress)) if enabled and measured is not None else None


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

    return await ceiling_for(measured, interrupt, began, partial(_warn, progress))


def _warn(progress: Progress, text: str) -> None:
    if not progress.quiet:
        progress.note(f"leadline: {text}")
