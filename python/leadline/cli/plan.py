"""`leadline plan`: shows what a plan does, without running it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from leadline.cli import options as o
from leadline.cli.hosts_option import hosts_of
from leadline.cli.output import print_all, print_json
from leadline.errors import InputError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from leadline.cli.host_checks import Check
    from leadline.plan import Need, PlanDescription

NAME = "plan"
EXAMPLE = "Example: leadline plan --example gateway > gateway.yaml\n         leadline plan gateway.yaml --set repeat=3"


def command(
    file: Annotated[
        Path | None, typer.Argument(help="Path of the plan, a YAML file.", metavar="PLAN", show_default=False)
    ] = None,
    only: o.Only = None,
    overrides: o.Overrides = None,
    hosts: o.Hosts = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of plans.")] = False,
    example: Annotated[
        bool, typer.Option("--example", help="Print the example that PLAN names; without PLAN, list the examples.")
    ] = False,
    json: o.Json = False,
) -> int:
    """Show a plan's cases, their order, and what they need."""
    from leadline.plan import describe, load_plan, plan_schema, select

    if schema:
        print_json(plan_schema())
        return 0
    if example:
        _print_examples(file, json)
        return 0
    if file is None:
        raise InputError("the plan is missing", hint="name its file, or give --example or --schema")
    plan = load_plan(file, overrides or [], hosts=hosts_of(hosts))
    show(describe(plan, select(list(plan.cases), only or [])), json)
    return 0


def _print_examples(name: Path | None, json: bool) -> None:
    """Print the text of one example, or a line for each."""
    from leadline.cli.examples import example_plan, example_plans

    plans = example_plans() if name is None else [example_plan(str(name))]
    if json:
        print_json([{"name": plan.name, "summary": plan.summary, "text": plan.text} for plan in plans])
    elif name is None:
        width = max(len(plan.name) for plan in plans)
        print("\n".join(f"{plan.name:{width}}  {plan.summary}" for plan in plans))
    else:
        print(plans[0].text, end="")


def _checks(description: PlanDescription) -> list[Check]:
    """Check whether this host has what the plan needs, in the order of the needs. Forks if the plan needs the lab."""
    from leadline.cli import host_checks

    here = [need for need in description.needs if need.where is None]
    of_lab = any(need.kind in ("privilege", "kernel") for need in here)
    lab = {check.what: check for check in host_checks.lab_checks()} if of_lab else {}
    names = {need.name for need in here}
    lab |= {
        feature.name: host_checks.kernel_check(feature) for feature in host_checks.FEATURES if feature.name in names
    }
    return [host_checks.is_here(need, lab) if need.where is None else _of_others(need) for need in description.needs]


def _of_others(need: Need) -> Check:
    """The check of what given hosts need, each time when a trial begins."""
    from leadline.cli.host_checks import Check

    return Check(need.name, None, need.why, f"not checked here: {need.where} must have it")


def show(description: PlanDescription, json: bool) -> None:
    """Print a plan on stdout."""
    checks = _checks(description)
    if json:
        document = dataclasses.asdict(description)
        for need, check in zip(document["needs"], checks, strict=True):
            need |= {"here": check.works, "found": check.why, "mend": None if check.works else check.mend}
        print_json(document)
    else:
        print_all(_tables(description, checks))


def _tables(description: PlanDescription, checks: list[Check]) -> list[RenderableType]:
    """The plan as tables for a terminal."""
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
    for title in ("needed", "here", "why"):
        needs.add_column(title)
    for need, check in zip(description.needs, checks, strict=True):
        name = f"{need.name} (optional)" if need.optional else need.name
        word, tone = {True: ("yes", "green"), False: ("missing", "yellow"), None: ("unknown", "yellow")}[check.works]
        if need.where is not None:
            needs.add_row(Text(name), Text(f"on {need.where}"), Text(need.why))
            continue
        why = Text(need.why)
        if not check.works:
            why.append("".join(f"\n{line}" for line in (check.why, check.mend and f"fix: {check.mend}") if line))
        needs.add_row(Text(name), Text(word, tone), why)
    derived = " (from the plan's content)" if description.seed_is_derived else ""
    foot = [
        f"{_trials(description)}, about {_duration(description.expected_seconds)}",
        f"order, seed {description.seed}{derived}: {_shortened(description.order)}",
    ]
    compared = sorted({case.baseline for case in description.cases if case.baseline is not None})
    if compared:
        foot.append(f"baseline: {', '.join(compared)}")
    if description.targets:
        foot.append("targets: " + "; ".join(description.targets))
    parts: list[RenderableType] = [head, cases, needs, Text("\n".join(foot))]
    return parts + [Text(f"note: {note}") for note in description.notes]


def _trials(description: PlanDescription) -> str:
    number = len(description.order)
    trials = "1 trial" if number == 1 else f"{number} trials"
    if description.most_repeats > description.repeat:
        return f"at least {trials}, {description.repeat} to {description.most_repeats} of each case"
    return trials if description.repeat == 1 else f"{trials}, {description.repeat} of each case"


def _duration(seconds: float) -> str:
    """`3 s`, `2 min 5 s`, `1 h 10 min`."""
    whole = max(1, round(seconds))
    minutes, rest = divmod(whole, 60)
    hours, minutes_left = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes_left} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _shortened(order: tuple[str, ...]) -> str:
    shown = 24
    rest = len(order) - shown
    return " ".join(order[:shown]) + (f" ... and {rest} more (--json prints all)" if rest > 0 else "")
