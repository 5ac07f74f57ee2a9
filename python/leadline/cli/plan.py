"""`leadline plan`: what a plan would do."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from leadline.cli import options as o
from leadline.cli.output import print_all, print_json
from leadline.errors import InputError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from leadline.plan import PlanDescription

NAME = "plan"
EXAMPLE = "Example: leadline plan examples/gateway.yaml --set repeat=3"


def command(
    file: Annotated[Path | None, typer.Argument(help="The plan.", metavar="PLAN", show_default=False)] = None,
    only: o.Only = None,
    overrides: o.Overrides = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of plans.")] = False,
    json: o.Json = False,
) -> int:
    """Show a plan's cases, their order, the expected time, and what is needed."""
    from leadline.plan import describe, load_plan, plan_schema, select

    if schema:
        print_json(plan_schema())
        return 0
    if file is None:
        raise InputError("no plan is given", hint="name its file, or give --schema")
    plan = load_plan(file, overrides or [])
    show(describe(plan, select(list(plan.cases), only or [])), json)
    return 0


def show(description: PlanDescription, json: bool) -> None:
    """A plan on stdout."""
    if json:
        print_json(dataclasses.asdict(description))
    else:
        print_all(_tables(description))


def _tables(description: PlanDescription) -> list[RenderableType]:
    """A plan for a terminal."""
    from rich.table import Table
    from rich.text import Text

    head = Text.assemble((description.name, "bold"), f"  {description.description}" if description.description else "")
    cases = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("case", "what", "clients", "tests", "time"):
        cases.add_column(title, justify="right" if title in ("clients", "time") else "left")
    for case in description.cases:
        tests = ", ".join(test.name for test in case.tests)
        cases.add_row(case.id, Text(case.title), str(case.clients), Text(tests), f"{case.trial_seconds:.0f} s")
    needs = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("needed", "why"):
        needs.add_column(title)
    for need in description.needs:
        name = f"{need.name} (optional)" if need.optional else need.name
        needs.add_row(Text(name), Text(need.why))
    minutes, seconds = divmod(round(description.expected_seconds), 60)
    derived = " (from the plan's content)" if description.seed_is_derived else ""
    foot = [
        f"{len(description.order)} trials, {description.repeat} of each case, about {minutes} min {seconds:02d} s",
        f"order, seed {description.seed}{derived}: {_shortened(description.order)}",
    ]
    if description.targets:
        foot.append("targets: " + "; ".join(description.targets))
    parts: list[RenderableType] = [head, cases, needs, Text("\n".join(foot))]
    return parts + [Text(f"note: {note}") for note in description.notes]


def _shortened(order: tuple[str, ...]) -> str:
    shown = 24
    rest = len(order) - shown
    return " ".join(order[:shown]) + (f" ... and {rest} more (--json has all)" if rest > 0 else "")
