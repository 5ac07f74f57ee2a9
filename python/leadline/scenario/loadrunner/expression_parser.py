"""Parses expressions of C by precedence. Statements are in `parser`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from leadline.scenario.loadrunner import syntax as c
from leadline.scenario.loadrunner.tokens import CSyntaxError, SourceLine, Token

MAX_NESTED = 120
MAX_HEIGHT = 120
"""Operators on the longest way from a whole expression to one of its values."""
MAX_WHOLE = 2**64 - 1


class ExpressionParser:
    """A position in a list of tokens, and the expressions that begin there."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.at = 0
        self._nested = 0
        self._height = 0
        """Of the expression that was read last."""

    def kind(self, ahead: int = 0) -> str:
        """The kind of a token."""
        return self._token(ahead).kind

    def text(self, ahead: int = 0) -> str:
        """The text of a token; of a string nothing, so that it is no operator."""
        token = self._token(ahead)
        return "" if token.kind in ("string", "char") else token.text

    def place(self) -> SourceLine:
        """The place of the next token."""
        return self._token(0).place

    def _token(self, ahead: int) -> Token:
        return self.tokens[max(0, min(self.at + ahead, len(self.tokens) - 1))]

    def error(self, why: str) -> CSyntaxError:
        """An error at the next token."""
        return CSyntaxError(why, self.place())

    def take(self, text: str) -> bool:
        """Take the next token if it is this one."""
        if self.text() == text and self.kind() in ("operator", "name"):
            self.at += 1
            return True
        return False

    def need(self, text: str) -> None:
        """Take this token. Raises CSyntaxError if it is another one."""
        if not self.take(text):
            found = self.text() or ("a text" if self.kind() in ("string", "char") else "the end")
            raise self.error(f"'{text}' is missing before {found!r}")

    def count(self, text: str) -> int:
        """Take as many of these tokens as there are."""
        number = 0
        while self.take(text) or (number and self.take("const")):
            number += 1
        return number

    def take_name(self) -> str:
        """Take a name. Raises CSyntaxError if there is none."""
        if self.kind() != "name":
            raise self.error(f"a name is missing before {self.text()!r}")
        self.at += 1
        return self.text(-1)

    def is_type(self) -> bool:
        """Whether a type is next."""
        return self.kind() == "name" and self.text() in _TYPES

    def is_call(self) -> bool:
        """Whether a name and an opening bracket are next."""
        return self.kind() == "name" and self.text(1) == "(" and self.kind(1) == "operator"

    def type_of(self) -> str:
        """Take a type: int, float, char, void or another one's name."""
        words = []
        while self.is_type():
            words.append(self.text())
            self.at += 1
        for kind in ("char", "float", "double", "void"):
            if kind in words:
                return "float" if kind == "double" else kind
        named = [word for word in words if word in _NAMED_TYPES]
        return _NAMED_TYPES[named[0]] if named else "int"

    def comma(self) -> c.Expression:
        """An expression, or several with commas between them as a list."""
        place = self.place()
        found = [self.expression()]
        while self.take(","):
            found.append(self.expression())
        return found[0] if len(found) == 1 else c.ItemList(tuple(found), place)

    def initial(self) -> c.Expression:
        """The first value of a variable: an expression, or a list in braces."""
        place = self.place()
        if not self.take("{"):
            return self.expression()
        items: list[c.Expression] = []
        while not self.take("}"):
            items.append(self.initial())
            if not self.take(",") and self.text() != "}":
                raise self.error("',' is missing")
        return c.ItemList(tuple(items), place)

    def expression(self) -> c.Expression:
        """An expression with assignments, without commas. Raises CSyntaxError."""
        with self._go_deeper():
            left, height = self._read_conditional(), self._height
            operator = self.text() if self.kind() == "operator" else ""
            if operator != "=" and operator not in _COMPOUND:
                return left
            place = self.place()
            self.at += 1
            value = self.expression()
            self._put_above(height)
            if operator != "=":
                value = c.Binary(_COMPOUND[operator], left, value, place)
            return c.Assignment(left, value, place)

    @contextmanager
    def _go_deeper(self) -> Iterator[None]:
        """What is read within is a part of another expression. Raises CSyntaxError if that is so too often."""
        if self._nested >= MAX_NESTED:
            raise self.error("the expression is nested too deeply")
        self._nested += 1
        try:
            yield
        finally:
            self._nested -= 1

    def _put_above(self, *heights: int) -> None:
        """Note an operator over parts of these heights and the one that was read last. Raises CSyntaxError."""
        self._height = max((self._height, *heights)) + 1
        if self._height > MAX_HEIGHT:
            raise self.error(f"the expression has more than {MAX_HEIGHT} operators over each other; part it")

    def _read_conditional(self) -> c.Expression:
        condition, height = self._read_binary(0), self._height
        if self.text() != "?" or self.kind() != "operator":
            return condition
        place = self.place()
        self.at += 1
        then, then_height = self.expression(), self._height
        self.need(":")
        with self._go_deeper():
            otherwise = self._read_conditional()
        self._put_above(height, then_height)
        return c.Conditional(condition, then, otherwise, place)

    def _read_binary(self, lowest: int) -> c.Expression:
        left = self._read_unary()
        while self.kind() == "operator" and _RANKS.get(self.text(), -1) >= lowest:
            place, operator = self.place(), self.text()
            self.at += 1
            height = self._height
            left = c.Binary(operator, left, self._read_binary(_RANKS[operator] + 1), place)
            self._put_above(height)
        return left

    def _read_unary(self) -> c.Expression:
        place, operator = self.place(), self.text() if self.kind() == "operator" else ""
        if operator in ("++", "--"):
            self.at += 1
            return c.Step(self._read_operand(), 1 if operator == "++" else -1, True, place)
        if operator in ("-", "+", "!", "~", "*", "&"):
            self.at += 1
            return c.Unary(operator, self._read_operand(), place)
        if operator == "(" and self.kind(1) == "name" and self.text(1) in _TYPES:
            self.at += 1
            kind, stars = self.type_of(), self.count("*")
            self.need(")")
            return c.Cast(f"{kind} *" if stars else kind, self._read_operand(), place)
        return self._read_postfix(self._read_atom())

    def _read_operand(self) -> c.Expression:
        """What follows an operator with one operand."""
        with self._go_deeper():
            found = self._read_unary()
        self._put_above()
        return found

    def _read_postfix(self, value: c.Expression) -> c.Expression:
        while self.kind() == "operator":
            place = self.place()
            if self.take("["):
                height = self._height
                index = self.expression()
                self.need("]")
                self._put_above(height)
                value = c.Item(value, index, place)
            elif self.text() in ("++", "--"):
                self.at += 1
                self._put_above()
                value = c.Step(value, 1 if self.text(-1) == "++" else -1, False, place)
            elif self.text() in (".", "->"):
                raise self.error("structures have no native form")
            else:
                break
        return value

    def _read_atom(self) -> c.Expression:
        place, kind = self.place(), self.kind()
        self._height = 0
        if kind == "string":
            parts = []
            while self.kind() == "string":
                parts.append(self._token(0).text)
                self.at += 1
            return c.Text("".join(parts), place)
        if kind == "char":
            self.at += 1
            text = self._token(-1).text
            if len(text) > 1:
                raise CSyntaxError(f"{text!r} is more than one character", place)
            return c.Character(text, place)
        if kind == "number":
            self.at += 1
            return c.Number(_read_number(self.text(-1), place), place)
        if kind == "name":
            return self._read_named(place)
        if self.take("("):
            inner = self.comma()
            self.need(")")
            return inner
        raise self.error(f"a value is missing before {self.text()!r}")

    def _read_named(self, place: SourceLine) -> c.Expression:
        name = self.take_name()
        if name == "sizeof":
            return self._read_size(place)
        if not self.take("("):
            return c.Name(name, place)
        arguments: list[c.Expression] = []
        height = 0
        while not self.take(")"):
            arguments.append(self.expression())
            height = max(height, self._height)
            if not self.take(",") and self.text() != ")":
                found = self.text() or "a text"
                raise self.error(f"',' is missing before {found!r} in {name}(...)")
        self._put_above(height)
        return c.FunctionCall(name, tuple(arguments), place)

    def _read_size(self, place: SourceLine) -> c.Expression:
        if self.take("("):
            if self.is_type():
                self.type_of()
                self.count("*")
                self.need(")")
                return c.Number(1, place)
            inner = self.expression()
            self.need(")")
            return c.FunctionCall("sizeof", (inner,), place)
        return c.FunctionCall("sizeof", (self._read_operand(),), place)


