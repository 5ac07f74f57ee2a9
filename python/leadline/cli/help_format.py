"""Formats a command's help: options grouped by panel, plain text of 80 columns, and readable names for values.

Draws only what the options declare. A value without a metavar is named by its type: N, FILE, TEXT.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup


class PanelHelpCommand(TyperCommand):
    """A command whose options may have `rich_help_panel`; options without one come last. The lines of its examples
    are kept."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        for parameter in self.params:
            if parameter.metavar is None and not getattr(parameter, "is_flag", False):
                parameter.metavar = _value_name(parameter)

    bare_values: ClassVar[Mapping[str, str]] = {}
    """Options whose value may be left out, each with the value that it then has. The parser itself has no such
    feature."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert the default value after each option that has no value. A value of such an option is always a
        condition."""
        complete = list(args)
        for place, argument in reversed(list(enumerate(args))):
            following = args[place + 1] if place + 1 < len(args) else ""
            is_condition = not following.startswith("-") and any(sign in following for sign in "<>=")
            if argument in self.bare_values and not is_condition:
                complete.insert(place + 1, self.bare_values[argument])
        if not ctx.resilient_parsing:  # as in completion, whose command line is not whole yet
            self._check_values(ctx, complete)
        parsed: list[str] = super().parse_args(ctx, complete)
        return parsed

    def _check_values(self, ctx: Any, args: list[str]) -> None:
        """Refuse an option as the value of another one, which the parser would take."""
        options = [one for one in self.params if one.param_type_name == "option"]
        flags = {flag for one in options for flag in (*one.opts, *one.secondary_opts)}
        longest = {flag: max(one.opts, key=len) for one in options for flag in one.opts if not _is_switch(one)}
        own = args[: args.index("--")] if "--" in args else args
        for argument, following in pairwise(own):
            if argument in longest and following in flags:
                text = f"its value is missing: {following} is the next option"
                raise typer.BadParameter(text, ctx=ctx, param_hint=f"'{longest[argument]}'")

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Format the arguments, then every panel in the order of its first option."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                is_argument = parameter.param_type_name == "argument"
                panel = "Arguments" if is_argument else getattr(parameter, "rich_help_panel", None) or "Options"
                # The record of an argument has its Python type after its name.
                name = str(parameter.metavar) if is_argument else record[0]
                sections.setdefault(panel, []).append((name, _plain_limits(record[1])))
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Show arguments as HOST, not {HOST}."""
        return [piece.strip("{}").replace("}...", "...") for piece in super().collect_usage_pieces(ctx)]

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Print the examples as written."""
        _write_epilog(self.epilog, formatter)


class PanelHelpGroup(TyperGroup):
    """A command that has subcommands; the lines of its examples are kept."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Print the examples as written."""
        _write_epilog(self.epilog, formatter)


def summary(text: str | None) -> str:
    """The first sentence of a command's help, for lists of commands. Without it they cut the help off."""
    first = " ".join((text or "").partition("\n\n")[0].split())
    return first.partition(". ")[0].rstrip(".") + "."


def _write_epilog(epilog: str | None, formatter: Any) -> None:
    if epilog:
        formatter.write_paragraph()
        formatter.write(epilog.rstrip() + "\n")


def _is_switch(parameter: Any) -> bool:
    return bool(getattr(parameter, "is_flag", False) or getattr(parameter, "count", False))


def _value_name(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return str(parameter.name).upper()
    kind = str(parameter.display_type(None)).strip("<>")
    if "|" in kind:
        return kind
    return next((name for word, name in _NAMES.items() if word in kind.lower()), "TEXT")


def _plain_limits(text: str) -> str:
    """`1<=x<=256` as `1 to 256`, and `x>=1` as `at least 1`."""
    text = re.sub(rf"({_NUMBER})<=x<=({_NUMBER})", r"\1 to \2", text)
    return re.sub(rf"x>=({_NUMBER})", r"at least \1", text)


_NUMBER = r"\d+(?:\.\d+)?"
_NAMES = {"int": "N", "float": "NUMBER", "path": "FILE"}
"""Maps a part of a Python type's name to the word that help shows."""
