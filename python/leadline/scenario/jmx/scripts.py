"""Scripts of JMeter's plans (Groovy, BeanShell, JavaScript, JEXL) as expressions and steps of the native format.

Only what fits a small grammar is read: variables and properties are read and set, compared and computed, with if and
else. Lines that only log are left out. Anything else raises CannotRun with the statement. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from leadline.scenario.expressions import (
    Call,
    Expression,
    ExpressionError,
    Literal,
    Variable,
    merged,
    parse,
    show,
    show_template,
)
from leadline.scenario.jmx.script_statements import read_arguments, read_branch, read_statements, shorten
from leadline.scenario.jmx.script_values import (
    NUMBER,
    WHOLE,
    ScriptMeaning,
    finish_value,
    is_object,
    is_text,
    is_whole,
    name_if_null,
)
from leadline.scenario.jmx.texts import CannotRun, Texts

Steps = list[dict[str, Any]]
MOST_CHARACTERS = 20_000
LONGEST_VALUE = 5_000
"""Parts of a local variable's value and characters of its texts: each use of the variable repeats them."""


@dataclass(slots=True)
class Script:
    """What a script became."""

    steps: Steps = field(default_factory=list)
    is_only_log: bool = True
    """Whether it has no effect but its log."""
    written: list[str] = field(default_factory=list)
    """The files that it writes and nothing reads."""


