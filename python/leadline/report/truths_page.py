"""Writes what load tools report beside what is true as Markdown: the generated part of docs/truths.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from leadline.analysis.truths import Comparison, Figure, Mark, ToolRun, TruthsReport, TruthText
from leadline.report.truths import (
    LEGEND,
    cell_text,
    figure_name,
    missing_text,
    off_text,
    score_text,
    tools_of_layer,
    true_text,
)


def truths_markdown(report: TruthsReport) -> str:
    """The scores, a table for each layer, and what each truth is."""
    layers = dict.fromkeys(truth.layer for truth in report.truths)
    parts = [_scores(report), *(_table(report, layer) for layer in layers), f"{LEGEND[0].upper()}{LEGEND[1:]}."]
    missing = [text for run in report.runs if (text := missing_text(run)) is not None]
    parts += ["\n".join(f"- {text}" for text in missing)] if missing else []
    parts += ["## What is made, and how the truth is known", *map(_description, report.truths)]
    return "\n\n".join(part for part in parts if part) + "\n"


def report_of(document: Mapping[str, Any]) -> TruthsReport:
    """The report from `leadline truths --json`."""
    truths = tuple(
        TruthText(**{**truth, "figures": tuple(Figure(**figure) for figure in truth["figures"])})
        for truth in document["truths"]
    )
    versions = {tool["tool"]: tool["version"] for tool in document["tools"]}
    runs = tuple(
        ToolRun(
            run["truth"],
            run["tool"],
            tuple(run["command"]),
            tuple(_comparison(figure) for figure in run["figures"]),
            run["error"],
            run["undecided"],
        )
        for run in document["runs"]
    )
    return TruthsReport(truths, versions, runs, document["skipped"])


def _comparison(row: Mapping[str, Any]) -> Comparison:
    figure = Figure(row["figure"], row["unit"])
    return Comparison(figure, row["true"], row["reported"], row["bound"], Mark(row["mark"]))


def _scores(report: TruthsReport) -> str:
    head = ["| Tool | Version | Right | Wrong | A bound, or not known | Not reported |", "|---|---|---|---|---|---|"]
    scores = {tool: report.score(tool) for tool in report.versions if report.of_tool(tool)}
    rows = [
        f"| {tool} | {report.versions[tool] or '–'} | {score_text(found)} | {found.wrong} | {found.doubted} "
        f"| {found.silent} |"
        for tool, found in scores.items()
    ]
    return "\n".join([*head, *rows])


def _table(report: TruthsReport, layer: str) -> str:
    tools = tools_of_layer(report, layer)
    if not tools:
        return ""
    head = [f"## {layer}", "", f"| | | True | {' | '.join(tools)} |", f"|---|---|---|{'---|' * len(tools)}"]
    rows = [row for truth in report.truths if truth.layer == layer for row in _rows(report, truth, tools)]
    return "\n".join([*head, *rows])


def _rows(report: TruthsReport, truth: TruthText, tools: Sequence[str]) -> Iterator[str]:
    runs = [run for run in report.runs if run.truth == truth.id and run.comparisons]
    for number, figure in enumerate(truth.figures if runs else ()):
        among = [run.comparisons[number] for run in runs]
        by_tool = {run.tool: run.comparisons[number] for run in runs}
        cells = [_cell(by_tool.get(tool), among) for tool in tools]
        name = f"`{truth.id}`" if number == 0 else ""
        yield f"| {name} | {figure_name(figure)} | {true_text(among)} | {' | '.join(cells)} |"


def _cell(comparison: Comparison | None, among: Sequence[Comparison]) -> str:
    if comparison is None:
        return ""
    off = off_text(comparison)
    return cell_text(comparison, among=among) + (f" ({off})" if off else "")


def _description(truth: TruthText) -> str:
    return f"**`{truth.id}`: {truth.title}.** Made: {truth.made}. Known by: {truth.known}. Load: {truth.load}."
