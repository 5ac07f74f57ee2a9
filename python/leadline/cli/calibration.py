"""The generator's ceiling before an http load: asked for once, said on stderr while it is measured."""

from __future__ import annotations

import sys

from leadline.analysis.model import Ceiling
from leadline.cli.output import print_note
from leadline.cli.progress import Progress
from leadline.contract.models import HttpWorkload
from leadline.trial import Interrupt, PhaseBegan
from leadline.trial.ceiling import ceiling_for
from leadline.trial.workloads import LoadWorkload

_DOING = "calibrating: what this generator can do at most"


async def calibrated(load: LoadWorkload, enabled: bool, interrupt: Interrupt, progress: Progress) -> Ceiling | None:
    """The ceiling for a load, from the cache or measured now; None for other loads, and where nobody wants it."""
    if not enabled or not isinstance(load, HttpWorkload):
        return None

    def began() -> None:
        progress(PhaseBegan("", _DOING))
        if not progress.quiet and not sys.stderr.isatty():
            print_note(_DOING)

    def say(text: str) -> None:
        if not progress.quiet:
            progress.note(f"leadline: {text}")

    return await ceiling_for(load, interrupt, began, say)
