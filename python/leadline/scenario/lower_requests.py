"""Lowers requests to the agent's: URL, headers, body, what is taken from the answer, and what is checked. Pure."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from leadline.scenario.expressions import Call, Expression, Literal, merged
from leadline.scenario.functions import template
from leadline.scenario.lower_expressions import Lowered, Names
from leadline.scenario.lower_urls import lower_url
from leadline.scenario.request_models import Basic, Check, Defaults, Embedded, Extractor, Pair, Part, RequestFields
from leadline.scenario.values import condition, duration, number

Headers = dict[str, tuple[str, tuple[str, ...]]]
DEFAULT_REDIRECTS = 10
MOST_REDIRECTS = 20
_NO_XPATH = "XPath cannot be executed; use css, json or regex"


class SeveralErrors(ValueError):
    """Parts of one request without a meaning."""

    def __init__(self, errors: Sequence[ValueError]) -> None:
        super().__init__(*errors[0].args)
        self.errors = tuple(errors)


@dataclass(frozen=True, slots=True)
class Scope:
    """What holds for the requests of a group."""

    base: str | None
    headers: Headers
    """Name as written and values, by the name in lower case."""
    defaults: dict[str, Any]
    """By the names in `Defaults`."""

    @classmethod
    def of(cls, base: str | None, *levels: Defaults) -> Scope:
        """The settings of all levels, the inner ones last."""
        headers: Headers = {}
        defaults: dict[str, Any] = {}
        for level in levels:
            headers = merged_headers(headers, level.headers)
            defaults |= {
                name: getattr(level, name)
                for name in Defaults.model_fields
                if name != "headers" and name in level.model_fields_set
            }
        return cls(base, headers, defaults)

    def within(self, request: RequestFields) -> Scope:
        """The settings of one request."""
        own = Scope.of(self.base, request)
        return Scope(self.base, merged_headers(self.headers, request.headers), self.defaults | own.defaults)


def merged_headers(outer: Headers, inner: Mapping[str, tuple[str, ...] | None]) -> Headers:
    """The outer fields with the inner ones; null removes a field."""
    found = dict(outer)
    for name, values in inner.items():
        found.pop(name.lower(), None)
        if values is not None:
            found[name.lower()] = (name, values)
    return found


@contextmanager
def _kept(errors: list[ValueError]) -> Iterator[None]:
    """Keep an error of the block, and go on after it."""
    try:
        yield
    except ValueError as error:
        errors.append(error)


@dataclass(slots=True)
class RequestLowering:
    """Lowers requests; collects the files that they send."""

    names: Names
    read_file: Callable[[str], bytes]
    files: dict[str, bytes] = field(default_factory=dict)

    def lower(self, request: RequestFields, scope: Scope) -> Lowered:
        """The request. Raises ValueError with a message for the user, SeveralErrors for several parts."""
        scope = scope.within(request)
        errors: list[ValueError] = []
        lowered: Lowered = {}
        with _kept(errors):
            lowered = self._sent(request, scope)
        extractors, checks = [], []
        for name, one in request.extract.items():
            with _kept(errors):
                extractors.append(self._extractor(name, one))
        for check in request.check:
            with _kept(errors):
                checks.append(self._check(check))
        if errors:
            raise SeveralErrors(errors)
        return lowered | {"extractors": extractors, "checks": checks}

    def _sent(self, request: RequestFields, scope: Scope) -> Lowered:
        """What is sent, and how its answer is received."""
        settings = scope.defaults
        method, url = request.method_and_url
        follow = settings.get("follow")
        lowered: Lowered = {
            "kind": "request",
            "method": self._text(method),
            **(lower_url(self.names, url, scope.base) if request.element is None else self._element(request)),
            "query": [self._pair(pair) for pair in request.query],
            "redirects": DEFAULT_REDIRECTS if follow is None else MOST_REDIRECTS if follow is True else int(follow),
            "keeps_headers_elsewhere": settings.get("headers_elsewhere") == "all",
            "uses_cookies": settings.get("cookies") is not False,
            "uses_cache": settings.get("cache") is True,
            "closes_connection": settings.get("keep_alive") is False,
            "embedded": _embedded(settings.get("embedded")),
            "basic_credentials": self._basic(settings.get("basic")),
            "connect_timeout_ms": self._timeout(settings.get("connect_timeout")),
            "response_timeout_ms": self._timeout(settings.get("timeout")),
            "ok_status": _ok(request, settings.get("ok")),
        }
        body, content_type = self._body(request)
        given = ((name, value) for name, values in scope.headers.values() for value in values)
        headers = [{"name": self._text(name), "value": self._text(value)} for name, value in given]
        if content_type is not None and "content-type" not in scope.headers:
            headers.append({"name": ["Content-Type"], "value": [content_type]})
        return lowered | {"headers": headers, "body": body}

    def _element(self, request: RequestFields) -> Lowered:
        """The element of the last page that gives the request its URL."""
        assert request.element is not None, "the caller has looked"
        key, element = request.element
        known = ("text", "name", "id", "action", "href", "alt", "src")
        has = [
            {"name": [name], "value": self._text(getattr(element, name))}
            for name in known
            if getattr(element, name) is not None
        ]
        has += [{"name": ["field"], "value": self._text(field)} for field in element.fields]
        value = number(element.number)
        wanted = Literal(int(value)) if isinstance(value, int | float) else value
        kind = "form" if key == "submit" else key
        return {"element": {"kind": kind, "has": has, "number": self.names.expression(wanted)}}

    def _text(self, text: str) -> list[Any]:
        return self.names.template(template(text))

    def _pair(self, pair: Pair) -> Lowered:
        name, value = self._text(pair.name), self._text(pair.value)
        if not name:
            name, value = value, None  # type: ignore[assignment]  # a value alone
        return {"name": name, "value": value, "is_encoded": not pair.encode}

    def _basic(self, basic: Basic | None) -> Lowered | None:
        return None if basic is None else {"user": self._text(basic.user), "password": self._text(basic.password)}

    def _timeout(self, text: Any) -> int | None:
        if text is None:
            return None
        found = self.names.number(duration(text)) / 1000
        if not 1 <= found < 2**32:
            raise ValueError(f"{text} is not a time limit")
        return round(found)

    def _body(self, request: RequestFields) -> tuple[Lowered | None, str | None]:
        """The body, and the content type that it has by default."""
        if request.body is not None:
            return {"kind": "text", "text": self._text(request.body)}, None
        if request.json_body is not None:
            parts = merged(list(json_template(request.json_body)))
            return {"kind": "text", "text": self.names.template(parts)}, "application/json"
        if (file := self._body_content(request)) is not None:
            return {"kind": "file", "file": file}, None
        if request.form:
            return {"kind": "form", "parameters": [self._pair(pair) for pair in request.form]}, None
        if request.multipart:
            parts_of_body = [
                {
                    "name": self._text(part.name),
                    "text": self._text(part.value or ""),
                    "file": self._content(part),
                    "file_name": self._text(part.file_name or _last(part.file)),
                    "content_type": self._text(part.type or ("application/octet-stream" if part.file else "")),
                }
                for part in request.multipart
            ]
            return {"kind": "multipart", "parts": parts_of_body}, None
        return None, None

    def _body_content(self, request: RequestFields) -> str | None:
        """The name of the file that is the body."""
        if request.body_base64 is not None:
            return self._bytes(request.body_base64)
        return None if request.body_file is None else self._file(request.body_file)

    def _content(self, part: Part) -> str | None:
        """The name of the file that a part sends; None for a text."""
        if part.base64 is not None:
            return self._bytes(part.base64)
        return None if part.file is None else self._file(part.file)

    def _bytes(self, text: str) -> str:
        """The name of bytes that stand in the scenario itself."""
        content = base64.b64decode(text)
        name = f"base64:{hashlib.sha256(content).hexdigest()}"
        self.files[name] = content
        return name

    def _file(self, path: str) -> str:
        name = self.names.text(template(path))
        if name not in self.files:
            self.files[name] = self.read_file(name)
        return name

    def _extractor(self, name: str, one: Extractor) -> Lowered:
        on_miss: Lowered = {"kind": "fail"} if one.required else {"kind": "keep"}
        if one.default is not None:
            on_miss = {"kind": "default", "text": self._text(one.default)}
        return {
            "variable": name,
            "subject": _subject(one.source),
            "find": self._find(one),
            "pick": self._pick(one.match),
            "on_miss": on_miss,
            "sets_groups": one.groups,
            **({} if one.max_bytes is None else {"max_bytes": one.max_bytes}),
        }

    def _find(self, one: Extractor) -> Lowered:
        if one.regex is not None:
            return {"kind": "regex", "pattern": self._pattern(one.regex), "output": _output(one.template)}
        if one.css is not None:
            return {"kind": "css", "selector": self._text(one.css), "attribute": self._text(one.attribute or "")}
        if one.xpath is not None:
            raise ValueError(_NO_XPATH)
        for kind, part in (("json_path", "path"), ("header", "name"), ("cookie", "name")):
            if getattr(one, kind) is not None:
                return {"kind": kind, part: self._text(getattr(one, kind))}
        left, right = one.between
        return {"kind": "boundary", "left": self._text(left), "right": self._text(right)}

    def _pattern(self, pattern: str) -> list[Any]:
        """A regular expression, in which only placeholders with a name or a call are meant: `a${2}` is a quantifier."""
        try:
            return self._text(pattern)
        except ValueError:
            return [pattern]

    def _pick(self, match: Any) -> Lowered:
        if match in ("all", "random", "last", "count"):
            return {"kind": match}
        value = number(match)
        if isinstance(value, int | float):
            return {"kind": "number", "number": {"op": "literal", "value": int(value)}}
        return {"kind": "number", "number": self.names.expression(value)}

    def _check(self, check: Check) -> Lowered:
        tests, is_negated = self._tests(check), check.invert
        if check.size is not None:
            size_tests, is_not = _size_tests(check.size)
            tests, is_negated = size_tests, is_negated != is_not
        if check.xpath is not None:
            raise ValueError(_NO_XPATH)
        made: Lowered = {
            "subject": _subject(check.source),
            "tests": tests,
            "any": check.any,
            "is_negated": is_negated,
            "severity": "fail" if check.fails else "count",
        }
        if check.name is not None:
            made["label"] = check.name
        return made

    def _tests(self, check: Check) -> list[Lowered]:
        if check.status is not None:
            return [{"kind": "status", "ranges": ranges(check.status)}]
        if check.json_path is not None:
            equals = None if check.value is None else self._text(check.value)
            found = {"kind": "json", "path": self._text(check.json_path), "equals": equals}
            return [found | {"is_pattern": check.regex, "is_null": check.is_null}]
        if check.duration is not None:
            at_most = self.names.expression(in_ms(duration(check.duration)))
            return [{"kind": "duration", "at_most_ms": at_most}]
        if check.condition is not None:
            return [{"kind": "condition", "condition": self.names.expression(condition(check.condition))}]
        return [
            *({"kind": "contains", "text": self._text(text)} for text in check.contains),
            *({"kind": "equals", "text": self._text(text)} for text in check.equals),
            *({"kind": "matches", "pattern": self._pattern(text)} for text in check.matches),
            *({"kind": "finds", "pattern": self._pattern(text)} for text in check.contains_match),
        ]


def in_ms(microseconds: int | Expression) -> Expression:
    """A time in milliseconds: `duration` gives microseconds."""
    if isinstance(microseconds, int):
        return Literal(microseconds // 1000 if microseconds % 1000 == 0 else microseconds / 1000)
    assert isinstance(microseconds, Call) and isinstance(microseconds.arguments[1], Literal), "duration made it"
    value, factor = microseconds.arguments[0], microseconds.arguments[1].value
    assert isinstance(factor, int), "a number of microseconds"
    if factor == 1000:
        return value
    if factor > 1000:
        return Call("multiply", (value, Literal(factor // 1000)))
    return Call("divide", (value, Literal(1000 // factor)))


def json_template(value: Any) -> list[str | Expression]:
    """A value as JSON text, whose texts are templates."""
    if isinstance(value, str):
        inner = [json.dumps(part)[1:-1] if isinstance(part, str) else part for part in template(value)]
        return ['"', *inner, '"']
    if isinstance(value, dict | list):
        entries = list(value.items()) if isinstance(value, dict) else [(None, entry) for entry in value]
        found: list[str | Expression] = ["{" if isinstance(value, dict) else "["]
        for index, (key, entry) in enumerate(entries):
            found += [", "] if index else []
            found += [*json_template(str(key)), ": "] if isinstance(value, dict) else []
            found += json_template(entry)
        return [*found, "}" if isinstance(value, dict) else "]"]
    return [json.dumps(value)]


def ranges(text: str) -> list[Lowered]:
    """Ranges of status codes, as in 200-299,302."""
    found = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found.append({"from": int(first), "to": int(last or first)})
    return found


def _ok(request: RequestFields, ok: str | None) -> list[Lowered]:
    if any(check.ignore_status for check in request.check):
        return [{"from": 100, "to": 999}]
    return [] if ok is None else ranges(ok)


def _size_tests(text: Any) -> tuple[list[Lowered], bool]:
    match = re.fullmatch(r"\s*(==|!=|<=|>=|<|>)?\s*(\d+)\s*", str(text))
    assert match is not None, "the model has checked it"
    size = int(match[2])
    at_least, at_most = {
        "==": (size, size), "!=": (size, size), "<=": (None, size), ">=": (size, None),
        "<": (None, max(size - 1, 0)), ">": (size + 1, None),
    }[match[1] or "=="]  # fmt: skip
    return [{"kind": "size", "at_least": at_least, "at_most": at_most}], match[1] == "!="


def _subject(source: str) -> Lowered:
    if source.startswith("variable:"):
        return {"kind": "variable", "name": source.removeprefix("variable:")}
    return {"kind": {"message": "reason"}.get(source, source)}


def _output(text: str | None) -> list[str | int]:
    """The texts and groups of `$1$-$2$`."""
    found: list[str | int] = []
    for index, part in enumerate(re.split(r"\$(\d+)\$", text or "")):
        if part:
            found.append(int(part) if index % 2 else part)
    return found


def _embedded(rule: Embedded | None) -> Lowered | None:
    return (
        None
        if rule is None
        else {
            "pattern": rule.match,
            "at_once": rule.connections,
            **({"may_fail": True} if rule.may_fail else {}),
        }
    )


def _last(path: str | None) -> str:
    return "" if path is None else path.replace("\\", "/").rpartition("/")[2]
