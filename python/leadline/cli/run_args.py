"""Run folders as arguments: shared by `report`, `results`, `export` and `compare`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from leadline.errors import InputError

if TYPE_CHECKING:
    from leadline.dataset import RunFolder

Runs = Annotated[
    list[Path],
    typer.Argument(help="One or more run folders; runs/*-NAME-* matches all runs of a plan.", show_default=False),
]


def open_runs(paths: Sequence[Path], *, may_repeat: bool = True) -> list[RunFolder]:
    """Each run once, in the order of the arguments.

    Raises:
        InputError: one of them is not a run's folder, or is given twice and may not; none has been read then.
    """
    from leadline.dataset import RunFolder

    found: dict[Path, RunFolder] = {}
    for path in paths:
        folder = RunFolder.open(path)
        first = found.setdefault(folder.path.resolve(), folder)
        if first is not folder and not may_repeat:
            raise InputError(f"{first.path} and {path}: the same run twice", hint="name each run once")
    return list(found.values())
