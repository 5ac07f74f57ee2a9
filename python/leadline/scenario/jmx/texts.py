"""JMeter's texts: `${name}` and `${__function(...)}`, as templates of the native format.

Owns JMeter's functions. What a text needs before it is read (a variable that a function sets, the next row of a file)
is collected as steps. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from leadline.scenario.expressions import Call, Expression, Literal, Template, Variable, joined, merged, show_template

MOST_NESTED = 20


class CannotRun(ValueError):
    """A text or script that has no native form; the message says which part."""


@dataclass(slots=True)
class Texts:
    """Reads the texts of one plan."""

    script: Callable[[str, str], Expression]
    """The expression of a script in a language; raises CannotRun."""
    file_text: Callable[[Call], str] | None = None
    """The content that `file()` stands for; raises CannotRun."""
    plan_name: str = ""
    shared: frozenset[str] = frozenset()
    """Properties that the plan itself sets."""
    before: list[dict[str, Any]] = field(default_factory=list)
    """Steps that what was read needs before it."""
    after: list[dict[str, Any]] = field(default_factory=list)
    """Steps that it needs when it has been used."""
    notes: list[str] = field(default_factory=list)
    """What differs from JMeter."""
    sampler: str | None = None
    """The name of the sampler that is read; None outside of one, or if it differs between users."""
    csv_columns: dict[str, int] = field(default_factory=dict)
    """Files of __CSVRead, and the largest column that is read."""
    _counters: int = 0
    _depth: int = 0

    def template(self, text: str) -> Template:
        """The parts of a text. Raises CannotRun."""
        parts, has_reference = self._parts(text)
        return merged(parts) if has_reference else merged((text,))

    def expression(self, text: str) -> Expression:
        """The text as one expression."""
        return joined(self.template(text))

    def _parts(self, text: str) -> tuple[list[str | Expression], bool]:
        if "${" not in text:
            return [text], False
        found: list[str | Expression] = []
        plain, position, has_reference, unclosed = "", 0, False, 0
        while position < len(text):
            character = text[position]
            if character == "\\" and text[position + 1 : position + 2] in ("$", ",", "\\"):
                plain += text[position + 1]
                position += 2
            elif text.startswith("${", position) and unclosed < _MOST_UNCLOSED:
                end = _end(text, position + 2)
                if end is None:
                    plain, position, unclosed = plain + "${", position + 2, unclosed + 1
                    continue
                found += [plain, self.reference(text[position + 2 : end])]
                plain, position, has_reference = "", end + 1, True
            else:
                plain += character
                position += 1
        return [*found, plain], has_reference

    def reference(self, text: str) -> str | Expression:
        """What `${text}` is. Raises CannotRun."""
        if text == "JMeterThread.last_sample_ok":
            return Call("last_ok")
        match = _FUNCTION.match(text)
        if match is None or (not match[2] and match[1] not in _READERS and match[1] not in _WITHOUT_FORM):
            return Variable(text) if text and "$" not in text and "{" not in text else f"${{{text}}}"
        name = match[1]
        arguments = self._arguments(text, match.end()) if match[2] else []
        self._depth += 1
        try:
            if self._depth > MOST_NESTED:
                raise CannotRun("functions are nested too deeply")
            return self._function(name, arguments)
        finally:
            self._depth -= 1

    def _arguments(self, text: str, start: int) -> list[str]:
        """The texts between commas, up to the closing bracket."""
        found, current, position, brackets = [], "", start, 0
        while position < len(text):
            character = text[position]
            if character == "\\" and position + 1 < len(text):
                current += text[position : position + 2]
                position += 2
                continue
            if text.startswith("${", position) and (end := _end(text, position + 2)) is not None:
                current += text[position : end + 1]
                position = end + 1
                continue
            if character == ")" and brackets == 0:
                break
            brackets += {"(": 1, ")": -1}.get(character, 0)
            if character == "," and brackets == 0:
                found.append(current)
                current = ""
            else:
                current += character
            position += 1
        return [*found, current]

    def _function(self, name: str, arguments: list[str]) -> str | Expression:
        if name in _SCRIPTS:
            value = self.script(_unescaped(arguments[0]) if arguments else "", _SCRIPTS[name])
            return self._stored(arguments[1] if len(arguments) > 1 else "", value)
        read = _READERS.get(name)
        if read is None:
            raise CannotRun(f"the function __{name} has no native form")
        return read(self, arguments)

    def argument(self, arguments: list[str], index: int, default: str | None = None) -> Expression:
        """An argument's value; `default` if it is missing or empty."""
        text = arguments[index] if index < len(arguments) else ""
        if not text.strip() and default is not None:
            return Literal(default)
        return joined(merged(self._parts(text)[0] if "${" in text else (_unescaped(text),)))

    def literal(self, arguments: list[str], index: int, default: str = "") -> str:
        """An argument that is a constant. Raises CannotRun."""
        value = self.argument(arguments, index, default)
        if not isinstance(value, Literal):
            raise CannotRun("an argument that must be a constant depends on a variable")
        return str(value.value).strip() if value.value is not None else ""

    def number(self, arguments: list[str], index: int, default: str = "") -> Expression:
        """An argument that is a number."""
        value = self.argument(arguments, index, default)
        if isinstance(value, Literal) and isinstance(value.value, str):
            text = value.value.strip()
            if re.fullmatch(r"-?\d{1,18}", text):
                return Literal(int(text))
            if re.fullmatch(r"-?\d{1,18}\.\d+", text):
                return Literal(float(text))
            raise CannotRun(f"{text!r} is not a number")
        return value

    def _stored(self, variable: str, value: Expression) -> Expression:
        """The value, which is also stored in a variable if one is named."""
        if not variable.strip():
            return value
        self.before.append({"set": {variable.strip(): show_template(merged((value,)))}})
        return Variable(variable.strip())

    def property(self, arguments: list[str], default_at: int, default: str | None) -> Expression:
        """A property: a parameter of the scenario, or a shared variable that the plan sets."""
        name = self.literal(arguments, 0)
        # Without the argument there is a default; one that is empty is an empty text.
        has_default = default_at < len(arguments)
        given = self.argument(arguments, default_at) if has_default else Literal(name if default is None else default)
        value = Call("param", (Literal(name), given))
        if name in self.shared:
            value = Call("if", (Call("is_defined", (Variable(name),)), Variable(name), given))
        # The variable stands between the name and the default.
        return self._stored(arguments[1] if default_at == 2 and len(arguments) > 1 else "", value)

    def counter(self, arguments: list[str]) -> Expression:
        """`__counter`: the next number, of each user or of all."""
        self._counters += 1
        per_user = self.literal(arguments, 0).lower() == "true"
        value = Call("user_counter" if per_user else "counter", (Literal(f"counter-{self._counters}"),))
        return self._stored(arguments[1] if len(arguments) > 1 else "", value)

    def csv_read(self, arguments: list[str]) -> str | Expression:
        """`__CSVRead`: a column of the current row of a file; `next` takes the next row after the sampler."""
        file, column = self.literal(arguments, 0), self.literal(arguments, 1, "0")
        self.csv_columns.setdefault(file, 0)
        if column in {"next", "next()"}:
            self.after.append({"next": file})
            return ""
        if not column.isdecimal() or len(column) > 3:
            raise CannotRun(f"__CSVRead: {column!r} is not a column")
        self.csv_columns[file] = max(self.csv_columns[file], int(column))
        return Variable(csv_variable(file, int(column)))

    def set_property(self, arguments: list[str]) -> str:
        """`__setProperty`: sets a shared variable; its text is empty."""
        if self.literal(arguments, 2).lower() == "true":
            raise CannotRun("__setProperty whose text is the value before has no native form")
        value = show_template(merged((self.argument(arguments, 1),)))
        self.before.append({"set": {self.literal(arguments, 0): value}, "shared": True})
        return ""

    def time(self, arguments: list[str]) -> Expression:
        """`__time`: the time in ms, in s, or by a pattern."""
        pattern = self.literal(arguments, 0)
        pattern = {"YMD": "yyyyMMdd", "HMS": "HHmmss", "YMDHMS": "yyyyMMdd-HHmmss"}.get(pattern, pattern)
        value = Call("now") if not pattern else Call("now_s") if pattern == "/1000" else self.date(pattern)
        if re.fullmatch(r"/\d{1,15}", pattern) and pattern != "/1000":
            value = Call("divide_whole", (Call("now"), Literal(int(pattern[1:]))))
        return self._stored(arguments[1] if len(arguments) > 1 else "", value)

    def date(self, pattern: str, shift: Expression | None = None) -> Call:
        """A date by a pattern; JMeter uses the host's time zone, we UTC."""
        if re.search(r"[Hhkmaz]", re.sub(r"'[^']*'", "", pattern).replace("mm", "m")):
            self.notes.append("dates are in UTC, not in the time zone of the host")
        return Call("date", (Literal(pattern), *([] if shift is None else [shift])))

    def time_shift(self, arguments: list[str]) -> Expression:
        """`__timeShift`: the time, moved by a constant duration. Raises CannotRun for another date."""
        pattern = self.literal(arguments, 0)
        if given := self.literal(arguments, 1):
            if not pattern or re.search(r"\d", given):
                raise CannotRun("__timeShift of a given date has no native form")
            self.notes.append(f"__timeShift: {given!r} is no date; as JMeter does, it moves the time of now")
        shift = self._shift(arguments)
        value = self.date(pattern, shift) if pattern else Call("add", (Call("now"), shift))
        return self._stored(arguments[4] if len(arguments) > 4 else "", value)

    def _shift(self, arguments: list[str]) -> Expression:
        """The duration of `__timeShift` in ms; one computed number in it may have any value."""
        parts = merged(self._parts(arguments[2])[0]) if len(arguments) > 2 else ()
        if (
            len(parts) == 3
            and isinstance(parts[0], str)
            and isinstance(parts[2], str)
            and not isinstance(parts[1], str)
        ):
            unit = _UNITS_MS.get((parts[0].strip().upper(), parts[2].strip().upper()))
            if unit is not None:
                return Call("multiply", (parts[1], Literal(unit)))
        text = self.literal(arguments, 2)
        shift = _iso_ms(text)
        if shift is None:
            self.notes.append(f"__timeShift: {text!r} is no duration; as JMeter does, it moves by nothing")
        return Literal(shift or 0)

    def environment(self, arguments: list[str]) -> Expression:
        """`__env`: a variable of the environment is a parameter."""
        name = self.literal(arguments, 0)
        value = self.of_environment(name, self.argument(arguments, 2) if len(arguments) > 2 else None)
        return self._stored(arguments[1] if len(arguments) > 1 else "", value)

    def secret(self, arguments: list[str]) -> Expression:
        """`__GetSecret`, which Azure Load Testing has: a secret is a parameter."""
        return self.of_environment(self.literal(arguments, 0), kind="secret")

    def of_environment(
        self, name: str, default: Expression | None = None, kind: str = "environment variable"
    ) -> Expression:
        """A value that JMeter's environment has, as a parameter of the scenario."""
        self.notes.append(f"the {kind} {name} is the parameter {name}: give it with -J {name}=VALUE")
        return Call("param", (Literal(name),) if default is None else (Literal(name), default))

    def random(self, arguments: list[str]) -> Expression:
        """`__Random`: a whole number between two others."""
        value = Call("random", (self.number(arguments, 0, "0"), self.number(arguments, 1, "1")))
        return self._stored(arguments[2] if len(arguments) > 2 else "", value)

    def random_string(self, arguments: list[str]) -> Expression:
        """`__RandomString`: a text of random characters."""
        characters = self.argument(arguments, 1)
        has_some = characters not in (Literal(""), Literal(None))
        value = Call("random_text", (self.number(arguments, 0, "10"), *([characters] if has_some else [])))
        return self._stored(arguments[2] if len(arguments) > 2 else "", value)

    def variable(self, arguments: list[str]) -> Expression:
        """`__V`: the variable whose name is computed."""
        name = self.argument(arguments, 0)
        fallback = self.argument(arguments, 1) if len(arguments) > 1 else name
        return Call("var", (name, fallback))

    def file_content(self, arguments: list[str]) -> Expression:
        """`__FileToString`: the content of a file, which is read before the test."""
        name, encoding = self.argument(arguments, 0), self.literal(arguments, 1)
        value = Call("file", (name, *([Literal(encoding)] if encoding else [])))
        return self._stored(arguments[2] if len(arguments) > 2 else "", value)

    def evaluated(self, arguments: list[str]) -> Expression:
        """`__eval`: the text as it is, and the text of a file with its placeholders; placeholders in the values of
        variables are not computed."""
        value = self.argument(arguments, 0)
        if isinstance(value, Call) and value.function == "file" and self.file_text is not None:
            return self.expression(self.file_text(value))
        self.notes.append("__eval: the placeholders in a variable's value are not computed")
        return self.argument(arguments, 0)

    def sum(self, arguments: list[str]) -> Expression:
        """All numbers; the last argument may be a variable's name."""
        rest = list(arguments)
        variable = rest.pop() if rest and re.fullmatch(r"\s*[A-Za-z_]\w*\s*|\s*", rest[-1]) else ""
        value: Expression = self.number(rest, 0, "0")
        for index in range(1, len(rest)):
            value = Call("add", (value, self.number(rest, index, "0")))
        return self._stored(variable, value)

    def changed_case(self, arguments: list[str]) -> Expression:
        """`__changeCase`: the text in upper or lower case."""
        mode = self.literal(arguments, 1, "UPPER").upper()
        if mode not in ("UPPER", "LOWER"):
            raise CannotRun(f"__changeCase: the mode {mode} has no native form")
        return Call(mode.lower(), (self.argument(arguments, 0),))

    def digest(self, arguments: list[str]) -> Expression:
        """`__digest`: the MD5 or SHA-256 of a text, as hexadecimal digits."""
        algorithm = self.literal(arguments, 0).upper().replace("-", "")
        if algorithm not in ("MD5", "SHA256") or self.literal(arguments, 2):
            raise CannotRun(f"__digest: {algorithm} (with or without salt) has no native form")
        value: Expression = Call(algorithm.lower(), (self.argument(arguments, 1),))
        if self.literal(arguments, 3).lower() == "true":
            value = Call("upper", (value,))
        return self._stored(arguments[4] if len(arguments) > 4 else "", value)

    def unescaped(self, arguments: list[str]) -> str:
        """A text whose escapes are those of Java's texts: `\\t` is a tab."""
        value = self.argument(arguments, 0)
        if not isinstance(value, Literal):
            raise CannotRun("__unescape of a variable has no native form")
        return _ESCAPE.sub(_of_escape, str(value.value if value.value is not None else ""))

    def characters(self, arguments: list[str]) -> str:
        """The characters with these numbers, as in 65 or 0x41."""
        numbers = [self.literal(arguments, index) for index in range(len(arguments))]
        if not all(re.fullmatch(r"\d{1,5}|(?:0x|0X|#)[0-9A-Fa-f]{1,4}", number) for number in numbers):
            raise CannotRun(f"__char: {', '.join(numbers)[:60]} are not numbers of characters")
        found = (int(one) if one.isdecimal() else int(one.lstrip("0xX#") or "0", 16) for one in numbers)
        return "".join(chr(min(number, 0xFFFF)) for number in found)

    def sampler_name(self, arguments: list[str]) -> Expression:
        """`__samplerName`: the name of the sampler that is read. Raises CannotRun where it differs between users."""
        if self.sampler is None:
            raise CannotRun("__samplerName has a value in samplers whose names are the same for all users")
        return self._stored(arguments[0] if arguments else "", Literal(self.sampler))

    def split(self, arguments: list[str]) -> Expression:
        """The text, whose parts become variables with numbers; an empty part is `?`."""
        name, separator = self.literal(arguments, 1), self.literal(arguments, 2, ",")
        if not re.fullmatch(r"\w{1,100}", name):
            raise CannotRun(f"__split: {name[:40]!r} has no native form as a variable's name")
        self._stored(name, self.argument(arguments, 0))
        self.before.append({"lua": _SPLIT.format(name=name, separator=_lua_text(separator))})
        return Variable(name)

    def is_property(self, arguments: list[str]) -> Expression:
        """`__isPropDefined`: whether the plan or the command line sets the property."""
        name = self.literal(arguments, 0)
        if name in self.shared:
            return Call("is_defined", (Variable(name),))
        return Call("not_equal", (Call("param", (Literal(name), Literal(_NO_PROPERTY))), Literal(_NO_PROPERTY)))

    def variable_evaluated(self, arguments: list[str]) -> Expression:
        """`__evalVar`: the value of a variable; placeholders in it are not computed."""
        self.notes.append("__evalVar: the placeholders in a variable's value are not computed")
        return Call("var", (self.argument(arguments, 0),))

    def logged(self, arguments: list[str]) -> Expression:
        """`__log`: the text, which is not logged."""
        self.notes.append("a message is not logged")
        return self.argument(arguments, 0)

    def chosen(self, arguments: list[str]) -> Expression:
        """__if(actual, expected, then, else)."""
        actual, expected, then, otherwise = (self.argument(arguments, index) for index in range(4))
        return Call("if", (Call("same_text", (actual, expected)), then, otherwise))


