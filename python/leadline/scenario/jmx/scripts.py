"""Scripts of JMeter's plans (Groovy, BeanShell, JavaScript, JEXL) as expressions and steps of the native format.

Only what fits a small grammar is read: variables and properties are read and set, compared and computed, with if and
else. Lines that only log are left out. Anything else raises CannotRun with the statement. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from leadline.scenario.expressions import (
    Call,
    Expression,
    ExpressionError,
    Literal,
    Variable,
    joined,
    merged,
    parse,
    show,
    show_template,
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


class Scripts:
    """Reads scripts; `texts` reads the placeholders that JMeter replaces in them first."""

    def __init__(self) -> None:
        self.texts: Texts | None = None

    def expression(self, text: str, language: str) -> Expression:
        """The value of a script: of its last statement, or of those that return. Raises CannotRun."""
        with _bounded(text):
            statements = _statements(text)
            return self._returned(statements, language, {}) if statements else Literal("")

    def _returned(self, statements: list[str], language: str, local: dict[str, Expression]) -> Expression:
        """The value of a block."""
        for index, statement in enumerate(statements):
            if _LOG.match(statement) or _IMPORT.match(statement):
                continue
            is_last = index == len(statements) - 1
            branch = _branch(statement)
            if branch is not None:
                return self._chosen(branch, statements[index + 1 :], language, local)
            if is_last or statement.startswith("return"):
                return self._value(re.sub(r"^return\b\s*", "", statement), language, local)
            match = _LOCAL.match(statement) or _ASSIGNED.match(statement)
            if match is None:
                raise CannotRun(f"the statement '{_short(statement)}' has no native form")
            local[match[1]] = self._value(statement[match.end() :], language, local)
            if _length(local[match[1]]) > LONGEST_VALUE:
                raise CannotRun(f"the value of {match[1]} is too long for an expression")
        return Literal("")

    def _chosen(
        self, branch: tuple[str, str, str | None], rest: list[str], language: str, local: dict[str, Expression]
    ) -> Expression:
        """The value of an if, whose blocks return; without else, of what follows it."""
        condition, then, otherwise = branch
        other = _statements(otherwise) if otherwise is not None else rest
        if otherwise is not None and rest:
            raise CannotRun(f"the statement '{_short(rest[0])}' after an if has no native form")
        values = (
            self._returned(_statements(then), language, dict(local)),
            self._returned(other, language, dict(local)),
        )
        return Call("if", (self._value(condition, language, local), *values))

    def body(self, text: str, language: str, parameters: str = "") -> Script:
        """The steps of a script. Raises CannotRun."""
        if language not in _LANGUAGES:
            raise CannotRun(f"scripts in {language or 'an unnamed language'} have no native form")
        script = Script()
        with _bounded(text):
            self._block(text, language, {}, script, script.steps)
        return script

    def _block(self, text: str, language: str, local: dict[str, Expression], script: Script, steps: Steps) -> None:
        for statement in _statements(text):
            self._statement(statement, language, local, script, steps)

    def _statement(
        self, statement: str, language: str, local: dict[str, Expression], script: Script, steps: Steps
    ) -> None:
        if _LOG.match(statement) or _IMPORT.match(statement) or _IGNORED.match(statement):
            return
        if (branch := _branch(statement)) is not None:
            condition, then, otherwise = branch
            made: dict[str, Any] = {"if": show(self._value(condition, language, local)), "then": []}
            self._block(then, language, dict(local), script, made["then"])
            if otherwise is not None:
                made["else"] = []
                self._block(otherwise, language, dict(local), script, made["else"])
            if made["then"] or made.get("else"):
                steps.append(made)
            return
        step = self._simple(statement, language, local)
        if step is not None:
            script.is_only_log = False
            steps += step

    def _simple(self, statement: str, language: str, local: dict[str, Expression]) -> Steps | None:
        """The steps of one statement; None if it has no effect."""
        if (match := _PUT.match(statement)) is not None:
            arguments = _call_arguments(statement[match.end() - 1 :])
            if len(arguments) == 2:
                name = self._constant(arguments[0], language, local)
                value = show_template(merged((self._value(arguments[1], language, local),)))
                is_shared = match[1] == "props"
                return [{"set": {name: value}, **({"shared": True} if is_shared else {})}]
        if (match := _REMOVE.match(statement)) is not None:
            return [{"set": {self._constant(_call_arguments(statement[match.end() - 1 :])[0], language, local): None}}]
        if (match := _INDEXED.match(statement)) is not None:
            value = show_template(merged((self._value(statement[match.end() :], language, local),)))
            return [{"set": {match[2]: value}, **({"shared": True} if match[1] == "props" else {})}]
        if (match := _SLEEP.match(statement)) is not None:
            time = self._value(_call_arguments(statement[match.end() - 1 :])[0], language, local)
            return [{"wait": f"${{{show(time)}}}ms" if not isinstance(time, Literal) else f"{time.value}ms"}]
        if (match := _LOCAL.match(statement)) is not None or (match := _ASSIGNED.match(statement)) is not None:
            # Stored, so that a random value is computed once.
            computed = self._value(statement[match.end() :], language, local)
            name = f"{'local' if _is_text(computed) else _NUMBER}_{match[1]}"
            local[match[1]] = Variable(name)
            return [{"set": {name: show_template(merged((computed,)))}}]
        if re.fullmatch(r"return\b.*|null|true|false", statement, re.S) and "(" not in statement:
            return None
        raise CannotRun(f"the statement '{_short(statement)}' has no native form")

    def _constant(self, text: str, language: str, local: dict[str, Expression]) -> str:
        value = self._value(text, language, local)
        if not isinstance(value, Literal) or not isinstance(value.value, str) or not value.value:
            raise CannotRun(f"the variable's name in '{_short(text)}' is not a constant")
        return value.value

    def _value(self, text: str, language: str, local: dict[str, Expression]) -> Expression:
        assert self.texts is not None, "the texts are set when the plan is read"
        try:
            return _added(parse(text.strip().rstrip(";"), _Meaning(self.texts, local)), language)
        except CannotRun:
            raise
        except ExpressionError as error:
            raise CannotRun(f"'{_short(text)}' has no native form: {error}") from None


class _Meaning:
    """What names, calls and methods mean in the scripts of JMeter."""

    def __init__(self, texts: Texts, local: dict[str, Expression]) -> None:
        self._texts = texts
        self._local = local

    def placeholder(self, text: str) -> Expression:
        found = self._texts.reference(text)
        if isinstance(found, str):
            return Literal(found)
        if isinstance(found, Variable):
            return Call("var", (Literal(found.name), Literal(f"${{{found.name}}}")))
        return found

    def name(self, name: str) -> Expression:
        head, _, rest = name.partition(".")
        if name in self._local:
            return self._local[name]
        if rest and head in self._local:
            return self.method(self._local[head], rest, ())
        if name in _NAMES:
            return _NAMES[name]
        if head == "vars" and rest and "." not in rest:
            return Variable(rest)
        raise ExpressionError(f"'{name}' is not known")

    def call(self, name: str, arguments: tuple[Expression, ...]) -> Expression:
        target, _, method = name.rpartition(".")
        if target in ("vars", "props") and method in ("get", "getProperty", "getObject") and arguments:
            return self._read(target, arguments)
        if target == "vars" and method == "containsKey" and isinstance(arguments[0], Literal):
            return Call("is_defined", (Variable(str(arguments[0].value)),))
        if name in _CALLS:
            return _CALLS[name](arguments)
        if target in self._local:
            return self.method(self._local[target], method, arguments)
        raise ExpressionError(f"'{name}()' is not known")

    def _read(self, target: str, arguments: tuple[Expression, ...]) -> Expression:
        if target == "vars" and isinstance(arguments[0], Literal):
            return Variable(str(arguments[0].value))
        if target == "vars":
            return Call("var", (arguments[0],))
        name = arguments[0]
        if isinstance(name, Literal) and str(name.value) not in self._texts.shared:
            return Call("param", (name, arguments[1] if len(arguments) > 1 else Literal(None)))
        return Call("var", (name, *arguments[1:2]))

    def method(self, target: Expression, name: str, arguments: tuple[Expression, ...]) -> Expression:
        if name in _METHODS:
            function, least, most = _METHODS[name]
            if least <= len(arguments) <= most:
                return target if function is None else Call(function, (target, *arguments))
        if name in ("size", "length") and not arguments:
            return Call("length", (target,))
        if name in {"intValue", "longValue"}:
            return Call("int", (target,))
        if (target, name) == (_THREAD_GROUP, "getNumThreads"):
            return Call("users")
        if (target, name) == (_FILE_SERVER, "getBaseDir"):
            return Literal(".")
        raise ExpressionError(f"'.{name}()' is not known")

    def index(self, target: str, key: Expression) -> Expression:
        if target in ("vars", "props"):
            return self._read(target, (key,))
        raise ExpressionError(f"'{target}[...]' is not known")


def _added(tree: Expression, language: str) -> Expression:
    """`+` joins where one side is a text, and a comparison with null asks whether a variable is set."""
    if not isinstance(tree, Call):
        return tree
    arguments = tuple(_added(argument, language) for argument in tree.arguments)
    if tree.function == "add" and any(_is_text(one) for one in arguments):
        return joined(merged(arguments))
    if tree.function in ("equal", "not_equal") and Literal(None) in arguments:
        other = next((one for one in arguments if one != Literal(None)), Literal(None))
        is_null: Expression = Call("not", (Call("is_defined", (other,)),))
        if not isinstance(other, Variable):
            is_null = Call("is_empty", (other,))
        if tree.function == "equal":
            return is_null
        return (
            is_null.arguments[0] if isinstance(is_null, Call) and is_null.function == "not" else Call("not", (is_null,))
        )
    # In Groovy the texts '1' and '1.0' differ.
    is_of_texts = language == "groovy" and any(_is_text(one) for one in arguments)
    if tree.function in ("equal", "not_equal") and is_of_texts and all(_is_simple(one) for one in arguments):
        same = Call("same_text", arguments)
        return same if tree.function == "equal" else Call("not", (same,))
    return Call(tree.function, arguments)


@contextmanager
def _bounded(text: str) -> Iterator[None]:
    """Refuse a script that is too long, and in the block one that is nested too deeply. Raises CannotRun."""
    if len(text) > MOST_CHARACTERS:
        raise CannotRun(f"a script of {len(text)} characters has no native form")
    try:
        yield
    except RecursionError:
        raise CannotRun("a script that is nested so deeply has no native form") from None


def _length(tree: Expression) -> int:
    """The number of an expression's parts, and of the characters of its texts."""
    if isinstance(tree, Call):
        return 1 + sum(map(_length, tree.arguments))
    return len(tree.value) if isinstance(tree, Literal) and isinstance(tree.value, str) else 1


