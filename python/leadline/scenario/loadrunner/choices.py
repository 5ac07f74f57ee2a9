"""`if` of a script, and what it means for transactions and registered answers in its branches."""

from __future__ import annotations

import dataclasses

from leadline.scenario.expressions import Call, Expression, Literal, Variable, joined
from leadline.scenario.functions import template
from leadline.scenario.loadrunner import syntax as c
from leadline.scenario.loadrunner.answers import Registered
from leadline.scenario.loadrunner.context import Steps, made
from leadline.scenario.loadrunner.controls import Controls
from leadline.scenario.loadrunner.searches import has_request, is_ended
from leadline.scenario.loadrunner.templates import native_value
from leadline.scenario.loadrunner.tokens import SourceLine
from leadline.scenario.loadrunner.values import negate


class Choices(Controls):
    """Translates choices; `statement` translates what is in them."""

    before_choice: Steps
    """Steps that a choice needs before it."""
    is_last: bool
    """Whether no statement of the iteration follows."""

    def statement(self, one: c.Statement) -> None:
        """Translate a statement."""
        raise NotImplementedError

    def translate_if(self, one: c.If) -> None:
        """Translate an `if`."""
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
            branches = ((stays_then, own.name in ended_then), (stays_otherwise, own.name in ended_otherwise))
            has_ended = [ended for stays, ended in branches if stays]
            own.is_ended = bool(has_ended) and all(has_ended)
            if any(has_ended) and not own.is_ended:
                why = f"the transaction '{own.name}' ends in one branch only; it goes on until it ends in all"
                self.script.changed("lr_end_transaction", one.place, why)

    def _branch(self, one: c.Statement | None, condition: Expression) -> tuple[Steps, dict[str, Expression], set[str]]:
        """The steps of a branch, the texts that are known behind it, and the transactions that it has ended."""
        known = dict(self.names.known)
        with self.block() as steps:
            if one is not None:
                self.inner(one, condition)
        after, self.names.known = self.names.known, known
        ended = {own.name for own in self.opened if own.is_ended}
        for own in self.opened:
            own.is_ended = False
        if one is not None and is_ended(one):
            after = dict(known)
        return steps, after, ended

    def inner(self, one: c.Statement, condition: Expression | None = None) -> None:
        """A statement of a block of its own, which is executed under a condition."""
        before, self.registered = self.registered, Registered()
        self.depth += 1
        outer_last, self.is_last = self.is_last, False
        # What was registered before the choice is for the request in it, or for the one behind it.
        is_for_branch = before.place is not None and self._has_request(one)
        if is_for_branch and condition is None:
            self.script.cannot("web_reg_...", before.place or one.place, "it is registered before a loop")
        if is_for_branch:
            self.registered = dataclasses.replace(before)
        self.statement(one)
        self.is_last = outer_last
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
            why = "it is for the request in the choice behind it, of which one branch alone sends one"
            self.script.changed("web_reg_...", before.place, why)
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


_NOT_HERE = "the request that it is registered for does not follow in its block"