def _lua_text(text: str) -> str:
    """A text as a body in Lua has it."""
    return '"' + "".join(f"\\{byte:03}" if not chr(byte).isalnum() else chr(byte) for byte in text.encode()) + '"'


_SPLIT = """\
local at, count = 1, 0
repeat
  local first, last = vars.{name}:find({separator}, at, true)
  local part = vars.{name}:sub(at, first and first - 1)
  count = count + 1
  vars["{name}_" .. count] = part == "" and "?" or part
  at = last and last + 1
until not at
vars.{name}_n = count
vars["{name}_" .. count + 1] = nil"""


def csv_variable(file: str, column: int) -> str:
    """The variable that a column of a file of __CSVRead becomes."""
    return f"csv_{re.sub(r'[^A-Za-z0-9]+', '_', file)}_{column}"


def _end(text: str, start: int) -> int | None:
    """The position of the `}` that ends a reference: after the closing bracket of a function."""
    depth, position = 1, start
    limit = min(len(text), start + _LONGEST)
    while position < limit:
        character = text[position]
        if character == "\\":
            position += 1
        elif character == "{":
            depth += 1
        elif character == "}":
            depth -= 1
            if depth == 0:
                return position
        position += 1
    return None


def _unescaped(text: str) -> str:
    return re.sub(r"\\([,$\\])", r"\1", text)


