"""Lowers steps to the agent's nodes, each with the file and line of its origin. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from leadline.errors import PlanError
from leadline.plan.field_types import PlanModel
from leadline.plan.problems import Problems
from leadline.plan.source import Node
from leadline.scenario import step_models as s
from leadline.scenario.expressions import Call, Expression, Literal, Variable, joined
from leadline.scenario.functions import template
from leadline.scenario.lower_expressions import Lowered, Names
from leadline.scenario.lower_requests import RequestLowering, Scope, SeveralErrors, in_ms
from leadline.scenario.request_models import RateTarget, TimerMeet, TimerThroughput, WaitSpec
from leadline.scenario.values import condition, duration, number


@contextmanager
def located(node: Node) -> Iterator[None]:
    """Give errors about a step its file and line."""
    try:
        yield
    except PlanError:
        raise
    except ValueError as error:
        first, *others = (_at(node, one) for one in (error.errors if isinstance(error, SeveralErrors) else (error,)))
        first.others = tuple(others)
        raise first from None


def _at(node: Node, error: ValueError) -> PlanError:
    text, _, hint = str(error).partition("; ")
    return node.mark.error(text, hint=hint or None)


class StepLowering:
    """Lowers the steps of one group."""

    def __init__(
        self,
        names: Names,
        requests: RequestLowering,
        scope: Scope,
        problems: Problems,
        given_tags: frozenset[str] = frozenset(),
    ) -> None:
        """`problems` gets the steps without a meaning, which are left out. `given_tags` are those that requests have by
        their places: `group` and `method`."""
        self._names = names
        self._requests = requests
        self._scope = scope
        self._problems = problems
        self._given_tags = given_tags
        self._transactions: list[str] = []

    def steps(self, steps: Sequence[Any], node: Node | None) -> list[Lowered]:
        """The nodes of a list of steps; `node` is the list in the tree."""
        empty = Node(None, node.mark) if node is not None else None
        found: list[Lowered] = []
        for index, step in enumerate(steps):
            below = (node.child(index) if node is not None else None) or empty
            assert below is not None, "every list of steps has a place"
            with self._problems.caught():
                found += self._step(step, below)
        return found

    def _step(self, step: PlanModel, node: Node) -> list[Lowered]:
        with located(node):
            if isinstance(step, s.RequestStep):
                return self._request(step, node)
            if isinstance(step, s.TransactionStep):
                return [self._transaction(step, node)]
            action = _ACTIONS[type(step)](self, step, node)
        actions = action if isinstance(action, list) else [action]
        name, tags = (step.name, step.tags) if isinstance(step, s.BaseStep) else (None, {})
        return [self._node(one, node, name, tags) for one in actions]

    def _transaction(self, step: s.TransactionStep, node: Node) -> Lowered:
        """A transaction, whose tag `group` is its path, as in k6: `::shop::log in`."""
        self._transactions.append(step.transaction)
        given = {"group": "".join(f"::{name}" for name in self._transactions)}
        try:
            return self._node(self.transaction(step, node), node, step.transaction, self._tags(given, step.tags))
        finally:
            self._transactions.pop()

    def _tags(self, given: dict[str, str], own: dict[str, str]) -> dict[str, str]:
        return {name: value for name, value in given.items() if name in self._given_tags} | own

    def _node(
        self, action: Lowered, node: Node, label: str | None = None, tags: dict[str, str] | None = None
    ) -> Lowered:
        found: Lowered = {"action": action}
        if tags:
            found["tags"] = dict(tags)
        if label is not None:
            found["label"] = label
        if node.mark.line is not None:
            found["source"] = {"file": node.mark.file, "line": node.mark.line}
        return found

    def _below(self, steps: Sequence[Any], node: Node, key: str) -> list[Lowered]:
        return self.steps(steps, node.child(key) or Node(None, node.mark))

    def _request(self, step: s.RequestStep, node: Node) -> list[Lowered]:
        """What is before it, its waits, the request, and what is after it."""
        action = self._requests.lower(step, self._scope)
        waits = step.waits if "waits" in step.model_fields_set else self._scope.defaults.get("waits", ())
        return [
            *self._below(step.before, node, "before"),
            *(self._node({"kind": "wait", "wait": self.timer(wait)}, node) for wait in waits),
            self._request_node(action, step, node),
            *self._below(step.after, node, "after"),
        ]

    def _request_node(self, action: Lowered, step: s.RequestStep, node: Node) -> Lowered:
        name, element = step.name, step.element
        if name is None and element is not None:
            shown = next(
                (one for key in ("text", "name", "action", "alt", "src") if (one := getattr(element[1], key))), ""
            )
            name = f"{element[0]} {shown}".strip()
        given = {"method": step.method_and_url[0]} if element is None else {}
        return self._node(action, node, name, self._tags(given, step.tags))

    def timer(self, timer: PlanModel) -> Lowered:
        """A wait's rule."""
        if isinstance(timer, TimerThroughput | s.ThroughputStep):
            scope = {"group": "population", "group-share": "population_share", "all": "test", "all-share": "test_share"}
            named = {} if timer.name is None else {"name": timer.name}
            return {
                "kind": "throughput",
                **named,
                "per_minute": self._number(timer.throughput),
                "stages": [self._rate_stage(stage) for stage in timer.stages],
                "scope": scope.get(timer.scope, timer.scope),
                "is_random": timer.spacing == "poisson",
            }
        if isinstance(timer, TimerMeet | s.MeetStep):
            return {
                "kind": "rendezvous",
                "name": timer.meet,
                "users": self._number(timer.users),
                "timeout_ms": self._ms(timer.timeout),
            }
        assert isinstance(timer, WaitSpec), "there are three kinds of timers"
        return self._distribution(timer)

    def _rate_stage(self, stage: RateTarget) -> Lowered:
        per_minute, over_us = (self._names.number(read) for read in (number(stage.to), duration(stage.over)))
        if not (0 <= per_minute <= 1e9 and 0 <= over_us <= 7 * 24 * 3600 * 1e6):
            raise ValueError(f"a rate of {stage.to} per minute over {stage.over} is not possible")
        return {"per_minute": per_minute, "duration_ms": round(over_us / 1000)}

    def _distribution(self, wait: WaitSpec) -> Lowered:
        plus = in_ms(duration(wait.plus)) if wait.plus is not None else None
        if wait.poisson is not None:
            offset = {"op": "literal", "value": 0} if plus is None else self._names.expression(plus)
            return {"kind": "poisson", "offset_ms": offset, "lambda_ms": self._ms(wait.poisson)}
        if wait.uniform:
            first, last = (self._ms(one, plus) for one in wait.uniform)
            return {"kind": "uniform", "from_ms": first, "to_ms": last}
        if wait.normal:
            mean, deviation = wait.normal
            normal = {"kind": "normal", "mean_ms": self._ms(mean, plus), "deviation_ms": self._ms(deviation)}
            return normal | {"negative": "absolute"}
        if wait.exponential is not None:
            if plus is not None:
                raise ValueError("an exponential wait has no plus; write a second wait")
            return {"kind": "exponential", "mean_ms": self._ms(wait.exponential)}
        return {"kind": "constant", "ms": self._ms(wait.constant, plus)}

    def _ms(self, text: Any, plus: Expression | None = None) -> Lowered:
        value = in_ms(duration(text))
        if isinstance(value, Literal) and isinstance(plus, Literal):
            assert isinstance(value.value, int | float) and isinstance(plus.value, int | float), "times are numbers"
            return self._names.expression(Literal(value.value + plus.value))
        return self._names.expression(value if plus is None else Call("add", (value, plus)))

    def _number(self, text: Any) -> Lowered:
        value = number(text)
        return self._names.expression(Literal(value) if isinstance(value, int | float) else value)

    def _loop(self, rule: Lowered, step: Any, node: Node) -> Lowered:
        nodes = self._below(step.steps, node, "steps")
        return {"kind": "loop", "rule": rule, "counter": step.index, "nodes": nodes}

    def repeat(self, step: s.RepeatStep, node: Node) -> Lowered:
        """A loop that ends after a number of passes, or never."""
        if step.repeat == "forever":
            return self._loop({"kind": "forever"}, step, node)
        return self._loop({"kind": "count", "times": self._number(step.repeat)}, step, node)

    def while_(self, step: s.WhileStep, node: Node) -> Lowered:
        """A loop that goes on as long as its condition holds."""
        return self._loop({"kind": "while", "condition": self._condition(step.while_)}, step, node)

    def during(self, step: s.DuringStep, node: Node) -> Lowered:
        """A loop that ends after a time."""
        return self._loop({"kind": "time", "duration_ms": self._ms(step.during)}, step, node)

    def for_each(self, step: s.ForEachStep, node: Node) -> Lowered:
        """A loop over the variables with a prefix and a number."""
        start = number(step.start)
        first = Literal(int(start) + 1) if isinstance(start, int | float) else Call("add", (start, Literal(1)))
        rule = {
            "kind": "each_variable",
            "variable": step.as_,
            "prefix": [step.for_each + ("_" if step.underscore else "")],
            "from": self._names.expression(first),
            "to": None if step.end is None else self._number(step.end),
        }
        return self._loop(rule, step, node)

    def if_(self, step: s.IfStep, node: Node) -> Lowered:
        """The steps for a condition that holds, and those for one that does not."""
        return {
            "kind": "if",
            "condition": self._condition(step.if_),
            "nodes": self._below(step.then, node, "then"),
            "otherwise": self._below(step.else_, node, "else"),
        }

    def switch(self, step: s.SwitchStep, node: Node) -> Lowered:
        """The case that a text names. A number from 0 stands for the case at that place, unless a case has that
        name."""
        value = joined(template(step.switch))
        for index, name in reversed(list(enumerate(step.cases))):
            if str(index) not in step.cases:
                value = Call(
                    "if",
                    (Call("same_text", (joined(template(step.switch)), Literal(str(index)))), Literal(name), value),
                )
        cases = node.child("cases") or Node(None, node.mark)
        return {
            "kind": "switch",
            "value": [self._names.expression(value)],
            "cases": [{"value": name, "nodes": self._below(steps, cases, name)} for name, steps in step.cases.items()],
            "otherwise": self._below(step.default, node, "default"),
        }

    def weighted(self, step: s.WeightedStep, node: Node) -> Lowered:
        """One of several alternatives, at random by weight."""
        parts = node.child("weighted") or Node(None, node.mark)
        branches = []
        for index, part in enumerate(step.weighted):
            below = parts.child(index) or parts
            branches.append({"weight": part.weight, "nodes": self._below(part.steps, below, "steps")})
        return {"kind": "weighted", "branches": branches}

    def _branches(self, steps: Sequence[Any], node: Node, key: str) -> list[Lowered]:
        """Each step as an alternative of its own."""
        listed = node.child(key) or Node(None, node.mark)
        found = []
        for index, step in enumerate(steps):
            found.append({"weight": 1.0, "nodes": self._step(step, listed.child(index) or listed)})
        return found

    def random_one(self, step: s.RandomOneStep, node: Node) -> Lowered:
        """One of the steps, each as likely."""
        return {"kind": "weighted", "branches": self._branches(step.random_one, node, "random_one")}

    def random_order(self, step: s.RandomOrderStep, node: Node) -> Lowered:
        """All steps in random order."""
        return {"kind": "shuffle", "branches": self._branches(step.random_order, node, "random_order")}

    def interleave(self, step: s.InterleaveStep, node: Node) -> Lowered:
        """One of the steps in each pass, in turn."""
        branches = self._branches(step.interleave, node, "interleave")
        return {"kind": "interleave", "branches": branches, "is_shared": step.shared}

    def once(self, step: s.OnceStep, node: Node) -> Lowered:
        """The steps of the first pass alone."""
        return {"kind": "once", "nodes": self._below(step.once, node, "once")}

    def quota(self, step: s.QuotaStep, node: Node) -> Lowered:
        """The steps in a share of the passes, or in a number of them."""
        nodes = self._below(step.steps, node, "steps")
        rest = {"is_per_user": step.per_user, "nodes": nodes}
        if step.percent is not None:
            return {"kind": "percent", "percent": self._number(step.percent), **rest}
        return {"kind": "times", "times": self._number(step.at_most), **rest}

    def sequence(self, step: s.SequenceStep, node: Node) -> Lowered:
        """The steps in order."""
        return {"kind": "sequence", "nodes": self._below(step.steps, node, "steps")}

    def parallel(self, step: s.ParallelStep, node: Node) -> Lowered | list[Lowered]:
        """Requests that are sent at once. What is before a request is done before all of them, what is after it after
        all of them."""
        listed = node.child("parallel") or Node(None, node.mark)
        nodes = []
        for index, one in enumerate(step.parallel):
            below = listed.child(index) or listed
            with self._problems.caught(), located(below):
                if not isinstance(one, s.RequestStep) or one.before or one.after:
                    raise ValueError("parallel holds requests alone, without before and after; move it out")
                if one.waits:
                    raise ValueError("a request of parallel has no waits; put a wait step before parallel")
                nodes.append(self._request_node(self._requests.lower(one, self._scope), one, below))
        return {"kind": "parallel", "nodes": nodes, "at_once": step.connections}

    def transaction(self, step: s.TransactionStep, node: Node) -> Lowered:
        """Steps that are timed together."""
        return {
            "kind": "transaction",
            "includes_waits": step.with_waits,
            "hides_requests": step.hide_requests,
            "nodes": self._below(step.steps, node, "steps"),
        }

    def wait(self, step: s.WaitStep, node: Node) -> Lowered:
        """A pause by a distribution."""
        return {"kind": "wait", "wait": self.timer(step.wait)}

    def pace(self, step: s.PaceStep, node: Node) -> Lowered:
        """A wait until a time has passed since the last pass."""
        return {"kind": "wait", "wait": {"kind": "pacing", "ms": self._ms(step.pace)}}

    def limit(self, step: s.ThroughputStep | s.MeetStep, node: Node) -> Lowered:
        """A wait by a throughput, or for other users."""
        return {"kind": "wait", "wait": self.timer(step)}

    def set(self, step: s.SetStep, node: Node) -> list[Lowered]:
        """New values of variables, one node each."""
        found = []
        for name, text in step.set.items():
            value = Literal(None) if text is None else joined(template(text))
            found.append(
                {"kind": "set", "variable": name, "value": self._names.expression(value), "is_shared": step.shared}
            )
        return found

    def count(self, step: s.CountStep, node: Node) -> list[Lowered]:
        """The counter's next number, with zeros in front where its format has them."""
        arguments = [step.start, step.step, *([] if step.most is None else [step.most])]
        trees = [Literal(value) if isinstance(value := number(one), int | float) else value for one in arguments]
        function = "user_counter" if step.per_user else "counter"
        found: list[tuple[str, Expression]] = [
            (step.count, Call(function, (Literal(step.counter or step.count), *trees)))
        ]
        zeros = sum(character == "0" for character in step.format or "")
        if step.format:
            prefix, _, suffix = step.format.partition("0" * zeros) if zeros else (step.format, "", "")
            value = Variable(step.count)
            padded = Call("concat", (Literal("0" * zeros), value))
            cut = Call("substring", (padded, Call("length", (value,))))
            digits = Call("if", (Call("less", (Call("length", (value,)), Literal(zeros))), cut, value))
            found.append((step.count, Call("concat", (Literal(prefix.strip("'")), digits, Literal(suffix.strip("'"))))))
        return [{"kind": "set", "variable": name, "value": self._names.expression(tree)} for name, tree in found]

    def next(self, step: s.NextStep, node: Node) -> Lowered:
        """The next row of a data source."""
        return {"kind": "feed", "feeder": step.next}

    def cookie(self, step: s.CookieStep, node: Node) -> Lowered:
        """A cookie for the user's jar."""
        parts = {key: self._names.template(template(getattr(step, key))) for key in ("value", "domain", "path")}
        return {"kind": "set_cookie", "name": self._names.template(template(step.cookie)), **parts}

    def stop(self, step: s.StopStep, node: Node) -> Lowered:
        """The end of an iteration, a loop, a user or the test."""
        return {"kind": "control", "control": _CONTROLS[step.stop]}

    def outcome(self, step: s.OutcomeStep, node: Node) -> Lowered:
        """What became of a transaction around the step."""
        named = {} if step.of is None else {"transaction": step.of}
        return {"kind": "outcome", "passed": step.outcome == "passed", **named}

    def lua(self, step: s.LuaStep, node: Node) -> Lowered:
        """A body in Lua."""
        return {"kind": "script", "lua": step.lua}

    def _condition(self, text: str | bool) -> Lowered:
        return self._names.expression(condition(text))


