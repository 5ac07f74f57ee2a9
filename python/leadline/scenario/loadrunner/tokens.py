"""Tokens of the C files of a script: comments, directives and strings are read here. Owns `#define` of constants,
`#include` of the script's own files and conditional parts; macros with parameters are left to the parser. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

MAX_TOKENS = 400_000
_MAX_INCLUDED = 20
_MAX_REPLACED = 10


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of a file."""

    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Token:
    """A token; the text of a string or a character is its content."""

    kind: str
    """name, number, string, char, operator, bad or end."""
    text: str
    place: SourceLine


class CSyntaxError(ValueError):
    """A text that is not C as it is read here."""

    def __init__(self, why: str, place: SourceLine) -> None:
        super().__init__(why)
        self.place = place


@dataclass(slots=True)
class Preprocessor:
    """Reads files to tokens; constants and what was included hold for all files of a script."""

    find_text: Callable[[str], str | None]
    """The text of one of the script's own files; None if there is none of that name."""
    shown: Callable[[str], str] = str
    """The path of a file as the user sees it."""
    constants: dict[str, list[Token]] = field(default_factory=dict)
    macros: set[str] = field(default_factory=set)
    """Names of macros with parameters."""
    included: set[str] = field(default_factory=set)
    replaced: int = 0
    """Tokens of constants that were put in place of their names."""

    def read(self, text: str, file: str) -> list[Token]:
        """The tokens of a text, without an end. Raises CSyntaxError."""
        return _Reader(self, text, file).read()

    def include(self, name: str) -> list[Token]:
        """The tokens of one of the script's files; none if it has been read, or is LoadRunner's own."""
        key = name.replace("\\", "/").removeprefix("./").lower()
        if key in self.included or key.rpartition("/")[2] in _OWN_HEADERS:
            return []
        text = self.find_text(name)
        if text is None or len(self.included) >= _MAX_INCLUDED * 10:
            return []
        self.included.add(key)
        return self.read(text, self.shown(name))


@dataclass(slots=True)
class _Condition:
    """An `#if` that is open."""

    is_read: bool
    """Whether the part that is met now is read."""
    was_read: bool
    """Whether this part or one before it was: of an `#if` and its `#elif` and `#else`, one part is read at most."""


