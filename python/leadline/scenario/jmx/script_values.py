"""What the values in scripts of JMeter's plans mean: names, calls, methods, and the types that decide on operators.

Objects that have no native value (a date, a list, parsed JSON) are calls whose function begins with `object `, until a
method makes a value of them. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from leadline.scenario.expressions import (
    Call,
    Expression,
    ExpressionError,
    Literal,
    Variable,
    joined,
    merged,
    split_template,
    unescaped,
)
from leadline.scenario.jmx.texts import Texts

NUMBER = "local_number"
"""Begins the names of local variables that are no texts."""
WHOLE = f"{NUMBER}_whole"
"""Begins the names of those that are whole numbers."""
Arguments = tuple[Expression, ...]
_NULL = Literal(None)


def is_object(tree: Expression) -> bool:
    """Whether an expression has no native value by itself."""
    return isinstance(tree, Call) and tree.function.startswith("object ")


def is_text(tree: Expression) -> bool:
    """Whether a value is a text for certain."""
    if isinstance(tree, Literal):
        return isinstance(tree.value, str)
    if isinstance(tree, Variable):
        return tree.name.startswith("local_") and not tree.name.startswith(f"{NUMBER}_")
    if tree.function == "first_of":
        return all(map(is_text, tree.arguments))
    if tree.function == "if":
        return all(map(is_text, tree.arguments[1:]))
    return tree.function in _TEXT_FUNCTIONS


def is_whole(tree: Expression) -> bool:
    """Whether a value is a whole number for certain."""
    if isinstance(tree, Literal):
        return isinstance(tree.value, int) and not isinstance(tree.value, bool)
    if isinstance(tree, Variable):
        return tree.name.startswith(f"{WHOLE}_")
    if tree.function in ("add", "subtract", "multiply", "modulo", "negate", "abs", "min", "max"):
        return all(map(is_whole, tree.arguments))
    return tree.function in _WHOLE_FUNCTIONS


def name_if_null(tree: Expression) -> str | None:
    """The name of a variable whose value is null unless it is set; None for other values."""
    if isinstance(tree, Call) and tree.function == "var" and tree.arguments[1:] == (_NULL,):
        name = tree.arguments[0]
        return str(name.value) if isinstance(name, Literal) else None
    return None


class ScriptMeaning:
    """What names, calls and methods mean in the scripts of JMeter."""

    def __init__(self, texts: Texts, local: dict[str, Expression], language: str) -> None:
        self._texts = texts
        self._local = local
        self._language = language

    def placeholder(self, text: str) -> Expression:
        """JMeter puts its value into the script before that is read: outside of a string it is a number or a word."""
        found = self._texts.reference(text)
        if isinstance(found, str):
            return Literal(found)
        if isinstance(found, Variable) and found.name in self._local:
            return Call("var", (Literal(found.name), self._local[found.name]))
        return found

    def quoted(self, text: str, quote: str) -> Expression:
        """A string: a placeholder in it is its text."""
        parts: list[str | Expression] = []
        for is_placeholder, part in split_template(text.replace("\\${", _ESCAPED)):
            if not is_placeholder:
                parts += self._interpolated(part.replace(_ESCAPED, "\\${"), quote)
                continue
            found = self.placeholder(part)
            if isinstance(found, Variable):
                found = Call("var", (Literal(found.name), Literal(f"${{{found.name}}}")))
            parts.append(found)
        found = joined(merged(parts) or ("",))
        return found if is_text(found) else Call("text", (found,))

    def _interpolated(self, text: str, quote: str) -> list[str | Expression]:
        """The parts of a text of Groovy, in which `$name` is a variable of the script."""
        if quote != '"' or self._language != "groovy":
            return [unescaped(text)]
        found: list[str | Expression] = []
        for index, part in enumerate(re.split(r"(?<!\\)\$([A-Za-z_]\w*)", text)):
            if index % 2 == 0:
                found.append(unescaped(part))
            elif part in self._local:
                found.append(self._local[part])
            else:
                raise ExpressionError(f"'${part}' is not known")
        return found

    def name(self, name: str) -> Expression:
        """A name, or a field of one."""
        head, _, rest = name.partition(".")
        if name in self._local:
            return self._local[name]
        if rest and head in self._local:
            value = self._local[head]
            for part in rest.split("."):
                value = self.method(value, part, ())
            return value
        if name in _NAMES:
            return _NAMES[name]
        if head == "vars" and rest and "." not in rest:
            return Call("var", (Literal(rest), _NULL))
        raise ExpressionError(f"'{name}' is not known")

    def call(self, name: str, arguments: Arguments) -> Expression:
        """A call by a name, whose package does not matter."""
        target, _, method = name.rpartition(".")
        if target in ("vars", "props") and method in ("get", "getProperty", "getObject") and arguments:
            return self._read(target, arguments)
        if target == "JMeterUtils" and method in ("getProperty", "getPropDefault") and arguments:
            if not all(map(is_text, arguments)):
                raise ExpressionError("a property whose default is no text is not known")
            return self._read(target, arguments)
        first = arguments[0] if len(arguments) == 1 else None
        if name in ("System.getenv", "java.lang.System.getenv") and isinstance(first, Literal):
            return self._texts.of_environment(str(first.value))
        if target == "vars" and method == "containsKey" and isinstance(arguments[0], Literal):
            return Call("is_defined", (Variable(str(arguments[0].value)),))
        if target.partition(".")[0] in self._local:
            return self.method(self.name(target), method, arguments)
        short = re.sub(r"^(new )?(?:[a-z]\w*\.)+(?=[A-Z])", r"\1", name)
        known = _CALLS.get(name) or _CALLS.get(short)
        if known is not None:
            return known(arguments)
        raise ExpressionError(f"'{name}()' is not known")

    def _read(self, target: str, arguments: Arguments) -> Expression:
        if target == "vars":
            return Call("var", (arguments[0], _NULL))
        name = arguments[0]
        if isinstance(name, Literal) and str(name.value) not in self._texts.shared:
            return Call("param", (name, arguments[1] if len(arguments) > 1 else _NULL))
        return Call("var", (name, *arguments[1:2]))

    def method(self, target: Expression, name: str, arguments: Arguments) -> Expression:
        """A method or a field of a value."""
        if is_object(target):
            return _method_of_object(target, name, arguments)
        if name in _NUMBERS:
            return _as_number(target, name)
        if name in _METHODS:
            function, least, most = _METHODS[name]
            if least <= len(arguments) <= most:
                return target if function is None else Call(function, (target, *arguments))
        made = _BUILT.get(name)
        if made is not None:
            return made(target, arguments)
        if (target, name) == (_THREAD_GROUP, "getNumThreads"):
            return Call("users")
        if (target, name) == (_FILE_SERVER, "getBaseDir"):
            return Literal(".")
        raise ExpressionError(f"'.{name}()' is not known")

    def index(self, target: str, key: Expression) -> Expression:
        """`vars['name']`, or an item of a value."""
        if target in ("vars", "props"):
            return self._read(target, (key,))
        return self.item(self.name(target), key)

    def item(self, target: Expression, key: Expression) -> Expression:
        """An item of parts, of a list or of JSON."""
        if isinstance(target, Call) and is_object(target):
            if target.function == "object parts":
                return Call("split_part", (*target.arguments, key))
            if target.function == "object list":
                return _chosen(target.arguments, key)
            if target.function == "object json":
                return _below(target, key)
        raise ExpressionError("[...] of this value is not known")

    def listed(self, items: Arguments) -> Expression:
        """A list of values."""
        return Call("object list", items)


def _method_of_object(target: Expression, name: str, arguments: Arguments) -> Expression:
    assert isinstance(target, Call), "an object is a call"
    kind = target.function.removeprefix("object ")
    if kind == "json":
        return _of_json(target, name, arguments)
    if kind in ("list", "parts") and name == "get" and len(arguments) == 1:
        return ScriptMeaning.item(_NO_MEANING, target, arguments[0])
    made = _OBJECT_METHODS.get((kind, name))
    if made is not None:
        return made(target, arguments)
    if kind == "result" and (known := _CALLS.get(f"prev.{name}")) is not None:
        return known(arguments)
    raise ExpressionError(f"'.{name}()' is not known")


def _of_json(target: Call, name: str, arguments: Arguments) -> Expression:
    """A field of parsed JSON, or its text."""
    if name in ("toString", "as String") and not arguments:
        return target
    if arguments or name in ("size", "length", "keySet", "values", "each", "isEmpty"):
        raise ExpressionError(f"'.{name}()' of JSON is not known")
    return _below(target, Literal(name))


def _below(target: Call, key: Expression) -> Call:
    """A field or an item of parsed JSON."""
    text, path = target.arguments
    if not isinstance(key, Literal) or not isinstance(path, Literal) or isinstance(key.value, bool):
        raise ExpressionError("a field of JSON whose name is computed is not known")
    is_index = isinstance(key.value, int)
    is_plain = isinstance(key.value, str) and re.fullmatch(r"[A-Za-z_]\w*", key.value)
    shown = f"[{key.value}]" if is_index else f".{key.value}" if is_plain else f"['{key.value}']"
    return Call("object json", (text, Literal(f"{path.value}{shown}")))


def _chosen(items: Arguments, key: Expression) -> Expression:
    """An item of a list of constants."""
    if isinstance(key, Literal) and isinstance(key.value, int) and 0 <= key.value < len(items):
        return items[key.value]
    texts = [str(item.value) for item in items if isinstance(item, Literal)]
    separator = next((one for one in ",;|~" if not any(one in text for text in texts)), None)
    if len(texts) != len(items) or separator is None:
        raise ExpressionError("an item of a list whose values are computed is not known")
    return Call("split_part", (Literal(separator.join(texts)), Literal(separator), key))


def finish_value(tree: Expression, language: str) -> Expression:
    """A value with the meaning that its types give to operators. Raises ExpressionError for an object."""
    if not isinstance(tree, Call):
        return tree
    if tree.function == "object json":
        return Call("json_value", tuple(finish_value(one, language) for one in tree.arguments))
    if is_object(tree):
        raise ExpressionError(f"a value of {tree.function.removeprefix('object ')} is not known")
    arguments = tuple(finish_value(argument, language) for argument in tree.arguments)
    if tree.function == "add" and any(map(is_text, arguments)):
        return joined(merged([_as_joined(one) for one in arguments]))
    if tree.function == "divide" and language in _WITH_WHOLE_DIVISION:
        return _divided(arguments)
    if tree.function in ("equal", "not_equal"):
        same = _equality(arguments, language)
        return same if tree.function == "equal" else _negated(same)
    return Call(tree.function, arguments)


def _divided(arguments: Arguments) -> Expression:
    """A quotient where whole numbers divide as such; whether a placeholder is one is known when the test runs."""
    open_ones = [one for one in arguments if isinstance(one, Variable) and not one.name.startswith("local_")]
    if not all(is_whole(one) or one in open_ones for one in arguments):
        return Call("divide", arguments)
    found = Call("divide_whole", arguments)
    for one in open_ones:
        is_number = Call("matches", (one, Literal(r"\s*-?[0-9]+\s*")))
        found = Call("if", (is_number, found, Call("divide", arguments)))
    return found


def _as_joined(tree: Expression) -> Expression:
    """A part of a joined text: what is not set is `null` there."""
    if (name := name_if_null(tree)) is not None:
        return Call("if", (Call("is_defined", (Variable(name),)), tree, Literal("null")))
    if isinstance(tree, Call) and tree.function == "param" and tree.arguments[1:] == (_NULL,):
        return Call("param", (tree.arguments[0], Literal("null")))
    return Literal("null") if tree == _NULL else tree


def _equality(arguments: Arguments, language: str) -> Expression:
    """A comparison with null asks whether a variable is set; in Groovy the texts '1' and '1.0' differ."""
    if _NULL in arguments:
        other = next((one for one in arguments if one != _NULL), _NULL)
        name = other.name if isinstance(other, Variable) else name_if_null(other)
        return _negated(Call("is_defined", (Variable(name),))) if name else Call("is_empty", (other,))
    names = [name for one in arguments if (name := name_if_null(one)) is not None]
    is_of_texts = language == "groovy" and any(map(is_text, arguments)) and all(map(_is_simple, arguments))
    same = Call("same_text" if is_of_texts else "equal", arguments)
    if names and Literal("") in arguments:
        return Call("and", (Call("is_defined", (Variable(names[0]),)), same))
    return same


def _negated(tree: Expression) -> Expression:
    return tree.arguments[0] if isinstance(tree, Call) and tree.function == "not" else Call("not", (tree,))


def _is_simple(tree: Expression) -> bool:
    return isinstance(tree, Literal | Variable) or is_text(tree)


def _as_number(target: Expression, name: str) -> Expression:
    """`as int` and the like: a number loses its fraction, a text is read."""
    if name not in _WHOLE_CASTS:
        return Call("number", (target,))
    if is_whole(target):
        return target
    is_number = not is_text(target) and not (isinstance(target, Variable) or name_if_null(target))
    return Call("divide_whole", (target, Literal(1))) if is_number else Call("int", (target,))


def _one(function: str) -> Callable[[Arguments], Expression]:
    return lambda arguments: Call(function, arguments)


def _first(function: str) -> Callable[[Arguments], Expression]:
    """A function of the first argument; others say an encoding."""
    return lambda arguments: Call(function, arguments[:1])


def _same(arguments: Arguments) -> Expression:
    return arguments[0]


def _below_limit(arguments: Arguments) -> Expression:
    """A random number from 0 or the first argument, and below the last one."""
    if not arguments:
        return Call("random", (Literal(-(2**31)), Literal(2**31 - 1)))
    last = arguments[-1]
    end = Literal(last.value - 1) if isinstance(last, Literal) and isinstance(last.value, int) else None
    begin = arguments[0] if len(arguments) > 1 else Literal(0)
    return Call("random", (begin, end or Call("subtract", (last, Literal(1)))))


def _random_text(characters: str) -> Callable[[Arguments], Expression]:
    return lambda arguments: Call("random_text", (arguments[0], Literal(characters)))


def _date_text(pattern: Expression, date: Expression) -> Expression:
    """A date by a pattern: now, or the milliseconds that it was made of."""
    if not (isinstance(date, Call) and date.function == "object date"):
        raise ExpressionError("the date is not known")
    return Call("date", (pattern, *((Literal(0), *date.arguments) if date.arguments else ())))


def _parts(target: Expression, arguments: Arguments) -> Expression:
    """`.split(',')`: its separator is a regular expression, of which a plain text is read."""
    pattern = arguments[0] if len(arguments) == 1 else _NULL
    text = pattern.value if isinstance(pattern, Literal) else None
    if not isinstance(text, str) or not text:
        raise ExpressionError("'.split()' by this is not known")
    plain = re.sub(r"\\([^\w\s])|\[([^\]^])\]", lambda match: match[1] or match[2], text)
    if re.search(r"[][.*+?^${}()|\\]", re.sub(r"\\[^\w\s]|\[[^\]^]\]", "", text)):
        raise ExpressionError(f"'.split()' by the pattern {text} is not known")
    return Call("object parts", (target, Literal(plain)))


def _formatted(arguments: Arguments) -> Expression:
    """`String.format` of texts and whole numbers, with zeros in front."""
    pattern = arguments[0].value if arguments and isinstance(arguments[0], Literal) else None
    if not isinstance(pattern, str):
        raise ExpressionError("String.format() of a computed pattern is not known")
    values, parts = list(arguments[1:]), list[Expression]()
    for index, piece in enumerate(re.split(r"(%(?:0\d+)?[sd]|%%)", pattern)):
        if index % 2 == 0:
            if "%" in piece:
                raise ExpressionError(f"String.format('{pattern}') is not known")
            parts.append(Literal(piece))
        elif piece == "%%":
            parts.append(Literal("%"))
        elif not values:
            raise ExpressionError("String.format() has fewer values than its pattern")
        else:
            value, width = values.pop(0), int(piece[2:-1] or 0) if piece[1] == "0" else 0
            parts.append(_padded(value, width) if width else value)
    return Call("concat", (Literal(""), *parts))


def _padded(value: Expression, width: int) -> Expression:
    """A number with zeros in front."""
    if not 0 < width <= 40:
        raise ExpressionError("that number of zeros is not known")
    padded = Call("concat", (Literal("0" * width), value))
    length = Call("length", (value,))
    return Call("if", (Call("less", (length, Literal(width))), Call("substring", (padded, length)), value))


_ESCAPED = "\x00{"
"""Stands for an opening that is escaped."""
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_WITH_WHOLE_DIVISION = frozenset({"beanshell", "bsh", "java", "jexl", "jexl2", "jexl3"})
_WHOLE_FUNCTIONS = frozenset({
    "int", "length", "index_of", "random", "user", "users", "iteration", "now", "now_s", "divide_whole", "floor",
    "ceiling", "round", "last_status", "last_duration_ms", "counter", "user_counter",
})  # fmt: skip
_WHOLE_CASTS = frozenset({"toInteger", "toLong", "as int", "as Integer", "as long", "as Long", "intValue", "longValue"})
_NUMBERS = _WHOLE_CASTS | {"toDouble", "toFloat", "toBigDecimal", "as double", "as Double", "as float", "doubleValue"}
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
_CALLS: dict[str, Callable[[Arguments], Expression]] = {
    "Integer.parseInt": _one("int"), "Integer.valueOf": _one("int"), "Long.parseLong": _one("int"),
    "Long.valueOf": _one("int"), "Double.parseDouble": _one("number"), "Double.valueOf": _one("number"),
    "Float.parseFloat": _one("number"), "parseInt": _one("int"), "parseFloat": _one("number"), "Number": _one("number"),
    "new Integer": _one("int"), "new Long": _one("int"), "Integer.toString": _first("text"),
    "Long.toString": _first("text"), "Double.toString": _first("text"), "Boolean.toString": _first("text"),
    "String.valueOf": _one("text"), "String": _one("text"), "new String": _same, "String.format": _formatted,
    "Boolean.parseBoolean": lambda a: Call("equals_ignore_case", (*a, Literal("true"))),
    "System.currentTimeMillis": _one("now"), "Date.now": _one("now"), "UUID.randomUUID": _one("uuid"),
    "Math.abs": _one("abs"), "Math.min": _one("min"), "Math.max": _one("max"),
    "Math.round": _one("round"), "Math.floor": _one("floor"), "Math.ceil": _one("ceiling"),
    "Math.random": lambda a: Call("random_number", (Literal(0), Literal(1))),
    "prev.getResponseDataAsString": _one("last_body"), "prev.getResponseData": _one("last_body"),
    "prev.getResponseCode": _one("last_status"),
    "prev.isSuccessful": _one("last_ok"), "prev.getTime": _one("last_duration_ms"),
    "prev.getUrlAsString": _one("last_url"),
    "ctx.getPreviousResult": _one("object result"), "ctx.getThreadNum": lambda a: _NAMES["ctx.threadNum"],
    "ctx.getThreadGroup": lambda a: _THREAD_GROUP, "FileServer.getFileServer": lambda a: _FILE_SERVER,
    "new Date": _one("object date"), "new Random": lambda a: Call("object random"),
    "new SecureRandom": lambda a: Call("object random"), "ThreadLocalRandom.current": _one("object random"),
    "new SimpleDateFormat": _first("object format"), "new JsonSlurper": _one("object slurper"),
    "RandomStringUtils.randomAlphanumeric": _one("random_text"),
    "RandomStringUtils.randomAlphabetic": _random_text(_LETTERS),
    "RandomStringUtils.randomNumeric": _random_text("0123456789"),
    "URLEncoder.encode": _first("url_encode"), "URLDecoder.decode": _first("url_decode"),
    "Base64.encodeBase64String": _first("base64"), "Base64.encodeBase64": _first("base64"),
    "Base64.decodeBase64": _first("base64_decode"), "Base64.getEncoder": _one("object encoder"),
    "Base64.getDecoder": _one("object decoder"),
}  # fmt: skip
_OBJECT_METHODS: dict[tuple[str, str], Callable[[Call, Arguments], Expression]] = {
    ("shell", "args"): lambda target, a: target.arguments[0],
    ("slurper", "parseText"): lambda target, a: Call("object json", (a[0], Literal("$"))),
    ("list", "size"): lambda target, a: Literal(len(target.arguments)),
    ("list", "length"): lambda target, a: Literal(len(target.arguments)),
    ("date", "getTime"): lambda target, a: target.arguments[0] if target.arguments else Call("now"),
    ("date", "time"): lambda target, a: target.arguments[0] if target.arguments else Call("now"),
    ("date", "format"): lambda target, a: _date_text(a[0], target),
    ("format", "format"): lambda target, a: _date_text(target.arguments[0], a[0]),
    ("random", "nextInt"): lambda target, a: _below_limit(a),
    ("random", "nextDouble"): lambda target, a: Call("random_number", (Literal(0), Literal(1))),
    ("encoder", "encodeToString"): lambda target, a: Call("base64", a),
    ("encoder", "encode"): lambda target, a: Call("base64", a),
    ("decoder", "decode"): lambda target, a: Call("base64_decode", a),
}  # fmt: skip
_METHODS: dict[str, tuple[str | None, int, int]] = {
    "as String": ("text", 0, 0), "toString": ("text", 0, 0), "getBytes": (None, 0, 1), "bytes": (None, 0, 0),
    "equals": ("same_text", 1, 1), "equalsIgnoreCase": ("equals_ignore_case", 1, 1), "contains": ("contains", 1, 1),
    "includes": ("contains", 1, 1), "startsWith": ("starts_with", 1, 1), "endsWith": ("ends_with", 1, 1),
    "isEmpty": ("is_empty", 0, 0), "trim": ("trim", 0, 0), "toUpperCase": ("upper", 0, 0),
    "toLowerCase": ("lower", 0, 0), "substring": ("substring", 1, 2), "indexOf": ("index_of", 1, 1),
    "replace": ("replace", 2, 2), "replaceAll": ("replace_pattern", 2, 2), "matches": ("matches", 1, 1),
    "concat": ("concat", 1, 1), "toBoolean": (None, 0, 0), "size": ("length", 0, 0), "length": ("length", 0, 0),
    "encodeBase64": ("base64", 0, 0),
}  # fmt: skip
_BUILT: dict[str, Callable[[Expression, Arguments], Expression]] = {
    "split": _parts,
    "take": lambda target, a: Call("substring", (target, Literal(0), *a)),
    "drop": lambda target, a: Call("substring", (target, *a)),
    "charAt": lambda target, a: Call("substring", (target, a[0], Call("add", (a[0], Literal(1))))),
    "isNumber": lambda target, a: Call("matches", (target, Literal("-?[0-9]+([.][0-9]+)?"))),
    "isInteger": lambda target, a: Call("matches", (target, Literal("-?[0-9]+"))),
    "decodeBase64": lambda target, a: Call("base64_decode", (target,)),
    "intdiv": lambda target, a: Call("divide_whole", (target, *a)),
    "plus": lambda target, a: Call("add", (target, *a)),
}
_NO_MEANING = ScriptMeaning(Texts(lambda text, language: _NULL), {}, "")
_TEXT_FUNCTIONS = frozenset({
    "concat", "text", "upper", "lower", "trim", "substring", "replace", "replace_pattern", "uuid", "date", "last_body",
    "random_text", "base64", "base64_decode", "url_encode", "url_decode", "var", "param", "split_part", "last_url",
})  # fmt: skip
