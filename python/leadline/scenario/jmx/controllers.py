"""JMeter's controllers, as native steps around the steps of their children."""

from __future__ import annotations

import math
from typing import Any

from leadline.scenario.conversion import Made
from leadline.scenario.expressions import Call, Expression, Literal, Variable, show
from leadline.scenario.jmx.context import Context, made
from leadline.scenario.jmx.tree import Element, texts

Steps = list[dict[str, Any]]


def named(element: Element, **entries: Any) -> Made:
    """A native step with the element's name."""
    return made(element, **({"name": element.name.replace("${", "$${")} if element.name else {}), **entries)


def loop(context: Context, element: Element, steps: Steps, children: list[Steps]) -> Steps:
    """The steps, repeated a number of times or for ever."""
    text = element.text("LoopController.loops").strip() or "0"
    element.flag("LoopController.continue_forever")
    count = context.number(element, text, "1")
    is_endless = isinstance(count, int) and count < 0
    if count == 0:
        context.conversion.dropped(element.what, element.line, "it has 0 loops")
        return []
    return [named(element, repeat="forever" if is_endless else count, steps=steps, **_index(context, element))]


def while_(context: Context, element: Element, steps: Steps, children: list[Steps]) -> Steps:
    """A loop that ends only where the condition is the text false; blank or LAST: where the last request failed."""
    text = element.text("WhileController.condition").strip()
    before: Steps = []
    if text.upper() == "LAST":
        condition: Expression | None = Call("last_ok")
    elif not text:
        # The first pass is not asked.
        first = f"__first_{element.line}"
        condition = Call("or", (Call("equal", (Variable(first), Literal("yes"))), Call("last_ok")))
        before, steps = [made(element, set={first: "yes"})], [made(element, set={first: "no"}), *steps]
    else:
        condition = context.expression(element, text)
        if isinstance(condition, Literal):
            condition = Literal(str(condition.value).strip().lower() != "false")
        elif condition is not None and not _is_boolean(condition):
            condition = Call("not", (Call("equals_ignore_case", (condition, Literal("false"))),))
    if condition is None:
        return []
    if index := _index(context, element).get("index"):
        # JMeter's condition sees the number of the pass that it decides on.
        passed = Variable(index)
        number = Call("if", (Call("is_defined", (passed,)), Call("add", (passed, Literal(1))), Literal(0)))
        condition = _replaced(condition, index, number)
        before = [*before, made(element, set={index: None})]
    return [*before, named(element, **{"while": show(condition)}, steps=steps, **_index(context, element))]


def _replaced(tree: Expression, name: str, value: Expression) -> Expression:
    """The tree with a value in place of a variable."""
    if isinstance(tree, Variable):
        return value if tree.name == name else tree
    if not isinstance(tree, Call):
        return tree
    if tree.function == "var" and tree.arguments[0] == Literal(name):
        return value
    return Call(tree.function, tuple(_replaced(argument, name, value) for argument in tree.arguments))


def if_(context: Context, element: Element, steps: Steps, children: list[Steps]) -> Steps:
    """The steps under a condition, which is evaluated once or before each child."""
    text = element.text("IfController.condition").strip()
    element.flag("IfController.evaluateAll")
    condition: Expression | None = None
    if element.flag("IfController.useExpression"):
        condition = context.expression(element, text)
        if condition is not None and not _is_boolean(condition):
            condition = Call("equals_ignore_case", (condition, Literal("true")))
    else:
        with context.reported(element):
            condition = context.scripts.expression(text, "javascript")
    if condition is None:
        return []
    shown = show(condition)
    if element.flag("IfController.evaluateAll") and len(children) > _MOST_NESTED:
        context.conversion.changed(element.what, element.line, "the condition is evaluated once, not for each child")
    elif element.flag("IfController.evaluateAll"):
        steps = []
        for child in reversed(children[1:]):
            steps = [made(element, **{"if": shown}, then=[*child, *steps])]
        steps = [*(children[0] if children else []), *steps]
    return [named(element, **{"if": shown}, then=steps)]


def _is_boolean(tree: Expression) -> bool:
    if isinstance(tree, Literal):
        return isinstance(tree.value, bool)
    return isinstance(tree, Call) and tree.function in _BOOLEAN


def once(context: Context, element: Element, steps: Steps, children: list[Steps]) -> Steps:
    """The steps of the first pass of the loop that it stands in; in another controller inside of a loop, the user's
    first pass."""
    parent = context.parents[-1].kind if context.parents else ""
    if parent and parent not in _LOOPS and any(one.kind in _LOOPS for one in context.parents):
        return [named(element, at_most=1, per_user=True, steps=steps)]
    return [named(element, once=steps)]


def quota(context: Context, element: Element, steps: Steps, children: list[Steps]) -> Steps:
    """The steps in a share of the passes, or in a number of them."""
    style = element.text("ThroughputController.style", "0").strip()
    count, share = element.text("ThroughputController.maxThroughput", "1"), _share(element)
    per_user = {"per_user": True} if element.flag("ThroughputController.perThread") else {}
    if style == "0":
        return [named(element, at_most=context.number(element, count, "1"), steps=steps, **per_user)]
    return [named(element, percent=context.number(element, share, "100"), steps=steps, **per_user)]