def _of_escape(match: re.Match[str]) -> str:
    code, octal, letter = match.groups()
    if code or octal:
        return chr(int(code, 16) if code else int(octal, 8))
    return {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}.get(letter, letter)


_UNITS_MS = {
    ("P", "D"): 86_400_000, ("PT", "H"): 3_600_000, ("PT", "M"): 60_000, ("PT", "S"): 1000,
    ("-P", "D"): -86_400_000, ("-PT", "H"): -3_600_000, ("-PT", "M"): -60_000, ("-PT", "S"): -1000,
}  # fmt: skip
"""Milliseconds by what stands around a number in an ISO 8601 duration."""


def _iso_ms(text: str) -> int | None:
    """Milliseconds of an ISO 8601 duration: P1D, -PT2H, P1DT3H; 0 of nothing, and None of what is none."""
    match = re.fullmatch(
        r"\s*([+-]?)P(?:([+-]?\d+)D)?(?:T(?:([+-]?\d+)H)?(?:([+-]?\d+)M)?(?:([+-]?\d+(?:[.,]\d+)?)S)?)?\s*",
        text,
        re.IGNORECASE,
    )
    if match is None:
        return None if text.strip() else 0
    days, hours, minutes, seconds = (float((part or "0").replace(",", ".")) for part in match.groups()[1:])
    total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    return round(total * 1000) * (-1 if match[1] == "-" else 1)


