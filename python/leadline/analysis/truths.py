"""Compares what load tools report with what is true. Pure: the tools and the truths are run by `truths`.

A figure is `RIGHT` within its truth's tolerance and `WRONG` otherwise; `DOUBTED` if the tool itself prints it as a
bound that holds, or as not known; `SILENT` if the tool has no such figure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from leadline.analysis.tool_output import Bound, Reported

Value = float | str
AT_MOST, AT_LEAST, NOT_KNOWN = "at most", "at least", "not known"


class Mark(StrEnum):
    """How a reported figure compares with the true one."""

    RIGHT = "right"
    WRONG = "wrong"
    DOUBTED = "doubted"
    SILENT = "silent"


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of a truth that tools are compared by."""

    name: str
    unit: str
    """The unit of its values; empty for words."""
    tolerance: float = 0.0
    """A reported value is right within this share of the true one."""
    slack: float = 0.0
    """What is allowed beside the tolerance, in the unit."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One figure of one tool beside the true one."""

    figure: Figure
    true: Value
    reported: Value | None
    bound: Bound
    mark: Mark

    @property
    def off(self) -> float | None:
        """The share of the true value by which the reported one is off; None for words, and if the true value is 0."""
        if isinstance(self.true, str) or not isinstance(self.reported, int | float) or not self.true:
            return None
        return self.reported / self.true - 1


@dataclass(frozen=True, slots=True)
class ToolRun:
    """One tool against one truth."""

    truth: str
    tool: str
    command: tuple[str, ...]
    comparisons: tuple[Comparison, ...]
    error: str | None = None
    """Why there are no figures; None if the tool did not fail."""
    undecided: str | None = None
    """Why the true figures of this run are not known; None if they are."""


@dataclass(frozen=True, slots=True)
class TruthText:
    """What a truth is, in words."""

    id: str
    layer: str
    """What it is about: truths of one layer have the same tools."""
    title: str
    made: str
    """What is made: the server or the link."""
    known: str
    """How the true figures are known."""
    load: str
    """The load that each tool is asked for."""
    figures: tuple[Figure, ...]


@dataclass(frozen=True, slots=True)
class TruthsReport:
    """All runs of one call of `leadline truths`."""

    truths: tuple[TruthText, ...]
    versions: Mapping[str, str | None]
    """Of each tool, in the order of the tables."""
    runs: tuple[ToolRun, ...]
    skipped: Mapping[str, str]
    """Truths that this machine cannot make, and why."""
    is_interrupted: bool = False
    """Whether it ended before all runs had."""

    def run(self, truth: str, tool: str) -> ToolRun | None:
        """What a tool reported of a truth; None if it was not run against it."""
        return next((run for run in self.runs if (run.truth, run.tool) == (truth, tool)), None)

    def score(self, tool: str) -> Score:
        """How many figures a tool reported right."""
        return score(self.of_tool(tool))

    def of_tool(self, tool: str) -> Sequence[ToolRun]:
        """The runs of a tool."""
        return [run for run in self.runs if run.tool == tool]


@dataclass(frozen=True, slots=True)
class Score:
    """The figures of a tool by their marks."""

    right: int
    wrong: int
    doubted: int
    silent: int
    failed: int
    """Truths of which the tool reported nothing because it failed."""

    @property
    def is_perfect(self) -> bool:
        """Whether each figure is right."""
        return self.right > 0 and not (self.wrong or self.doubted or self.silent or self.failed)


def score(runs: Sequence[ToolRun]) -> Score:
    """The figures of runs by their marks."""
    marks = [comparison.mark for run in runs for comparison in run.comparisons]
    right, wrong, doubted, silent = map(marks.count, (Mark.RIGHT, Mark.WRONG, Mark.DOUBTED, Mark.SILENT))
    return Score(right, wrong, doubted, silent, failed=sum(run.error is not None for run in runs))


def compare(
    figures: Sequence[Figure], true: Mapping[str, Value], reported: Mapping[str, Reported]
) -> tuple[Comparison, ...]:
    """Each figure that is known to be true beside what a tool reported."""
    return tuple(_comparisons(figures, true, reported))


def _comparisons(
    figures: Sequence[Figure], true: Mapping[str, Value], reported: Mapping[str, Reported]
) -> Iterator[Comparison]:
    for figure in figures:
        found = reported.get(figure.name, Reported(None))
        mark = _mark(figure, true[figure.name], found)
        yield Comparison(figure, true[figure.name], found.value, found.bound, mark)


def _mark(figure: Figure, true: Value, reported: Reported) -> Mark:
    if reported.value is None:
        return Mark.DOUBTED if reported.bound == NOT_KNOWN else Mark.SILENT
    if isinstance(true, str) or isinstance(reported.value, str):
        is_unsaid = reported.value == NOT_KNOWN
        return Mark.RIGHT if reported.value == true else Mark.DOUBTED if is_unsaid else Mark.WRONG
    allowed = figure.slack + figure.tolerance * abs(true)
    if abs(reported.value - true) <= allowed:
        return Mark.RIGHT
    holds = {AT_MOST: reported.value >= true, AT_LEAST: reported.value <= true, NOT_KNOWN: True}
    return Mark.DOUBTED if reported.bound is not None and holds[reported.bound] else Mark.WRONG
