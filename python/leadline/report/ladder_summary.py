"""Draws the end of `leadline ladder`: why layers are not valid, then the layers and where to look first."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from leadline.analysis.model import RunAnalysis
from leadline.report.brief import brief_reasons
from leadline.report.ladders import ladder_blocks
from leadline.report.reasons import why_not_valid


def ladder_summary(analysis: RunAnalysis, *, verbose: bool) -> list[RenderableType]:
    """The ladders; above them each cause in one sentence. `verbose` draws every reason with advice, where the capacity
    goes, and what the layers cost."""
    blocks = ladder_blocks(analysis.ladders, verbose=verbose)
    if verbose:
        reasons = why_not_valid(analysis)
    else:
        causes = brief_reasons(analysis)
        reasons = Group(Text("Why layers are not valid", style="bold underline"), *causes) if causes else None
    return [*([] if reasons is None else [reasons]), *blocks]
