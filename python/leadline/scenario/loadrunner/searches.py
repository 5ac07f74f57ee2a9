"""Searches in the tree of a script: calls, names that are changed, jumps. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from leadline.scenario.loadrunner import syntax as c

REQUESTS = frozenset({"web_url", "web_custom_request", "web_submit_data", "web_submit_form", "web_link", "web_image"})
"""Functions that send a request."""
ENDS = frozenset({"lr_exit", "lr_abort", "exit"})


def walk(one: Any) -> Iterator[Any]:
    """All nodes below a node, and itself."""
    pending = [one]
    while pending:
        node = pending.pop()
        if isinstance(node, tuple):
            pending += node
        elif hasattr(node, "__dataclass_fields__"):
            yield node
            pending += [getattr(node, name) for name in node.__dataclass_fields__ if name != "place"]


def called_functions(one: Any) -> Iterator[c.FunctionCall]:
    """All calls below a node."""
    return (node for node in walk(one) if isinstance(node, c.FunctionCall))


def changed_names(one: Any, functions: Mapping[str, c.Function], seen: set[str] | None = None) -> set[str]:
    """Names of variables and parameters that something may change, also in own functions that it calls."""
    found: set[str] = set()
    seen = set() if seen is None else seen
    for node in walk(one):
        if isinstance(node, c.Assignment | c.Step):
            target: Any = node.target
            while not isinstance(target, c.Name):
                target = getattr(target, "base", None) or getattr(target, "operand", None)
                if target is None:
                    break
            found |= {target.name} if isinstance(target, c.Name) else set()
        elif isinstance(node, c.FunctionCall):
            for argument in node.arguments:
                found |= {inner.name for inner in walk(argument) if isinstance(inner, c.Name)}
                if isinstance(argument, c.Text):
                    found.add(argument.value.rpartition("=")[2])
            if node.name in functions and node.name not in seen:
                seen.add(node.name)
                found |= changed_names(functions[node.name].body, functions, seen)
    return found


def has_request(one: c.Statement, functions: Mapping[str, c.Function], seen: set[str] | None = None) -> bool:
    """Whether a statement may send a request, also in own functions that it calls."""
    seen = set() if seen is None else seen
    for call in called_functions(one):
        if call.name in REQUESTS:
            return True
        if call.name in functions and call.name not in seen:
            seen.add(call.name)
            if has_request(functions[call.name].body, functions, seen):
                return True
    return False


def has_jump(one: c.Statement, kind: str) -> bool:
    """Whether a jump of this kind leaves a statement: not one that ends a loop in it."""
    if isinstance(one, c.Jump):
        return one.kind == kind
    if isinstance(one, c.Block):
        return any(has_jump(inner, kind) for inner in one.statements)
    if isinstance(one, c.If):
        return has_jump(one.then, kind) or (one.otherwise is not None and has_jump(one.otherwise, kind))
    if isinstance(one, c.Loop):
        return kind == "return" and has_jump(one.body, kind)
    if isinstance(one, c.Switch):
        return kind != "break" and any(has_jump(inner, kind) for _, body in one.cases for inner in body)
    return False


def is_ended(one: c.Statement) -> bool:
    """Whether nothing that follows a statement is executed."""
    if isinstance(one, c.Jump):
        return True
    if isinstance(one, c.Block):
        return any(is_ended(inner) for inner in one.statements)
    if isinstance(one, c.If):
        return one.otherwise is not None and is_ended(one.then) and is_ended(one.otherwise)
    return isinstance(one, c.Evaluation) and isinstance(one.value, c.FunctionCall) and one.value.name in ENDS
