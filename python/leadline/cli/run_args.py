"""Run folders as arguments: shared by `report` and `results`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from leadline.dataset import RunFolder

Runs = Annotated[
    list[Path],
    typer.Argument(help="One or more run folders; runs/*-NAME-* matches all runs of a plan.", show_default=False),
]


def open_runs(paths: Sequence[Path]) -> list[RunFolder]:
    """Each run once, in the order of the arguments.

    Raises:
        InputError: one of them is not a run's folder; none has been read then.
    """
    from leadline.dataset import RunFolder

    folders = [RunFolder.open(path) for path in paths]
    return list({folder.path.resolve(): folder for folder in folders}.values())
