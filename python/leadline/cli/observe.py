"""`leadline observe`: shows what a host does, live and as one document, or what a command costs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leadline import __version__
from leadline.cli import options as o
from leadline.cli.output import print_all, print_json, print_note
from leadline.cli.trailing_command import TrailingCommand, command_after_dashes
from leadline.errors import InputError

if TYPE_CHECKING:
    from leadline.analysis.host_usage import HostUsage
    from leadline.trial.observe_host import Observed, Observing

NAME = "observe"
EXAMPLE = """\
Example: leadline observe

    leadline observe --interval 2s --process nginx --soak
    leadline observe ssh://root@gateway -d 1min --json
    leadline observe -- make check
"""
_HEAD_EVERY = 20
"""Lines of intervals from one head to the next on a terminal."""
_SHORTEST_LINE = 0.1
"""The shortest time that has a line, as a share of the interval."""


class _ObserveCommand(TrailingCommand):
    example = "leadline observe -- make check"


CLASS = _ObserveCommand


def command(
    context: typer.Context,
    host: Annotated[
        str, typer.Argument(help="The host: local, or ssh://[user@]host[:port].", show_default=False)
    ] = "local",
    interval: Annotated[str, typer.Option("-i", "--interval", help="Time between lines.", metavar="TIME")] = "1s",
    duration: Annotated[
        str | None, typer.Option("-d", "--duration", help="End after this time. Default: Ctrl-C.", metavar="TIME")
    ] = None,
    pid: Annotated[list[int] | None, typer.Option("--pid", min=1, help="Process to observe; repeatable.")] = None,
    process: Annotated[
        list[str] | None,
        typer.Option("--process", help="Program whose processes to observe; repeatable.", metavar="NAME"),
    ] = None,
    soak: Annotated[
        bool, typer.Option("--soak", help="Count on each CPU what is left of it, with a thread that yields to all.")
    ] = False,
    json: o.Json = False,
) -> int:
    """Show what a host does, or what a command costs.

    CPUs, memory, interrupts, interfaces, disks, TCP and processes: one line per interval, and tables of the whole at
    the end. CPU figures in lines are percent of all CPUs. The end of the command ends it, and its exit code is passed
    on. Without a command, Ctrl-C ends it: with exit code 0, or 130 if it was to last a duration.
    """
    import asyncio

    wanted = _wanted(host, interval, duration, command_after_dashes(context))
    from dataclasses import replace

    wanted = replace(wanted, pids=pid or (), programs=process or (), soak=soak, quiet=json)
    observed = asyncio.run(_observed(wanted, json))
    if observed.soaker is not None and soak and not observed.soaker.available:
        print_note(f"the soaker takes CPU time from other programs, so that left is too high: {observed.soaker.reason}")
    if json:
        print_json(document(wanted, observed))
    else:
        _print_totals(observed)
    for name in observed.absent_programs:
        print_note(f"--process {name}: no such process was seen{' beside those of --pid' if pid else ''}")
    if observed.command is not None:
        return observed.command.status
    return 130 if observed.interrupted and wanted.duration_s is not None else 0


def _wanted(host: str, interval: str, duration: str | None, argv: list[str]) -> Observing:
    from leadline.cli import single_args
    from leadline.plan import units
    from leadline.plan.host_address import HostAddress
    from leadline.trial.observe_host import Observing

    try:
        address = HostAddress.parse(host)
    except ValueError as error:
        raise InputError(f"HOST: {error}") from None
    if duration is not None and argv:
        raise InputError("--duration: the command's end is the end", hint="leave --duration out, or the command")
    try:
        length_s = None if duration is None else units.duration_ms(duration) / 1000
    except units.UnitError as error:
        raise InputError(f"--duration: {error}") from None
    if length_s == 0:
        raise InputError("--duration: a duration must be above 0")
    return Observing(address, single_args.interval_ms(interval), length_s, tuple(argv))


async def _observed(wanted: Observing, json: bool) -> Observed:
    from leadline.report.host_usage import head_line, usage_line
    from leadline.trial import Interrupt
    from leadline.trial.observe_host import observe_host

    # A command has stdout for itself.
    out = sys.stderr if wanted.command else sys.stdout
    shown = 0

    def show(usage: HostUsage) -> None:
        nonlocal shown
        # Rates over the moment between the last line and the end would mislead; the tables contain it.
        if shown and not has_line(usage.end_s - usage.start_s, wanted.interval_ms):
            return
        if shown == 0 or (out.isatty() and shown % _HEAD_EVERY == 0):
            print(head_line(soak=wanted.soak), file=out)
        shown += 1
        print(usage_line(usage, soak=wanted.soak), file=out, flush=True)

    interrupt = Interrupt()
    with interrupt.signals_caught():
        return await observe_host(wanted, interrupt, (lambda usage: None) if json else show)


def has_line(length_s: float, interval_ms: int) -> bool:
    """Whether a time is long enough for a line of rates, beside lines of whole intervals."""
    return length_s * 1000 >= _SHORTEST_LINE * interval_ms


def _print_totals(observed: Observed) -> None:
    from leadline.analysis.host_usage import machine_cost
    from leadline.cli.terminal import Terminal
    from leadline.report.host_usage import command_cost, usage_tables

    if observed.total is None:
        return print_note("ended before the first interval")
    tables = usage_tables(observed.total)
    if observed.command is None:
        return print_all(tables)
    console = Terminal(stderr=True, width=None if sys.stderr.isatty() else 80)
    for part in (*tables, command_cost(observed.command, machine_cost(observed.total))):
        console.print(part)
    return None


def document(wanted: Observing, observed: Observed) -> dict[str, Any]:
    """The observation as `leadline.observation/1`."""
    return {
        "schema": "leadline.observation/1",
        "version": __version__,
        "build_profile": observed.build_profile,
        "host": observed.facts.model_dump(),
        "interval_ms": wanted.interval_ms,
        "soaker": None if observed.soaker is None or not wanted.soak else observed.soaker.model_dump(),
        "intervals": observed.intervals,
        "total": observed.total,
        "command": _ended(observed),
    }


def _ended(observed: Observed) -> dict[str, Any] | None:
    from leadline.analysis.host_usage import machine_cost
    from leadline.cli.output import plain

    cost, total = observed.command, observed.total
    if cost is None:
        return None
    return {**plain(cost), "machine": None if total is None else machine_cost(total)}