_CONTROLS = {
    "iteration": "next_iteration", "loop": "break_loop", "pass": "next_pass", "user": "stop_user",
    "test": "stop_test", "test-now": "stop_test_now",
}  # fmt: skip
_ACTIONS: dict[type[PlanModel], Callable[[StepLowering, Any, Node], Lowered | list[Lowered]]] = {
    s.SequenceStep: StepLowering.sequence,
    s.ParallelStep: StepLowering.parallel,
    s.RepeatStep: StepLowering.repeat,
    s.WhileStep: StepLowering.while_,
    s.DuringStep: StepLowering.during,
    s.ForEachStep: StepLowering.for_each,
    s.IfStep: StepLowering.if_,
    s.SwitchStep: StepLowering.switch,
    s.WeightedStep: StepLowering.weighted,
    s.RandomOneStep: StepLowering.random_one,
    s.RandomOrderStep: StepLowering.random_order,
    s.InterleaveStep: StepLowering.interleave,
    s.OnceStep: StepLowering.once,
    s.QuotaStep: StepLowering.quota,
    s.WaitStep: StepLowering.wait,
    s.PaceStep: StepLowering.pace,
    s.ThroughputStep: StepLowering.limit,
    s.MeetStep: StepLowering.limit,
    s.SetStep: StepLowering.set,
    s.CountStep: StepLowering.count,
    s.NextStep: StepLowering.next,
    s.CookieStep: StepLowering.cookie,
    s.StopStep: StepLowering.stop,
    s.OutcomeStep: StepLowering.outcome,
    s.LuaStep: StepLowering.lua,
}
