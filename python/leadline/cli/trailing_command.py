"""The parser of commands whose words after `--` are a command of their own: `leadline observe -- make check`."""

from __future__ import annotations

from typing import Any, ClassVar

from leadline.cli.help_format import PanelHelpCommand
from leadline.errors import InputError

_KEY = "leadline.trailing_command"


class TrailingCommand(PanelHelpCommand):
    """A command whose words after `--` are a command of their own."""

    example: ClassVar[str]
    """A whole line, for the message about a missing command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Set the words after the first `--` aside."""
        place = args.index("--") if "--" in args else len(args)
        ctx.meta[_KEY] = args[place + 1 :]
        if place < len(args) and not ctx.meta[_KEY] and not ctx.resilient_parsing:  # as in completion
            raise InputError("there is no command after --", hint=f"as in {self.example}")
        parsed: list[str] = super().parse_args(ctx, args[:place])
        return parsed

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Show that a command may follow."""
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND ...]"]


def command_after_dashes(context: Any) -> list[str]:
    """The words after `--`; none without it."""
    words: list[str] = context.meta[_KEY]
    return words
