"""The operators of C, with their meanings for numbers, characters and texts. Calls are in `functions`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from leadline.scenario.expressions import Call, Expression, Literal, Variable
from leadline.scenario.loadrunner import syntax as c
from leadline.scenario.loadrunner.context import CannotRun, Script
from leadline.scenario.loadrunner.expression_parser import MAX_WHOLE
from leadline.scenario.loadrunner.tokens import SourceLine
from leadline.scenario.loadrunner.values import Local, Names, Output, Value, character, negate, number, truth

NULL = Value(Literal(None), "pointer")


class Evaluation(Output):
    """Evaluates expressions; `call` is what a subclass knows of functions."""

    def __init__(self, script: Script, names: Names) -> None:
        super().__init__(script, names)

    def call(self, call: c.FunctionCall) -> Value:
        """The value of a call. Raises CannotRun."""
        raise NotImplementedError

    def evaluate(self, one: c.Expression) -> Value:
        """The value of an expression; what it does besides becomes steps. Raises CannotRun."""
        try:
            return _KINDS[type(one)](self, one)
        except CannotRun as error:
            raise CannotRun(str(error), error.place or one.place) from None

    def condition(self, one: c.Expression) -> Expression:
        """Whether an expression is true."""
        return truth(self.evaluate(one))

    def number_of(self, one: c.Expression) -> Expression:
        """The number of an expression."""
        return number(self.evaluate(one))

    def text_of(self, one: c.Expression) -> Expression:
        """The text of an expression."""
        return self.evaluate(one).tree

    def _evaluate_number(self, one: c.Number) -> Value:
        return Value(Literal(one.value), "int" if isinstance(one.value, int) else "float")

    def _evaluate_text(self, one: c.Text) -> Value:
        return Value(Literal(one.value.partition("\0")[0]), "text")

    def _evaluate_character(self, one: c.Character) -> Value:
        return Value(Literal("" if one.value == "\0" else one.value), "char")

    def _evaluate_name(self, one: c.Name) -> Value:
        local = self.names.find(one.name)
        if local is not None:
            return local.value or Value(Variable(local.name), local.kind)
        if one.name in CONSTANTS:
            return Value(Literal(CONSTANTS[one.name]), "int")
        if one.name == "NULL":
            return NULL
        raise CannotRun(f"'{one.name}' is declared nowhere")

    def _evaluate_unary(self, one: c.Unary) -> Value:
        if one.operator == "!":
            comparison = self._compare_strings(one.operand)
            return Value(comparison or negate(self.condition(one.operand)), "bool")
        if one.operator == "&":
            if isinstance(one.operand, c.Item):
                return self._cut_before(self.evaluate(one.operand.base), self.number_of(one.operand.index))
            raise CannotRun("the address of a variable has no native form")
        value = self.evaluate(one.operand)
        if one.operator == "*":
            return self._take_item(value, Literal(0))
        if one.operator not in "+-":
            raise CannotRun(f"the operator {one.operator} has no native form")
        return value if one.operator == "+" else _make_negative(value)

    def _evaluate_binary(self, one: c.Binary) -> Value:
        if one.operator in ("&&", "||"):
            return self._evaluate_logic(one)
        if one.operator in _COMPARISONS:
            return Value(self._compare(one), "bool")
        left, right = self.evaluate(one.left), self.evaluate(one.right)
        if one.operator in "+-" and left.kind in ("text", "pointer"):
            return self._move(one.operator, left, right)
        if one.operator == "+" and right.kind in ("text", "pointer"):
            return self._cut_before(right, number(left))
        if one.operator not in _ARITHMETIC:
            raise CannotRun(f"the operator {one.operator} has no native form")
        is_float = "float" in (left.kind, right.kind)
        function = _ARITHMETIC[one.operator]
        if function == "divide" and not is_float:
            function = "divide_whole"
        trees = (number(left), number(right))
        return Value(_fold(function, trees), "float" if is_float else "int")

    def _move(self, operator: str, left: Value, right: Value) -> Value:
        if operator == "+":
            return self._cut_before(left, number(right))
        if right.kind in ("text", "pointer"):
            # One is the rest of the other from some place on.
            return Value(Call("subtract", (Call("length", (right.tree,)), Call("length", (left.tree,)))), "int")
        raise CannotRun("a pointer before its text has no native form")

    def _cut_before(self, value: Value, place: Expression) -> Value:
        """A text from a place on."""
        if value.kind not in ("text", "pointer"):
            raise CannotRun("only texts have places")
        if place == Literal(0):
            return Value(value.tree, "text")
        return Value(Call("substring", (value.tree, place)), "text")

    def _evaluate_logic(self, one: c.Binary) -> Value:
        left = self.condition(one.left)
        with self.block() as steps:
            right = self.condition(one.right)
        function = "and" if one.operator == "&&" else "or"
        if not steps:
            return Value(Call(function, (left, right)), "bool")
        name = self.names.unique("holds")
        self.set(one.place, name, left)
        with self.block() as inner:
            self.out += steps
            self.set(one.place, name, right)
        held = Variable(name)
        self.emit_if(one.place, held if function == "and" else Call("not", (held,)), inner)
        return Value(held, "bool")

    def _compare(self, one: c.Binary) -> Expression:
        """`a == b` and the like."""
        for own, other in ((one.left, one.right), (one.right, one.left)):
            if (same := self._compare_strings(own)) is not None:
                if one.operator in ("==", "!=") and self.evaluate(other).tree == Literal(0):
                    return same if one.operator == "==" else negate(same)
                raise CannotRun("the order of texts has no native form; compare them by == 0 or != 0")
        left, right = self.evaluate(one.left), self.evaluate(one.right)
        if one.operator in ("==", "!=") and (null := self._test_null(left, right)) is not None:
            return null if one.operator == "!=" else negate(null)
        left, right = (Value(Literal(0), "int") if one == NULL else one for one in (left, right))
        kinds = {left.kind, right.kind}
        if "char" in kinds:
            trees = tuple(character(value) for value in (left, right))
            if one.operator in ("==", "!="):
                same = Call("same_text", trees)
                return same if one.operator == "==" else negate(same)
            return Call(_COMPARISONS[one.operator], trees)
        if kinds & {"text", "pointer"}:
            raise CannotRun("places of texts are compared, which has no native form; use strcmp")
        return _fold(_COMPARISONS[one.operator], (number(left), number(right)))

    def _test_null(self, left: Value, right: Value) -> Expression | None:
        """Whether the value that is compared with NULL is there; None if none is NULL."""
        for value, other in ((left, right), (right, left)):
            is_zero = isinstance(other.tree, Literal) and other.tree.value in (None, 0) and other.kind != "char"
            if is_zero and value.kind in ("pointer", "text") and value != other:
                return truth(value)
        return None

    def _compare_strings(self, one: c.Expression) -> Expression | None:
        """Whether the texts of `strcmp(a, b)` and the like are equal; None for another expression."""
        if not isinstance(one, c.FunctionCall) or one.name not in _STRING_COMPARISONS:
            return None
        if len(one.arguments) < (3 if _STRING_COMPARISONS[one.name] == "n" else 2):
            raise CannotRun(f"{one.name} needs more arguments")
        trees = [self.text_of(argument) for argument in one.arguments[:2]]
        if _STRING_COMPARISONS[one.name] == "n":
            length = self.number_of(one.arguments[2])
            trees = [Call("substring", (tree, Literal(0), length)) for tree in trees]
        ignores_case = "case" in one.name or "icmp" in one.name or "cmpi" in one.name
        return Call("equals_ignore_case" if ignores_case else "same_text", tuple(trees))

    def _evaluate_assignment(self, one: c.Assignment) -> Value:
        value = self.evaluate(one.value)
        return self.assign(one.target, value, one.place)

    def assign(self, target: c.Expression, value: Value, place: SourceLine) -> Value:
        """Give a variable, or a character of a text, a value."""
        if isinstance(target, c.Name):
            local = self.own_variable(target.name)
            return self.store(local, value, place)
        if isinstance(target, c.Item) and isinstance(target.base, c.Name):
            return self._assign_item(target, value, place)
        if isinstance(target, c.Unary) and target.operator == "*" and isinstance(target.operand, c.Name):
            return self._assign_item(c.Item(target.operand, c.Number(0, place), place), value, place)
        raise CannotRun("what is assigned to is no variable")

    def store(self, local: Local, value: Value, place: SourceLine) -> Value:
        """Give a variable a value."""
        tree = value.tree
        if local.kind in ("int", "float"):
            tree = number(value) if value.kind != "bool" else Call("if", (tree, Literal(1), Literal(0)))
            if local.kind == "int" and value.kind == "float":
                tree = Call("divide_whole", (tree, Literal(1)))
        elif local.kind == "char" and value.kind == "int":
            tree = self._make_character(place, value)
        elif local.kind == "text" and value.kind == "int" and tree == Literal(0):
            tree = Literal(None)
        if local.kind in ("text", "pointer"):
            tree = self.keep_random(place, tree)
        expanded = self.names.expand(tree)
        self.set(place, local.name, tree)
        if local.kind in ("text", "pointer"):
            self.names.learn(local.name, expanded)
        kind = "pointer" if value.kind == "pointer" and local.kind == "text" else local.kind
        if kind != local.kind:
            self._become_pointer(local)
        return Value(Variable(local.name), kind)

    def _become_pointer(self, local: Local) -> None:
        """A variable that may be NULL from here on."""
        for scope in self.names.scopes:
            for name, own in scope.items():
                if own == local:
                    scope[name] = Local(local.name, "pointer")

    def own_variable(self, name: str) -> Local:
        """The variable of a name; a function's parameter that is assigned to becomes one."""
        local = self.names.find(name)
        if local is None:
            raise CannotRun(f"'{name}' is declared nowhere")
        if local.value is None:
            return local
        made = Local(self.names.unique(name), local.kind)
        self.names.first[made.name] = ""
        for scope in reversed(self.names.scopes):
            if name in scope:
                scope[name] = made
                break
        return made

    def _assign_item(self, target: c.Item, value: Value, place: SourceLine) -> Value:
        assert isinstance(target.base, c.Name), "the caller has looked"
        local = self.own_variable(target.base.name)
        index = self.number_of(target.index)
        if local.kind in ("ints", "texts"):
            if not isinstance(index, Literal):
                raise CannotRun("an item of an array at a place that is computed cannot be assigned to")
            name = f"{local.name}_{index.value}"
            self.names.first.setdefault(name, "0" if local.kind == "ints" else "")
            self.set(place, name, number(value) if local.kind == "ints" else value.tree)
            return Value(Variable(name), "int" if local.kind == "ints" else "text")
        if local.kind not in ("text", "pointer"):
            raise CannotRun(f"'{target.base.name}' is no array")
        own = Variable(local.name)
        head = Call("substring", (own, Literal(0), index))
        put = self._make_character(place, value)
        if put == Literal(""):
            self.set(place, local.name, head)
        else:
            rest = Call("substring", (own, _fold("add", (index, Literal(1)))))
            self.set(place, local.name, Call("concat", (head, put, rest)))
        return value

    def _make_character(self, place: SourceLine, value: Value) -> Expression:
        """The character that a value is; a number is its code."""
        is_computed = value.kind == "int" and not isinstance(value.tree, Literal)
        return self.character_of_code(place, value.tree) if is_computed else character(value)

    def _evaluate_step(self, one: c.Step) -> Value:
        operator = "add" if one.amount > 0 else "subtract"
        before = self.evaluate(one.target)
        if before.kind in ("text", "pointer"):
            after = self._cut_before(before, Literal(one.amount))
            return self.assign(one.target, after, one.place)
        kind = "float" if before.kind == "float" else "int"
        changed = Value(_fold(operator, (number(before), Literal(1))), kind)
        if one.is_prefix:
            return self.assign(one.target, changed, one.place)
        self.assign(one.target, changed, one.place)
        if isinstance(before.tree, Literal):
            return before  # a function's parameter, which has become a variable
        reverse = "subtract" if one.amount > 0 else "add"
        return Value(Call(reverse, (before.tree, Literal(1))), before.kind)

    def _evaluate_conditional(self, one: c.Conditional) -> Value:
        condition = self.condition(one.condition)
        with self.block() as steps:
            then, otherwise = self.evaluate(one.then), self.evaluate(one.otherwise)
        if steps:
            raise CannotRun("a branch of ?: does more than having a value")
        return Value(Call("if", (condition, then.tree, otherwise.tree)), then.kind)

    def _evaluate_item(self, one: c.Item) -> Value:
        local = self.names.find(one.base.name) if isinstance(one.base, c.Name) else None
        if local is not None and local.kind in ("ints", "texts"):
            index = self.number_of(one.index)
            kind = "int" if local.kind == "ints" else "text"
            if isinstance(index, Literal):
                return Value(Variable(f"{local.name}_{index.value}"), kind)
            return Value(Call("var", (Call("concat", (Literal(f"{local.name}_"), index)),)), kind)
        return self._take_item(self.evaluate(one.base), self.number_of(one.index))

    def _take_item(self, value: Value, index: Expression) -> Value:
        if value.kind not in ("text", "pointer"):
            raise CannotRun("only texts and arrays have items")
        end = _fold("add", (index, Literal(1)))
        return Value(Call("substring", (value.tree, index, end)), "char")

    def _evaluate_cast(self, one: c.Cast) -> Value:
        value = self.evaluate(one.operand)
        if one.kind == "int" and value.kind == "float":
            return Value(Call("divide_whole", (value.tree, Literal(1))), "int")
        if one.kind == "float" and value.kind == "int":
            return Value(value.tree, "float")
        if one.kind in ("int", "float") and value.kind in ("text", "pointer"):
            raise CannotRun("the place of a text is used as a number")
        return value

    def _evaluate_list(self, one: c.ItemList) -> Value:
        return [self.evaluate(item) for item in one.items][-1]

    def _evaluate_call(self, one: c.FunctionCall) -> Value:
        if (same := self._compare_strings(one)) is not None:
            return Value(Call("if", (same, Literal(0), Literal(1))), "int")
        return self.call(one)


