"""What `web_reg_*` registers for the next request: values that its answer has, texts that it must have."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from leadline.scenario.expressions import Call, Literal, Variable, show
from leadline.scenario.loadrunner import syntax as c
from leadline.scenario.loadrunner.arguments import Arguments, read_arguments
from leadline.scenario.loadrunner.context import CannotRun, Steps, made
from leadline.scenario.loadrunner.functions import Functions
from leadline.scenario.loadrunner.numbers import read_whole
from leadline.scenario.loadrunner.templates import native
from leadline.scenario.loadrunner.tokens import SourceLine

MAX_VALUE_BYTES = 1024
"""Values that `web_reg_save_param` finds at most, until `web_set_max_html_param_len` says otherwise."""


@dataclass(slots=True)
class Registered:
    """What waits for the next request."""

    extract: dict[str, dict[str, Any]] = field(default_factory=dict)
    check: list[dict[str, Any]] = field(default_factory=list)
    after: Steps = field(default_factory=list)
    place: SourceLine | None = None
    """Where the first of it is registered."""


class Answers(Functions):
    """Registers what requests save and check."""

    registered: Registered
    max_value_bytes: int

    def register(self, call: c.FunctionCall) -> None:
        """Note a `web_reg_*` call for the next request. Raises CannotRun."""
        if self.registered.place is None:
            self.registered.place = call.place
        _REGISTERED[call.name](self, call)
        self.script.kept(call.name, call.place)

    def _read_arguments(self, call: c.FunctionCall, *, is_named: bool) -> Arguments:
        return read_arguments(call, lambda one: self.filled(one.place, self.text_of(one)), is_named=is_named)

    def save_param(self, call: c.FunctionCall) -> None:
        """`web_reg_save_param`."""
        self._save_between(call, self._read_arguments(call, is_named=True))

    def save_param_ex(self, call: c.FunctionCall) -> None:
        """`web_reg_save_param_ex`."""
        self._save_between(call, self._read_arguments(call, is_named=False))

    def _save_between(self, call: c.FunctionCall, given: Arguments) -> None:
        left, left_flags = _read_flags(given, "lb")
        right, right_flags = _read_flags(given, "rb")
        flags = left_flags | right_flags
        if flags - {"ic", "dig", "alnumic", "alnum", "alnumlc", "alnumuc"}:
            raise CannotRun(f"boundaries with {', '.join(sorted(flags)).upper()} have no native form", call.place)
        if flags:
            ends = [self._make_pattern(parts, own) for parts, own in ((left, left_flags), (right, right_flags))]
            last = ends[1] or r"\z"
            way: dict[str, Any] = {"regex": f"(?s{'i' if 'ic' in flags else ''}){ends[0]}(.*?){last}"}
        else:
            way = {"between": [native(left), native(right)]}
        self._save(call, given, way)

    def _make_pattern(self, parts: list[Any], flags: set[str]) -> str:
        if not all(isinstance(one, str) for one in parts):
            raise CannotRun("boundaries with flags and parameters have no native form")
        text = re.escape("".join(parts))
        if "dig" in flags:
            text = text.replace(r"\#", r"\d")
        if any(flag.startswith("alnum") for flag in flags):
            text = text.replace(r"\^", "[A-Za-z0-9]")
        return text.replace("${", r"$\{")

    def _save(self, call: c.FunctionCall, given: Arguments, way: dict[str, Any]) -> None:
        """Register a value that is found in one way."""
        name = native(given.name) if given.name else given.text("paramname")
        if not name or "${" in name:
            raise CannotRun("the name of the parameter is missing or computed", call.place)
        found = made(call.place, **way)
        ordinal = given.text("ord", "ordinal", "instance", "selectall", default="1")
        if ordinal.lower() in ("all", "yes"):
            found["match"] = "all"
        elif ordinal.lower() == "random":
            found["match"] = "random"
        elif ordinal.lower() != "no" and ordinal != "1":
            found["match"] = read_whole(ordinal) if ordinal.isdecimal() else ordinal
        source = _find_source(given, "all")
        if source != "body" and "json" not in way and "css" not in way:
            found["from"] = source
        missing = given.text("notfound", default=native(given.filters.get("notfound", ["error"]))).lower()
        if missing in ("warning", "empty", "w", "ignore"):
            if found.get("match") != "all":
                found["default"] = given.text("defaultvalue") if "defaultvalue" in given.entries else ""
        elif "defaultvalue" in given.entries:
            found["default"] = given.text("defaultvalue")
        else:
            found["required"] = True
        if "between" in way or "regex" in way:
            found["max_bytes"] = self.max_value_bytes
        self.names.forget(name)
        self.registered.extract[name] = found
        self._change_value(call, given, name)

    def _change_value(self, call: c.FunctionCall, given: Arguments, name: str) -> None:
        """What follows when a value was found: a part of it, another encoding."""
        if given.text("match").lower() == "all" and "saveoffset" in given.entries:
            raise CannotRun("parts of all values have no native form", call.place)
        tree: Any = Variable(name)
        offset = given.text("saveoffset", default="0")
        length = given.text("savelen", default="-1")
        if offset != "0" or length != "-1":
            if not (offset.isdecimal() and re.fullmatch(r"-?\d+", length)):
                raise CannotRun("a part of a value at a place that is computed has no native form", call.place)
            first, count = read_whole(offset), read_whole(length)
            end = [] if count < 0 else [Literal(first + count)]
            tree = Call("substring", (tree, Literal(first), *end))
        conversion = given.text("convert").upper()
        if conversion in _CONVERSIONS:
            tree = Call(_CONVERSIONS[conversion], (tree,))
        elif conversion:
            raise CannotRun(f"Convert={conversion} has no native form", call.place)
        if tree != Variable(name):
            self.registered.after.append(made(call.place, set={name: f"${{{show(tree)}}}"}))

    def save_param_regexp(self, call: c.FunctionCall) -> None:
        """`web_reg_save_param_regexp`."""
        given = self._read_arguments(call, is_named=False)
        way = {"regex": given.text("regexp")}
        group = given.text("group")
        if group.isdecimal():
            way["template"] = f"${group}$"
        self._save(call, given, way)

    def save_param_json(self, call: c.FunctionCall) -> None:
        """`web_reg_save_param_json`."""
        given = self._read_arguments(call, is_named=False)
        self._save(call, given, {"json": given.text("querystring")})

    def save_param_attribute(self, call: c.FunctionCall) -> None:
        """`web_reg_save_param_attrib`: an attribute of an element."""
        given = self._read_arguments(call, is_named=False)
        wanted = given.plain("extract")
        own = {key: given.text(key) for key in given.entries if key not in _ATTRIBUTE_OPTIONS}
        selector = given.plain("tagname", "*").lower()
        if given.plain("tagname").lower() == "input" and "type" in own:
            own["type"] = own["type"].lower()
        for key, text in own.items():
            selector += "[" + key + '="' + text.replace('"', '\\"') + '"]'
        self._save(call, given, {"css": selector, "attribute": wanted.lower()})

    def refuse(self, call: c.FunctionCall) -> None:
        """Raises CannotRun: XPath is not executed."""
        raise CannotRun("XPath cannot be executed; use web_reg_save_param_regexp or _ex", call.place)

    def find(self, call: c.FunctionCall) -> None:
        """`web_reg_find`."""
        self.registered.check += self.find_check(call)

    def find_check(self, call: c.FunctionCall) -> list[dict[str, Any]]:
        """The check of a `web_reg_find`; none for one that only counts."""
        given = self._read_arguments(call, is_named=False)
        text, flags = _read_flags(given, "text")
        pattern = None
        if "textpfx" in given.entries or "textsfx" in given.entries or "textpfx/ic" in given.entries:
            (before, own), (after, other) = _read_flags(given, "textpfx"), _read_flags(given, "textsfx")
            flags = own | other
            pattern = f"{self._make_pattern(before, own)}.*?{self._make_pattern(after, other)}"
        elif flags:
            pattern = self._make_pattern(text, flags)
        if flags - {"ic", "dig"}:
            raise CannotRun(f"texts with {', '.join(sorted(flags)).upper()} have no native form", call.place)
        if pattern is not None:
            pattern = f"(?s{'i' if 'ic' in flags else ''}){pattern}"
        if not text and pattern is None:
            raise CannotRun("Text= is missing", call.place)
        source = _find_source(given, "body")
        count = given.plain("savecount")
        if count:
            plain = pattern if pattern is not None else self._make_pattern(text, set())
            counted = made(call.place, regex=plain, match="count")
            if source != "body":
                counted["from"] = source
            self.registered.extract[count] = counted
            self.names.forget(count)
        if count and "fail" not in given.entries:
            return []
        check = made(call.place, **({"contains": [native(text)]} if pattern is None else {"contains_match": [pattern]}))
        if source != "body":
            check["from"] = source
        if given.text("fail").lower() == "found":
            check["invert"] = True
        if given.text("id"):
            check["name"] = given.text("id")
        return [check]


def _read_flags(given: Arguments, key: str) -> tuple[list[Any], set[str]]:
    """The parts of a key that may have flags, as in `LB/IC`, and the flags."""
    for own, parts in given.entries.items():
        name, *flags = own.split("/")
        if name == key:
            return parts, set(flags)
    return [], set()


def _find_source(given: Arguments, default: str) -> str:
    """Where it is looked for: body, headers, or both."""
    parts = given.filters.get("scope") or given.entries.get("search") or given.entries.get("scope") or [default]
    name = native(parts).lower()
    return {"headers": "headers", "all": "answer", "cookies": "headers"}.get(name, "body")


_CONVERSIONS = {"HTML_TO_TEXT": "html_unescape", "HTML_TO_URL": "url_encode", "URL_TO_TEXT": "url_decode"}
_ATTRIBUTE_OPTIONS = frozenset({
    "paramname", "tagname", "extract", "ordinal", "notfound", "requesturl", "scope", "ignoreredirections",
    "ignoreredirects", "contenttype",
})  # fmt: skip
_REGISTERED = {
    "web_reg_save_param": Answers.save_param, "web_reg_save_param_ex": Answers.save_param_ex,
    "web_reg_save_param_regexp": Answers.save_param_regexp, "web_reg_save_param_json": Answers.save_param_json,
    "web_reg_save_param_attrib": Answers.save_param_attribute, "web_reg_save_param_xpath": Answers.refuse,
    "web_reg_find": Answers.find, "web_reg_save_param_header": Answers.refuse,
}  # fmt: skip
REGISTERED = frozenset(_REGISTERED)
