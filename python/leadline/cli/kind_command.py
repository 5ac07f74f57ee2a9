"""Builds the command of each kind of test from its rows of options, and runs one measurement."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol

import typer

from leadline.cli.help_format import PanelHelpCommand, summary
from leadline.cli.output import check_folder
from leadline.cli.thread_count import threads
from leadline.plan.options import Command, Option
from leadline.registry import KINDS

if TYPE_CHECKING:
    from leadline.cli.single_args import OutputOptions
    from leadline.plan import BaseTest
    from leadline.trial.workloads import LoadWorkload


class CommandedKind(Protocol):
    """The attributes of a kind of test that this module uses."""

    @property
    def name(self) -> str:
        """The command's name."""

    @property
    def model(self) -> type[BaseTest]:
        """The test's parameters."""

    @property
    def command(self) -> Command | None:
        """Its options; None if it has no command."""

    def run_command(self, values: Mapping[str, Any]) -> int:
        """Run the measurement that the options describe (by their names in code), print it, and return the exit
        code."""


def add_commands(app: typer.Typer) -> None:
    """Add the commands of all kinds to `leadline`."""
    kinds: list[CommandedKind] = [KINDS.get(name) for name in KINDS.names]
    commands = [(kind, kind.command) for kind in kinds if kind.command is not None]
    for kind, command in sorted(commands, key=lambda one: one[1].position):
        short = summary(command.summary)
        app.command(kind.name, cls=_parser(command), short_help=short, epilog=command.examples)(
            build_function(command.summary, command.options, kind.run_command)
        )


def _parser(command: Command) -> type[PanelHelpCommand]:
    bare = {option.flags[-1]: option.bare for option in command.options if option.bare is not None}
    return type("KindCommand", (PanelHelpCommand,), {"bare_values": bare}) if bare else PanelHelpCommand


def build_function(text: str, options: Iterable[Option], run: Callable[[Mapping[str, Any]], int]) -> Callable[..., int]:
    """A function with one parameter per option, which typer needs; it passes their values on by their names in code.
    `text` is the first paragraph of `--help`."""

    def call(**values: Any) -> int:
        return run(values)

    parameters = [_parameter(option) for option in options]
    call.__doc__ = text
    call.__dict__["__signature__"] = Signature(parameters, return_annotation=int)
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


def _parameter(option: Option) -> Parameter:
    of = option.type
    base = list[str] if of is list else Literal[of] if isinstance(of, tuple) else of
    shown: dict[str, Any] = {"help": option.help, "metavar": option.metavar, "rich_help_panel": option.panel}
    if not option.flags:
        declared = typer.Argument(**shown, show_default=False)
    else:
        limits: dict[str, Any] = {"min": option.least, "max": option.most}
        if option.counts_threads:
            assert option.most is not None, "the field limits the number of threads"
            limits = {"parser": threads(option.most)}
        declared = typer.Option(option.flags[0], *option.flags[1:], **shown, **limits)
    annotation: Any = base if option.required or option.default is not None else base | None
    return Parameter(
        option.name,
        Parameter.POSITIONAL_OR_KEYWORD,
        default=Parameter.empty if option.required else option.default,
        annotation=Annotated[annotation, declared],
    )


def measure_with_session(kind: CommandedKind, values: Mapping[str, Any]) -> int:
    """Run one measurement against a server at `host`, or one of our own, over a control session."""
    from leadline.cli import session_args, single_args

    assert kind.command is not None, "only a kind with a command gets here"
    read = session_args.read(
        kind.name,
        kind.command,
        values,
        lambda: single_args.interval(values),
        lambda: single_args.refuse_two_documents(values),
    )
    from leadline.trial.workloads import workload

    output = single_args.OutputOptions(
        "",
        values["json"],
        values["out"],
        values["target"] or [],
        format=values.get("output_format", "text"),
        interval_ms=single_args.interval(values),
        precision=read.precision,
        verbose=values.get("verbose", False),
    )
    single_args.refuse_with_precision(output)
    with read.serving(is_document=output.is_document) as server:
        output = replace(output, target=server.host, second_tool=single_args.second_tool(read.test, server))
        return measure(read.test, workload(read.test, server), output)


def measure(test: BaseTest, load: LoadWorkload, output: OutputOptions) -> int:
    """Measure once, or until the figures are known as well as the user wants."""
    check_folder("--out", output.out)
    if output.precision is not None:
        from leadline.cli import run_repeated

        return run_repeated.run(test, load, output, output.precision)
    from leadline.cli import run_single

    return run_single.run(test, load, output)
