"""Finds a text of too many values without parsing it, which takes some 50 µs for each value.

Counts the keys at the starts of lines, so the count of a valid text is never more than the parser's. Stops at a
quotation that its line may not close, since what follows may be text. Pure.
"""

from __future__ import annotations

import re

_KEY = re.compile(r"""((?:-[ ]+)*)(?:[\w.-]+|"[^"\\]*"|'[^']*')[ ]*:(?:[ ]|$)""")
_BLOCK_OF_TEXT = re.compile(r"[|>][-+0-9]*\s*(?:#.*)?$")


def line_of_excess(text: str, most: int) -> int | None:
    """The line at which `text` has more than `most` keys and values for certain; None if it may have fewer."""
    found, text_below = 0, None
    for number, line in enumerate(text.split("\n"), 1):
        content = line.lstrip()
        indent = len(line) - len(content)
        if not content or content.startswith("#") or (text_below is not None and indent > text_below):
            continue
        if line.count("'") % 2 or line.count('"') % 2 or ("\\" in line and '"' in line):
            return None
        key = _KEY.match(content)
        if key is not None:
            found += 2 + key[1].count("-")
            if found > most:
                return number
        text_below = indent if _BLOCK_OF_TEXT.search(content) else None
    return None