def _is_simple(tree: Expression) -> bool:
    return isinstance(tree, Literal | Variable) or _is_text(tree)


def _is_text(tree: Expression) -> bool:
    """Whether a value is a text for certain."""
    if isinstance(tree, Literal):
        return isinstance(tree.value, str)
    if isinstance(tree, Variable):
        return not tree.name.startswith(f"{_NUMBER}_")
    return tree.function in _TEXT_FUNCTIONS


def _statements(text: str) -> list[str]:
    """The statements of a text, without comments; a block in braces belongs to its statement."""
    found, current, depth, position, quote = [], "", 0, 0, ""
    text = text.replace("\r\n", "\n")
    while position < len(text):
        character = text[position]
        if quote:
            current += character
            if character == "\\":
                current += text[position + 1 : position + 2]
                position += 1
            elif character == quote:
                quote = ""
        elif text.startswith("//", position):
            end = text.find("\n", position)
            position = len(text) if end < 0 else end
            continue
        elif text.startswith("/*", position):
            end = text.find("*/", position)
            position = len(text) if end < 0 else end + 2
            continue
        elif character in "\"'":
            quote, current = character, current + character
        elif character in ";\n" and depth == 0 and not (character == "\n" and _goes_on(current, text, position)):
            found.append(current.strip())
            current = ""
        else:
            depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(character, 0)
            current += character
        position += 1
    return [one for one in (*found, current.strip()) if one]


