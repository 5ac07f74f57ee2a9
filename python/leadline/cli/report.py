"""`leadline report`: a run's tables and its HTML page, made anew from its journal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from leadline.cli import options as o
from leadline.cli.output import print_run, run_code

NAME = "report"
EXAMPLE = "Example: leadline report runs/20260102T030405Z-gateway-3f2a9c"


def command(
    run: Annotated[Path, typer.Argument(help="A run's folder.", show_default=False)], json: o.Json = False
) -> int:
    """Print a run's tables and write its report.html; works on a run that was killed, too."""
    from leadline.dataset import RunFolder
    from leadline.trial import conclude

    folder = RunFolder.open(run)
    outcome = conclude(folder)
    print_run(outcome, folder, json, outcome.problems)
    # The page was made, whatever the run came to: only what could not be written is a failure of this command.
    return run_code(outcome.analysis, outcome.problems) if outcome.problems else 0
