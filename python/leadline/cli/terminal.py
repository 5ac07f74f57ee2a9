"""The console that the tables go to: rich's, with a number and its unit kept on one line, and every text as it is.

Names come from plans, scenarios and servers, so rich's markup (`[red]`), emoji codes (`:smile:`) and highlighting are
off: `[login] open` is a name. What has a style is a `Text`.

Rich breaks a line at every white space, a no-break space included. So the space before a unit stands as a character
that is none while lines are broken, and is a space again in what is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

_STAND_IN = "\ue000"
"""From Unicode's private area, one cell wide; a text from elsewhere that contains it would show a space instead."""

_UNBROKEN = re.compile(
    r"(?<=\d) (?=(?:%|[nµmkMGTP]?(?:bit/s|s|B|Hz)|[kMGTP]?/s|[KMGTP]iB|min|h)(?![\w/]))|(?<=[≥>≤<±]) (?=±?\d)"
)


class Terminal(Console):
    """A console that never breaks a line between a number and its unit, and interprets no text."""

    def __init__(self, **named: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **named)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render to segments, with whole quantities."""
        if isinstance(renderable, str):
            asked = options or self.options
            renderable = self.render_str(renderable, highlight=asked.highlight, markup=asked.markup)
        if isinstance(renderable, Text) and _UNBROKEN.search(renderable.plain):
            whole = renderable.copy()
            whole.plain = _UNBROKEN.sub(_STAND_IN, renderable.plain)
            renderable = whole
        for segment in super().render(renderable, options):
            text = segment.text
            yield segment._replace(text=text.replace(_STAND_IN, " ")) if _STAND_IN in text else segment
