"""Statements of a script as steps: choices, loops, own functions, and what LoadRunner's functions of control do.

A statement without a native form is reported by its line, and left out with `--scripts skip`.
"""

from __future__ import annotations

from typing import Any

from leadline.errors import PlanError
from leadline.scenario.expressions import Literal, Variable
from leadline.scenario.loadrunner import syntax as c
from leadline.scenario.loadrunner.answers import REGISTERED, Registered
from leadline.scenario.loadrunner.context import CannotRun, Script, Steps
from leadline.scenario.loadrunner.controls import CONTROLS, LOGS, WITHOUT_EFFECT
from leadline.scenario.loadrunner.functions import ZERO
from leadline.scenario.loadrunner.jumps import NativeLoop
from leadline.scenario.loadrunner.loops import Loops
from leadline.scenario.loadrunner.searches import REQUESTS, called_functions, has_jump
from leadline.scenario.loadrunner.tokens import SourceLine
from leadline.scenario.loadrunner.transactions import READ_TRANSACTIONS, TRANSACTIONS
from leadline.scenario.loadrunner.values import Local, Names, Value
from leadline.scenario.loadrunner.web import WEB

MAX_INLINED = 30
MAX_STATEMENTS = 20_000
"""Statements that are translated, those of a function once for each call."""


