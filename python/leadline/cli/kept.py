"""The run folder that a single-test command keeps with --out: made before its load, and finished after it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from leadline.cli.output import say_note
from leadline.dataset import RunFolder


def begin(out: Path, name: str, manifest: Callable[[str], dict[str, Any]]) -> RunFolder:
    """A new folder with what is going to be measured; `manifest` makes that of the run's id."""
    folder = RunFolder.create(out, name)
    folder.write_manifest(manifest(folder.run_id))
    return folder


def finish(folder: RunFolder) -> None:
    """Tables and page from the journal; what goes wrong with them is said."""
    # A measurement that is not kept needs no library for tables.
    from leadline.trial import conclude

    for problem in conclude(folder).problems:
        say_note(problem)