class _Reader:
    def __init__(self, shared: Preprocessor, text: str, file: str) -> None:
        self._shared = shared
        self._text = text.replace("\r\n", "\n").replace("\r", "\n")
        self._file = file
        self._line = 1
        self._found: list[Token] = []
        self._skipped = 0
        """Conditional parts that are left out, around here."""
        self._open: list[_Condition] = []

    def read(self) -> list[Token]:
        position, is_line_start = 0, True
        while position < len(self._text):
            if is_line_start and (match := _DIRECTIVE.match(self._text, position)) is not None:
                self._read_directive(match[1], match[2])
                self._line += match[0].count("\n")
                position = match.end()
                continue
            match = _TOKEN.match(self._text, position)
            if match is None:
                character = self._text[position]
                self._add("bad", character)
                position += 1
                is_line_start = False
                continue
            is_line_start = "\n" in match[0] if match.lastgroup == "blank" else False
            if match.lastgroup == "line":
                is_line_start = True
            if match.lastgroup not in ("blank", "line", "comment"):
                self._add(match.lastgroup or "", match[0])
            self._line += match[0].count("\n")
            position = match.end()
        return self._found

    def _add(self, kind: str, text: str) -> None:
        if self._skipped:
            return
        place = SourceLine(self._file, self._line)
        if len(self._found) >= MAX_TOKENS:
            raise CSyntaxError(f"more than {MAX_TOKENS} tokens are too many", place)
        if kind in ("string", "char"):
            text = unescape(text[1:-1])
        if kind == "name" and text in self._shared.constants:
            self._replace(text, 0, place)
            return
        self._found.append(Token(kind, text, place))

    def _replace(self, name: str, depth: int, place: SourceLine) -> None:
        """Add the tokens of a constant, in which constants are replaced too."""
        shared = self._shared
        for one in shared.constants[name]:
            # Also those of which nothing is left count: constants of constants without an end are empty.
            shared.replaced += 1
            if shared.replaced > MAX_TOKENS:
                raise CSyntaxError(f"constants that stand for more than {MAX_TOKENS} tokens are too many", place)
            if one.kind == "name" and one.text in shared.constants and one.text != name and depth < _MAX_REPLACED:
                self._replace(one.text, depth + 1, place)
            else:
                self._found.append(Token(one.kind, one.text, place))

    def _read_directive(self, name: str, rest: str) -> None:
        rest = _COMMENT.sub(lambda found: found[1] or " ", rest.replace("\\\n", " ")).strip()
        if name in ("if", "ifdef", "ifndef"):
            is_read = not self._skipped and self._holds(name, rest)
            self._open.append(_Condition(is_read, is_read))
            self._skipped += not is_read
        elif name in ("else", "elif") and self._open:
            self._switch(name == "else" or self._holds("if", rest))
        elif name == "endif" and self._open:
            self._skipped -= not self._open.pop().is_read
        elif not self._skipped:
            self._define_or_include(name, rest)

    def _switch(self, may_be_read: bool) -> None:
        """The next part of a condition."""
        condition = self._open[-1]
        if condition.is_read:
            condition.is_read = False
            self._skipped += 1
        elif self._skipped == 1 and may_be_read and not condition.was_read:
            condition.is_read = condition.was_read = True
            self._skipped -= 1

    def _holds(self, name: str, rest: str) -> bool:
        constants, macros = self._shared.constants, self._shared.macros
        if name != "if":
            return (rest.split(" ", maxsplit=1)[0] in constants or rest in macros) == (name == "ifdef")
        defined = re.sub(r"defined\s*\(?\s*(\w+)\s*\)?", lambda found: str(int(found[1] in constants)), rest)
        return defined.strip() not in ("0", "!1", "")

    def _define_or_include(self, name: str, rest: str) -> None:
        if name == "include":
            own = re.match(r'"([^"]+)"', rest)
            if own is not None:
                self._found += self._shared.include(own[1])
        elif name == "define":
            match = re.match(r"(\w+)(\()?\s*(.*)", rest, re.S)
            if match is None:
                return
            if match[2]:
                self._shared.macros.add(match[1])
            else:
                inner = _Reader(self._shared, match[3], self._file)
                inner._line = self._line
                self._shared.constants[match[1]] = inner.read()
        elif name == "undef":
            self._shared.constants.pop(rest, None)


def unescape(text: str) -> str:
    """The text that a string of C has; `\\x41` and `\\101` are characters of one byte."""
    return _ESCAPE.sub(_replace_escape, text)


def _replace_escape(found: re.Match[str]) -> str:
    code = found[1]
    if code == "\n":
        return ""
    if code[0] == "x" and len(code) > 1:
        return chr(int(code[1:], 16))
    if code[0] in "01234567":
        return chr(int(code, 8) & 0xFF)
    return _ESCAPES.get(code, code)


_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|.|\n)", re.S)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", "v": "\v", "a": "\a"}
_COMMENT = re.compile(r"(\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*')|//[^\n]*|/\*.*?\*/", re.S)
"""A comment, or a string, in which there is none."""
_DIRECTIVE = re.compile(r"[ \t]*#[ \t]*(\w+)((?:\\\n|/\*.*?\*/|[^\n])*)(?:\n|\Z)", re.S)
_TOKEN = re.compile(
    r"(?P<line>\\?\n)|(?P<blank>[ \t\f\v\ufeff\xa0]+)"
    r"|(?P<comment>//[^\n]*|/\*.*?(?:\*/|\Z))"
    r"|(?P<string>\"(?:\\.|\\\n|[^\"\\\n])*\")"
    r"|(?P<char>'(?:\\.[^']{0,3}|[^'\\\n])')"
    r"|(?P<number>0[xX][0-9a-fA-F]+[uUlL]*|\d+\.?\d*(?:[eE][+-]?\d+)?[uUlLfF]*|\.\d+[fF]?)"
    r"|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<operator><<=|>>=|\.\.\.|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|[-+*/%<>!?:.,()\[\]{};=&|~^])",
    re.S,
)
_OWN_HEADERS = frozenset({
    "lrun.h", "web_api.h", "lrw_custom_body.h", "as_web.h", "lr_mgr.h", "lrs.h", "wssoap.h", "vts2.h", "lrd.h",
})  # fmt: skip
