"""Parses the C of a script: functions, declarations, statements. A statement that is not understood becomes
`Unread` with its place, and parsing goes on after it. Pure."""

from __future__ import annotations

from leadline.scenario.loadrunner import syntax as c
from leadline.scenario.loadrunner.expression_parser import ExpressionParser
from leadline.scenario.loadrunner.tokens import CSyntaxError, SourceLine, Token

MAX_DEPTH = 60


def parse(tokens: list[Token], file: str) -> c.Unit:
    """The functions and declarations of a file's tokens."""
    end = tokens[-1].place if tokens else SourceLine(file, 1)
    return _Parser([*tokens, Token("end", "", end)]).unit()


class _Parser(ExpressionParser):
    """Statements and declarations over the expressions."""

    depth = 0

    def unit(self) -> c.Unit:
        """All that a file declares."""
        functions: list[c.Function] = []
        found: list[c.Statement] = []
        while self.kind() != "end":
            start = self.at
            try:
                one = self._read_external()
            except (CSyntaxError, RecursionError) as error:
                found.append(self._skip_unread(error, start, is_outside=True))
                continue
            if isinstance(one, c.Function):
                functions.append(one)
            elif one is not None:
                found.append(one)
        return c.Unit(tuple(functions), tuple(found))

    def _read_external(self) -> c.Function | c.Statement | None:
        """A function, a declaration, or None for a prototype and an empty statement."""
        place = self.place()
        if self.take(";"):
            return None
        start = self.at
        kind = self.type_of() if self.is_type() else "int" if self.is_call() else None
        if kind is None:
            raise self.error(f"'{self.text()}' is no declaration")
        stars = self.count("*")
        if self.kind() == "name" and self.text(1) == "(":
            name = self.text()
            self.at += 2
            parameters = self._read_parameters()
            if self.take(";"):
                return None
            if self.text() == "{":
                return c.Function(_value_kind(kind, stars), name, parameters, self._read_block(), place)
            raise self.error(f"'{{' is missing after {name}(...)")
        self.at = start
        if kind == "int" and not self.is_type():
            raise self.error(f"'{self.text()}' is no declaration")
        return self._read_declarations()

    def _read_parameters(self) -> tuple[tuple[str, str], ...]:
        found: list[tuple[str, str]] = []
        while not self.take(")"):
            if self.kind() == "end":
                raise self.error("')' is missing")
            if self.take(",") or self.take("..."):
                continue
            if self.text() == "void" and self.text(1) == ")":
                self.at += 1
                continue
            start = self.at
            kind = self.type_of() if self.is_type() else "int"
            stars = self.count("*")
            name = self.text() if self.kind() == "name" else ""
            self.at += bool(name)
            if self.at == start:
                raise self.error(f"'{self.text()}' is no parameter")
            while self.take("["):
                stars += 1
                if not self.take("]"):
                    self.expression()
                    self.need("]")
            found.append((_value_kind(kind, stars), name))
        return tuple(found)

    def _read_block(self) -> c.Block:
        place = self.place()
        self.need("{")
        found: list[c.Statement] = []
        while not self.take("}"):
            if self.kind() == "end":
                found.append(c.Unread("'}' is missing", self.place()))
                break
            found.append(self._read_statement())
        return c.Block(tuple(found), place)

    def _read_statement(self) -> c.Statement:
        start = self.at
        self.depth += 1
        try:
            if self.depth > MAX_DEPTH:
                raise self.error("statements are nested too deeply")
            return self._read_one()
        except CSyntaxError as error:
            return self._skip_unread(error, start, is_outside=False)
        finally:
            self.depth -= 1

    def _skip_unread(self, error: Exception, start: int, *, is_outside: bool) -> c.Unread:
        """A statement that is not understood; skips to its end."""
        place = error.place if isinstance(error, CSyntaxError) else self.tokens[start].place
        why = str(error) if isinstance(error, CSyntaxError) else "it is nested too deeply"
        self.at = start
        depth = 0
        while self.kind() != "end":
            text = self.text() if self.kind() == "operator" else ""
            if text == "}" and depth == 0:
                if is_outside or self.at == start:
                    self.at += 1
                break
            depth += {"{": 1, "(": 1, "[": 1, "}": -1, ")": -1, "]": -1}.get(text, 0)
            depth = max(depth, 0)
            self.at += 1
            if depth == 0 and (text == ";" or (text == "}" and self.text() not in ("else", ";", "while"))):
                break
        return c.Unread(why, place)

    def _read_one(self) -> c.Statement:
        place, word = self.place(), self.text() if self.kind() in ("name", "operator") else ""
        if word == "{":
            return self._read_block()
        if self.take(";"):
            return c.Block((), place)
        if word in _STATEMENTS and self.kind() == "name":
            self.at += 1
            return _STATEMENTS[word](self, place)
        if self.kind() == "name" and self.text(1) == ":" and self.kind(1) == "operator":
            raise self.error(f"the label '{word}' has no native form")
        if self.is_type() and not self.is_call():
            return self._read_declarations()
        value = self.expression()
        self.need(";")
        return c.Evaluation(value, place)

    def _read_declarations(self) -> c.Statement:
        place = self.place()
        kind = self.type_of()
        found: list[c.Statement] = []
        while True:
            found.append(self._read_declarator(kind))
            if self.take(";"):
                break
            self.need(",")
        return found[0] if len(found) == 1 else c.Block(tuple(found), place)

    def _read_declarator(self, kind: str) -> c.Declaration:
        place = self.place()
        stars = self.count("*")
        name = self.take_name()
        dimensions = 0
        while self.take("["):
            dimensions += 1
            if not self.take("]"):
                self.expression()
                self.need("]")
        if self.take("("):  # the prototype of a function of the library
            self._read_parameters()
            return c.Declaration("prototype", name, False, None, place)
        value = self.initial() if self.take("=") else None
        is_buffer = kind == "char" and stars == 0 and dimensions == 1
        is_array = dimensions > 0 and not is_buffer
        pointers = stars + (1 if is_buffer or (kind == "char" and dimensions > 1) else 0)
        return c.Declaration(_value_kind(kind, pointers), name, is_array, value, place)

    def read_if(self, place: SourceLine) -> c.Statement:
        """`if` and its branches."""
        self.need("(")
        condition = self.expression()
        self.need(")")
        then = self._read_statement()
        otherwise = self._read_statement() if self.take("else") else None
        return c.If(condition, then, otherwise, place)

    def read_while(self, place: SourceLine) -> c.Statement:
        """`while`."""
        self.need("(")
        condition = self.expression()
        self.need(")")
        return c.Loop(condition, self._read_statement(), None, False, place)

    def read_do(self, place: SourceLine) -> c.Statement:
        """`do ... while`."""
        body = self._read_statement()
        self.need("while")
        self.need("(")
        condition = self.expression()
        self.need(")")
        self.take(";")
        return c.Loop(condition, body, None, True, place)

    def read_for(self, place: SourceLine) -> c.Statement:
        """`for`: what it begins with stands before the loop."""
        self.need("(")
        start: list[c.Statement] = []
        if not self.take(";"):
            if self.is_type() and not self.is_call():
                start.append(self._read_declarations())
            else:
                start.append(c.Evaluation(self.comma(), place))
                self.need(";")
        condition = None if self.text() == ";" else self.expression()
        self.need(";")
        following = None if self.text() == ")" else self.comma()
        self.need(")")
        loop = c.Loop(condition, self._read_statement(), following, False, place)
        return c.Block((*start, loop), place) if start else loop

    def read_switch(self, place: SourceLine) -> c.Statement:
        """`switch` and its cases."""
        self.need("(")
        value = self.expression()
        self.need(")")
        self.need("{")
        cases: list[tuple[list[c.Expression], list[c.Statement]]] = []
        while not self.take("}"):
            if self.kind() == "end":
                raise self.error("'}' is missing")
            if self.text() in ("case", "default") and self.kind() == "name":
                is_case = self.take("case")
                values = [self.expression()] if is_case else []
                if not is_case:
                    self.need("default")
                self.need(":")
                if cases and not cases[-1][1] and cases[-1][0] and values:
                    cases[-1][0].extend(values)
                else:
                    cases.append((values, []))
            elif cases:
                cases[-1][1].append(self._read_statement())
            else:
                raise self.error("a statement before the first case")
        return c.Switch(value, tuple((tuple(values), tuple(body)) for values, body in cases), place)

    def read_jump(self, place: SourceLine) -> c.Statement:
        """`break`, `continue` or `return`."""
        word = self.text(-1)
        value = None if word != "return" or self.text() == ";" else self.expression()
        self.need(";")
        return c.Jump(word, value, place)

    def refuse(self, place: SourceLine) -> c.Statement:
        """Raises CSyntaxError: the statement has no native form."""
        raise CSyntaxError(f"'{self.text(-1)}' has no native form", place)


def _value_kind(kind: str, stars: int) -> str:
    if kind == "char" and stars:
        return "text" if stars == 1 else "texts"
    if stars:
        return "pointer" if kind == "void" else f"{kind} *"
    return kind


_STATEMENTS = {
    "if": _Parser.read_if,
    "while": _Parser.read_while,
    "do": _Parser.read_do,
    "for": _Parser.read_for,
    "switch": _Parser.read_switch,
    "break": _Parser.read_jump,
    "continue": _Parser.read_jump,
    "return": _Parser.read_jump,
    "goto": _Parser.refuse,
    "struct": _Parser.refuse,
    "union": _Parser.refuse,
    "enum": _Parser.refuse,
    "typedef": _Parser.refuse,
}