def _goes_on(current: str, text: str, position: int) -> bool:
    """Whether a statement continues in the line after a position. Its cost grows with the text, not with its square."""
    before = current.strip()
    if not before or before.endswith(_OPEN_ENDS):
        return True
    if (after := _CONTINUED.match(text, position)) is not None:
        return after[1] != "{" or _BEGINS_BRANCH.match(before) is not None or _ELSE.search(before[-5:]) is not None
    return before.endswith(")") and _IF.match(before) is not None


def _branch(statement: str) -> tuple[str, str, str | None] | None:
    """Condition, block and other block of `if (...) ... else ...`; None for another statement."""
    match = re.match(r"if\s*\(", statement)
    if match is None:
        return None
    end = _closed(statement, match.end() - 1)
    condition, rest = statement[match.end() : end], statement[end + 1 :].strip()
    then, rest = _one_block(rest)
    match = re.match(r"\s*;?\s*else\b", rest)
    if match is None:
        if rest.strip(" ;\n"):
            raise CannotRun(f"the statement '{_short(rest)}' has no native form")
        return condition, then, None
    return condition, then, _one_block(rest[match.end() :].strip(), whole=True)[0]


def _one_block(text: str, *, whole: bool = False) -> tuple[str, str]:
    """The inside of a block in braces or a single statement, and what follows it."""
    if text.startswith("{"):
        end = _closed(text, 0)
        return text[1:end], text[end + 1 :]
    if whole:
        return text, ""
    head, separator, rest = text.partition("else") if re.search(r"\belse\b", text) else (text, "", "")
    return head, separator + rest