class Scripts:
    """Reads scripts; `texts` reads the placeholders that JMeter replaces in them first."""

    def __init__(self, unread: frozenset[str] = frozenset()) -> None:
        self.texts: Texts | None = None
        self._unread = unread
        """Files that `__StringToFile` writes and that nothing in the plan reads."""

    def expression(self, text: str, language: str) -> Expression:
        """The value of a script: of its last statement, or of those that return. Raises CannotRun."""
        with bounded(text):
            statements = read_statements(text)
            return self._returned(statements, language, {}) if statements else Literal("")

    def _returned(self, statements: list[str], language: str, local: dict[str, Expression]) -> Expression:
        """The value of a block."""
        for index, statement in enumerate(statements):
            if _LOG.match(statement) or _IMPORT.match(statement):
                continue
            is_last = index == len(statements) - 1
            branch = read_branch(statement)
            if branch is not None:
                return self._chosen(branch, statements[index + 1 :], language, local)
            if is_last or statement.startswith("return"):
                return self.value(re.sub(r"^return\b\s*", "", statement), language, local)
            if (named := self.read_local(statement, language, local)) is None:
                raise CannotRun(f"the statement '{shorten(statement)}' has no native form")
            local[named[0]] = named[1]
        return Literal("")

    def _chosen(
        self, branch: tuple[str, str, str | None], rest: list[str], language: str, local: dict[str, Expression]
    ) -> Expression:
        """The value of an if, whose blocks return; without else, of what follows it."""
        condition, then, otherwise = branch
        other = read_statements(otherwise) if otherwise is not None else rest
        if otherwise is not None and rest:
            raise CannotRun(f"the statement '{shorten(rest[0])}' after an if has no native form")
        values = (
            self._returned(read_statements(then), language, dict(local)),
            self._returned(other, language, dict(local)),
        )
        return Call("if", (self.value(condition, language, local), *values))

    def body(self, text: str, language: str, parameters: str = "") -> Script:
        """The steps of a script. Raises CannotRun."""
        check_language(language)
        script = Script()
        with bounded(text):
            self._block(text, language, self.parameters(parameters), script, script.steps)
        return script

    def read_local(self, statement: str, language: str, local: dict[str, Expression]) -> tuple[str, Expression] | None:
        """The name and the value of a local variable that a statement sets; None for another one. Raises CannotRun."""
        match = _LOCAL.match(statement) or _ASSIGNED.match(statement)
        if match is None:
            return None
        value = self.value(statement[match.end() :], language, local, keeps_objects=True)
        if length(value) > LONGEST_VALUE:
            raise CannotRun(f"the value of {match[1]} is too long for an expression")
        return match[1], value

    def parameters(self, text: str) -> dict[str, Expression]:
        """What the script's element gives to it: its parameters as one text, and the words of that."""
        if self.texts is None or not text.strip():
            return {}
        words = tuple(self.texts.expression(word) for word in text.split())
        listed = Call("object list", words)
        return {"Parameters": self.texts.expression(text), "args": listed, "bsh": Call("object shell", (listed,))}

    def _block(self, text: str, language: str, local: dict[str, Expression], script: Script, steps: Steps) -> None:
        for statement in read_statements(text):
            self._statement(statement, language, local, script, steps)
            if steps and steps[-1].get("_rest"):
                # What follows runs only if this did not throw.
                del steps[-1]["_rest"]
                steps = steps[-1]["then"]

    def _statement(
        self, statement: str, language: str, local: dict[str, Expression], script: Script, steps: Steps
    ) -> None:
        if has_no_effect(statement):
            return
        if (match := _WRITES.match(statement)) is not None and match[1].strip() in self._unread:
            script.written.append(match[1].strip())
            return
        if statement.startswith("${__") and self._is_empty(statement):
            return
        statement = _INCREMENT.sub(r"\1 = \1 \2 1", statement)
        statement = _COMPOUND.sub(r"\1 = \1 \2 ", statement)
        if (branch := read_branch(statement)) is not None:
            condition, then, otherwise = branch
            made: dict[str, Any] = {"if": show(self.value(condition, language, local)), "then": []}
            self._branch_block(then, language, local, script, made["then"])
            if otherwise is not None:
                made["else"] = []
                self._branch_block(otherwise, language, local, script, made["else"])
            if made["then"] or made.get("else"):
                steps.append(made)
            return
        step = self._simple(statement, language, local)
        if step is not None:
            script.is_only_log = False
            steps += step

    def _is_empty(self, statement: str) -> bool:
        """Whether JMeter replaces a statement with nothing; what its functions do are steps before the script."""
        assert self.texts is not None, "the texts are set when the plan is read"
        parts = self.texts.template(statement)
        return all(isinstance(part, str) and not part.strip(" ;") for part in parts)

    def _put_or_remove(self, statement: str, language: str, local: dict[str, Expression]) -> Steps | None:
        """The steps of `vars.put` and the like; None for another statement."""
        if (match := _PUT.match(statement)) is not None:
            arguments = read_arguments(statement[match.end() - 1 :])
            if len(arguments) == 2:
                name = self._constant(arguments[0], language, local)
                return _put(match[1], name, self.value(arguments[1], language, local))
        if (match := _REMOVE.match(statement)) is not None:
            name = self._constant(read_arguments(statement[match.end() - 1 :])[0], language, local)
            if match[1] == "vars":
                return [{"set": {name: None}}]
            if self.texts is None or name not in self.texts.shared:
                raise CannotRun(f"the property {name} is removed, but nothing in the plan sets it")
            return [{"set": {name: None}, "shared": True}]
        if (match := _INDEXED.match(statement)) is not None:
            return _put(match[1], match[2], self.value(statement[match.end() :], language, local))
        return None

    def _branch_block(
        self, text: str, language: str, local: dict[str, Expression], script: Script, steps: Steps
    ) -> None:
        """A block that may not run: what it assigns to a variable of the outer block has that one's name."""
        inner = dict(local)
        self._block(text, language, inner, script, steps)
        for name, value in local.items():
            if value == _UNDECIDED:
                local[name] = inner[name]
            elif value != inner[name]:
                raise CannotRun(f"the variable {name} has values of two types")

    def _simple(self, statement: str, language: str, local: dict[str, Expression]) -> Steps | None:
        """The steps of one statement; None if it has no effect."""
        if (step := self._put_or_remove(statement, language, local)) is not None:
            return step
        if (match := _SLEEP.match(statement)) is not None:
            time = self.value(read_arguments(statement[match.end() - 1 :])[0], language, local)
            return [{"wait": f"${{{show(time)}}}ms" if not isinstance(time, Literal) else f"{time.value}ms"}]
        if (match := _LOCAL.match(statement)) is not None or (match := _ASSIGNED.match(statement)) is not None:
            return self._assign(match[1], statement[match.end() :], language, local)
        if (match := _DECLARED.fullmatch(statement)) is not None:
            local[match[1]] = _UNDECIDED
            return [{"set": {f"{kind}_{match[1]}": None for kind in ("local", NUMBER, WHOLE)}}]
        if re.fullmatch(r"return\b.*|null|true|false", statement, re.S) and "(" not in statement:
            return None
        raise CannotRun(f"the statement '{shorten(statement)}' has no native form")

    def _assign(self, name: str, text: str, language: str, local: dict[str, Expression]) -> Steps:
        """A local variable is stored, so that a random value is computed once; an object stands for itself."""
        computed = self.value(text, language, local, keeps_objects=True)
        if isinstance(computed, Call) and computed.function == "object json":
            source, path = computed.arguments
            source = finish_value(source, language)
            local[name] = Call("object json", (Variable(f"local_{name}"), path))
            return [{"set": {f"local_{name}": show_template(merged((source,)))}}]
        if is_object(computed):
            local[name] = computed
            return []
        kind = "local" if is_text(computed) else WHOLE if is_whole(computed) else NUMBER
        local[name] = Variable(f"{kind}_{name}")
        return [{"set": {f"{kind}_{name}": show_template(merged((computed,)))}}]

    def _constant(self, text: str, language: str, local: dict[str, Expression]) -> str:
        value = self.value(text, language, local)
        if not isinstance(value, Literal) or not isinstance(value.value, str) or not value.value:
            raise CannotRun(f"the variable's name in '{shorten(text)}' is not a constant")
        return value.value

    def value(
        self, text: str, language: str, local: dict[str, Expression], *, keeps_objects: bool = False
    ) -> Expression:
        """The value of an expression. Raises CannotRun."""
        assert self.texts is not None, "the texts are set when the plan is read"
        try:
            tree = parse(text.strip().rstrip(";"), ScriptMeaning(self.texts, local, language))
            return tree if keeps_objects and is_object(tree) else finish_value(tree, language)
        except CannotRun:
            raise
        except ExpressionError as error:
            raise CannotRun(f"'{shorten(text)}' has no native form: {error}") from None