def _share(element: Element) -> str:
    return element.text("ThroughputController.percentThroughput") or element.text("percentThroughput") or "100"


def switch(context: Context, element: Element, steps: Steps, children: list[Steps]) -> Steps:
    """The case of a number from 0 or of a name; another name is the child `default`."""
    cases: dict[str, Steps] = {}
    for index, child in enumerate(children):
        name = str(child[-1].get("name") or child[-1].get("transaction") or index) if child else str(index)
        cases[name if name not in cases else f"{name} ({index})"] = child
    text = _selection(context, element, len(children))
    rest = next((child for name, child in cases.items() if name.lower() == "default"), None)
    found = named(
        element, switch=text, cases={name: child for name, child in cases.items() if name.lower() != "default"}
    )
    if rest:
        found["default"] = rest
    return [found]


def _selection(context: Context, element: Element, count: int) -> str:
    """The name or the number of a child; a number that no child has is the first one's."""
    text = element.text("SwitchController.value").strip() or "0"
    if "${" not in text:
        return "0" if text.isdecimal() and (len(text) > 9 or int(text) >= count) else text
    tree = context.expression(element, text)
    if tree is None:
        return "0"
    is_number = Call("matches", (tree, Literal("[0-9]+")))
    too_large = Call("and", (is_number, Call("greater_equal", (Call("int", (tree,)), Literal(count)))))
    return f"${{{show(Call('if', (too_large, Literal('0'), tree)))}}}"


def random_one(context: Context, element: Element, steps: Steps, children: list[Steps]) -> Steps:
    """One of the children at random."""
    return [named(element, random_one=_choices(context, element, children))] if children else []


def random_order(context: Context, element: Element, steps: Steps, children: list[Steps]) -> Steps:
    """All children in random order."""
    return [named(element, random_order=[_one(child) for child in children])] if children else []


def interleave(context: Context, element: Element, steps: Steps, children: list[Steps]) -> Steps:
    """One child in each pass, in turn, of each user or of all together."""
    shared = {"shared": True} if element.flag("InterleaveControl.accrossThreads") else {}
    return [named(element, interleave=_choices(context, element, children), **shared)] if children else []


def _choices(context: Context, element: Element, children: list[Steps]) -> Steps:
    """The children; with style 0 a controller among them runs its samplers one at a time, each when its turn comes."""
    if element.text("InterleaveControl.style", "0").strip() == "1":
        return [_one(child) for child in children]
    return [_in_turn(context, element, _one(child)) for child in children]


def _in_turn(context: Context, element: Element, step: dict[str, Any]) -> dict[str, Any]:
    inside = step.get("steps", [])
    if len(inside) < 2 or (isinstance(step, Made) and step.is_one) or "repeat" in step or "for_each" in step:
        if {"repeat", "while", "during", "for_each", "then"} & step.keys():
            why = "a loop or a condition in it runs to its end when its turn comes"
            context.conversion.changed(element.what, element.line, why)
        return step
    turns = {"interleave": [_in_turn(context, element, one) for one in inside]}
    return {**step, "steps": [turns]} if "transaction" in step else turns


def _one(steps: Steps) -> dict[str, Any]:
    """Several steps as one."""
    return steps[0] if len(steps) == 1 else {"steps": steps}


def for_each(context: Context, element: Element, steps: Steps, children: list[Steps]) -> Steps:
    """The steps for each of the variables with a prefix and a number."""
    entries: dict[str, Any] = {"for_each": element.text("ForeachController.inputVal").strip()}
    entries["as"] = element.text("ForeachController.returnVal").strip()
    start, end = (element.text(f"ForeachController.{name}Index").strip() for name in ("start", "end"))
    if start not in ("", "0"):
        entries["start"] = context.number(element, start)
    if end:
        entries["end"] = context.number(element, end)
    if not element.flag("ForeachController.useSeparator", True):
        entries["underscore"] = False
    if not entries["for_each"] or not entries["as"]:
        context.cannot(element, "it names no variables")
        return []
    return [named(element, **entries, steps=steps, **_index(context, element))]


def during(context: Context, element: Element, steps: Steps, children: list[Steps]) -> Steps:
    """The steps, repeated for a time."""
    return [named(element, during=context.seconds(element, element.text("RunTime.seconds"), "1"), steps=steps)]


def transaction(context: Context, element: Element, steps: Steps, children: list[Steps]) -> Steps:
    """The steps as a transaction, with or without the waits in it."""
    found = made(element, transaction=context.label(element) or "transaction")
    if element.flag("TransactionController.includeTimers", True):
        found["with_waits"] = True
    # With and without it JMeter's results have a row for each request; only the order of the rows differs.
    element.flag("TransactionController.parent")
    found["steps"] = steps
    return [found]


def sequence(context: Context, element: Element, steps: Steps, children: list[Steps]) -> Steps:
    """The steps in order."""
    return [named(element, steps=steps)] if steps else []


