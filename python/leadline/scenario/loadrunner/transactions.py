"""Transactions of a script, which begin and end by calls, as blocks of the native form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from leadline.scenario.expressions import Call, Literal, Variable
from leadline.scenario.loadrunner import syntax as c
from leadline.scenario.loadrunner.context import CannotRun, Steps, made
from leadline.scenario.loadrunner.tokens import SourceLine
from leadline.scenario.loadrunner.values import Value
from leadline.scenario.loadrunner.web import Web


@dataclass(slots=True)
class OpenTransaction:
    """A transaction that has begun."""

    name: str
    outer: Steps
    """The steps that it stands in."""
    depth: int
    """The depth of its block."""
    place: SourceLine
    is_ended: bool = False
    """Whether it has ended in all branches of a choice, and is closed behind it."""


class Transactions(Web):
    """Begins and ends transactions."""

    opened: list[OpenTransaction]
    depth: int
    asked: set[str]
    """Transactions whose status or duration is read."""

    def start_transaction(self, call: c.FunctionCall) -> Value:
        """`lr_start_transaction`."""
        name = self._transaction_name(call)
        if any(one.name == name for one in self.opened):
            self.script.changed(call.name, call.place, f"the transaction '{name}' is open already")
            return Value(Literal(0), "int")
        self.emit(call.place, transaction=name, steps=[])
        self.opened.append(OpenTransaction(name, self.out, self.depth, call.place))
        self.out = self.out[-1]["steps"]
        if name in self.asked:
            self.set(call.place, self._variable(name, "status"), Literal(0))
            self.set(call.place, self._variable(name, "begun"), Call("now"))
        self.script.kept(call.name, call.place)
        return Value(Literal(0), "int")

    def _transaction_name(self, call: c.FunctionCall) -> str:
        if not call.arguments:
            raise CannotRun("the name of the transaction is missing", call.place)
        tree = self.names.expand(self.text_of(call.arguments[0]))
        if isinstance(tree, Literal) and tree.value:
            return str(tree.value).replace("${", "$${")
        raise CannotRun("the name of the transaction is computed, which has no native form", call.place)

    def _variable(self, name: str, what: str) -> str:
        found = f"{name} {what}".replace("{", "(").replace("}", ")")
        self.names.first.setdefault(found, "0")
        return found

    def end_transaction(self, call: c.FunctionCall) -> Value:
        """`lr_end_transaction`."""
        name = self._transaction_name(call)
        status = call.arguments[1] if len(call.arguments) > 1 else c.Name("LR_AUTO", call.place)
        own = next((one for one in self.opened if one.name == name), None)
        if own is None:
            self.script.changed(call.name, call.place, f"the transaction '{name}' is not open here")
            return Value(Literal(0), "int")
        self._note_status(own, status, call.place)
        if own.depth < self.depth:
            own.is_ended = True  # closed behind the choice
        elif own is not self.opened[-1]:
            inner = self.opened[-1]
            why = f"the transaction '{inner.name}' begins in '{name}' and ends after it; one must be in the other"
            raise CannotRun(why, call.place)
        else:
            self._close(own)
        self.script.kept(call.name, call.place)
        return Value(Literal(0), "int")

    def _close(self, own: OpenTransaction) -> None:
        self.opened.remove(own)
        self.out = own.outer

    def close_ended(self) -> None:
        """Close the transactions that have ended in a choice before."""
        while self.opened and self.opened[-1].is_ended and self.opened[-1].depth == self.depth:
            self._close(self.opened[-1])

    def close_block(self, depth: int) -> None:
        """Close the transactions that begin in a block that ends."""
        while self.opened and self.opened[-1].depth > depth:
            own = self.opened[-1]
            if not own.is_ended:
                why = f"the transaction '{own.name}' ends where its block ends"
                self.script.changed("lr_start_transaction", own.place, why)
            self._close(own)

    def _note_status(self, own: OpenTransaction, status: c.Expression, place: SourceLine) -> None:
        """The outcome that the script gives to a transaction."""
        known = status.name if isinstance(status, c.Name) else ""
        if known in ("LR_FAIL", "LR_STOP"):
            self._emit_outcome(own, "failed", place)
        elif known == "LR_PASS":
            if self.script.settings.continues_on_error:
                self._emit_outcome(own, "passed", place)
        elif known != "LR_AUTO":
            tree = self.number_of(status)
            failed = made(place, outcome="failed", **self._of(own))
            passed = made(place, outcome="passed", **self._of(own))
            if isinstance(tree, Literal):
                self._emit_outcome(own, _OUTCOMES.get(tree.value, ""), place)
                return
            self.emit_if(place, Call("equal", (tree, Literal(1))), [failed])
            self.emit_if(place, Call("equal", (tree, Literal(0))), [passed])

    def _of(self, own: OpenTransaction) -> dict[str, str]:
        return {} if own is self.opened[-1] else {"of": own.name}

    def _emit_outcome(self, own: OpenTransaction, outcome: str, place: SourceLine) -> None:
        if outcome:
            self.emit(place, outcome=outcome, **self._of(own))

    def set_status(self, call: c.FunctionCall) -> Value:
        """`lr_set_transaction_status`: that of all open transactions."""
        status = call.arguments[0] if call.arguments else c.Name("LR_AUTO", call.place)
        for own in self.opened:
            self._note_status(own, status, call.place)
        self.script.kept(call.name, call.place)
        return Value(Literal(0), "int")

    def set_status_by_name(self, call: c.FunctionCall) -> Value:
        """`lr_set_transaction_status_by_name`."""
        if len(call.arguments) < 2:
            raise CannotRun("status and name are needed", call.place)
        name = self._transaction_name(c.FunctionCall(call.name, (call.arguments[1],), call.place))
        own = next((one for one in self.opened if one.name == name), None)
        if own is None:
            self.script.changed(call.name, call.place, f"the transaction '{name}' is not open here")
        else:
            self._note_status(own, call.arguments[0], call.place)
            self.script.kept(call.name, call.place)
        return Value(Literal(0), "int")

    def fail_open(self, place: SourceLine) -> None:
        """All open transactions fail."""
        for own in self.opened:
            self._emit_outcome(own, "failed", place)

    def read_status(self, call: c.FunctionCall) -> Value:
        """`lr_get_transaction_status`: whether a request in an open transaction failed."""
        return Value(Variable(self._variable(self._transaction_name(call), "status")), "int")

    def read_duration(self, call: c.FunctionCall) -> Value:
        """`lr_get_transaction_duration`: seconds since an open transaction began."""
        begun = Variable(self._variable(self._transaction_name(call), "begun"))
        return Value(Call("divide", (Call("subtract", (Call("now"), begun)), Literal(1000))), "float")

    def after_request(self, place: SourceLine) -> Steps:
        """Note the status of transactions whose status is read."""
        if self.session.concurrent is not None:
            return []
        found: Steps = []
        for own in self.opened:
            if own.name in self.asked:
                variable = self._variable(own.name, "status")
                found.append(made(place, **{"if": "!last_ok()", "then": [made(place, set={variable: "1"})]}))
        return found

    def start_sub_transaction(self, call: c.FunctionCall) -> Value:
        """`lr_start_sub_transaction`."""
        return self.start_transaction(c.FunctionCall(call.name, call.arguments[:1], call.place))


TRANSACTIONS = {
    "lr_start_transaction": Transactions.start_transaction,
    "lr_start_sub_transaction": Transactions.start_sub_transaction,
    "lr_end_transaction": Transactions.end_transaction, "lr_end_sub_transaction": Transactions.end_transaction,
    "lr_set_transaction_status": Transactions.set_status,
    "lr_set_transaction_status_by_name": Transactions.set_status_by_name,
    "lr_get_transaction_status": Transactions.read_status,
    "lr_get_transaction_duration": Transactions.read_duration,
    "lr_get_trans_instance_duration": Transactions.read_duration,
}  # fmt: skip
_OUTCOMES: dict[Any, str] = {0: "passed", 1: "failed"}
READ_TRANSACTIONS = ("lr_get_transaction_status", "lr_get_transaction_duration", "lr_get_trans_instance_duration")