def check_language(language: str) -> None:
    """Refuse a language whose scripts are not read. Raises CannotRun."""
    if language not in _LANGUAGES:
        raise CannotRun(f"scripts in {language or 'an unnamed language'} have no native form")


def has_no_effect(statement: str) -> bool:
    """Whether a statement only logs, imports, or changes what results show."""
    return any(pattern.match(statement) for pattern in (_LOG, _IMPORT, _IGNORED))


def _put(kind: str, name: str, value: Expression) -> Steps:
    """A value that is put into a variable or a property; a property cannot have null, and keeps what it has."""
    step: dict[str, Any] = {"set": {name: show_template(merged((value,)))}}
    if kind == "vars":
        return [step]
    step["shared"] = True
    source = name_if_null(value)
    return (
        [step]
        if source is None
        else [{"if": show(Call("is_defined", (Variable(source),))), "then": [step], "_rest": True}]
    )


@contextmanager
def bounded(text: str) -> Iterator[None]:
    """Refuse a script that is too long, and in the block one that is nested too deeply. Raises CannotRun."""
    if len(text) > MOST_CHARACTERS:
        raise CannotRun(f"a script of {len(text)} characters has no native form")
    try:
        yield
    except RecursionError:
        raise CannotRun("a script that is nested so deeply has no native form") from None


def length(tree: Expression) -> int:
    """The number of an expression's parts, and of the characters of its texts."""
    if isinstance(tree, Call):
        return 1 + sum(map(length, tree.arguments))
    return len(tree.value) if isinstance(tree, Literal) and isinstance(tree.value, str) else 1


_LANGUAGES = frozenset(
    {"groovy", "beanshell", "javascript", "jexl", "jexl2", "jexl3", "java", "bsh", "nashorn", "rhino"}
)
_LOG = re.compile(
    r"(?:log\s*\.\s*\w+|OUT\s*\.\s*print\w*|System\s*\.\s*(?:out|err)\s*\.\s*print\w*|print(?:ln)?)"
    r"(?:\s*\(|[ \t]+[\"'\w])"
)
"""A line that logs; Groovy needs no brackets around its text."""
_WRITES = re.compile(r"\$\{__StringToFile\(([^,$<]+),[^;]*\)\}\s*;?$")
_IMPORT = re.compile(r"import\s|package\s")
_IGNORED = re.compile(
    r"(?:SampleResult|prev)\s*\.\s*(?:setIgnore|setSampleLabel|setResponseMessage|setResponseMessageOK|setDataType|"
    r"setResponseCodeOK|setSamplerData)\s*\("
)
_TYPE = r"(?:final\s+)?(?!return\b|else\b|new\b|throw\b|import\b)[A-Za-z_][\w.]*(?:<[\w.,\s<>?]*>)?(?:\[\])?"
_LOCAL = re.compile(rf"{_TYPE}\s+(\w+)\s*=(?!=)\s*")
_DECLARED = re.compile(rf"{_TYPE}\s+(\w+)\s*;?")
_INCREMENT = re.compile(r"^(\w+)\s*([+-])\2\s*;?$")
_COMPOUND = re.compile(r"^(\w+)\s*([-+*/])=\s*(?!=)")
_UNDECIDED = Literal(None)
"""The value of a local variable that has none yet: its type is that of its first value."""
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)\s*=(?![=~])\s*")
_PUT = re.compile(r"(vars|props|JMeterUtils)\s*\.\s*(?:put|putObject|setProperty)\s*\(")
_REMOVE = re.compile(r"(vars|props)\s*\.\s*remove\s*\(")
_INDEXED = re.compile(r"(vars|props)\s*(?:\[\s*[\"'])([^\"'\]]+)[\"']\s*\]\s*=(?!=)\s*")
_SLEEP = re.compile(r"(?:Thread\s*\.\s*)?sleep\s*\(")
