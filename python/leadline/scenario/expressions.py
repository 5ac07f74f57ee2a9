"""Expressions and templates: `${user}`, `${random(1, 10)}`, `count < 3 && name == 'x'`. Their trees, parser and text.

One grammar of operators, literals, calls and methods serves the native format and the scripts of other tools; a
`Dialect` gives names, calls and methods their meaning. `functions` lists what can be called. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

Value = str | int | float | bool | None


class ExpressionError(ValueError):
    """A text that is no expression or template; the message is for the user."""


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant."""

    value: Value


@dataclass(frozen=True, slots=True)
class Variable:
    """The value of a variable of the user."""

    name: str


@dataclass(frozen=True, slots=True)
class Call:
    """An operator or a function, by its name in `functions`."""

    function: str
    arguments: tuple[Expression, ...] = ()


Expression = Literal | Variable | Call
Template = tuple[str | Expression, ...]
"""Texts and expressions in turn; constants are texts."""


class Dialect(Protocol):
    """What names, calls and methods of a language mean. Each raises ExpressionError for what it lacks."""

    def placeholder(self, text: str) -> Expression:
        """`${text}`, in or outside of a string."""

    def name(self, name: str) -> Expression:
        """A bare name."""

    def call(self, name: str, arguments: tuple[Expression, ...]) -> Expression:
        """`name(arguments)`; dots in the name separate objects."""

    def method(self, target: Expression, name: str, arguments: tuple[Expression, ...]) -> Expression:
        """`target.name(arguments)`."""

    def index(self, target: str, key: Expression) -> Expression:
        """`target[key]` of a name."""

    def item(self, target: Expression, key: Expression) -> Expression:
        """`target[key]` of a value."""

    def listed(self, items: tuple[Expression, ...]) -> Expression:
        """`[a, b]`."""

    def quoted(self, text: str, quote: str) -> Expression:
        """A string, without its quotation marks."""


def parse(text: str, dialect: Dialect) -> Expression:
    """The tree of an expression. Raises ExpressionError."""
    parser = _Parser(tokens(text), dialect)
    try:
        found = parser.expression()
    except RecursionError:
        raise ExpressionError("the expression is nested too deeply") from None
    parser.end()
    return found


def split_template(text: str) -> list[tuple[bool, str]]:
    """The parts of a text with `${...}`, each with whether it is a placeholder; brackets and strings inside of a
    placeholder may contain `}`. An opening without an end is text."""
    parts: list[tuple[bool, str]] = []
    position = plain_from = unclosed = 0
    while unclosed < _MOST_UNCLOSED and (start := text.find("${", position)) >= 0:
        end = _closing(text, start + 2)
        if end is None:
            position = start + 2
            unclosed += 1
            continue
        if start > plain_from:
            parts.append((False, text[plain_from:start]))
        parts.append((True, text[start + 2 : end]))
        position = plain_from = end + 1
    if plain_from < len(text):
        parts.append((False, text[plain_from:]))
    return parts


def joined(parts: Sequence[str | Expression]) -> Expression:
    """The parts of a template as one expression."""
    trees = [Literal(part) if isinstance(part, str) else part for part in parts]
    if not trees:
        return Literal("")
    return trees[0] if len(trees) == 1 else Call("concat", tuple(trees))


def merged(parts: Sequence[str | Expression]) -> Template:
    """The template without empty texts, with neighbouring texts joined."""
    found: list[str | Expression] = []
    for one in parts:
        part = _text_of(one.value) if isinstance(one, Literal) else one
        if isinstance(part, str) and found and isinstance(found[-1], str):
            found[-1] += part
        elif part != "":
            found.append(part)
    return tuple(found)


def _text_of(value: Value) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _closing(text: str, start: int) -> int | None:
    """The position of the `}` that ends a placeholder."""
    depth, quote, position = 1, "", start
    limit = min(len(text), start + LONGEST)
    while position < limit:
        character = text[position]
        if character == "\\":
            position += 1
        elif quote:
            quote = "" if character == quote else quote
        elif character in "\"'" and _closes(text, character, position, limit):
            quote = character
        elif character == "{":
            depth += 1
        elif character == "}":
            depth -= 1
            if depth == 0:
                return position
        position += 1
    return None


def _closes(text: str, quote: str, position: int, limit: int) -> bool:
    """Whether a quotation mark has its end within the line: an apostrophe has none."""
    return text.find(quote, position + 1, limit) >= 0


# Tokens: (kind, text, position). Kinds: number, string, name, operator, placeholder, end.
Token = tuple[str, str, int]


def tokens(text: str) -> list[Token]:
    """The tokens of an expression or script. Raises ExpressionError."""
    if len(text) > LONGEST:
        raise ExpressionError(f"more than {LONGEST} characters are too long for an expression")
    found: list[Token] = []
    position = 0
    while position < len(text):
        if text.startswith("${", position):
            end = _closing(text, position + 2)
            if end is None:
                raise ExpressionError("'${' has no '}'")
            found.append(("placeholder", text[position + 2 : end], position))
            position = end + 1
            continue
        match = _TOKEN.match(text, position)
        if match is None:
            raise ExpressionError(f"{text[position]!r} is not possible here")
        if match.lastgroup != "blank":
            found.append((match.lastgroup or "", match.group(), position))
        position = match.end()
    return [*found, ("end", "", len(text))]


