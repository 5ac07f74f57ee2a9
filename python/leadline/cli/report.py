"""`leadline report`: prints the tables of runs and writes their HTML pages from their journals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadline.cli import options as o
from leadline.cli.output import print_all, print_json, print_problems, print_run, run_code, run_document
from leadline.cli.run_args import Runs, open_runs

if TYPE_CHECKING:
    from rich.text import Text

NAME = "report"
EXAMPLE = "Example: leadline report runs/*-gateway-*"


def command(
    runs: Runs,
    json: o.Json = False,
) -> int:
    """Print the tables of each run and write its report.html. A killed run works too.

    With --json, one run prints its own document; several runs print one document with a list.
    """
    from leadline.trial import conclude

    folders = open_runs(runs)
    documents, codes = [], []
    for number, folder in enumerate(folders):
        outcome = conclude(folder)
        # This command fails only if it cannot write; the run's own outcome does not matter.
        codes.append(run_code(outcome.analysis, outcome.problems) if outcome.problems else 0)
        if json and len(folders) > 1:
            documents.append(run_document(outcome.analysis, str(folder.path), outcome.problems))
            print_problems(folder, (*outcome.problems, *outcome.left_out))
            continue
        if len(folders) > 1:
            print_all([_title(folder.run_id, is_first=number == 0)])
        print_run(outcome, folder, json, outcome.problems)
    if documents:
        print_json({"schema": "leadline.run-results/1", "runs": documents})
    return max(codes)


def _title(run_id: str, is_first: bool) -> Text:
    from rich.text import Text

    return Text.assemble("" if is_first else "\n", (f"Run {run_id}", "bold"), "\n")