def _closed(text: str, start: int) -> int:
    """The position of the bracket that closes the one at `start`. Raises CannotRun."""
    depth, quote, position = 0, "", start
    while position < len(text):
        character = text[position]
        if quote:
            position += character == "\\"
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        else:
            depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(character, 0)
            if depth == 0:
                return position
        position += 1
    raise CannotRun("a bracket is not closed")


def _call_arguments(text: str) -> list[str]:
    """The arguments of a call that begins with its bracket; the statement must end with it. Raises CannotRun."""
    end = _closed(text, 0)
    if text[end + 1 :].strip(" ;\n"):
        raise CannotRun(f"'{_short(text)}' has no native form")
    found, current, depth, quote = [], "", 0, ""
    inner = text[1:end]
    for position, character in enumerate(inner):
        if quote:
            quote = "" if character == quote and inner[position - 1 : position] != "\\" else quote
        elif character in "\"'":
            quote = character
        else:
            depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(character, 0)
        if character == "," and depth == 0 and not quote:
            found.append(current)
            current = ""
        else:
            current += character
    return [*found, current]


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 60 else line[:57] + "..."


def _one(function: str) -> Callable[[tuple[Expression, ...]], Expression]:
    return lambda arguments: Call(function, arguments)


_OPEN_ENDS = ("&&", "||", *"-+*/=,?:<>(")
_CONTINUED = re.compile(r"\s*(else\b|\.|\?|:|&&|\|\||[{])")
_BEGINS_BRANCH = re.compile(r"(?:if|else)\b")
_ELSE = re.compile(r"\belse$")
_IF = re.compile(r"(?:\}\s*)?(?:else\s+)?if\s*\(")
_NUMBER = "local_number"
"""Begins the names of local variables that are no texts."""
_LANGUAGES = frozenset(
    {"groovy", "beanshell", "javascript", "jexl", "jexl2", "jexl3", "java", "bsh", "nashorn", "rhino"}
)
_LOG = re.compile(r"(?:log\s*\.\s*\w+|OUT\s*\.\s*print\w*|System\s*\.\s*(?:out|err)\s*\.\s*print\w*|print(?:ln)?)\s*\(")
_IMPORT = re.compile(r"import\s|package\s")
_IGNORED = re.compile(
    r"(?:SampleResult|prev)\s*\.\s*(?:setIgnore|setSampleLabel|setResponseMessage|setResponseMessageOK|setDataType|"
    r"setResponseCodeOK|setSamplerData)\s*\("
)
_LOCAL = re.compile(
    r"(?:final\s+)?(?:def|var|let|const|String|int|Integer|long|Long|boolean|Boolean|double|float)\s+(\w+)\s*=(?!=)\s*"
)
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)\s*=(?![=~])\s*")
_PUT = re.compile(r"(vars|props)\s*\.\s*(?:put|putObject|setProperty)\s*\(")
_REMOVE = re.compile(r"vars\s*\.\s*remove\s*\(")
_INDEXED = re.compile(r"(vars|props)\s*(?:\[\s*[\"'])([^\"'\]]+)[\"']\s*\]\s*=(?!=)\s*")
_SLEEP = re.compile(r"(?:Thread\s*\.\s*)?sleep\s*\(")
_NAMES: dict[str, Expression] = {
    "JMeterThread.last_sample_ok": Call("last_ok"),
    "prev.responseCode": Call("last_status"),
    "prev.successful": Call("last_ok"),
    "prev.time": Call("last_duration_ms"),
    "prev.responseDataAsString": Call("last_body"),
    "data": Call("last_body"),
    "File.separator": Literal("/"),
    "java.io.File.separator": Literal("/"),
    "ctx.threadNum": Call("subtract", (Call("user"), Literal(1))),
}
_THREAD_GROUP, _FILE_SERVER = Call("group"), Call("folder")
_CALLS: dict[str, Callable[[tuple[Expression, ...]], Expression]] = {
    "Integer.parseInt": _one("int"), "Integer.valueOf": _one("int"), "Long.parseLong": _one("int"),
    "Long.valueOf": _one("int"), "Double.parseDouble": _one("number"), "Double.valueOf": _one("number"),
    "Float.parseFloat": _one("number"), "parseInt": _one("int"), "parseFloat": _one("number"), "Number": _one("number"),
    "String.valueOf": _one("text"), "String": _one("text"),
    "Boolean.parseBoolean": lambda a: Call("equals_ignore_case", (*a, Literal("true"))),
    "System.currentTimeMillis": _one("now"), "Date.now": _one("now"), "UUID.randomUUID": _one("uuid"),
    "java.util.UUID.randomUUID": _one("uuid"), "Math.abs": _one("abs"), "Math.min": _one("min"),
    "Math.max": _one("max"),
    "Math.round": _one("round"), "Math.floor": _one("floor"), "Math.ceil": _one("ceiling"),
    "Math.random": lambda a: Call("random_number", (Literal(0), Literal(1))),
    "prev.getResponseDataAsString": _one("last_body"), "prev.getResponseCode": _one("last_status"),
    "prev.isSuccessful": _one("last_ok"), "prev.getTime": _one("last_duration_ms"),
    "prev.getUrlAsString": _one("last_url"),
    "ctx.getThreadNum": lambda a: Call("subtract", (Call("user"), Literal(1))),
    "ctx.getThreadGroup": lambda a: _THREAD_GROUP,
    "FileServer.getFileServer": lambda a: _FILE_SERVER,
    "org.apache.jmeter.services.FileServer.getFileServer": lambda a: _FILE_SERVER,
}  # fmt: skip
_METHODS: dict[str, tuple[str | None, int, int]] = {
    "toInteger": ("int", 0, 0), "toLong": ("int", 0, 0), "toDouble": ("number", 0, 0), "toFloat": ("number", 0, 0),
    "toBigDecimal": ("number", 0, 0), "as int": ("int", 0, 0), "as Integer": ("int", 0, 0), "as long": ("int", 0, 0),
    "as Long": ("int", 0, 0), "as double": ("number", 0, 0), "as String": ("text", 0, 0), "toString": (None, 0, 0),
    "equals": ("same_text", 1, 1), "equalsIgnoreCase": ("equals_ignore_case", 1, 1), "contains": ("contains", 1, 1),
    "includes": ("contains", 1, 1), "startsWith": ("starts_with", 1, 1), "endsWith": ("ends_with", 1, 1),
    "isEmpty": ("is_empty", 0, 0), "trim": ("trim", 0, 0), "toUpperCase": ("upper", 0, 0),
    "toLowerCase": ("lower", 0, 0), "substring": ("substring", 1, 2), "indexOf": ("index_of", 1, 1),
    "replace": ("replace", 2, 2), "replaceAll": ("replace_pattern", 2, 2), "matches": ("matches", 1, 1),
    "concat": ("concat", 1, 1), "toBoolean": (None, 0, 0),
}  # fmt: skip
_TEXT_FUNCTIONS = frozenset({
    "concat", "text", "upper", "lower", "trim", "substring", "replace", "replace_pattern", "uuid", "date", "last_body",
    "random_text", "base64", "base64_decode", "url_encode", "url_decode", "var", "param",
})  # fmt: skip