def _read_number(text: str, place: SourceLine) -> int | float:
    """The number that a token is. Raises CSyntaxError."""
    match = _NUMBER.fullmatch(text.lower())
    shown = text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
    if match is None:
        raise CSyntaxError(f"'{shown}' is no number", place)
    digits, fraction = match["hex"] or match["whole"] or "", match["float"]
    if len(digits.lstrip("0")) <= MAX_SHOWN and fraction is None:
        is_octal = match["hex"] is None and digits[0] == "0" and not set(digits) & {"8", "9"}
        whole = int(digits, 16 if match["hex"] else 8 if is_octal else 10)
        if whole <= MAX_WHOLE:
            return whole
    elif fraction is not None and (found := float(fraction)) < float("inf"):
        return found
    raise CSyntaxError(f"the number {shown} is too large", place)


MAX_SHOWN = 30
"""Characters of a number in a message; a number of 64 bits has fewer, also in octal."""
_NUMBER = re.compile(r"0x(?P<hex>[0-9a-f]+)[ul]*|(?P<whole>\d+)[ul]*|(?P<float>(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)[fl]?")
_RANKS = {
    "||": 1, "&&": 2, "|": 3, "^": 4, "&": 5, "==": 6, "!=": 6, "<": 7, ">": 7, "<=": 7, ">=": 7, "<<": 8, ">>": 8,
    "+": 9, "-": 9, "*": 10, "/": 10, "%": 10,
}  # fmt: skip
_COMPOUND = {"+=": "+", "-=": "-", "*=": "*", "/=": "/", "%=": "%", "|=": "|", "&=": "&", "^=": "^"}
_NAMED_TYPES = {
    "FILE": "file", "size_t": "int", "time_t": "int", "BOOL": "int", "bool": "int", "DWORD": "int", "LPCSTR": "text",
    "LPSTR": "text", "VTCERR": "int", "PVCI2": "int", "PVCI": "int", "merc_timer_handle_t": "timer", "uint": "int",
    "WORD": "int", "__int64": "int",
}  # fmt: skip
_TYPES = frozenset({
    "int", "char", "long", "short", "unsigned", "signed", "float", "double", "void", "const", "static", "extern",
    "register", "volatile", "typeof", *_NAMED_TYPES,
})  # fmt: skip