class _Parser:
    """Precedence climbing over the tokens."""

    def __init__(self, found: list[Token], dialect: Dialect) -> None:
        self._tokens = found
        self._at = 0
        self._dialect = dialect

    def end(self) -> None:
        kind, text, _ = self._tokens[self._at]
        if kind != "end":
            raise ExpressionError(f"{text!r} is one too many")

    def expression(self, lowest: int = 0) -> Expression:
        left = self._unary()
        while True:
            kind, text, _ = self._tokens[self._at]
            if text in ("?", "?:") and lowest == 0 and kind == "operator":
                left = self._ternary(left)
                continue
            rank, function = _BINARY.get(text, (-1, ""))
            if kind not in ("operator", "name") or rank < max(lowest, 1):
                return left
            self._at += 1
            left = Call(function, (left, self.expression(rank + 1)))

    def _ternary(self, condition: Expression) -> Expression:
        is_short = self._tokens[self._at][1] == "?:"
        self._at += 1
        if is_short or self._take(":"):
            rest = self.expression()
            # Of texts, the first one that is set and not empty.
            is_plain = isinstance(condition, Variable) or (isinstance(condition, Call) and condition.function in _PLAIN)
            return Call("first_of", (condition, rest)) if is_plain else Call("if", (condition, condition, rest))
        then = self.expression()
        self._need(":")
        return Call("if", (condition, then, self.expression()))

    def _unary(self) -> Expression:
        if self._take("!") or self._take("not"):
            return Call("not", (self._unary(),))
        if self._take("-"):
            value = self._unary()
            if isinstance(value, Literal) and isinstance(value.value, int | float):
                return Literal(-value.value)
            return Call("negate", (value,))
        if self._take("+"):
            return self._unary()
        return self._postfix(self._atom())

    def _atom(self) -> Expression:
        kind, text, _ = self._tokens[self._at]
        self._at += 1
        if kind == "number":
            return Literal(_number(text))
        if kind == "string":
            return self._dialect.quoted(text[1:-1], text[0])
        if kind == "placeholder":
            return self._dialect.placeholder(text)
        if kind == "operator" and text in ("(", "["):
            return self._in_brackets() if text == "(" else self._dialect.listed(self._arguments("]"))
        if kind == "name":
            return self._named(text)
        raise ExpressionError(f"a value is missing before {text!r}" if text else "a value is missing at the end")

    def _is_cast(self) -> bool:
        """Whether `(int)` and the like, and a value, follow."""
        (kind, name, _), (_, closing, _), following = self._tokens[self._at : self._at + 3]
        is_value = following[0] in ("number", "string", "name", "placeholder") or following[1] == "("
        return kind == "name" and name in _CASTS and closing == ")" and is_value

    def _in_brackets(self) -> Expression:
        """A value in brackets, or one after a cast."""
        if self._is_cast():
            name = self._tokens[self._at][1]
            self._at += 2
            return self._dialect.method(self._unary(), f"as {name}", ())
        inner = self.expression()
        self._need(")")
        return inner

    def _named(self, name: str) -> Expression:
        if name in _CONSTANTS:
            return Literal(_CONSTANTS[name])
        if name == "new" and self._tokens[self._at][0] == "name":
            name = f"new {self._tokens[self._at][1]}"
            self._at += 1
        while self._tokens[self._at][1] == "." and self._tokens[self._at + 1][0] == "name":
            name += "." + self._tokens[self._at + 1][1]
            self._at += 2
        if self._take("("):
            return self._dialect.call(name, self._arguments())
        if self._take("["):
            key = self.expression()
            self._need("]")
            return self._dialect.index(name, key)
        return self._dialect.name(name)

    def _postfix(self, value: Expression) -> Expression:
        while True:
            if self._tokens[self._at][1] in (".", "?.") and self._tokens[self._at + 1][0] == "name":
                name = self._tokens[self._at + 1][1]
                self._at += 2
                value = self._dialect.method(value, name, self._arguments() if self._take("(") else ())
            elif self._tokens[self._at][1] == "as" and self._tokens[self._at + 1][0] == "name":
                name = self._tokens[self._at + 1][1]
                self._at += 2
                value = self._dialect.method(value, f"as {name}", ())
            elif self._tokens[self._at][1] == "[" and self._take("["):
                key = self.expression()
                self._need("]")
                value = self._dialect.item(value, key)
            else:
                return value

    def _arguments(self, end: str = ")") -> tuple[Expression, ...]:
        found: list[Expression] = []
        if self._take(end):
            return ()
        while True:
            found.append(self.expression())
            if self._take(end):
                return tuple(found)
            self._need(",")

    def _take(self, text: str) -> bool:
        kind, found, _ = self._tokens[self._at]
        if found == text and kind in ("operator", "name"):
            self._at += 1
            return True
        return False

    def _need(self, text: str) -> None:
        if not self._take(text):
            found = self._tokens[self._at][1]
            raise ExpressionError(f"{text!r} is missing" + (f" before {found!r}" if found else " at the end"))


