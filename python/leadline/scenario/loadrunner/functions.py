"""Functions of C's library and those of LoadRunner that compute: texts, numbers, times, parameters."""

from __future__ import annotations

from collections.abc import Callable

from leadline.scenario.expressions import Call, Expression, Literal, Variable, joined
from leadline.scenario.loadrunner import syntax as c
from leadline.scenario.loadrunner.context import CannotRun
from leadline.scenario.loadrunner.dates import java_pattern
from leadline.scenario.loadrunner.evaluation import NULL, Evaluation
from leadline.scenario.loadrunner.formats import format_values
from leadline.scenario.loadrunner.templates import parts_of
from leadline.scenario.loadrunner.values import Local, Value, character, is_changing, number

ZERO = Value(Literal(0), "int")
TOKENS_LEFT = "strtok_rest"
"""The variable with the text that `strtok` has not read yet."""


class Functions(Evaluation):
    """The value of calls that need no request."""

    def compute(self, call: c.FunctionCall) -> Value | None:
        """The value of a function that is known here; None for another one. Raises CannotRun."""
        known = FUNCTIONS.get(call.name)
        if known is None:
            return None
        least, function = known
        if len(call.arguments) < least:
            raise CannotRun(f"{call.name} needs {least} arguments, not {len(call.arguments)}", call.place)
        return function(self, call)

    def target(self, call: c.FunctionCall) -> Local:
        """The variable that a function writes to, its first argument."""
        one = call.arguments[0]
        while isinstance(one, c.Cast):
            one = one.operand
        if isinstance(one, c.Unary) and one.operator == "&" and isinstance(one.operand, c.Item):
            one = one.operand.base if one.operand.index == c.Number(0, one.operand.index.place) else one
        if isinstance(one, c.Name):
            local = self.own_variable(one.name)
            if local.kind in ("text", "pointer"):
                return local
        raise CannotRun(f"{call.name} writes to what is no variable with a text", call.place)

    def write(self, call: c.FunctionCall, tree: Expression) -> Value:
        """Give the variable that a function writes to a text; that is also the function's value."""
        return self.store(self.target(call), Value(tree, "text"), call.place)

    def save(self, call: c.FunctionCall, name: c.Expression, tree: Expression) -> Value:
        """Give a parameter a value."""
        parameter = self.parameter_name(name)
        tree = self.keep_random(call.place, tree) if isinstance(tree, Call) and tree.function == "concat" else tree
        known = self.names.expand(tree)
        self.set(call.place, parameter, tree)
        if not (isinstance(known, Variable) or is_changing(known)):
            self.names.learn(parameter, known)
        self.script.kept(call.name, call.place)
        return ZERO

    def parameter_name(self, one: c.Expression) -> str:
        """The name of a parameter, which must be known now."""
        tree = self.names.expand(self.text_of(one))
        parts = parts_of(tree)
        if len(parts) == 1 and isinstance(parts[0], str):
            return parts[0]
        raise CannotRun("the name of a parameter is computed, which has no native form", one.place)

    def eval_string(self, call: c.FunctionCall) -> Value:
        """`lr_eval_string`."""
        tree = self.text_of(call.arguments[0])
        known = self.names.expand(tree)
        parts = self.filled(call.place, known)
        if not any(isinstance(one, str) for one in parts) and parts == parts_of(known) and parts:
            raise CannotRun("the text whose parameters it replaces is not known before the test begins", call.place)
        return Value(joined(parts), "text")

    def eval_string_ext(self, call: c.FunctionCall) -> Value:
        """`lr_eval_string_ext`: the text and its length into two variables."""
        value = self.eval_string(c.FunctionCall(call.name, call.arguments[:1], call.place))
        length = Value(Call("length", (value.tree,)), "int")
        for target, own in zip(call.arguments[2:4], (value, length), strict=True):
            self.assign(_pointed(target), own, call.place)
        return ZERO

    def host_name(self, call: c.FunctionCall) -> Value:
        """`lr_get_host_name` and the like."""
        self.script.changed(call.name, call.place, "its value is the text 'leadline'")
        return Value(Literal("leadline"), "text")

    def process(self, call: c.FunctionCall) -> Value:
        """`getpid`: a number that each user has alone."""
        return Value(Call("user"), "int")

    def identify(self, call: c.FunctionCall) -> Value:
        """`lr_whoami`: the user's number, its group, and 0 for the scenario."""
        values = (Value(Call("user"), "int"), Value(Call("group"), "text"), ZERO)
        for target, own in zip(call.arguments, values, strict=False):
            pointed = _pointed(target)
            if isinstance(pointed, c.Name) and self.names.find(pointed.name) is not None:
                self.assign(pointed, own, call.place)
        return ZERO

    def _format(self, call: c.FunctionCall, at: int) -> Expression:
        pattern = parts_of(self.names.expand(self.text_of(call.arguments[at])))
        values = [self.evaluate(one) for one in call.arguments[at + 1 :]]
        if values and not all(isinstance(one, str) for one in pattern):
            raise CannotRun("a format that is computed has no native form", call.place)
        # A value in place of the format has no fields.
        parts = [format_values(one, values) if isinstance(one, str) else one for one in pattern]
        return joined(parts)

    def print_text(self, call: c.FunctionCall) -> Value:
        """`sprintf`."""
        return self.write(call, self._format(call, 1))

    def print_counted(self, call: c.FunctionCall) -> Value:
        """`snprintf`."""
        return self.write(call, self._format(call, 2))

    def print_parameter(self, call: c.FunctionCall) -> Value:
        """`lr_param_sprintf`."""
        return self.save(call, call.arguments[0], self._format(call, 1))

    def copy(self, call: c.FunctionCall) -> Value:
        """`strcpy`, `strncpy`, `memcpy`."""
        tree = self.text_of(call.arguments[1])
        if len(call.arguments) > 2:
            tree = Call("substring", (tree, Literal(0), self.number_of(call.arguments[2])))
        return self.write(call, tree)

    def append(self, call: c.FunctionCall) -> Value:
        """`strcat`, `strncat`."""
        tree = self.text_of(call.arguments[1])
        if len(call.arguments) > 2:
            tree = Call("substring", (tree, Literal(0), self.number_of(call.arguments[2])))
        own: Expression = Variable(self.target(call).name)
        known = self.names.expand(own)
        return self.write(call, Call("concat", (known if known != own else own, tree)))

    def fill(self, call: c.FunctionCall) -> Value:
        """`memset`, which empties a text here."""
        value = self.evaluate(call.arguments[1])
        if value.tree not in (Literal(0), Literal("")):
            raise CannotRun("memset with another character than 0 has no native form", call.place)
        return self.write(call, Literal(""))

    def convert_number(self, call: c.FunctionCall) -> Value:
        """`itoa(number, buffer, 10)`."""
        tree = self.number_of(call.arguments[0])
        if self.number_of(call.arguments[2]) != Literal(10):
            raise CannotRun("only base 10 has a native form", call.place)
        again = c.FunctionCall(call.name, (call.arguments[1],), call.place)
        return self.write(again, tree)

    def integer(self, call: c.FunctionCall) -> Value:
        """`atoi`: the number that a text begins with, else 0."""
        value = self.evaluate(call.arguments[0])
        if isinstance(value.tree, Variable) and (
            value.tree.name.endswith("_matchNr") or value.tree.name in self.script.counts
        ):
            return Value(value.tree, "int")
        return Value(leading_number(value.tree, r"^\s*([+-]?\d{1,15})"), "int")

    def decimal(self, call: c.FunctionCall) -> Value:
        """`atof`."""
        return Value(leading_number(self.text_of(call.arguments[0]), r"^\s*([+-]?\d+(?:\.\d+)?)"), "float")

    def length(self, call: c.FunctionCall) -> Value:
        """`strlen`."""
        return Value(Call("length", (self.text_of(call.arguments[0]),)), "int")

    def size(self, call: c.FunctionCall) -> Value:
        """`sizeof` of a variable, whose size says nothing here."""
        return Value(Literal(0), "int")

    def search(self, call: c.FunctionCall) -> Value:
        """`strstr`, `strchr`: the rest of a text from what is found on."""
        text, part = (self.evaluate(one) for one in call.arguments[:2])
        if part.kind == "int" and isinstance(part.tree, Literal):
            part = Value(character(part), "char")
        found = self.names.unique("found")
        rest = Call("substring", (text.tree, Call("index_of", (text.tree, part.tree))))
        self.set(call.place, found, Call("if", (Call("contains", (text.tree, part.tree)), rest, Literal(None))))
        return Value(Variable(found), "pointer")

    def search_last(self, call: c.FunctionCall) -> Value:
        """`strrchr`."""
        text, part = (self.evaluate(one) for one in call.arguments[:2])
        wanted = character(part) if part.kind == "int" else part.tree
        own = str(wanted.value or "") if isinstance(wanted, Literal) else ""
        if len(own) != 1:
            raise CannotRun("a character is computed, which has no native form", call.place)
        found = self.names.unique("found")
        pattern = rf"(?s)({_in_class(own)}[^{_in_class(own)}]*)\z"
        self.set(call.place, found, Call("find", (text.tree, Literal(pattern))))
        return Value(Variable(found), "pointer")

    def next_token(self, call: c.FunctionCall) -> Value:
        """`strtok`: the next part of a text, which ends before one of several characters."""
        text, ends = (self.evaluate(one) for one in call.arguments[:2])
        if not isinstance(ends.tree, Literal) or not str(ends.tree.value):
            raise CannotRun("strtok with separators that are computed has no native form", call.place)
        listed = "".join(map(_in_class, str(ends.tree.value)))
        rest: Expression = Variable(TOKENS_LEFT)
        if text != NULL and text.tree != Literal(0):
            self.names.first[TOKENS_LEFT] = ""
            self.set(call.place, TOKENS_LEFT, text.tree)
        elif TOKENS_LEFT not in self.names.first:
            raise CannotRun("strtok(NULL, ...) before strtok with a text", call.place)
        token = self.names.unique("token")
        self.set(call.place, token, Call("find", (rest, Literal(rf"^[{listed}]*([^{listed}]+)"))))
        pattern = Literal(rf"(?s)^[{listed}]*[^{listed}]*[{listed}]?")
        self.set(call.place, TOKENS_LEFT, Call("replace_pattern", (rest, pattern, Literal(""))))
        return Value(Variable(token), "pointer")

    def random(self, call: c.FunctionCall) -> Value:
        """`rand`, as large as with Microsoft's library."""
        return Value(Call("random", (Literal(0), Literal(32_767))), "int")

    def absolute(self, call: c.FunctionCall) -> Value:
        """`abs`, `fabs`."""
        value = self.evaluate(call.arguments[0])
        return Value(Call("abs", (number(value),)), value.kind)

    def change_case(self, call: c.FunctionCall) -> Value:
        """`toupper`, `tolower` and their forms for texts."""
        value = self.evaluate(call.arguments[0])
        tree = Call("upper" if "up" in call.name else "lower", (value.tree,))
        return self.write(call, tree) if value.kind == "text" else Value(tree, value.kind)

    def digit(self, call: c.FunctionCall) -> Value:
        """`isdigit` and the like."""
        value = self.evaluate(call.arguments[0])
        if value.kind != "char":
            raise CannotRun("a character is computed, which has no native form", call.place)
        return Value(Call("matches", (value.tree, Literal(_CLASSES[call.name]))), "bool")

    def seconds(self, call: c.FunctionCall) -> Value:
        """`time`, also into a variable."""
        value = Value(Call("now_s"), "int")
        one = call.arguments[0] if call.arguments else None
        if isinstance(one, c.Unary) and one.operator == "&" and isinstance(one.operand, c.Name):
            return self.assign(one.operand, value, call.place)
        return value

    def start_timer(self, call: c.FunctionCall) -> Value:
        """`lr_start_timer`, `clock`: the time, ms."""
        return Value(Call("now"), "int")

    def end_timer(self, call: c.FunctionCall) -> Value:
        """`lr_end_timer`: seconds since the timer was started."""
        since = Call("subtract", (Call("now"), self.evaluate(call.arguments[0]).tree))
        return Value(Call("divide", (since, Literal(1000))), "float")

    def empty_text(self, call: c.FunctionCall) -> Value:
        """`malloc`, `calloc`: an empty text."""
        return Value(Literal(""), "text")

    def same(self, call: c.FunctionCall) -> Value:
        """`strdup`: the text itself."""
        return self.evaluate(call.arguments[0])

    def list_length(self, call: c.FunctionCall) -> Value:
        """`lr_paramarr_len`."""
        name = self.parameter_name(call.arguments[0])
        if name not in self.script.lists:
            why = f"nothing saves the list '{name}' (Ord=ALL), so it is empty"
            self.script.changed(call.name, call.place, why)
            return Value(Literal(0), "int")
        return Value(Variable(f"{name}_matchNr"), "int")

    def list_item(self, call: c.FunctionCall) -> Value:
        """`lr_paramarr_idx`."""
        name, index = self._list_name(call), self.number_of(call.arguments[1])
        if isinstance(index, Literal):
            return Value(Variable(f"{name}_{index.value}"), "text")
        return Value(Call("var", (Call("concat", (Literal(f"{name}_"), index)),)), "text")

    def list_random(self, call: c.FunctionCall) -> Value:
        """`lr_paramarr_random`."""
        name = self._list_name(call)
        index = Call("random", (Literal(1), Call("max", (Literal(1), Variable(f"{name}_matchNr")))))
        return Value(Call("var", (Call("concat", (Literal(f"{name}_"), index)),)), "text")

    def _list_name(self, call: c.FunctionCall) -> str:
        name = self.parameter_name(call.arguments[0])
        if name not in self.script.lists:
            self.script.changed(call.name, call.place, f"nothing saves the list '{name}' (Ord=ALL), so it is empty")
            self.script.lists.add(name)
        return name

    def save_string(self, call: c.FunctionCall) -> Value:
        """`lr_save_string`."""
        return self.save(call, call.arguments[1], self.text_of(call.arguments[0]))

    def save_number(self, call: c.FunctionCall) -> Value:
        """`lr_save_int`."""
        return self.save(call, call.arguments[1], self.number_of(call.arguments[0]))

    def save_part(self, call: c.FunctionCall) -> Value:
        """`lr_save_var`: as many characters of a text."""
        tree = Call("substring", (self.text_of(call.arguments[0]), Literal(0), self.number_of(call.arguments[1])))
        return self.save(call, call.arguments[3], tree)

    def save_date(self, call: c.FunctionCall) -> Value:
        """`lr_save_datetime`."""
        pattern = self.text_of(call.arguments[0])
        if not isinstance(pattern, Literal):
            raise CannotRun("a format that is computed has no native form", call.place)
        shift = self.number_of(call.arguments[1])
        java = Literal(java_pattern(str(pattern.value)))
        tree = Call("date", (java,) if shift == Literal(0) else (java, Call("multiply", (shift, Literal(1000)))))
        return self.save(call, call.arguments[2], tree)

    def save_time(self, call: c.FunctionCall) -> Value:
        """`web_save_timestamp_param`, `lr_save_timestamp`: ms since 1970, or s with 10 digits."""
        texts = [one.value for one in call.arguments[1:] if isinstance(one, c.Text)]
        tree = Call("now_s") if "DIGITS=10" in texts else Call("now")
        return self.save(call, call.arguments[0], tree)

    def save_match(self, call: c.FunctionCall) -> Value:
        """`lr_save_param_regexp`."""
        options = {}
        for one in call.arguments[2:]:
            if isinstance(one, c.Text) and "=" in one.value:
                key, _, value = one.value.partition("=")
                options[key.lower()] = value
        if "regexp" not in options or "resultparam" not in options or options.get("ordinal", "1") != "1":
            raise CannotRun("only the first match of RegExp= into ResultParam= has a native form", call.place)
        tree = Call("find", (self.text_of(call.arguments[0]), Literal(options["regexp"])))
        return self.save(call, c.Text(options["resultparam"], call.place), Call("first_of", (tree, Literal(""))))

    def increment(self, call: c.FunctionCall) -> Value:
        """`lr_param_increment`."""
        parts = self.filled(call.place, self.text_of(call.arguments[1]))
        tree = leading_number(joined(parts), r"^\s*([+-]?\d{1,15})")
        return self.save(call, call.arguments[0], Call("add", (tree, Literal(1))))

    def encode_parameter(self, call: c.FunctionCall) -> Value:
        """`web_convert_param` to URL."""
        texts = [one.value.upper() for one in call.arguments[1:] if isinstance(one, c.Text)]
        name = self.parameter_name(call.arguments[0])
        targets = {"TARGETENCODING=URL": "url_encode", "TARGETENCODING=HTML": "html_escape"}
        sources = {"SOURCEENCODING=URL": "url_decode", "SOURCEENCODING=HTML": "html_unescape"}
        tree: Expression = Variable(self.script.variable(name))
        self.read_parameter(call.place, name)
        for known in (sources, targets):
            tree = next((Call(function, (tree,)) for text, function in known.items() if text in texts), tree)
        return self.save(call, call.arguments[0], tree)

    def attribute(self, call: c.FunctionCall) -> Value:
        """`lr_get_attrib_string`: an argument of the command line is a parameter here."""
        name = self.parameter_name(call.arguments[0])
        self.script.conversion.parameters.add(name)
        return Value(Call("param", (Literal(name), Literal(""))), "text")

    def advance(self, call: c.FunctionCall) -> Value:
        """`lr_advance_param`."""
        name = self.parameter_name(call.arguments[0])
        own = self.script.parameters.get(name)
        if own is None or own.source is None:
            raise CannotRun(f"'{name}' is no parameter of a table", call.place)
        own.is_advanced = True
        own.is_used = True
        self.emit(call.place, next=own.source)
        return ZERO


