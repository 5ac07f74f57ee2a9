"""`leadline compare`: how much the figures of runs, or of the systems in one run, differ, and whether that is known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from leadline.cli import options as o
from leadline.cli.output import (
    check_writable,
    print_all,
    print_damage,
    print_json,
    print_note,
    share,
    write_option_file,
)
from leadline.cli.run_args import Runs, open_runs
from leadline.errors import InputError

if TYPE_CHECKING:
    from leadline.analysis.comparison import ComparedRuns, Side
    from leadline.dataset import RunFolder

NAME = "compare"
EXAMPLE = "Example: leadline compare runs/*-before-* runs/*-after-* --margin 3% --html ratios.html"


def command(
    runs: Runs,
    baseline: Annotated[
        str | None,
        typer.Option(
            help="With one run: the parameter and value of the cases that the others are compared with. Default: the "
            "plan's baseline.",
            metavar="PARAMETER=VALUE",
            show_default=False,
        ),
    ] = None,
    margin: Annotated[
        str, typer.Option(help="Figures that differ by less than this are equivalent.", metavar="SHARE")
    ] = "5%",
    metric: Annotated[
        list[str] | None,
        typer.Option(help="A figure to compare; repeatable. Default: the main figures.", metavar="METRIC"),
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write a page with a plot of the ratios.", show_default=False)
    ] = None,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Compare runs of different hardware or loads all the same.")
    ] = False,
    json: o.Json = False,
) -> int:
    """Compare runs: faster, slower, equivalent, or cannot tell.

    Each run is compared with the first, and with the one before it. With one run and --baseline, the systems of one
    plan are compared, whose trials were interleaved. A ratio is that of the means over the repeats; three repeats are
    the least. Without --baseline, the plan's own one counts. Runs of other hardware or other loads are refused.
    """
    from leadline.analysis.comparison import compare_sides
    from leadline.report import comparison_blocks

    least = share("--margin", margin)
    if html is not None:
        check_writable("--html", html)
    folders = open_runs(runs, may_repeat=False)
    pairs = list(_pairs_of_one(folders[0], baseline) if len(folders) == 1 else _pairs_of_many(folders, baseline))
    names = tuple(metric or ())
    compared = [compare_sides(first, second, margin=least, metrics=names) for first, second in pairs]
    for one in compared:
        _refuse(one, anyway, names)
    if html is not None:
        from leadline.report import render_comparison

        write_option_file("--html", html, render_comparison(compared))
        print_note(f"page: {html}")
    if json:
        print_json({"schema": "leadline.comparison/1", "comparisons": compared})
    else:
        print_all(comparison_blocks(compared))
    return 0


def _pairs_of_many(folders: Sequence[RunFolder], baseline: str | None) -> Iterator[tuple[Side, Side]]:
    if baseline is not None:
        raise InputError("--baseline: it chooses among the cases of one run", hint="name the run to compare with first")
    sides = [_side(folder) for folder in folders]
    yield from ((sides[0], side) for side in sides[1:])
    yield from ((before, side) for before, side in pairwise(sides) if before is not sides[0])


def _pairs_of_one(folder: RunFolder, baseline: str | None) -> Iterator[tuple[Side, Side]]:
    from dataclasses import replace

    whole = _side(folder)
    trials = whole.analysis.trials
    values: dict[str, list[str]] = {}
    for trial in trials:
        for name, value in trial.parameters.items():
            known = values.setdefault(name, [])
            known += [] if str(value) in known else [str(value)]
    apart = {name: known for name, known in values.items() if len(known) > 1}
    offered = ", ".join(f"{name}={value}" for name, known in apart.items() for value in known)
    hint = f"one of {offered}" if offered else "name a second run: all cases of this one have the same parameters"
    if baseline is None and whole.analysis.baselines:
        yield from _pairs_of_plan(whole)
        return
    if baseline is None:
        hint = f"--baseline {hint}" if offered else hint
        raise InputError(f"{folder.path}: one run, and nothing to compare it with", hint=hint)
    name, _, wanted = baseline.partition("=")
    if wanted not in apart.get(name, ()):
        raise InputError(f"--baseline {baseline}: no such cases in this run, beside others", hint=hint)
    sides = {value: replace(whole, label=f"{name}={value}", only=(name, value)) for value in apart[name]}
    yield from ((sides[wanted], side) for value, side in sides.items() if value != wanted)


def _pairs_of_plan(whole: Side) -> Iterator[tuple[Side, Side]]:
    """Each case and the one that the plan's `baseline` compares it with."""
    from dataclasses import replace

    titles = {trial.case: trial.parameters for trial in whole.analysis.trials}
    sides = {
        case: replace(whole, label=" ".join([case, *(f"{name}={value}" for name, value in found.items())]), case=case)
        for case, found in titles.items()
    }
    for case, base in whole.analysis.baselines.items():
        if case in sides and base in sides:
            yield sides[base], sides[case]


def _side(folder: RunFolder) -> Side:
    from leadline.analysis.comparison import Side
    from leadline.analysis.precision import confidence_over_repeats
    from leadline.trial import read_findings

    analysis = read_findings(folder)
    print_damage(folder.run_id, analysis)
    manifest = folder.read_manifest()
    cases = manifest.get("cases") or ()
    tests = {(case["id"], test["name"]): test for case in cases for test in case.get("tests") or ()}
    return Side(
        folder.run_id,
        analysis,
        tests,
        cases={case["id"]: case for case in cases},
        confidence=confidence_over_repeats(manifest),
    )


def _refuse(one: ComparedRuns, anyway: bool, metrics: Sequence[str]) -> None:
    """Raises InputError where the two have nothing in common, or differ in what makes figures comparable."""
    both = f"{one.baseline} and {one.candidate}"
    if not one.figures:
        asked = f" of {', '.join(metrics)}" if metrics else ""
        raise InputError(
            f"{both} share no figure{asked} that could be compared", hint="`leadline results` lists what a run has"
        )
    if one.blocking and not anyway:
        first = one.blocking[0]
        more = f" (and {len(one.blocking) - 1} more)" if len(one.blocking) > 1 else ""
        raise InputError(
            f"{both} are not comparable: {first.what} is {first.baseline} and {first.candidate}{more}",
            hint="--anyway compares them all the same, and lists what differs",
        )
