"""Lowers expressions and templates to the agent's, and computes those that do not depend on a user.

`param('name', default)` is computed here: from `-J name=value`, else its default. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from leadline.masking import is_secret_name
from leadline.scenario.expressions import Call, Expression, Literal, Template, Value, Variable, joined

Lowered = dict[str, Any]
"""A part of the specification, as JSON."""

OPS = {
    "concat": "join", "random": "random_integer", "now": "time_ms", "now_s": "time_s", "user": "user_number",
    "users": "active_users", "contains_match": "finds", "equals_ignore_case": "equal_ignoring_case",
    "int": "to_integer", "number": "to_number", "text": "to_text", "base64": "base64_encode",
    "any_of": "random_of", "group": "population", "find": "group", "abs": "absolute", "min": "minimum",
    "max": "maximum", "var": "variable_named",
}  # fmt: skip
"""Functions that have another name as an operation of the agent."""


@dataclass(frozen=True, slots=True)
class Names:
    """What names mean before the test begins."""

    parameters: Mapping[str, str] = field(default_factory=dict)
    """By `-J name=value`."""
    constants: Mapping[str, Value] = field(default_factory=dict)
    """Variables of the scenario whose values are constants."""
    keeps_unset: bool = False
    """Whether the placeholder of an unset variable stays."""
    secrets: frozenset[str] = frozenset()
    """Names of parameters and variables whose values are masked, beside those that look like it."""
    read_file: Callable[[str], bytes] | None = None
    """Reads the files that `file()` names."""
    hides: bool = False
    """Whether secrets have no value here."""
    secret_parameters: dict[str, str] = field(default_factory=dict)
    """Values of the secret parameters that were used, by the variables that hold them: these are masked."""

    def template(self, parts: Template) -> list[Any]:
        """A template for the agent."""
        found: list[Any] = []
        for part in parts:
            if isinstance(part, str):
                lowered: Any = part
            else:
                lowered = self.expression(part)
                if lowered["op"] == "literal":
                    lowered = as_text(lowered.get("value"))
            if isinstance(lowered, str) and found and isinstance(found[-1], str):
                found[-1] += lowered
            elif lowered != "":
                found.append(lowered)
        return found

    def expression(self, tree: Expression) -> Lowered:
        """An expression for the agent."""
        if isinstance(tree, Literal):
            return {"op": "literal"} if tree.value is None else {"op": "literal", "value": tree.value}
        if isinstance(tree, Variable):
            kept = {"value": f"${{{tree.name}}}"} if self.keeps_unset else {}
            return {"op": "variable", "name": tree.name, **kept}
        if tree.function == "file":
            return self.expression(Literal(self.value(tree)))
        if tree.function == "param":
            value = self.parameter(tree)
            name = as_text(self.value(tree.arguments[0]))
            if not self.is_secret(name):
                return self.expression(Literal(value))
            variable = f"param('{name}')"
            self.secret_parameters[variable] = as_text(value)
            return {"op": "variable", "name": variable}
        return self._call(tree)

    def is_secret(self, name: str) -> bool:
        """Whether the value of a parameter or variable of this name is masked."""
        return name in self.secrets or is_secret_name(name)

    def _call(self, tree: Call) -> Lowered:
        op = OPS.get(tree.function, tree.function)
        arguments = list(tree.arguments)
        named: Lowered = {}
        if tree.function in ("counter", "user_counter", "is_defined"):
            op = {"is_defined": "is_set"}.get(op, op)
            first = arguments.pop(0)
            named = {"name": first.name if isinstance(first, Variable) else as_text(self.value(first))}
        lowered = [self.expression(argument) for argument in arguments]
        return {"op": op, **named, **({"arguments": lowered} if lowered else {})}

    def parameter(self, tree: Call) -> Value:
        """The value of `param(name, default)`. Raises ValueError without either."""
        name = as_text(self.value(tree.arguments[0]))
        if self.hides and self.is_secret(name):
            raise ValueError(f"the parameter '{name}' is secret")
        if name in self.parameters:
            return self.parameters[name]
        if len(tree.arguments) > 1:
            return self.value(tree.arguments[1])
        raise ValueError(f"the parameter '{name}' has no value; give -J {name}=VALUE")

    def value(self, tree: Expression) -> Value:
        """The value of an expression that depends on no user.

        Raises:
            ValueError: it does.
        """
        if isinstance(tree, Literal):
            return tree.value
        if isinstance(tree, Variable):
            if tree.name in self.constants:
                return self.constants[tree.name]
            raise ValueError(
                f"the variable '{tree.name}' is not known before the test begins; use param('{tree.name}')"
            )
        if tree.function == "param":
            return self.parameter(tree)
        if tree.function == "file":
            return self.content(*(as_text(self.value(argument)) for argument in tree.arguments))
        if tree.function == "var" and len(tree.arguments) > 1:
            name = as_text(self.value(tree.arguments[0]))
            return self.parameters[name] if name in self.parameters else self.value(tree.arguments[1])
        return _computed(tree.function, [self.value(argument) for argument in tree.arguments])

    def content(self, name: str, encoding: str = "utf-8") -> str:
        """The text of a file beside the scenario. Raises ValueError."""
        if self.read_file is None:
            raise ValueError(f"the file {name} is not read here")
        try:
            return self.read_file(name).decode(encoding or "utf-8").removeprefix("\ufeff")
        except (UnicodeDecodeError, LookupError):
            raise ValueError(
                f"{name} is not text in {encoding}; give its encoding, as in file('{name}', 'latin1')"
            ) from None

    def text(self, parts: Template) -> str:
        """A template's text before the test begins. Raises ValueError."""
        return as_text(self.value(joined(parts)))

    def number(self, value: int | float | Expression) -> float:
        """A number before the test begins. Raises ValueError."""
        found = value if isinstance(value, int | float) else self.value(value)
        if isinstance(found, bool) or found is None:
            raise ValueError(f"{as_text(found)!r} is not a number")
        try:
            return float(found)
        except ValueError:
            raise ValueError(f"{found!r} is not a number") from None


def _computed(function: str, values: list[Value]) -> Value:
    if function == "concat":
        return "".join(as_text(value) for value in values)
    if function == "if":
        return values[1] if values[0] not in (None, False, 0, "", "false") else values[2]
    if function in ("text", "trim", "upper", "lower"):
        text = as_text(values[0])
        return {"text": text, "trim": text.strip(), "upper": text.upper(), "lower": text.lower()}[function]
    if function not in _ARITHMETIC:
        raise ValueError(f"{function}() has no value before the test begins")
    numbers = [_as_number(value) for value in values]
    found: int | float = _ARITHMETIC[function](*numbers)
    return found


def _as_number(value: Value) -> int | float:
    text = as_text(value)
    try:
        return int(text) if text.lstrip("-").isdecimal() else float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None


def _divided(a: float, b: float) -> float:
    if b == 0:
        raise ValueError("a division by 0")
    return int(a // b) if isinstance(a, int) and isinstance(b, int) and a % b == 0 else a / b


def _remainder(a: float, b: float) -> float:
    if b == 0:
        raise ValueError("a division by 0")
    return a % b


_ARITHMETIC: Mapping[str, Any] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "divide": _divided,
    "divide_whole": lambda a, b: int(_divided(a, b)),
    "modulo": _remainder,
    "negate": lambda a: -a,
    "abs": abs,
    "int": int,
    "number": lambda a: a,
    "round": round,
    "min": min,
    "max": max,
}


def as_text(value: Value) -> str:
    """A value as text."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return "" if value is None else str(value)