class Translator(Loops):
    """Translates the actions of a script, one after another."""

    def __init__(self, script: Script) -> None:
        super().__init__(script, Names(script))
        self.opened = []
        self.depth = 0
        self.asked: set[str] = set()
        self.before_choice: Steps = []
        """Steps that a choice needs before it."""
        self.loops: list[NativeLoop] = []
        self._calls: list[str] = []
        self._results: list[Local | None] = []
        self._has_return_loop: list[bool] = []
        self._statements = 0
        self.clears_cookies = False
        self.is_last = False
        """Whether no statement of the iteration follows."""
        for function in (*script.actions.values(), *script.functions.values()):
            for call in called_functions(function.body):
                if call.name in READ_TRANSACTIONS and call.arguments and isinstance(call.arguments[0], c.Text):
                    self.asked.add(call.arguments[0].value)

    def globals(self, declarations: tuple[c.Statement, ...]) -> None:
        """Declare the variables of the whole script; their first values are known before the test begins."""
        for one in declarations:
            if isinstance(one, c.Block):
                self.globals(one.statements)
            elif isinstance(one, c.Declaration) and one.kind != "prototype":
                self._declare(one, is_global=True)

    def action(self, name: str) -> Steps:
        """The steps of an action."""
        function = self.script.actions[name]
        self.section = name
        with self.block() as steps:
            self._translate_body(function, f"{name}()", None)
            self.close_block(-1)
        return steps

    def statement(self, one: c.Statement) -> None:
        """Translate a statement; one without a native form is reported."""
        self._statements += 1
        if self._statements > MAX_STATEMENTS:
            why = f"own functions repeat more than {MAX_STATEMENTS} statements"
            raise PlanError(one.place.file, one.place.line, why, hint="use loops in place of repeated calls")
        out, opened = self.out, len(self.opened)
        count = len(out)
        try:
            _STATEMENTS[type(one)](self, one)
        except RecursionError:
            raise PlanError(one.place.file, one.place.line, "own functions and blocks are nested too deeply") from None
        except CannotRun as error:
            self.script.cannot(_title(one), error.place or one.place, str(error))
            if len(self.opened) == opened and self.out is out:
                del out[count:]
            if _title(one) in REQUESTS:
                self.registered = Registered()

    def _translate_list(self, statements: tuple[c.Statement, ...]) -> None:
        for place, one in enumerate(statements):
            before, self.is_last = self.is_last, self.is_last and place == len(statements) - 1
            self.statement(one)
            self.is_last = before
            self.close_ended()

    def _translate_unread(self, one: c.Unread) -> None:
        raise CannotRun(one.why, one.place)

    def _translate_block(self, one: c.Block) -> None:
        if all(isinstance(inner, c.Declaration) for inner in one.statements):
            self._translate_list(one.statements)  # several variables of one declaration
            return
        self.names.scopes.append({})
        self._translate_list(one.statements)
        self.names.scopes.pop()

    def _translate_evaluation(self, one: c.Evaluation) -> None:
        value = one.value
        if isinstance(value, c.Cast) and value.kind == "void":
            value = value.operand
        if isinstance(value, c.FunctionCall | c.Assignment | c.Step | c.ItemList | c.Conditional | c.Binary):
            self.evaluate(value)

    def _translate_declaration(self, one: c.Declaration) -> None:
        if one.kind != "prototype":
            self._declare(one, is_global=False)

    def _declare(self, one: c.Declaration, *, is_global: bool) -> None:
        kind = {"char": "char", "text": "text", "texts": "texts", "int": "int", "float": "float"}.get(one.kind)
        if one.kind == "char" and one.is_array:
            kind = "texts"
        elif one.is_array:
            kind = {"int": "ints", "text": "texts", "float": "ints", "texts": "texts"}.get(one.kind)
        if one.kind in ("timer", "pointer"):
            kind = "int" if one.kind == "timer" else "text"
        if kind is None:
            self.names.scopes[-1][one.name] = Local(one.name, "unknown")
            if not is_global:
                self.script.dropped(f"{one.kind} {one.name}", one.place, "it is refused where it is used")
            return
        local = self.names.declare(one.name, kind)
        if one.value is None:
            return
        if isinstance(one.value, c.ItemList) or kind in ("ints", "texts"):
            self._declare_items(local, one, is_global=is_global)
            return
        if is_global:
            value = self.evaluate(one.value)
            if isinstance(value.tree, Literal):
                self.names.first[local.name] = "" if value.tree.value is None else str(value.tree.value)
                return
            raise CannotRun("the first value of a global variable is computed", one.place)
        self.store(local, self.evaluate(one.value), one.place)

    def _declare_items(self, local: Local, one: c.Declaration, *, is_global: bool) -> None:
        items = one.value.items if isinstance(one.value, c.ItemList) else ()
        if not isinstance(one.value, c.ItemList) or local.kind not in ("ints", "texts"):
            if local.kind == "text" and items in ((), (c.Number(0, one.place),)):
                return
            if local.kind == "text" and all(isinstance(item, c.Number | c.Character) for item in items):
                return
            raise CannotRun("the first value of an array has no native form", one.place)
        for index, item in enumerate(items):
            value = self.evaluate(item)
            name = f"{local.name}_{index}"
            if isinstance(value.tree, Literal):
                self.names.first[name] = "" if value.tree.value is None else str(value.tree.value)
            else:
                self.names.first[name] = ""
                self.set(one.place, name, value.tree)

    def _translate_jump(self, one: c.Jump) -> None:
        if one.kind != "return":
            self.jump(one.kind, one.place)
            return
        self._translate_value(one)
        if self._has_return_loop[-1]:
            self.jump("return", one.place)

    def _translate_value(self, one: c.Jump) -> None:
        result = self._results[-1] if self._results else None
        if one.value is not None and result is not None:
            self.store(result, self.evaluate(one.value), one.place)
        elif isinstance(one.value, c.FunctionCall):
            self.evaluate(one.value)

    def call(self, call: c.FunctionCall) -> Value:
        """A call of any function."""
        own = self.script.functions.get(call.name) or self.script.actions.get(call.name)
        if own is not None:
            return self._inline(own, call)
        if call.name in REGISTERED:
            self.register(call)
            return ZERO
        known = self._call_known(call)
        if known is None:
            raise CannotRun(f"the function {call.name} has no native form", call.place)
        return known

    def _call_known(self, call: c.FunctionCall) -> Value | None:
        """The value of one of LoadRunner's or C's functions; None for another one."""
        if call.name in WEB:
            return self.send(call)
        if call.name in TRANSACTIONS:
            return TRANSACTIONS[call.name](self, call)
        if call.name in CONTROLS:
            return CONTROLS[call.name](self, call)
        why = "it only logs" if call.name in LOGS else WITHOUT_EFFECT.get(call.name)
        if why is None:
            return self.compute(call)
        self.script.dropped(call.name, call.place, why)
        return ZERO

    def _inline(self, function: c.Function, call: c.FunctionCall) -> Value:
        """A function of the script, whose statements stand in place of the call."""
        if function.name in self._calls:
            raise CannotRun(f"{function.name} calls itself, which has no native form", call.place)
        if len(self._calls) >= MAX_INLINED:
            raise CannotRun("functions call each other too deeply", call.place)
        arguments = [self.evaluate(one) for one in call.arguments]
        scope: dict[str, Local] = {}
        for index, (kind, name) in enumerate(function.parameters):
            if index < len(arguments):
                scope[name] = self._pass_argument(name, kind, arguments[index], call.place)
        result = None
        if function.kind in ("int", "float", "text", "char") and has_jump(function.body, "return"):
            result = Local(self.names.unique(f"{function.name}_result"), function.kind)
            self.names.first[result.name] = "0" if function.kind in ("int", "float") else ""
        outer, self.names.scopes = self.names.scopes, [self.names.scopes[0], scope]
        try:
            self._translate_body(function, function.name, result)
        finally:
            self.names.scopes = outer
        return ZERO if result is None else Value(Variable(result.name), result.kind)

    def _pass_argument(self, name: str, kind: str, value: Value, place: SourceLine) -> Local:
        if isinstance(value.tree, Literal):
            return Local(name, kind, value)
        local = Local(self.names.unique(name), kind if kind in ("int", "float", "text", "char") else "text")
        self.names.first[local.name] = "0" if local.kind in ("int", "float") else ""
        if value.kind in ("int", "bool", "float") and local.kind == "text":
            raise CannotRun(f"'{name}' is a text, but a number is given", place)
        self.store(local, value, place)
        return local

    def _translate_body(self, function: c.Function, title: str, result: Local | None) -> None:
        """The statements of a function. A return that is not its last statement needs a loop to end."""
        statements = function.body.statements
        self._calls.append(title)
        self._results.append(result)
        last = statements[-1] if statements and _is_return(statements[-1]) else None
        inner = statements if last is None else statements[:-1]
        needs_loop = any(has_jump(one, "return") for one in inner)
        self.names.scopes.append({})
        outer_last, self.is_last = self.is_last, not needs_loop and len(self._calls) == 1
        depth = self.depth
        self._has_return_loop.append(needs_loop)
        if needs_loop:
            own = NativeLoop(frozenset({"return"}))
            outer_loops, self.loops = self.loops, [*self.loops, own]
            self.depth += 1
            with self.block() as steps:
                self._translate_own(inner, last)
                self.close_block(depth)
            self.depth = depth
            self.loops = outer_loops
            self.emit(function.place, repeat=1, steps=steps)
            self.leave(own, function.place)
        else:
            self._translate_own(inner, last)
        self._has_return_loop.pop()
        self.is_last = outer_last
        self.depth = depth
        self.names.scopes.pop()
        self._results.pop()
        self._calls.pop()

    def _translate_own(self, statements: tuple[c.Statement, ...], last: c.Statement | None) -> None:
        self._translate_list(statements)
        if isinstance(last, c.Jump):
            try:
                self._translate_value(last)
            except CannotRun as error:
                self.script.cannot("return", error.place or last.place, str(error))

    def may_clear_cookies(self) -> bool:
        """Whether the statement is the last one of an action and of no block."""
        if self.is_last and self.section != "vuser_init" and self.depth == 0:
            self.clears_cookies = True
            return True
        return False


def _is_return(one: c.Statement) -> bool:
    return isinstance(one, c.Jump) and one.kind == "return"


def _title(one: c.Statement) -> str:
    """What a statement is called in messages."""
    value: Any = getattr(one, "value", None)
    if isinstance(value, c.Assignment):
        value = value.value
    if isinstance(value, c.FunctionCall):
        return value.name
    return _TITLES.get(type(one), "the statement")


_TITLES: dict[type, str] = {
    c.If: "if", c.Loop: "loop", c.Switch: "switch", c.Declaration: "declaration", c.Unread: "C", c.Jump: "jump",
}  # fmt: skip
_STATEMENTS: dict[type, Any] = {
    c.Declaration: Translator._translate_declaration,
    c.Evaluation: Translator._translate_evaluation,
    c.Block: Translator._translate_block,
    c.If: Translator.translate_if,
    c.Loop: Translator.translate_loop,
    c.Switch: Translator.translate_switch,
    c.Jump: Translator._translate_jump,
    c.Unread: Translator._translate_unread,
}
