"""Help of a command with many options: grouped by their panels, as plain text of 80 columns.

Only draws what the options say of themselves. Other commands have few, and typer's own help.
"""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand


class Grouped(TyperCommand):
    """A command whose options have `rich_help_panel`; what has none comes last. Its examples keep their lines."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments, then every panel in the order of its first option."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                is_argument = parameter.param_type_name == "argument"
                panel = "Arguments" if is_argument else getattr(parameter, "rich_help_panel", None) or "Options"
                sections.setdefault(panel, []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """As it is written."""
        if self.epilog:
            formatter.write_paragraph()
            formatter.write(self.epilog.rstrip() + "\n")