def _make_negative(value: Value) -> Value:
    tree, kind = number(value), "float" if value.kind == "float" else "int"
    if isinstance(tree, Literal) and isinstance(tree.value, int | float):
        return Value(Literal(-tree.value), kind)
    return Value(Call("negate", (tree,)), kind)


def _fold(function: str, trees: tuple[Expression, Expression]) -> Expression:
    """A call, or its value where it is known."""
    left, right = trees
    if isinstance(left, Literal) and isinstance(right, Literal):
        a, b = left.value, right.value
        if isinstance(a, int) and isinstance(b, int) and function in ("add", "subtract", "multiply"):
            value = {"add": a + b, "subtract": a - b, "multiply": a * b}[function]
            if abs(value) <= MAX_WHOLE:
                return Literal(value)
    return Call(function, trees)


CONSTANTS = {
    "LR_PASS": 0, "LR_FAIL": 1, "LR_AUTO": 2, "LR_STOP": 3, "TRUE": 1, "FALSE": 0, "true": 1, "false": 0, "DATE_NOW": 0,
    "TIME_NOW": 0, "ONE_DAY": 86_400, "ONE_HOUR": 3_600, "ONE_MIN": 60, "RAND_MAX": 32_767, "LR_NOT_FOUND": 1,
    "LR_EXIT_VUSER": 0, "LR_EXIT_ACTION_AND_CONTINUE": 1, "LR_EXIT_MAIN_ITERATION_AND_CONTINUE": 2,
    "LR_EXIT_ITERATION_AND_CONTINUE": 3, "LR_EXIT_VUSER_AFTER_ITERATION": 4, "LR_EXIT_VUSER_AFTER_ACTION": 5,
}  # fmt: skip
"""Numbers that LoadRunner's headers and C's have names for."""
_ARITHMETIC = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide", "%": "modulo"}
_COMPARISONS = {
    "==": "equal", "!=": "not_equal", "<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal",
}  # fmt: skip
_STRING_COMPARISONS = {
    "strcmp": "", "stricmp": "", "_stricmp": "", "strcmpi": "", "_strcmpi": "", "strcasecmp": "", "strncmp": "n",
    "strnicmp": "n", "_strnicmp": "n", "strncasecmp": "n",
}  # fmt: skip
_KINDS: dict[type, Callable[[Evaluation, Any], Value]] = {
    c.Number: Evaluation._evaluate_number,
    c.Text: Evaluation._evaluate_text,
    c.Character: Evaluation._evaluate_character,
    c.Name: Evaluation._evaluate_name,
    c.FunctionCall: Evaluation._evaluate_call,
    c.Unary: Evaluation._evaluate_unary,
    c.Binary: Evaluation._evaluate_binary,
    c.Assignment: Evaluation._evaluate_assignment,
    c.Step: Evaluation._evaluate_step,
    c.Conditional: Evaluation._evaluate_conditional,
    c.Item: Evaluation._evaluate_item,
    c.Cast: Evaluation._evaluate_cast,
    c.ItemList: Evaluation._evaluate_list,
}
