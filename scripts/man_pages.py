"""Writes a man page for `leadline` and one for each of its commands, from what the commands say of themselves.

    scripts/man_pages.py FOLDER     makes FOLDER/man1/leadline.1, FOLDER/man1/leadline-run.1, ...

The source is the same as that of `--help` and of docs/reference/commands.md: nothing is written here by hand but the
frame of a page.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import typer

from leadline import __version__
from leadline.cli.app import app, main

EXIT_CODES = re.compile(r"(\d+) ([^,]+)(?:, |\.)")


def pages() -> dict[str, str]:
    """Each page's file name, and its text in roff. A subcommand has a page of its own."""
    group = typer.main.get_command(app)
    root = group.make_context("leadline", [], resilient_parsing=True)
    commands = {name: group.commands[name] for name in group.list_commands(root)}  # type: ignore[attr-defined]
    found = {"leadline.1": _page("leadline", group, root, list(_command_list(commands)))}
    for name, command in commands.items():
        context = command.make_context(name, [], parent=root, resilient_parsing=True)
        below = getattr(command, "commands", {})
        found[f"leadline-{name}.1"] = _page(f"leadline {name}", command, context, list(_command_list(below)))
        for word, part in below.items():
            own = part.make_context(word, [], parent=context, resilient_parsing=True)
            found[f"leadline-{name}-{word}.1"] = _page(f"leadline {name} {word}", part, own, [])
    return found


def _page(name: str, command: Any, context: Any, commands: list[str]) -> str:
    text = inspect.cleandoc(command.help or "")
    first, _, rest = text.partition("\n\n")
    summary = " ".join(first.split())
    usage = " ".join(command.collect_usage_pieces(context))
    title = name.replace(" ", "-")
    lines = [
        f'.TH {_roff(title.upper())} 1 "" "leadline {__version__}" "Leadline"',
        ".SH NAME",
        f"{_roff(title)} \\- {_roff(summary.rstrip('.'))}",
        ".SH SYNOPSIS",
        f".B {_roff(name)}",
        _roff(usage),
        ".SH DESCRIPTION",
        *_paragraphs(summary, *rest.split("\n\n")),
        *_parameters(command, context),
        *commands,
        *_examples(command.epilog or ""),
        *([] if " " in name else [".SH EXIT STATUS", *_exit_status()]),
        ".SH SEE ALSO",
        "leadline(1)" if " " in name else "leadline\\-COMMAND(1) of each command",
    ]
    return "\n".join(lines) + "\n"


def _paragraphs(*texts: str) -> Iterator[str]:
    for number, text in enumerate(part for part in texts if part.strip()):
        if number:
            yield ".PP"
        yield _roff(" ".join(text.split()))


def _parameters(command: Any, context: Any) -> Iterator[str]:
    """Arguments first, then the options in the groups that `--help` shows."""
    sections: dict[str, list[tuple[str, str]]] = {}
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None:
            is_argument = parameter.param_type_name == "argument"
            panel = "Arguments" if is_argument else getattr(parameter, "rich_help_panel", None) or "Options"
            sections.setdefault(panel, []).append(record)
    if "Options" in sections and len(sections) > 1:
        sections["Options"] = sections.pop("Options")
    for title, records in sections.items():
        yield f".SH {title.upper()}" if title in ("Arguments", "Options") else f'.SH "{_roff(title.upper())} OPTIONS"'
        yield from _definitions(records)


def _definitions(records: Iterable[tuple[str, str]]) -> Iterator[str]:
    for term, text in records:
        yield from (".TP", f".B {_roff(term)}", _roff(" ".join(text.split())) or "\\&")


def _command_list(commands: dict[str, Any]) -> Iterator[str]:
    if not commands:
        return
    yield ".SH COMMANDS"
    texts = ((name, inspect.cleandoc(command.help or "").partition("\n\n")[0]) for name, command in commands.items())
    yield from _definitions(texts)


def _examples(epilog: str) -> Iterator[str]:
    text = epilog.strip().removeprefix("Example: ")
    if text:
        yield from (".SH EXAMPLES", ".nf", *(_roff(line.strip()) for line in text.splitlines()), ".fi")


def _exit_status() -> Iterator[str]:
    """From the docstring of the function that ends the process."""
    said = " ".join((main.__doc__ or "").partition(":")[2].split())
    yield from _definitions(EXIT_CODES.findall(said))


def _roff(text: str) -> str:
    """Plain text for roff: nothing of it is a request or an escape."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("`", "\\(ga")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: scripts/man_pages.py FOLDER")
    folder = Path(sys.argv[1]) / "man1"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")
