"""What Leadline writes where the locale's character set lacks some of its characters, as ISO-8859-1 lacks `≥`.

Owns the replacements of stdout and stderr, which keep the terminal's character set, and the character set of files,
which is UTF-8 everywhere: a run's folder must not depend on the locale of the user who made it.
"""

from __future__ import annotations

import codecs
import locale
import sys
import unicodedata
from contextlib import suppress
from io import TextIOWrapper

HANDLER = "leadline-ascii"
_REPLACEMENTS = {
    "≥": ">=",
    "≤": "<=",
    "±": "+/-",
    "≈": "~",
    "×": "x",
    "·": "-",
    "–": "-",
    "−": "-",
    "—": "-",
    "…": "...",
    "→": "->",
    "µ": "u",
    "μ": "u",
    "✓": "+",
    "✗": "x",
    "▲": "^",
    "▼": "v",
    "▶": ">",
    "◆": "*",
    "◐": "o",
    "•": "*",
}
_BLOCKS = range(0x2580, 0x25A0)
"""Block elements, of which bars consist."""


def prepare_encodings() -> None:
    """Let no text fail for the locale: stdout and stderr replace what they cannot encode, and files are UTF-8."""
    codecs.register_error(HANDLER, _replace)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors=HANDLER)
    if codecs.lookup(locale.getencoding()).name != "utf-8":
        with suppress(locale.Error):  # then files are as the locale says
            locale.setlocale(locale.LC_CTYPE, "C.UTF-8")


def _replace(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    with suppress(UnicodeEncodeError):
        # A file's name that is no text of this character set is printed as the bytes that it consists of.
        return text.encode("ascii", "surrogateescape"), error.end
    return "".join(map(_ascii, text)), error.end


def _ascii(character: str) -> str:
    if (found := _REPLACEMENTS.get(character)) is not None:
        return found
    if ord(character) in _BLOCKS:
        return "#"
    return unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode("ascii") or "?"
