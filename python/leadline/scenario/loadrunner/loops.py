"""Loops and `switch` of a script."""

from __future__ import annotations

from leadline.scenario.expressions import Call, Expression, Literal, Variable, show
from leadline.scenario.loadrunner import syntax as c
from leadline.scenario.loadrunner.choices import Choices
from leadline.scenario.loadrunner.context import CannotRun, Steps
from leadline.scenario.loadrunner.jumps import Jumps, NativeLoop
from leadline.scenario.loadrunner.searches import changed_names, has_jump, is_ended
from leadline.scenario.loadrunner.tokens import SourceLine
from leadline.scenario.loadrunner.values import Value, negate


class Loops(Choices, Jumps):
    """Translates loops and switches."""

    def translate_loop(self, one: c.Loop) -> None:
        """Translate `while`, `do` and `for`."""
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
                self.out += test
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
        """One pass of a loop; in a loop of its own where `continue` must not leave out what `for` does after it."""
        if wraps:
            inner = NativeLoop(frozenset({"continue"}))
            with self.block() as steps:
                self.loops.append(inner)
                self.inner(one.body)
                self.loops.pop()
            self.emit(one.place, repeat=1, steps=steps)
            self.leave(inner, one.place)
        else:
            self.inner(one.body)
        if one.next is not None:
            self.statement(c.Evaluation(one.next, one.place))

    def translate_switch(self, one: c.Switch) -> None:
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
                self.inner(c.Block(body, one.place))
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