def _number(text: str) -> int | float:
    if len(text) > LONGEST_NUMBER:
        raise ExpressionError(f"a number of {len(text)} characters is too long")
    if text[:2].lower() == "0x":
        return int(text.rstrip("LlGg"), 16)
    text = text.rstrip("LlGgFfDd")
    return int(text) if text.isdecimal() else float(text)


def unescaped(text: str) -> str:
    """The text of a string's inside."""
    return re.sub(r"\\(u[0-9a-fA-F]{4}|.)", lambda found: _escape(found[1]), text, flags=re.S)


def _escape(code: str) -> str:
    if len(code) > 1:
        character = chr(int(code[1:], 16))
        return "?" if "\ud800" <= character <= "\udfff" else character
    return _ESCAPES.get(code, code)


def show(tree: Expression, lowest: int = 0, name: Callable[[str], str] | None = None) -> str:
    """An expression as the native format writes it."""
    if isinstance(tree, Literal):
        return _shown(tree.value)
    if isinstance(tree, Variable):
        return tree.name if NAME.fullmatch(tree.name) and tree.name not in _WORDS else f"var({_shown(tree.name)})"
    symbol = _SYMBOLS.get(tree.function)
    if symbol is not None and len(tree.arguments) == 2:
        rank = _BINARY[symbol][0]
        text = f"{show(tree.arguments[0], rank)} {symbol} {show(tree.arguments[1], rank + 1)}"
        return f"({text})" if rank < lowest else text
    if tree.function in ("not", "negate"):
        return {"not": "!", "negate": "-"}[tree.function] + show(tree.arguments[0], _HIGHEST)
    if tree.function == "if" and len(tree.arguments) == 3:
        condition, then, otherwise = tree.arguments
        text = f"{show(condition, 1)} ? {show(then, 1)} : {show(otherwise, 0)}"
        return f"({text})" if lowest > 0 else text
    return f"{tree.function}({', '.join(show(argument) for argument in tree.arguments)})"


def show_template(parts: Template) -> str:
    """A template as the native format writes it."""
    return "".join(part.replace("${", "$${") if isinstance(part, str) else f"${{{show(part)}}}" for part in parts)


def _shown(value: Value) -> str:
    if isinstance(value, str):
        body = value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r")
        body = body.replace("\t", "\\t").replace("${", "$\\{")
        return f"'{body}'"
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else f"{value}"


def variables_in(tree: Expression) -> set[str]:
    """The names of all variables in a tree."""
    if isinstance(tree, Variable):
        return {tree.name}
    return set().union(*(variables_in(argument) for argument in tree.arguments)) if isinstance(tree, Call) else set()


LONGEST = 20_000
LONGEST_NUMBER = 300
"""Characters of an expression or a script at most."""
_MOST_UNCLOSED = 64
NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_TOKEN = re.compile(
    r"(?P<blank>\s+|//[^\n]*|/\*.*?\*/)"
    r"|(?P<number>0[xX][0-9a-fA-F]+[LlGg]?|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?[LlGgFfDd]?)"
    r"|(?P<string>\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*')"
    r"|(?P<name>[A-Za-z_$][\w$]*)"
    r"|(?P<operator>===|!==|==~|=~|==|!=|<=|>=|&&|\|\||\?\.|\?:|\+\+|--|\+=|-=|[-+*/%<>!?:.,()\[\]{};=])",
    re.S | re.ASCII,
)
_BINARY = {
    "||": (1, "or"), "or": (1, "or"), "&&": (2, "and"), "and": (2, "and"),
    "==": (3, "equal"), "!=": (3, "not_equal"), "===": (3, "equal"), "!==": (3, "not_equal"),
    "eq": (3, "equal"), "ne": (3, "not_equal"), "=~": (3, "contains_match"), "==~": (3, "matches"),
    "<": (4, "less"), "<=": (4, "less_equal"), ">": (4, "greater"), ">=": (4, "greater_equal"),
    "lt": (4, "less"), "le": (4, "less_equal"), "gt": (4, "greater"), "ge": (4, "greater_equal"),
    "+": (5, "add"), "-": (5, "subtract"), "*": (6, "multiply"), "/": (6, "divide"), "%": (6, "modulo"),
}  # fmt: skip
_HIGHEST = 7
_SYMBOLS = {
    "or": "||", "and": "&&", "equal": "==", "not_equal": "!=", "less": "<", "less_equal": "<=", "greater": ">",
    "greater_equal": ">=", "add": "+", "subtract": "-", "multiply": "*", "divide": "/", "modulo": "%",
}  # fmt: skip
_CONSTANTS: dict[str, Value] = {"true": True, "false": False, "null": None}
_CASTS = frozenset({"int", "long", "float", "double", "Integer", "Long", "Float", "Double", "String"})
_PLAIN = frozenset({"var", "param", "first_of", "last_header", "json_value"})
_WORDS = frozenset({"true", "false", "null", "and", "or", "not", "eq", "ne", "lt", "le", "gt", "ge", "as"})
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", "0": "\0"}
