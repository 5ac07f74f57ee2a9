"""`leadline convert`: a scenario of another tool in the native format, with what became of each of its parts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from leadline.cli import options as o
from leadline.cli.output import print_json, print_note, write_option_file
from leadline.errors import AgentLost, InputError, MissingBinary, PlanError

if TYPE_CHECKING:
    from collections.abc import Callable

    from leadline.plan.source import Node
    from leadline.scenario.conversion import Conversion
    from leadline.scenario.formats import FormatOptions
    from leadline.scenario.lowering import LoweredScenario
    from leadline.scenario.native import ReadScenario

NAME = "convert"
EXAMPLE = "Example: leadline convert examples/shop.jmx -J host=127.0.0.1 -o shop.yaml"

_MOST_LINES = 40


def command(
    file: Annotated[
        Path,
        typer.Argument(
            help="A .jmx, a .har, a script of LoadRunner (its folder or .usr), a .lrs, or a scenario in YAML.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="File to write; default: stdout.", metavar="FILE")
    ] = None,
    properties: Annotated[
        list[str] | None,
        typer.Option("-J", "--param", help="Value of a property (JMX) or parameter; repeatable.", metavar="NAME=VALUE"),
    ] = None,
    scripts: Annotated[
        Literal["stop", "skip"],
        typer.Option(help="What a script or element that cannot run does: stop, or be left out and listed."),
    ] = "stop",
    only_host: Annotated[
        list[str] | None, typer.Option(help="HAR: requests to this host alone; repeatable.", metavar="HOST")
    ] = None,
    correlate: Annotated[bool, typer.Option(help="HAR: take values from the answers that gave them.")] = True,
    any_file: Annotated[
        bool, typer.Option("--any-file", help="Read files outside of the scenario's folder too.")
    ] = False,
    json: o.Json = False,
) -> int:
    """Convert JMX, HAR and LoadRunner files to Leadline's format.

    What was kept, what was dropped and what cannot run is listed on stderr, and in the file as comments.
    """
    from leadline.scenario.files import find_scenario, read_scenario_file, reader_below
    from leadline.scenario.formats import FormatOptions, read_scenario
    from leadline.scenario.native_writer import write_native

    options = FormatOptions(
        parameters=parameters(properties),
        skips_scripts=scripts == "skip",
        only_hosts=tuple(only_host or ()),
        correlates=correlate,
    )
    file = find_scenario(file)
    read_file = reader_below(file.parent, anywhere=any_file)
    read, conversion = read_scenario(read_scenario_file(file), str(file), options, read_file)
    check_whole(read, read_file, options, str(file))
    text = write_native(_beside(read.root, file, output), conversion)
    if output is not None:
        write_option_file("-o", output, text)
    if json:
        print_json(conversion_document(str(file), output, conversion, text))
        return 0
    if output is None:
        print(text, end="")
    if conversion is not None:
        print_conversion(conversion)
    return 0


def _beside(root: Node, file: Path, output: Path | None) -> Node:
    """The tree with the paths that its files have from the folder of the output."""
    from leadline.scenario.moved_files import has_files, move_files

    if output is None or output.parent.resolve() == file.parent.resolve() or not has_files(root):
        return root
    folder = os.path.relpath(file.parent.resolve(), output.parent.resolve())
    print_note(f"{output}: its files are in {folder}; run it with --any-file, or move them beside it")
    return move_files(root, folder.replace("\\", "/"))


def check_whole(read: ReadScenario, read_file: Callable[[str], bytes], options: FormatOptions, file: str) -> None:
    """Let the agent compile the scenario. What it refuses ends the conversion, like other parts that cannot run; with
    `--scripts skip` it is listed. A missing file or value is a note, because the conversion does not need it.
    """
    from leadline.cli.scenario_check import check_scenario
    from leadline.scenario.lowering import lower

    try:
        lowered = lower(read.scenario, read.root, read_file, options.parameters)
    except PlanError as error:
        _print_errors("not checked as a whole", error)
        return
    print_unset(lowered)
    try:
        check_scenario(lowered, file)
    except PlanError as error:
        if not options.skips_scripts:
            raise
        _print_errors("cannot-run", error)
    except (MissingBinary, AgentLost) as error:
        print_note(f"not checked as a whole: {error}")


def print_unset(lowered: LoweredScenario) -> None:
    """The placeholders that are sent as they are written, on stderr."""
    for one in lowered.unset[:_MOST_LINES]:
        place = one.file if one.line is None else f"{one.file}:{one.line}"
        print_note(f"{place}: the variable '{one.name}' is set nowhere: ${{{one.name}}} is sent as it is written")


def _print_errors(what: str, error: PlanError) -> None:
    """All mistakes of a scenario, on stderr."""
    for one in (error, *error.others)[:_MOST_LINES]:
        print_note(f"{what}: {one}")
    if len(error.others) >= _MOST_LINES:
        print_note(f"and {len(error.others) + 1 - _MOST_LINES} more")


def parameters(texts: list[str] | None) -> dict[str, str]:
    """The values of `-J`. Raises InputError."""
    found: dict[str, str] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InputError(f"-J {text}: this is not NAME=VALUE", hint="as in -J threads=10")
        found[name] = value
    return found


def print_conversion(conversion: Conversion) -> None:
    """What became of the parts, on stderr: first what differs."""
    counts = conversion.counts()
    shown = [f"{count} {name}" for name, count in counts.items() if count]
    differing = [item for item in conversion.items if item.outcome != "kept"]
    for item in differing[:_MOST_LINES]:
        print_note(f"{conversion.place(item)}: {item.outcome}: {item.what}: {item.why}")
    if len(differing) > _MOST_LINES:
        print_note(f"and {len(differing) - _MOST_LINES} more (--json prints all)")
    print_note(f"parts: {', '.join(shown) or 'none'}")


def conversion_document(file: str, output: Path | None, conversion: Conversion | None, text: str) -> dict[str, object]:
    """The document `leadline.conversion/1`."""
    return {
        "schema": "leadline.conversion/1",
        "file": file,
        "output": None if output is None else str(output),
        "parts": [] if conversion is None else conversion.items,
        "counts": {} if conversion is None else conversion.counts(),
        "scenario": text,
    }