def _pointed(one: c.Expression) -> c.Expression:
    """The variable that a pointer points to."""
    while isinstance(one, c.Cast) or (isinstance(one, c.Unary) and one.operator == "&"):
        one = one.operand
    return one


def leading_number(tree: Expression, pattern: str) -> Expression:
    """The number that a text begins with, else 0."""
    if isinstance(tree, Literal) and isinstance(tree.value, int):
        return tree
    return Call("number", (Call("first_of", (Call("find", (tree, Literal(pattern))), Literal("0"))),))


def _in_class(character: str) -> str:
    """A character as it stands in a class of a regular expression."""
    return f"\\{character}" if character in r"\]^-[&~" else character


_CLASSES = {"isdigit": "[0-9]", "isalpha": "[A-Za-z]", "isalnum": "[A-Za-z0-9]", "isspace": r"\s"}
FUNCTIONS: dict[str, tuple[int, Callable[[Functions, c.FunctionCall], Value]]] = {
    "lr_eval_string": (1, Functions.eval_string), "lr_eval_string_ext": (4, Functions.eval_string_ext),
    "lr_get_host_name": (0, Functions.host_name), "lr_get_master_host_name": (0, Functions.host_name),
    "sprintf": (2, Functions.print_text),
    "snprintf": (3, Functions.print_counted), "_snprintf": (3, Functions.print_counted),
    "lr_param_sprintf": (2, Functions.print_parameter), "strcpy": (2, Functions.copy), "strncpy": (3, Functions.copy),
    "memcpy": (3, Functions.copy), "strcat": (2, Functions.append), "strncat": (3, Functions.append),
    "memset": (2, Functions.fill), "itoa": (3, Functions.convert_number), "_itoa": (3, Functions.convert_number),
    "ltoa": (3, Functions.convert_number), "atoi": (1, Functions.integer), "atol": (1, Functions.integer),
    "strtol": (1, Functions.integer), "atof": (1, Functions.decimal), "strlen": (1, Functions.length),
    "sizeof": (1, Functions.size), "strstr": (2, Functions.search), "strchr": (2, Functions.search),
    "strrchr": (2, Functions.search_last), "strtok": (2, Functions.next_token), "rand": (0, Functions.random),
    "abs": (1, Functions.absolute), "fabs": (1, Functions.absolute), "toupper": (1, Functions.change_case),
    "tolower": (1, Functions.change_case), "strupr": (1, Functions.change_case), "strlwr": (1, Functions.change_case),
    "_strupr": (1, Functions.change_case), "_strlwr": (1, Functions.change_case), "isdigit": (1, Functions.digit),
    "isalpha": (1, Functions.digit), "isalnum": (1, Functions.digit), "isspace": (1, Functions.digit),
    "time": (0, Functions.seconds), "clock": (0, Functions.start_timer), "lr_start_timer": (0, Functions.start_timer),
    "lr_end_timer": (1, Functions.end_timer), "malloc": (0, Functions.empty_text), "calloc": (0, Functions.empty_text),
    "strdup": (1, Functions.same), "_strdup": (1, Functions.same), "lr_paramarr_len": (1, Functions.list_length),
    "lr_paramarr_idx": (2, Functions.list_item), "lr_paramarr_random": (1, Functions.list_random),
    "lr_save_string": (2, Functions.save_string), "lr_save_int": (2, Functions.save_number),
    "lr_save_var": (4, Functions.save_part), "lr_save_datetime": (3, Functions.save_date),
    "web_save_timestamp_param": (1, Functions.save_time), "lr_save_timestamp": (1, Functions.save_time),
    "lr_save_param_regexp": (3, Functions.save_match), "lr_param_increment": (2, Functions.increment),
    "web_convert_param": (1, Functions.encode_parameter), "lr_get_attrib_string": (1, Functions.attribute),
    "getpid": (0, Functions.process), "_getpid": (0, Functions.process),
    "lr_whoami": (1, Functions.identify), "lr_advance_param": (1, Functions.advance),
}  # fmt: skip
"""The functions, each with the least number of its arguments."""
