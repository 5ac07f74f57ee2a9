"""`leadline truths`: runs load tools against servers and links whose right figures are known."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leadline import __version__
from leadline.cli import options as o
from leadline.cli.output import print_all, print_json
from leadline.errors import EnvironmentLimit, InputError

if TYPE_CHECKING:
    from leadline.analysis.truths import TruthsReport
    from leadline.truths.model import Truth
    from leadline.truths.tools import Tool

NAME = "truths"
EXAMPLE = """\
Example: leadline truths

    leadline truths wrk
    leadline truths --only http-errors --only udp-loss --json
    leadline truths --list
"""


def command(
    tool: Annotated[
        str | None,
        typer.Argument(metavar="TOOL", help="Run this tool alone. Default: Leadline and each peer that is installed."),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", help="Run only this truth; repeatable.", metavar="TRUTH")
    ] = None,
    show_list: Annotated[bool, typer.Option("--list", help="List the truths and the tools, and run nothing.")] = False,
    json: o.Json = False,
) -> int:
    """Compare load tools, Leadline among them, with known truths.

    Each truth is a small server or link, made on this machine for one load, that counts what it does: what is true is
    known. What a tool reports stands beside it. A whole run takes about three minutes,
    and one more with k6 and JMeter.

    Exit code: 0 each figure of TOOL is right, or of Leadline if no TOOL is named; 1 one is not; 2 invalid input, or a
    tool that is not installed; 130 interrupted, with what was measured printed.
    """
    from leadline.truths.suite import TOOLS, TRUTHS
    from leadline.truths.tools import OWN

    truths = [_chosen("--only", name, TRUTHS) for name in dict.fromkeys(only or TRUTHS)]
    tools = _tools(tool, TOOLS)
    if show_list:
        _print_list(truths, list(TOOLS.values()), json)
        return 0
    report = _run(truths, tools, json)
    if json:
        print_json(document(report))
    else:
        from leadline.report.truths import truths_blocks

        print_all(truths_blocks(report))
    if report.is_interrupted:
        return 130
    return 0 if report.score(tool or OWN).is_perfect else 1


def _chosen(option: str, name: str, known: dict[str, Any]) -> Any:
    if name not in known:
        raise InputError(f"{option} {name}: there is none of this name", hint=f"one of {', '.join(known)}")
    return known[name]


def _tools(name: str | None, known: dict[str, Tool]) -> list[Tool]:
    if name is None:
        return [tool for tool in known.values() if tool.is_installed]
    tool: Tool = _chosen("TOOL", name, known)
    if not tool.is_installed:
        raise InputError(f"{name} is not installed", hint="install it, or leave TOOL out")
    return [tool]


def _run(truths: Sequence[Truth], tools: Sequence[Tool], json: bool) -> TruthsReport:
    skipped = {}
    if any(truth.needs_lab and tool.has(truth.load) for truth in truths for tool in tools):
        from leadline.lab import jail

        try:
            # From here on, this is the first process of the lab's namespaces; see docs/decisions/0001-lab-jail.md.
            jail.enter(NAME)
        except EnvironmentLimit as limit:
            skipped = {truth.id: f"not possible here: {limit}" for truth in truths if truth.needs_lab}
    # Its libraries start threads, and the jail must be entered before any thread exists.
    from leadline.cli.progress import Progress
    from leadline.truths.suite import run_truths

    with Progress(quiet=json and not sys.stderr.isatty()) as progress:

        def note(line: str) -> None:
            if not progress.quiet:
                progress.note(line)

        return run_truths(truths, tools, skipped, note)


def _print_list(truths: Sequence[Truth], tools: Sequence[Tool], json: bool) -> None:
    texts = [truth.text for truth in truths]
    if json:
        installed = {tool.name: tool.is_installed for tool in tools}
        print_json({"schema": "leadline.truths-list/1", "truths": texts, "installed": installed})
        return
    for text in texts:
        print(f"{text.id:<24}{text.title}")
    names = [tool.name + ("" if tool.is_installed else " (not installed)") for tool in tools]
    print(f"\nTools: {', '.join(names)}")


def document(report: TruthsReport) -> dict[str, Any]:
    """The document `leadline.truths/1`."""
    return {
        "schema": "leadline.truths/1",
        "version": __version__,
        "status": "interrupted" if report.is_interrupted else "done",
        "truths": report.truths,
        "tools": [
            {"tool": tool, "version": version, "score": report.score(tool)} for tool, version in report.versions.items()
        ],
        "runs": [
            {
                "truth": run.truth,
                "tool": run.tool,
                "command": list(run.command),
                "error": run.error,
                "undecided": run.undecided,
                "figures": [
                    {
                        "figure": one.figure.name,
                        "unit": one.figure.unit,
                        "true": one.true,
                        "reported": one.reported,
                        "bound": one.bound,
                        "mark": one.mark,
                        "off": one.off,
                    }
                    for one in run.comparisons
                ],
            }
            for run in report.runs
        ],
        "skipped": report.skipped,
    }
