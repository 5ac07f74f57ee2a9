"""Statements of a script as steps: choices, loops, own functions, and what LoadRunner's functions of control do.

A statement without a native form is reported by its line, and left out with `--scripts skip`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from leadline.scenario.expressions import Call, Expression, Literal, Variable, joined, show
from leadline.scenario.functions import template
from leadline.scenario.loadrunner import syntax as c
from leadline.scenario.loadrunner.context import CannotRun, Script, Steps, made
from leadline.scenario.loadrunner.functions import ZERO
from leadline.scenario.loadrunner.jumps import Jumps, NativeLoop
from leadline.scenario.loadrunner.searches import (
    REQUESTS,
    called_functions,
    changed_names,
    has_jump,
    has_request,
    is_ended,
)
from leadline.scenario.loadrunner.templates import native_value
from leadline.scenario.loadrunner.thinking import think_steps
from leadline.scenario.loadrunner.answers import REGISTERED, Registered
from leadline.scenario.loadrunner.tokens import SourceLine
from leadline.scenario.loadrunner.transactions import READ_TRANSACTIONS, TRANSACTIONS, Transactions
from leadline.scenario.loadrunner.values import Local, Names, Value, negate
from leadline.scenario.loadrunner.web import WEB

MAX_INLINED = 30
MAX_STATEMENTS = 60_000
"""Statements that are translated, those of a function once for each call."""


class Translator(Transactions, Jumps):
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
        self._is_last = False
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
            self._function_body(function, f"{name}()", None)
            self.close_block(-1)
        return steps

    def statement(self, one: c.Statement) -> None:
        """Translate a statement; one without a native form is reported."""
        self._statements += 1
        if self._statements > MAX_STATEMENTS:
            raise CannotRun(f"own functions repeat more than {MAX_STATEMENTS} statements", one.place)
        out, opened = self.out, len(self.opened)
        count = len(out)
        try:
            _STATEMENTS[type(one)](self, one)
        except CannotRun as error:
            self.script.cannot(_title(one), error.place or one.place, str(error))
            if len(self.opened) == opened and self.out is out:
                del out[count:]
            if _title(one) in REQUESTS:
                self.registered = Registered()

    def _statement_list(self, statements: tuple[c.Statement, ...]) -> None:
        for place, one in enumerate(statements):
            before, self._is_last = self._is_last, self._is_last and place == len(statements) - 1
            self.statement(one)
            self._is_last = before
            self.close_ended()

    def _unread(self, one: c.Unread) -> None:
        raise CannotRun(one.why, one.place)

    def _block(self, one: c.Block) -> None:
        if all(isinstance(inner, c.Declaration) for inner in one.statements):
            self._statement_list(one.statements)  # several variables of one declaration
            return
        self.names.scopes.append({})
        self._statement_list(one.statements)
        self.names.scopes.pop()

    def _evaluation(self, one: c.Evaluation) -> None:
        value = one.value
        if isinstance(value, c.Cast) and value.kind == "void":
            value = value.operand
        if isinstance(value, c.FunctionCall | c.Assignment | c.Step | c.ItemList | c.Conditional | c.Binary):
            self.evaluate(value)

    def _declaration(self, one: c.Declaration) -> None:
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

    def _if(self, one: c.If) -> None:
        condition = self.condition(one.condition)
        if isinstance(condition, Literal):
            chosen = one.then if condition.value else one.otherwise
            if chosen is not None:
                self.statement(chosen)
            return
        before, headers = self.registered, self.session.next_headers
        branches = []
        for branch, holds in ((one.then, condition), (one.otherwise, negate(condition))):
            self.registered, self.session.next_headers = before, dict(headers)
            branches.append(self._branch(branch, holds))
        self._after_branches(one, before, headers)
        (then, after_then, ended_then), (otherwise, after_otherwise, ended_otherwise) = branches
        self.names.known = {name: tree for name, tree in after_then.items() if after_otherwise.get(name) == tree}
        self._settle(one, ended_then, ended_otherwise)
        self.out += self.before_choice
        self.before_choice = []
        if then:
            self.emit_if(one.place, condition, then, otherwise)
        elif otherwise:
            self.emit_if(one.place, negate(condition), otherwise)

    def _settle(self, one: c.If, ended_then: set[str], ended_otherwise: set[str]) -> None:
        """Transactions that end in branches are closed behind the choice, where no branch goes on without that."""
        stays_then, stays_otherwise = not is_ended(one.then), one.otherwise is None or not is_ended(one.otherwise)
        for own in self.opened:
            if own.name not in ended_then | ended_otherwise:
                continue
            missing = (stays_then and own.name not in ended_then) or (
                stays_otherwise and own.name not in ended_otherwise
            )
            own.is_ended = not missing and (stays_then or stays_otherwise)
            if missing and (stays_then and own.name in ended_then or stays_otherwise and own.name in ended_otherwise):
                why = f"the transaction '{own.name}' ends in one branch only; it goes on until it ends in all"
                self.script.changed("lr_end_transaction", one.place, why)

    def _branch(self, one: c.Statement | None, condition: Expression) -> tuple[Steps, dict[str, Expression], set[str]]:
        """The steps of a branch, the texts that are known behind it, and the transactions that it has ended."""
        known = dict(self.names.known)
        with self.block() as steps:
            if one is not None:
                self._inner(one, condition)
        after, self.names.known = self.names.known, known
        ended = {own.name for own in self.opened if own.is_ended}
        for own in self.opened:
            own.is_ended = False
        if one is not None and is_ended(one):
            after = dict(known)
        return steps, after, ended

    def _inner(self, one: c.Statement, condition: Expression | None = None) -> None:
        """A statement of a block of its own, which is executed under a condition."""
        before, self.registered = self.registered, Registered()
        self.depth += 1
        outer_last, self._is_last = self._is_last, False
        # What was registered before the choice is for the request in it, or for the one behind it.
        is_for_branch = before.place is not None and self._has_request(one)
        if is_for_branch and condition is None:
            self.script.cannot("web_reg_...", before.place or one.place, "it is registered before a loop")
        if is_for_branch:
            self.registered = dataclasses.replace(before)
        self.statement(one)
        self._is_last = outer_last
        self.depth -= 1
        self.close_block(self.depth)
        left, self.registered = self.registered, Registered() if is_for_branch and condition is None else before
        if left.place is not None and not is_for_branch:
            self._register_if(left, condition, one.place)

    def _has_request(self, one: c.Statement | None) -> bool:
        return one is not None and has_request(one, {**self.script.actions, **self.script.functions})

    def _after_branches(self, one: c.If, before: Registered, headers: dict[str, str]) -> None:
        """What was registered before a choice is gone behind it, if each branch that goes on has sent a request."""
        sent = [self._has_request(branch) for branch in (one.then, one.otherwise)]
        ended = [branch is not None and is_ended(branch) for branch in (one.then, one.otherwise)]
        if not any(sent):
            self.session.next_headers = headers
            return
        is_used = all(own or end for own, end in zip(sent, ended, strict=True))
        if is_used or all(end for own, end in zip(sent, ended, strict=True) if own):
            goes_on = not all(own for own, end in zip(sent, ended, strict=True) if not end)
            self.registered = before if goes_on else Registered()
            self.session.next_headers = headers if goes_on else {}
            return
        if before.place is not None:
            why = "it is registered before a choice of which one branch alone sends a request"
            self.script.cannot("web_reg_...", before.place, why)
        self.registered, self.session.next_headers = Registered(), {}

    def _register_if(self, left: Registered, condition: Expression | None, place: SourceLine) -> None:
        """Checks that are registered under a condition: without it their text is empty, which every answer has."""
        is_plain = all("contains" in one and not one.get("invert") for one in left.check)
        if condition is None or left.extract or left.after or not is_plain:
            self.script.cannot("web_reg_...", left.place or place, _NOT_HERE)
            return
        name = self.names.unique("is_wanted")
        self.names.first[name] = "false"
        self.before_choice.append(made(place, set={name: native_value(condition)}))
        for check in left.check:
            parts = [joined(template(text)) for text in check["contains"]]
            check["contains"] = [native_value(Call("if", (Variable(name), part, Literal("")))) for part in parts]
        self.registered.check += left.check
        self.registered.place = self.registered.place or left.place

    def _refuse_registered(self, place: SourceLine) -> None:
        """What is registered for a request that does not follow in its block."""
        registered = self.registered
        if registered.place is None:
            return
        self.registered = Registered()
        self.script.cannot("web_reg_...", registered.place or place, _NOT_HERE)

    def _loop(self, one: c.Loop) -> None:
        for name in changed_names(one, self.script.functions):
            if (local := self.names.find(name)) is not None:
                self.names.forget(local.name)
            self.names.forget(name)
        wraps = has_jump(one.body, "continue") and (one.next is not None or one.is_tested_last)
        with self.block() as test:
            condition = Literal(True) if one.condition is None else self.condition(one.condition)
        is_plain = not test and not one.is_tested_last and condition != Literal(True)
        own = NativeLoop(frozenset({"break"}), goes_on=not wraps)
        with self.block() as steps:
            self.loops.append(own)
            if not is_plain and not one.is_tested_last and condition != Literal(True):
                steps += test
                self._stop_if(one.place, negate(condition))
            self._pass(one, wraps)
            if one.is_tested_last:
                self._test_last(one, test, condition)
            self.loops.pop()
        for name in changed_names(one, self.script.functions):
            if (local := self.names.find(name)) is not None:
                self.names.forget(local.name)
        if not steps:
            if condition == Literal(True):
                raise CannotRun("a loop without an end has no steps", one.place)
            steps = []
        if is_plain:
            self.emit(one.place, **{"while": show(condition), "steps": steps})
        elif one.is_tested_last and condition == Literal(False) and not has_jump(one.body, "break"):
            self.out += steps[:-1]
        else:
            self.emit(one.place, repeat="forever", steps=steps)
        self.leave(own, one.place)

    def _test_last(self, one: c.Loop, test: Steps, condition: Expression) -> None:
        self.out += test
        if condition != Literal(True):
            self._stop_if(one.place, negate(condition))

    def _stop_if(self, place: SourceLine, condition: Expression) -> None:
        if condition == Literal(True):
            self.emit(place, stop="loop")
            return
        self.emit(place, **{"if": show(condition), "then": [{"stop": "loop"}]})

    def _pass(self, one: c.Loop, wraps: bool) -> None:
        """One pass of a loop; where `continue` must not leave out what `for` does after a pass, in a loop of its own."""
        if wraps:
            inner = NativeLoop(frozenset({"continue"}))
            with self.block() as steps:
                self.loops.append(inner)
                self._inner(one.body)
                self.loops.pop()
            self.emit(one.place, repeat=1, steps=steps)
            self.leave(inner, one.place)
        else:
            self._inner(one.body)
        if one.next is not None:
            self._evaluation(c.Evaluation(one.next, one.place))

    def _switch(self, one: c.Switch) -> None:
        """A chain of choices. A case that does not end goes on with the next one, which it repeats."""
        value = self.evaluate(one.value)
        if not isinstance(value.tree, Variable | Literal):
            name = self.names.unique("chosen")
            self.set(one.place, name, value.tree)
            value = Value(Variable(name), value.kind)
        chain: list[tuple[Expression | None, Steps]] = []
        needs_loop = any(has_jump(statement, "break") for _, body in one.cases for statement in body[:-1])
        needs_loop = needs_loop or any(body and not isinstance(body[-1], c.Jump) and has_jump(body[-1], "break")
                                       for _, body in one.cases)  # fmt: skip
        own = NativeLoop(frozenset({"break"}))
        known = dict(self.names.known)
        for index, (values, _) in enumerate(one.cases):
            body = self._case_body(one, index)
            self.names.known = dict(known)
            with self.block() as steps:
                if needs_loop:
                    self.loops.append(own)
                self._inner(c.Block(body, one.place))
                if needs_loop:
                    self.loops.pop()
            chain.append((self._case_condition(value, values), steps))
        self.names.known = {}
        with self.block() as steps:
            self._chain(one.place, chain)
        if needs_loop:
            self.emit(one.place, repeat=1, steps=steps)
            self.leave(own, one.place)
        else:
            self.out += steps

    def _case_body(self, one: c.Switch, index: int) -> tuple[c.Statement, ...]:
        """The statements from a case on, up to a `break`."""
        found: list[c.Statement] = []
        for _, body in one.cases[index:]:
            for statement in body:
                if isinstance(statement, c.Jump) and statement.kind == "break":
                    return tuple(found)
                if isinstance(statement, c.Block) and statement.statements:
                    last = statement.statements[-1]
                    if isinstance(last, c.Jump) and last.kind == "break":
                        return (*found, c.Block(statement.statements[:-1], statement.place))
                found.append(statement)
                if is_ended(statement):
                    return tuple(found)
        return tuple(found)

    def _case_condition(self, value: Value, values: tuple[c.Expression, ...]) -> Expression | None:
        if not values:
            return None
        found: Expression | None = None
        for one in values:
            own = self.evaluate(one)
            is_text = "char" in (own.kind, value.kind)
            same = Call("same_text" if is_text else "equal", (value.tree, own.tree))
            found = same if found is None else Call("or", (found, same))
        return found

    def _chain(self, place: SourceLine, chain: list[tuple[Expression | None, Steps]]) -> None:
        default: Steps = next((steps for condition, steps in chain if condition is None), [])
        rest = default
        for condition, steps in reversed([one for one in chain if one[0] is not None]):
            assert condition is not None, "the default is left out"
            with self.block() as outer:
                if steps:
                    self.emit_if(place, condition, steps, rest)
                elif rest:
                    self.emit_if(place, negate(condition), rest)
            rest = outer
        self.out += rest

    def _jump(self, one: c.Jump) -> None:
        if one.kind != "return":
            self.jump(one.kind, one.place)
            return
        self._return_value(one)
        if self._has_return_loop[-1]:
            self.jump("return", one.place)

    def _return_value(self, one: c.Jump) -> None:
        result = self._results[-1] if self._results else None
        if one.value is not None and result is not None:
            self.store(result, self.evaluate(one.value), one.place)
        elif isinstance(one.value, c.FunctionCall):
            self.evaluate(one.value)

    def call(self, call: c.FunctionCall) -> Value:
        """A call of any function."""
        own = self.script.functions.get(call.name) or self.script.actions.get(call.name)
        if own is not None:
            return self._own(own, call)
        if call.name in WEB:
            return self.send(call)
        if call.name in REGISTERED:
            self.register(call)
            return ZERO
        if call.name in TRANSACTIONS:
            return TRANSACTIONS[call.name](self, call)
        if call.name in _CONTROLS:
            return _CONTROLS[call.name](self, call)
        if (value := self.compute(call)) is not None:
            return value
        if call.name in LOGS or call.name.startswith(("vtc_no", "lr_log")):
            self.script.dropped(call.name, call.place, "it only logs")
            return ZERO
        if call.name in WITHOUT_EFFECT:
            self.script.dropped(call.name, call.place, WITHOUT_EFFECT[call.name])
            return ZERO
        raise CannotRun(f"the function {call.name} has no native form", call.place)

    def _own(self, function: c.Function, call: c.FunctionCall) -> Value:
        """A function of the script, whose statements stand in place of the call."""
        if function.name in self._calls:
            raise CannotRun(f"{function.name} calls itself, which has no native form", call.place)
        if len(self._calls) >= MAX_INLINED:
            raise CannotRun("functions call each other too deeply", call.place)
        arguments = [self.evaluate(one) for one in call.arguments]
        scope: dict[str, Local] = {}
        for index, (kind, name) in enumerate(function.parameters):
            if index < len(arguments):
                scope[name] = self._argument(name, kind, arguments[index], call.place)
        result = None
        if function.kind in ("int", "float", "text", "char") and has_jump(function.body, "return"):
            result = Local(self.names.unique(f"{function.name}_result"), function.kind)
            self.names.first[result.name] = "0" if function.kind in ("int", "float") else ""
        outer, self.names.scopes = self.names.scopes, [self.names.scopes[0], scope]
        try:
            self._function_body(function, function.name, result)
        finally:
            self.names.scopes = outer
        return ZERO if result is None else Value(Variable(result.name), result.kind)

    def _argument(self, name: str, kind: str, value: Value, place: SourceLine) -> Local:
        if isinstance(value.tree, Literal):
            return Local(name, kind, value)
        local = Local(self.names.unique(name), kind if kind in ("int", "float", "text", "char") else "text")
        self.names.first[local.name] = "0" if local.kind in ("int", "float") else ""
        if value.kind in ("int", "bool", "float") and local.kind == "text":
            raise CannotRun(f"'{name}' is a text, but a number is given", place)
        self.store(local, value, place)
        return local

    def _function_body(self, function: c.Function, title: str, result: Local | None) -> None:
        """The statements of a function. A return that is not its last statement needs a loop to end."""
        statements = function.body.statements
        self._calls.append(title)
        self._results.append(result)
        last = statements[-1] if statements and _is_return(statements[-1]) else None
        inner = statements if last is None else statements[:-1]
        needs_loop = any(has_jump(one, "return") for one in inner)
        self.names.scopes.append({})
        outer_last, self._is_last = self._is_last, not needs_loop and len(self._calls) == 1
        depth = self.depth
        self._has_return_loop.append(needs_loop)
        if needs_loop:
            own = NativeLoop(frozenset({"return"}))
            outer_loops, self.loops = self.loops, [*self.loops, own]
            with self.block() as steps:
                self._own_statements(inner, last)
            self.loops = outer_loops
            self.emit(function.place, repeat=1, steps=steps)
            self.leave(own, function.place)
        else:
            self._own_statements(inner, last)
        self._has_return_loop.pop()
        self._is_last = outer_last
        self.depth = depth
        self.names.scopes.pop()
        self._results.pop()
        self._calls.pop()

    def _own_statements(self, statements: tuple[c.Statement, ...], last: c.Statement | None) -> None:
        self._statement_list(statements)
        if isinstance(last, c.Jump):
            try:
                self._return_value(last)
            except CannotRun as error:
                self.script.cannot("return", error.place or last.place, str(error))

    def may_clear_cookies(self) -> bool:
        """Whether the statement is the last one of an action and of no block."""
        if self._is_last and self.section != "vuser_init" and self.depth == 0:
            self.clears_cookies = True
            return True
        return False

    def _think(self, call: c.FunctionCall) -> Value:
        tree = self.number_of(call.arguments[0]) if call.arguments else Literal(0)
        self.out += think_steps(self.script.settings.think_time, tree, call.place)
        self.script.kept(call.name, call.place)
        return ZERO

    def _meet(self, call: c.FunctionCall) -> Value:
        name = self.parameter_name(call.arguments[0]) if call.arguments else "rendezvous"
        self.emit(call.place, meet=name, timeout="30s")
        why = "all users of the group meet, for 30s at most; the Controller's policy may say otherwise"
        self.script.changed(call.name, call.place, why)
        return ZERO

    def _exit(self, call: c.FunctionCall) -> Value:
        mode = call.arguments[0] if call.arguments else None
        name = mode.name if isinstance(mode, c.Name) else ""
        status = call.arguments[1] if len(call.arguments) > 1 else None
        if isinstance(status, c.Name) and status.name == "LR_FAIL":
            self.fail_open(call.place)
        if name in ("LR_EXIT_MAIN_ITERATION_AND_CONTINUE", "LR_EXIT_ITERATION_AND_CONTINUE"):
            self.emit(call.place, stop="iteration")
        elif name == "LR_EXIT_ACTION_AND_CONTINUE":
            self.emit(call.place, stop="iteration")
            if len(self.script.settings.run.actions) > 1:
                why = "the iteration ends, not the action alone"
                self.script.changed(call.name, call.place, why)
        elif name in ("LR_EXIT_VUSER", "LR_EXIT_VUSER_AFTER_ITERATION", "LR_EXIT_VUSER_AFTER_ACTION"):
            if name != "LR_EXIT_VUSER":
                self.script.changed(call.name, call.place, "the user ends at once")
            self.emit(call.place, stop="user")
        else:
            raise CannotRun("the kind of the exit is not known", call.place)
        self.script.kept(call.name, call.place)
        return ZERO

    def _abort(self, call: c.FunctionCall) -> Value:
        self.fail_open(call.place)
        self.emit(call.place, stop="user")
        self.script.kept(call.name, call.place)
        return ZERO

    def _property(self, call: c.FunctionCall) -> Value:
        name = call.arguments[0].name if call.arguments and isinstance(call.arguments[0], c.Name) else ""
        if name == "HTTP_INFO_RETURN_CODE":
            return Value(Call("last_status"), "int")
        if name == "HTTP_INFO_DOWNLOAD_TIME":
            return Value(Call("last_duration_ms"), "int")
        if name == "HTTP_INFO_DOWNLOAD_SIZE":
            return Value(Call("length", (Call("last_body"),)), "int")
        raise CannotRun(f"the property {name or '?'} has no native form", call.place)


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


_NOT_HERE = "the request that it is registered for does not follow in its block"
_TITLES: dict[type, str] = {
    c.If: "if", c.Loop: "loop", c.Switch: "switch", c.Declaration: "declaration", c.Unread: "C", c.Jump: "jump",
}  # fmt: skip
_STATEMENTS: dict[type, Any] = {
    c.Declaration: Translator._declaration, c.Evaluation: Translator._evaluation, c.Block: Translator._block,
    c.If: Translator._if, c.Loop: Translator._loop, c.Switch: Translator._switch, c.Jump: Translator._jump,
    c.Unread: Translator._unread,
}  # fmt: skip
_CONTROLS = {
    "lr_think_time": Translator._think, "lr_force_think_time": Translator._think, "lr_rendezvous": Translator._meet,
    "lr_rendezvous_ex": Translator._meet, "lr_exit": Translator._exit, "lr_abort": Translator._abort,
    "exit": Translator._abort, "web_get_int_property": Translator._property,
}  # fmt: skip
LOGS = frozenset({
    "lr_output_message", "lr_log_message", "lr_message", "lr_error_message", "lr_debug_message", "lr_vuser_status_message",
    "lr_set_debug_message", "lr_get_debug_message", "printf", "lr_whoami", "puts", "lr_user_data_point",
    "lr_user_data_point_ex", "web_set_certificate_log",
})  # fmt: skip
WITHOUT_EFFECT = {
    "web_set_sockets_option": "options of sockets are those of the command line",
    "web_set_option": "options of the client are those of the command line",
    "srand": "random values follow from --seed",
    "free": "a text needs no memory of its own",
    "lr_free_parameter": "a parameter needs no memory of its own",
    "web_add_filter": "which resources are fetched is the page's",
    "web_add_auto_filter": "which resources are fetched is the page's",
    "web_remove_auto_filter": "which resources are fetched is the page's",
    "web_cache_cleanup": "nothing is cached",
    "lr_continue_on_error": "the settings say what follows a failed request",
    "web_set_rts_key": "the settings are those of the files",
    "lr_wasted_time": "waits and own work are no part of a transaction here",
    "lr_stop_transaction": "the transaction's time goes on",
    "lr_resume_transaction": "the transaction's time goes on",
    "web_set_certificate": "the client's certificate is --cert and --key",
    "web_set_certificate_ex": "the client's certificate is --cert and --key",
    "lr_load_dll": "libraries of Windows are not loaded",
}
"""Functions without an effect on requests, each with the reason."""
