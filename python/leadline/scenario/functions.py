"""What expressions can call, and the meaning of names, calls and methods in the native format. Pure.

A function's name here is its name in the native format; `lowering` maps it to the agent's.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from leadline.scenario.expressions import (
    Call,
    Expression,
    ExpressionError,
    Literal,
    Template,
    Variable,
    joined,
    merged,
    parse,
    split_template,
    unescaped,
)

FUNCTIONS: dict[str, tuple[int, int]] = {
    "and": (2, 2),
    "or": (2, 2),
    "not": (1, 1),
    "equal": (2, 2),
    "not_equal": (2, 2),
    "less": (2, 2),
    "less_equal": (2, 2),
    "greater": (2, 2),
    "greater_equal": (2, 2),
    "add": (2, 2),
    "subtract": (2, 2),
    "multiply": (2, 2),
    "divide": (2, 2),
    "modulo": (2, 2),
    "negate": (1, 1),
    "concat": (1, 1000),
    "if": (3, 3),
    "var": (1, 2),
    "param": (1, 2),
    "file": (1, 2),
    "random": (2, 2),
    "random_text": (1, 2),
    "uuid": (0, 0),
    "now": (0, 0),
    "now_s": (0, 0),
    "date": (1, 3),
    "user": (0, 0),
    "users": (0, 0),
    "population_iteration": (0, 0),
    "iteration": (0, 0),
    "counter": (1, 4),
    "user_counter": (1, 4),
    "first_of": (1, 1000),
    "same_text": (2, 2),
    "split_part": (3, 3),
    "find": (2, 3),
    "replace_pattern": (3, 3),
    "json_value": (2, 2),
    "abs": (1, 1),
    "min": (1, 1000),
    "max": (1, 1000),
    "round": (1, 2),
    "floor": (1, 1),
    "ceiling": (1, 1),
    "divide_whole": (2, 2),
    "random_number": (2, 2),
    "cookie": (1, 1),
    "last_body": (0, 0),
    "last_url": (0, 0),
    "last_header": (1, 1),
    "last_duration_ms": (0, 0),
    "contains": (2, 2),
    "starts_with": (2, 2),
    "ends_with": (2, 2),
    "matches": (2, 2),
    "contains_match": (2, 2),
    "equals_ignore_case": (2, 2),
    "is_empty": (1, 1),
    "is_defined": (1, 1),
    "length": (1, 1),
    "trim": (1, 1),
    "upper": (1, 1),
    "lower": (1, 1),
    "substring": (2, 3),
    "index_of": (2, 2),
    "replace": (3, 3),
    "int": (1, 1),
    "number": (1, 1),
    "text": (1, 1),
    "url_encode": (1, 1),
    "url_decode": (1, 1),
    "html_escape": (1, 1),
    "html_unescape": (1, 1),
    "base64": (1, 1),
    "base64_decode": (1, 1),
    "md5": (1, 1),
    "sha256": (1, 1),
    "any_of": (1, 1000),
    "last_ok": (0, 0),
    "last_status": (0, 0),
    "group": (0, 0),
}
"""The functions, each with its least and its greatest number of arguments."""


class Native:
    """The native format's meanings; methods are functions whose first argument is before the dot."""

    def placeholder(self, text: str) -> Expression:
        """The expression inside of the braces."""
        return expression(text)

    def name(self, name: str) -> Expression:
        """The variable of that name."""
        return Variable(name)

    def call(self, name: str, arguments: tuple[Expression, ...]) -> Expression:
        """The call of one of the functions, with as many arguments as it takes."""
        if "." in name:
            target, _, method = name.rpartition(".")
            return self.call(method, (Variable(target), *arguments))
        if name not in FUNCTIONS:
            raise ExpressionError(f"unknown function '{name}'; {near(name, FUNCTIONS)}")
        least, most = FUNCTIONS[name]
        if not least <= len(arguments) <= most:
            wanted = f"{least}" if least == most else f"{least} to {most}"
            raise ExpressionError(f"{name}() takes {wanted} arguments, not {len(arguments)}")
        if name == "var" and len(arguments) == 1 and isinstance(arguments[0], Literal):
            return Variable(str(arguments[0].value))
        return Call(name, arguments)

    def method(self, target: Expression, name: str, arguments: tuple[Expression, ...]) -> Expression:
        """The call of the function whose first argument is the target."""
        return self.call(name, (target, *arguments))

    def index(self, target: str, key: Expression) -> Expression:
        """Raises ExpressionError: the native format has no indexes."""
        raise ExpressionError(f"{target}[...] is not possible; write var('NAME')")

    def item(self, target: Expression, key: Expression) -> Expression:
        """Raises ExpressionError: the native format has no indexes."""
        raise ExpressionError("[...] is not possible; write split_part(text, separator, index)")

    def listed(self, items: tuple[Expression, ...]) -> Expression:
        """Raises ExpressionError: the native format has no lists."""
        raise ExpressionError("a list is not possible here")

    def quoted(self, text: str, quote: str) -> Expression:
        """A text, in which placeholders are expressions."""
        parts: list[str | Expression] = []
        for is_placeholder, part in split_template(text):
            parts.append(expression(part) if is_placeholder else unescaped(part))
        return joined(merged(parts) or ("",))


def expression(text: str) -> Expression:
    """The tree of a native expression. Raises ExpressionError."""
    return parse(text, _NATIVE)


def template(text: str) -> Template:
    """The parts of a native template; `$${` stands for `${`. Raises ExpressionError."""
    parts: list[str | Expression] = []
    for index, piece in enumerate(text.split("$${")):
        if index:
            parts.append("${")
        for is_placeholder, part in split_template(piece):
            parts.append(expression(part) if is_placeholder else part)
    return merged(parts)


def near(word: str, known: Iterable[str]) -> str:
    """A hint about a word that is not known."""
    found = difflib.get_close_matches(word, list(known), n=1)
    return f"did you mean '{found[0]}'?" if found else "docs/scenarios.md lists the functions"


_NATIVE = Native()
