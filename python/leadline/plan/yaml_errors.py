"""Explains errors in a text that is not YAML, with the line to fix.

Owns the wording for common mistakes: open brackets and quotation marks, tabs, indentation, colons. Other errors keep
the parser's own message. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError


@dataclass(frozen=True, slots=True)
class SyntaxProblem:
    """One mistake; `line` counts from 1, None if the parser gives none."""

    line: int | None
    text: str
    hint: str | None = None


def explain(error: YAMLError, text: str) -> SyntaxProblem:
    """The mistake behind a parser's error in `text`."""
    if not isinstance(error, MarkedYAMLError):
        return _unmarked(error, text)
    found, began = _line(error.problem_mark), _line(error.context_mark)
    said = f"{error.problem or error.context}"
    if "could not find expected ':'" in said:
        return SyntaxProblem(began, "a key has no ':' after it", "write 'key: value'")
    if "found unexpected end of stream" in said and "quoted scalar" in f"{error.context}":
        return SyntaxProblem(began, "a quotation mark is not closed", "close it, on this line")
    if bracket := _open_bracket(error, text):
        return _unclosed(*bracket, found, said)
    for pattern, words, hint in _WORDS:
        if match := re.search(pattern, said):
            return SyntaxProblem(found, words.format(*match.groups()), hint)
    return SyntaxProblem(found, f"not valid YAML: {_first_line(said)}")


def _unmarked(error: YAMLError, text: str) -> SyntaxProblem:
    """The reader's error about a character, without its line."""
    position = getattr(error, "position", None)
    character = getattr(error, "character", None)
    if isinstance(position, int) and character is not None:
        code = character if isinstance(character, int) else ord(str(character)[:1] or "\0")
        line = text.count("\n", 0, position) + 1
        return SyntaxProblem(line, f"a character that text cannot hold (U+{code:04X})", "remove it")
    return SyntaxProblem(None, f"not valid YAML: {_first_line(error)}")


def _open_bracket(error: MarkedYAMLError, text: str) -> tuple[str, int] | None:
    """The innermost open bracket where the parser failed, with its line; None if there is none, or if the mistake is
    another one.
    """
    said, mark = f"{error.problem}", error.problem_mark
    if mark is None or not re.search(r"expected ',' or|<stream end>|<document (start|end)>", said):
        return None
    opened: list[tuple[str, int]] = []
    try:
        for token in YAML(typ="safe", pure=True).scan(text):
            if token.start_mark.index >= mark.index:
                break
            kind = type(token).__name__
            if kind in _OPENING:
                opened.append((_OPENING[kind], token.start_mark.line + 1))
            elif kind in _CLOSING and opened:
                opened.pop()
    except YAMLError:
        pass  # the text before it counts
    return opened[-1] if opened else None


def _unclosed(bracket: str, line: int, found: int | None, said: str) -> SyntaxProblem:
    closing = {"[": "]", "{": "}"}[bracket]
    hint = f"close it with '{closing}'"
    if "<stream end>" not in said:
        hint += f" before line {found}" if found is not None and found > line else ""
        hint += ", or put ',' between its items"
    return SyntaxProblem(line, f"the '{bracket}' is not closed", hint)


def _line(mark: Any) -> int | None:
    return None if mark is None else mark.line + 1


def _first_line(words: object) -> str:
    return (str(words).strip().splitlines() or ["unreadable"])[0]


_OPENING = {"FlowSequenceStartToken": "[", "FlowMappingStartToken": "{"}
_CLOSING = frozenset({"FlowSequenceEndToken", "FlowMappingEndToken"})
_INDENTED = "the indentation fits none of the lines above"
_WORDS: tuple[tuple[str, str, str | None], ...] = (
    (r"found character '\\t'", "there is a tab, but YAML needs spaces", "indent with spaces"),
    (r"found character '(.)'", "text cannot begin with '{}'", "put the value in quotation marks"),
    (
        "mapping values are not allowed",
        "there is a ':' where a key is not possible",
        "put text that contains ': ' in quotation marks, and indent keys of one mapping alike",
    ),
    (
        "sequence entries are not allowed",
        "there is a '- ' where a list cannot begin",
        "begin the list on the next line",
    ),
    ("expected <block end>, but found '<scalar>'", "text follows a complete value", "put all of it in quotes"),
    ("expected <block end>", _INDENTED, "indent the keys of one mapping, and the items of one list, alike"),
    (r"expected the node content, but found '([\]}}])'", "'{}' closes nothing", "remove it"),
    (r"expected the node content, but found '(.)'", "a value is missing before '{}'", None),
    (r"found unknown escape character '(.)'", "'\\{}' is not an escape in double quotation marks", "use single ones"),
    (r"found undefined alias '(.*)'", "'*{}' refers to nothing", "put text that begins with '*' in quotation marks"),
    ("but found another document", "a second document begins here ('---' or '...')", "a plan is one document"),
)
"""The parser's message, and the message for the user; `{}` becomes the matched group."""