def _simple(function: str, least: int = 1) -> Callable[[Texts, list[str]], Expression]:
    """A function whose arguments are the same."""
    return lambda texts, arguments: Call(function, tuple(texts.argument(arguments, index) for index in range(least)))


def _stored_call(function: str, at: int) -> Callable[[Texts, list[str]], Expression]:
    """A function of one argument whose result is stored if a variable is named."""

    def read(texts: Texts, arguments: list[str]) -> Expression:
        value = Call(function, (texts.argument(arguments, 0),))
        return texts._stored(arguments[at] if len(arguments) > at else "", value)

    return read


def _is_defined(texts: Texts, arguments: list[str]) -> Expression:
    return Call("is_defined", (Variable(texts.literal(arguments, 0)),))


_LONGEST = 20_000
_MOST_UNCLOSED = 64
_NO_PROPERTY = "(not defined)"
_ESCAPE = re.compile(r"\\(?:u+([0-9A-Fa-f]{4})|([0-3]?[0-7]{1,2})|(.))", re.S)
_FUNCTION = re.compile(r"__([A-Za-z0-9]+)\s*(?:(\()|$)")
_SCRIPTS = {
    "groovy": "groovy", "BeanShell": "beanshell", "javaScript": "javascript", "jexl": "jexl", "jexl2": "jexl",
    "jexl3": "jexl",
}  # fmt: skip
_READERS: Mapping[str, Callable[[Texts, list[str]], str | Expression]] = {
    "P": lambda texts, arguments: texts.property(arguments, 1, "1"),
    "property": lambda texts, arguments: texts.property(arguments, 2, None),
    "setProperty": Texts.set_property,
    "time": Texts.time,
    "timeShift": Texts.time_shift,
    "Random": Texts.random,
    "RandomString": Texts.random_string,
    "threadNum": lambda texts, arguments: Call("user"),
    "threadGroupName": lambda texts, arguments: Call("group"),
    "TestPlanName": lambda texts, arguments: texts.plan_name,
    "UUID": lambda texts, arguments: Call("uuid"),
    "counter": Texts.counter,
    "CSVRead": Texts.csv_read,
    "FileToString": Texts.file_content,
    "V": Texts.variable,
    "eval": Texts.evaluated,
    "intSum": Texts.sum,
    "longSum": Texts.sum,
    "urlencode": _simple("url_encode"),
    "urldecode": _simple("url_decode"),
    "escapeHtml": _simple("html_escape"),
    "unescapeHtml": _simple("html_unescape"),
    "unescape": Texts.unescaped,
    "char": Texts.characters,
    "split": Texts.split,
    "samplerName": Texts.sampler_name,
    "isPropDefined": Texts.is_property,
    "env": Texts.environment,
    "GetSecret": Texts.secret,
    "evalVar": Texts.variable_evaluated,
    "changeCase": Texts.changed_case,
    "uppercase": _stored_call("upper", 1),
    "lowercase": _stored_call("lower", 1),
    "strLen": _stored_call("length", 1),
    "base64Encode": _stored_call("base64", 1),
    "base64Decode": _stored_call("base64_decode", 1),
    "MD5": _stored_call("md5", 1),
    "digest": Texts.digest,
    "log": Texts.logged,
    "logn": lambda texts, arguments: (texts.logged(arguments), "")[1],
    "isVarDefined": _is_defined,
    "isDefined": _is_defined,
    "if": Texts.chosen,
    "iterationNum": lambda texts, arguments: Call("add", (Call("iteration"), Literal(1))),
}
_WITHOUT_FORM = frozenset({"machineName", "machineIP", "RandomDate", "regexFunction", "StringFromFile", "XPath"})
"""Functions of JMeter that are not read; with or without brackets they are no variables."""
FUNCTIONS = frozenset(_READERS) | frozenset(_SCRIPTS)
"""The names of the functions that are read, without their underscores."""
