"""Expressions of C as native ones. What an expression does besides having a value becomes steps before it: calls of
requests, assignments, own functions. Owns the script's variables and what is known of their texts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from leadline.scenario.expressions import Call, Expression, Literal, Variable, show, variables_in
from leadline.scenario.loadrunner.context import CannotRun, Script, Steps, made
from leadline.scenario.loadrunner.templates import fill_in, native, native_value, parts_of
from leadline.scenario.loadrunner.tokens import SourceLine

MAX_CODE = 255
"""A character of C is one byte."""
MAX_KNOWN = 400
"""Parts of a text that is known: each use of it repeats them."""


@dataclass(frozen=True, slots=True)
class Value:
    """A native expression, and what it is in C."""

    tree: Expression
    kind: str
    """int, float, text, char (a text of one character), bool, or pointer (a text, or nothing for NULL)."""


@dataclass(frozen=True, slots=True)
class Local:
    """A variable of the script: a native one, or, for a parameter of a function, the value that it was given."""

    name: str
    kind: str
    value: Value | None = None


@dataclass(slots=True)
class Names:
    """The native variables of a script, and the texts that some of them are known to have."""

    script: Script
    scopes: list[dict[str, Local]] = field(default_factory=lambda: [{}])
    first: dict[str, str] = field(default_factory=dict)
    """What each variable is when a user begins."""
    known: dict[str, Expression] = field(default_factory=dict)
    _taken: set[str] = field(default_factory=set)

    def find(self, name: str) -> Local | None:
        """The variable of a name, in the innermost scope that has it."""
        return next((scope[name] for scope in reversed(self.scopes) if name in scope), None)

    def declare(self, name: str, kind: str) -> Local:
        """A new variable in the innermost scope."""
        local = Local(self.unique(name), kind)
        self.scopes[-1][name] = local
        self.first[local.name] = "0" if kind in ("int", "float") else ""
        return local

    def unique(self, name: str) -> str:
        """A name that neither a parameter nor another variable has."""
        found, number = name, 1
        while found in self._taken or self.script.is_parameter(found):
            number += 1
            found = f"{name}_{number}"
        self._taken.add(found)
        return found

    def learn(self, name: str, tree: Expression) -> None:
        """Remember the text of a variable until it or a part of it changes."""
        self.forget(name)
        if name not in variables_in(tree) and _size(tree) <= MAX_KNOWN:
            self.known[name] = tree

    def forget(self, name: str) -> None:
        """A variable changes."""
        self.known.pop(name, None)
        for other in [other for other, tree in self.known.items() if name in variables_in(tree)]:
            del self.known[other]

    def expand(self, tree: Expression, depth: int = 0) -> Expression:
        """The value with known texts in place of variables, so that braces in them are seen."""
        if isinstance(tree, Variable) and tree.name in self.known and depth < 8:
            return self.expand(self.known[tree.name], depth + 1)
        if isinstance(tree, Call) and tree.function == "concat":
            return Call("concat", tuple(self.expand(one, depth + 1) for one in tree.arguments))
        return tree


def _size(tree: Expression) -> int:
    return 1 + sum(map(_size, tree.arguments)) if isinstance(tree, Call) else 1


class Output:
    """The steps so far, and the expressions that read parameters."""

    def __init__(self, script: Script, names: Names) -> None:
        self.script = script
        self.names = names
        self.out: Steps = []
        self.section = ""
        """The action that is read."""

    @contextmanager
    def block(self) -> Iterator[Steps]:
        """Steps of a block of their own."""
        outer, self.out = self.out, []
        try:
            yield self.out
        finally:
            self.out = outer

    def emit(self, place: SourceLine, **entries: Any) -> None:
        """Add a step."""
        self.out.append(made(place, **entries))

    def emit_if(self, place: SourceLine, condition: Expression, then: Steps, otherwise: Steps | None = None) -> None:
        """Add a choice, if one of its branches has steps."""
        if then or otherwise:
            rest = {"else": otherwise} if otherwise else {}
            self.emit(place, **{"if": show(condition), "then": then, **rest})

    def set(self, place: SourceLine, name: str, tree: Expression) -> None:
        """Give a variable a value."""
        if isinstance(tree, Literal) and tree.value is None:
            self.emit(place, set={name: None})
        else:
            self.emit(place, set={name: native_value(tree)})
        self.names.forget(name)

    def character_of_code(self, place: SourceLine, code: Expression) -> Expression:
        """The character of a code of ASCII that is computed."""
        name = self.names.unique("code")
        self.set(place, name, Call("subtract", (code, Literal(ord(_PRINTABLE[0])))))
        following = Call("add", (Variable(name), Literal(1)))
        return Call("substring", (Literal(_PRINTABLE), Variable(name), following))

    def keep_random(self, place: SourceLine, tree: Expression) -> Expression:
        """A text in which values that differ each time they are computed are variables."""
        if isinstance(tree, Call) and tree.function == "concat":
            return Call("concat", tuple(self.keep_random(place, one) for one in tree.arguments))
        if not is_changing(tree):
            return tree
        name = self.names.unique("value")
        self.set(place, name, tree)
        return Variable(name)

    def read_parameter(self, place: SourceLine, name: str) -> None:
        """Note that a parameter is read; one that changes at each occurrence changes now."""
        own = self.script.parameters.get(name)
        if own is None or name in self.script.saved:
            return
        own.is_used = True
        if own.source is not None and own.source in self.script.parameters:
            self.script.parameters[own.source].is_used = True
        if own.source is None and own.value is None:
            kind = own.section.text("Type")
            raise CannotRun(f"the parameter {name} is of type {kind}, which has no native form", place)
        if self.section == "vuser_init":
            own.is_used_before = True
        if own.renewed == "occurrence":
            if own.source is not None:
                self.emit(place, next=own.source)
            elif own.value is not None:
                self.set(place, name, own.value)

    def filled(self, place: SourceLine, tree: Expression) -> list[str | Expression]:
        """The parts of a text, with its parameters."""
        parts = parts_of(self.names.expand(tree))
        return list(fill_in(self.script, parts, lambda name: self.read_parameter(place, name)))

    def filled_text(self, place: SourceLine, text: str) -> str:
        """A text with its parameters as a native template."""
        return native(self.filled(place, Literal(text)))


def is_changing(tree: Expression) -> bool:
    """Whether a value may differ each time it is computed."""
    return isinstance(tree, Call) and (tree.function in _CHANGING or any(map(is_changing, tree.arguments)))


def truth(value: Value) -> Expression:
    """Whether a value of C is not zero and no NULL."""
    tree = value.tree
    if isinstance(tree, Literal) and not isinstance(tree.value, str):
        return Literal(bool(tree.value))
    if value.kind == "bool":
        return tree
    if value.kind == "pointer":
        return Call("is_defined", (tree,)) if isinstance(tree, Variable) else Call("not_equal", (tree, Literal(None)))
    if value.kind == "char":
        return Call("not", (Call("is_empty", (tree,)),))
    if value.kind == "text":
        return Literal(True)
    return Call("not_equal", (tree, Literal(0)))


def negate(tree: Expression) -> Expression:
    """The opposite of a condition."""
    if isinstance(tree, Literal):
        return Literal(not tree.value)
    if isinstance(tree, Call) and tree.function in _OPPOSITES:
        return Call(_OPPOSITES[tree.function], tree.arguments)
    if isinstance(tree, Call) and tree.function == "not":
        return tree.arguments[0]
    return Call("not", (tree,))


def number(value: Value) -> Expression:
    """A value as a number."""
    if value.kind == "bool":
        return Call("if", (value.tree, Literal(1), Literal(0)))
    if value.kind in ("int", "float"):
        return value.tree
    if value.kind == "char" and isinstance(value.tree, Literal):
        text = str(value.tree.value)
        return Literal(ord(text) if text else 0)
    raise CannotRun("a text is used as a number")


def character(value: Value) -> Expression:
    """A character as a text; a number is its code. Raises CannotRun."""
    if value.kind == "char":
        return value.tree
    if value.kind == "int" and isinstance(value.tree, Literal) and isinstance(value.tree.value, int):
        code = value.tree.value
        if not 0 <= code <= MAX_CODE:
            raise CannotRun(f"{code} is the code of no character")
        return Literal(chr(code) if code else "")
    raise CannotRun("a character is computed, which has no native form")


_PRINTABLE = "".join(map(chr, range(32, 127)))
"""The characters that a text may have, from the blank on."""
_CHANGING = frozenset({
    "random", "random_number", "random_text", "any_of", "uuid", "now", "now_s", "date", "counter", "user_counter",
    "last_ok", "last_status", "last_body", "last_duration_ms",
})  # fmt: skip
_OPPOSITES = {
    "equal": "not_equal", "not_equal": "equal", "less": "greater_equal", "greater_equal": "less",
    "greater": "less_equal", "less_equal": "greater",
}  # fmt: skip
