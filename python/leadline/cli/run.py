"""`leadline run`: runs a plan."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from leadline.cli import options as o
from leadline.cli import plan as plan_command
from leadline.cli.hosts_option import hosts_of
from leadline.cli.output import check_folder, print_run, run_code
from leadline.errors import MissingBinary

if TYPE_CHECKING:
    from leadline.plan import Case, Plan

NAME = "run"
EXAMPLE = "Example: leadline run examples/gateway.yaml --only sut=wireguard --set repeat=1"


def command(
    file: Annotated[Path, typer.Argument(help="Path of the plan, a YAML file.", metavar="PLAN", show_default=False)],
    only: o.Only = None,
    overrides: o.Overrides = None,
    target: o.RunTargets = None,
    hosts: o.Hosts = None,
    tolerate: o.Tolerate = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what the run would do, but do not run it.")] = False,
    out: Annotated[
        Path, typer.Option("--out", help="Folder in which the run's folder is created.", metavar="DIR")
    ] = Path("runs"),
    json: o.Json = False,
    verbose: o.Verbose = False,
) -> int:
    """Run a plan: measure each case, and write a report.

    The hosts are made on this machine, or reached by ssh. The cases are measured in a random order.

    Exit code: 0 done and targets met, 1 a trial failed, 2 invalid input, 3 a target missed, 4 a target undecidable,
    130 interrupted (the results so far are kept).
    """
    from leadline.plan import describe, load_plan, select

    plan = load_plan(file, with_tolerance(overrides, tolerate), target or [], hosts_of(hosts))
    cases = select(list(plan.cases), only or [])
    if dry_run:
        plan_command.show(describe(plan, cases), json)
        return 0
    check_folder("--out", out)
    _check_programs(cases)
    _check_tests(cases)
    out = out.absolute()
    if any(case.hosts is None for case in cases):
        from leadline.lab import jail

        # From here on, this is the first process of the lab's namespaces; see docs/decisions/0001-lab-jail.md.
        jail.enter(plan.name)
    return _run(plan, cases, out, json=json, verbose=verbose)


def with_tolerance(overrides: Sequence[str] | None, tolerate: str | None) -> list[str]:
    """The plan's overrides, with that of `--tolerate`."""
    return [*(overrides or ()), *(() if tolerate is None else (f"tolerate={tolerate}",))]


def _run(plan: Plan, cases: Sequence[Case], out: Path, *, json: bool, verbose: bool) -> int:
    # These import libraries that start threads, and the jail must be entered before any thread exists.
    import asyncio

    from leadline.cli.progress import Progress
    from leadline.trial import Campaign, Interrupt, conclude

    campaign = Campaign(plan, cases, out, ["leadline", *sys.argv[1:]])
    folder = campaign.prepare()

    async def measured() -> tuple[str, ...]:
        with Progress() as progress:
            wish = "stopping after cleanup; press Ctrl-C again to stop at once"
            interrupt = Interrupt(lambda: progress.note(wish), progress.stop)
            with interrupt.signals_caught():
                return await campaign.run(folder, interrupt, (progress,))

    problems = asyncio.run(measured())
    outcome = conclude(folder)
    problems = tuple(dict.fromkeys((*problems, *outcome.problems)))
    print_run(outcome, folder, json, problems, verbose=verbose)
    return run_code(outcome.analysis, problems)


class CheckedKind(Protocol):
    """The attributes of a kind of test that this module uses."""

    def check(self, test: Any) -> None:
        """Ask this host's agent whether it can run the test. Raises PlanError: it cannot."""


def _check_tests(cases: Sequence[Case]) -> None:
    """Report what only an agent refuses before anything is built; cases share most of their tests."""
    from leadline.registry import KINDS

    checked = []
    for test in (test for case in cases for test in case.tests):
        if test not in checked:
            checked.append(test)
            kind: CheckedKind = KINDS.get(test.kind)
            kind.check(test)


def _check_programs(cases: Sequence[Case]) -> None:
    """Report programs, devices and features of the kernel that are certainly missing before anything is built."""
    from leadline.agents import agent_binary
    from leadline.agents.devices import check_devices
    from leadline.agents.kernel_support import check_kernel
    from leadline.agents.programs import program_path
    from leadline.plan import needs

    agent_binary()
    for need in needs(cases):
        is_required = need.kind == "program" and need.name != "leadline-agent" and not need.optional
        if is_required and need.where is None and program_path(need.name) is None:
            how = need.install or "install it"
            raise MissingBinary(need.name, hint=f"{need.why}; {how} or choose other cases with --only")
    of_lab = [need for need in needs([case for case in cases if case.hosts is None]) if not need.optional]
    check_devices(of_lab)
    check_kernel(of_lab)