def locked(context: Context, element: Element, steps: Steps, children: list[Steps]) -> Steps:
    """The steps of a critical section in order; that only one user at a time runs them is not kept."""
    element.text("CriticalSectionController.lockName")
    context.conversion.changed(element.what, element.line, "users do not wait for one another here")
    return sequence(context, element, steps, children)


def parallel(context: Context, element: Element, steps: Steps, children: list[Steps]) -> Steps:
    """The requests of bzm's parallel controller at once. Waits of each are before all of them."""
    most = (
        int(context.static(element, element.text("MAX_THREAD_NUMBER"), 6))
        if element.flag("LIMIT_MAX_THREAD_NUMBER")
        else 256
    )
    if element.flag("PARENT_SAMPLE"):
        context.conversion.changed(element.what, element.line, "its requests are listed one by one")
    requests: Steps = []
    for step in steps:
        if "_request" in step and not step.get("before") and not step.get("after"):
            requests.append(step)
        else:
            context.cannot(element, "steps other than plain requests have no native form in parallel")
    waits = [request.pop("waits", None) for request in requests]
    if any(one != waits[0] for one in waits):
        why = (
            "its requests begin together, after the waits of the first one: JMeter's wait one by one, at the same time"
        )
        context.conversion.changed(element.what, element.line, why)
    if not requests:
        return []
    before = waits[0] if isinstance(waits[0], list) else [waits[0]] if waits[0] is not None else []
    together = named(element, parallel=requests, connections=max(1, min(most, 256)))
    return [*(pause(element, wait) for wait in before), together]


def pause(element: Element, wait: Any) -> Made:
    """A wait as a step."""
    is_own = isinstance(wait, dict) and ("throughput" in wait or "meet" in wait)
    return made(element, **wait) if is_own else made(element, wait=wait)


def weighted(context: Context, element: Element, steps: Steps, children: list[Steps]) -> Steps:
    """The children of bzm's weighted switch: rows of a child's name and its weight. Each user goes through them in a
    fixed order."""
    rows = [row for tag in element.rows("Weights") if len(row := texts(tag)) >= 2]
    by_name = {row[0]: row[1] for row in rows}
    parts: Steps = []
    for index, child in enumerate(children):
        name = str(child[-1].get("name") or child[-1].get("transaction") or "")
        text = rows[index][1] if len(rows) == len(children) else by_name.get(name, "1")
        if (weight := context.static(element, text, 1)) > 0:
            parts.append({"weight": weight, **({"name": name} if name else {}), "steps": child})
    if not parts or element.flag("isRandomChoice"):
        return [named(element, weighted=parts)] if parts else []
    order = _order_by_weight([part["weight"] for part in parts])
    if order is None:
        why = "its children are chosen at random by their weights: the order that they need is too long"
        context.conversion.changed(element.what, element.line, why)
        return [named(element, weighted=parts)]
    turn = f"__turn_{element.line}"
    count = made(element, count=turn, most=len(order) - 1, per_user=True)
    place = Call("split_part", (Literal(" ".join(map(str, order))), Literal(" "), Variable(turn)))
    cases = {f"{index}": part["steps"] for index, part in enumerate(parts)}
    return [count, named(element, switch=f"${{{show(place)}}}", cases=cases)]


def _order_by_weight(weights: list[float]) -> list[int] | None:
    """The plugin's order: always the child whose share so far is the furthest below its own. It repeats."""
    if any(weight != int(weight) for weight in weights):
        return None
    divisor = math.gcd(*map(int, weights))
    wholes = [int(weight) // divisor for weight in weights]
    total = sum(wholes)
    if total > _LONGEST_ORDER:
        return None
    counts, order = [0] * len(wholes), []
    for done in range(total):
        # Of the difference of two shares only the order matters: both are multiplied by total * done.
        lacks = [whole * max(done, 1) - count * total for whole, count in zip(wholes, counts, strict=True)]
        order.append(lacks.index(max(lacks)))
        counts[order[-1]] += 1
    return order


def _index(context: Context, element: Element) -> dict[str, str]:
    """The variable with the number of the pass, if the plan reads it."""
    name = f"__jm__{element.name}__idx"
    return {"index": name} if name in context.indexes else {}


_BOOLEAN = frozenset({
    "and", "or", "not", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "contains",
    "starts_with", "ends_with", "matches", "contains_match", "equals_ignore_case", "is_empty", "is_defined", "last_ok",
    "same_text",
})  # fmt: skip
_MOST_NESTED = 20
_LONGEST_ORDER = 1000
_LOOPS = frozenset({"LoopController", "WhileController", "ForeachController", "RunTime"})
CONTROLLERS = {
    "GenericController": sequence,
    "RecordingController": sequence,
    "LoopController": loop,
    "WhileController": while_,
    "IfController": if_,
    "OnceOnlyController": once,
    "ThroughputController": quota,
    "SwitchController": switch,
    "RandomController": random_one,
    "RandomOrderController": random_order,
    "InterleaveControl": interleave,
    "ForeachController": for_each,
    "RunTime": during,
    "TransactionController": transaction,
    "CriticalSectionController": locked,
    "ParallelSampler": parallel,
    "WeightedSwitchController": weighted,
}
