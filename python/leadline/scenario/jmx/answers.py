"""JMeter's post-processors and assertions, as the native `extract` and `check` of a request."""

from __future__ import annotations

import re
from typing import Any

from leadline.scenario.expressions import show_template
from leadline.scenario.jmx.context import Context
from leadline.scenario.jmx.json_answers import jmes_checks, jmes_extractors, plugin_extractors
from leadline.scenario.jmx.texts import CannotRun
from leadline.scenario.jmx.tree import Element, texts

EXTRACTORS = (
    "RegexExtractor", "JSONPostProcessor", "BoundaryExtractor", "HtmlExtractor", "XPathExtractor", "XPath2Extractor",
    "JMESPathExtractor", "JSONPathExtractor",
)  # fmt: skip
ASSERTIONS = (
    "ResponseAssertion", "DurationAssertion", "SizeAssertion", "JSONPathAssertion", "XPathAssertion", "XPath2Assertion",
    "JMESPathAssertion",
)  # fmt: skip


def extractors(context: Context, element: Element) -> dict[str, dict[str, Any]]:
    """The native extractors of one post-processor, by variable."""
    found = _EXTRACTORS[element.kind](context, element)
    if element.kind in _NOT_RUN:
        return {}
    scope = element.text("Sample.scope")
    if scope == "variable":
        for one in found.values():
            one["from"] = f"variable:{element.text('Scope.variable')}"
    elif scope in ("all", "children"):
        context.conversion.changed(element.what, element.line, "only the request itself is searched, not its parts")
    context.finished(element)
    return found


def _regex(context: Context, element: Element) -> dict[str, dict[str, Any]]:
    one: dict[str, Any] = {"regex": _pattern(context, element, element.text("RegexExtractor.regex"))}
    template = element.text("RegexExtractor.template")
    if template not in ("", "$1$"):
        one["template"] = template
    source = element.text("RegexExtractor.useHeaders", "false")
    where = _SEARCHED.get(source)
    if source in _ALTERED:
        context.conversion.changed(element.what, element.line, "the body is searched as it is, not unescaped")
    if where is not None:
        one["from"] = where
    if where == "headers" and "HTTP/" in one["regex"]:
        why = "the status line is not among the headers that are searched"
        context.conversion.changed(element.what, element.line, why)
    return _common(context, element, "RegexExtractor", "regex", one, groups=True)


def _boundary(context: Context, element: Element) -> dict[str, dict[str, Any]]:
    left = context.text(element, element.text("BoundaryExtractor.lboundary"))
    right = context.text(element, element.text("BoundaryExtractor.rboundary"))
    one: dict[str, Any] = {"between": [left, right]}
    source = element.text("BoundaryExtractor.useHeaders", "false")
    where = _SEARCHED.get(source)
    if source in _ALTERED:
        context.conversion.changed(element.what, element.line, "the body is searched as it is, not unescaped")
    return _common(context, element, "BoundaryExtractor", "", one | ({"from": where} if where else {}))


def _css(context: Context, element: Element) -> dict[str, dict[str, Any]]:
    # JMeter takes any characters up to the bracket as a value.
    selector = _BARE_VALUE.sub(r'[\1\2"\3"]', element.text("HtmlExtractor.expr"))
    one = {"css": context.text(element, selector)}
    element.text("HtmlExtractor.extractor_impl")
    attribute = context.text(element, element.text("HtmlExtractor.attribute"))
    return _common(context, element, "HtmlExtractor", "", one | ({"attribute": attribute} if attribute else {}))


_BARE_VALUE = re.compile(r"\[\s*([\w:-]+)\s*([|^$*]?=)\s*(?![\w-]+\s*\])([^\]\s\"'][^\]\"']*?)\s*\]")


def _common(
    context: Context, element: Element, prefix: str, pattern: str, one: dict[str, Any], *, groups: bool = False
) -> dict[str, dict[str, Any]]:
    """Name, match number and default, which have the same names in several elements."""
    name = element.text(f"{prefix}.refname").strip()
    if not name:
        context.conversion.dropped(element.what, element.line, "it names no variable")
        return {}
    _matched(context, element, element.text(f"{prefix}.match_number"), one)
    default = element.text(f"{prefix}.default")
    if default or element.flag(f"{prefix}.default_empty_value"):
        one["default"] = context.text(element, default)
    return {name: one | ({"groups": True} if groups else {})}


def _matched(context: Context, element: Element, number: str, one: dict[str, Any]) -> None:
    """JMeter's match number: 0 or nothing is random, -1 all."""
    number = number.strip()
    if number in ("", "0"):
        one["match"] = "random"
    elif number == "-1":
        one["match"] = "all"
    elif number != "1":
        one["match"] = context.number(element, number, "1")


def _json(context: Context, element: Element) -> dict[str, dict[str, Any]]:
    """The extractors of JSON paths: several variables may be listed, with `;` between them."""
    names, paths, numbers, defaults = (
        _split_like_java(element.text(f"JSONPostProcessor.{key}"))
        for key in ("referenceNames", "jsonPathExprs", "match_numbers", "defaultValues")
    )
    names = [name.strip() for name in names]
    if not len(names) == len(paths) == len(defaults):
        why = "names, paths and default values differ in number: as in JMeter, nothing is taken"
        context.conversion.dropped(element.what, element.line, why)
        return {}
    found = {}
    for index, (name, path) in enumerate(zip(names, paths, strict=False)):
        if not name:
            continue
        one: dict[str, Any] = {"json": context.text(element, _json_path_like_java(path.strip()))}
        _matched(context, element, numbers[index] if index < len(numbers) else "", one)
        # Unlike the other extractors, this one sets a variable in any case.
        one["default"] = context.text(element, defaults[index])
        found[name] = one
    if element.flag("JSONPostProcessor.compute_concat"):
        context.conversion.changed(element.what, element.line, "NAME_ALL is not set")
    return found


def _split_like_java(text: str) -> list[str]:
    """The parts between `;`; empty ones at the end are none, but an empty text is one part."""
    parts = text.split(";")
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts


def _json_path_like_java(path: str) -> str:
    """A JSONPath as JMeter's library reads one without `$`: it puts `$.` in front, so that `.id` is `$..id`."""
    path = path.replace(".[", "[") if _IS_PLAIN_PATH.fullmatch(path) else path
    return f"$.{path}" if path.startswith(".") else path


_IS_PLAIN_PATH = re.compile(r"[\w$.*\[\]-]+")
"""A path without filters and texts in quotes, in which a dot before a bracket has no meaning."""


def _xpath(context: Context, element: Element) -> dict[str, dict[str, Any]]:
    prefix = element.kind
    context.cannot(element, "the agent has no XPath; use a CSS selector or a regular expression")
    one: dict[str, Any] = {"xpath": context.text(element, element.text(f"{prefix}.xpathQuery"))}
    if element.flag(f"{prefix}.fragment"):
        context.conversion.changed(element.what, element.line, "the text of the node is taken, not the fragment")
    for name in (
        "validate",
        "tolerant",
        "namespace",
        "quiet",
        "report_errors",
        "show_warnings",
        "whitespace",
        "download_dtds",
    ):
        element.text(f"{prefix}.{name}")
    element.text("XPath2Extractor.namespaces")
    number = element.text(f"{prefix}.matchNumber", "-1")
    _matched(context, element, number, one)
    default = element.text(f"{prefix}.default")
    name = element.text(f"{prefix}.refname").strip()
    return {name: one | ({"default": context.text(element, default)} if default else {})} if name else {}


def checks(context: Context, element: Element) -> list[dict[str, Any]]:
    """The native checks of one assertion."""
    found = _ASSERTIONS[element.kind](context, element)
    if element.kind in _NOT_RUN:
        return []
    scope = element.text("Assertion.scope") or element.text("Sample.scope")
    if scope == "variable":
        for one in found:
            one["from"] = f"variable:{element.text('Scope.variable')}"
    elif scope in ("all", "children"):
        context.conversion.changed(element.what, element.line, "only the request itself is checked, not its parts")
    context.finished(element)
    for one in found:
        if element.name and "name" not in one:
            one["name"] = context.label(element)
    return found


def _response(context: Context, element: Element) -> list[dict[str, Any]]:
    rows = element.tag("Asserion.test_strings") or element.tag("Assertion.test_strings")
    patterns = [] if rows is None else texts(rows)
    kind = int(context.static(element, element.text("Assertion.test_type"), 16))
    one: dict[str, Any] = {}
    field = element.text("Assertion.test_field", "Assertion.response_data")
    where = _FIELDS.get(field)
    if field not in _FIELDS:
        context.cannot(element, f"the field {field} has no native form")
    if where not in (None, "body"):
        one["from"] = where
    if where == "headers" and (of_status := _status_line(context, element, patterns, kind)):
        return of_status
    # In JMeter "contains" stands before "equals", and that before "substring".
    key = "contains_match" if kind & 2 else "equals" if kind & 8 else "contains" if kind & 16 else "matches"
    is_pattern = key in ("contains_match", "matches")
    one[key] = [_pattern(context, element, text) if is_pattern else context.text(element, text) for text in patterns]
    if kind & 4:
        one["invert"] = True
    if kind & 32:
        one["any"] = True
    if element.flag("Assertion.assume_success"):
        one["ignore_status"] = True
    element.text("Assertion.custom_message")
    if not patterns:
        if element.flag("Assertion.assume_success"):
            return [{"status": "100-999", "ignore_status": True}]
        context.conversion.dropped(element.what, element.line, "it has no patterns")
        return []
    return [one]


def _status_line(context: Context, element: Element, patterns: list[str], kind: int) -> list[dict[str, Any]]:
    """The checks of a status line, which JMeter has before the response headers; none if other lines are checked."""
    found = [_STATUS_LINE.fullmatch(pattern) for pattern in patterns]
    if not any("HTTP/" in pattern for pattern in patterns):
        return []
    statuses = [match[1] for match in found if match is not None]
    if len(statuses) < len(patterns) or not kind & (2 | 16):
        context.cannot(element, "the status line is not among the headers here; check the response code")
        return []
    rest: dict[str, Any] = {"invert": True} if kind & 4 else {}
    if element.flag("Assertion.assume_success"):
        rest["ignore_status"] = True
    element.text("Assertion.custom_message")
    listed = [",".join(statuses)] if kind & 32 else statuses
    return [{"status": status, **rest} for status in listed]


_STATUS_LINE = re.compile(r"\^?HTTP/[\d.\\\[\]]+\s(\d{3})(?:\s[\w .'-]*)?(?:\.\*)?\$?")


def _duration(context: Context, element: Element) -> list[dict[str, Any]]:
    return [{"duration": context.milliseconds(element, element.text("DurationAssertion.duration"))}]


def _size(context: Context, element: Element) -> list[dict[str, Any]]:
    field = element.text("Assertion.test_field", "SizeAssertion.response_network_size")
    operator = {"1": "==", "2": "!=", "3": ">", "4": "<", "5": ">=", "6": "<="}.get(
        element.text("SizeAssertion.operator", "1"), "=="
    )
    if field not in ("SizeAssertion.response_data", "SizeAssertion.response_network_size", ""):
        context.cannot(element, f"the size of {field.partition('.')[2]} has no native form")
        return []
    if field != "SizeAssertion.response_data":
        context.conversion.changed(element.what, element.line, "the size of the body is checked, without the headers")
    return [{"size": f"{operator} {int(context.static(element, element.text('SizeAssertion.size')))}"}]


def _json_path(context: Context, element: Element) -> list[dict[str, Any]]:
    one: dict[str, Any] = {"json": context.text(element, _json_path_like_java(element.text("JSON_PATH").strip()))}
    if element.flag("JSONVALIDATION"):
        if element.flag("EXPECT_NULL"):
            one["is_null"] = True
        else:
            one["value"] = context.text(element, element.text("EXPECTED_VALUE"))
            if element.flag("ISREGEX", True):
                one["regex"] = True
    for name in ("EXPECT_NULL", "EXPECTED_VALUE", "ISREGEX"):
        element.text(name)
    if element.flag("INVERT"):
        one["invert"] = True
    return [one]


def _xpath_check(context: Context, element: Element) -> list[dict[str, Any]]:
    context.cannot(element, "the agent has no XPath; use a CSS selector or a regular expression")
    prefix = "XPath" if element.kind == "XPathAssertion" else "XPath2Assertion"
    query = element.text(f"{prefix}.xpath") or element.text("XPath.xpath")
    for name in (
        "validate",
        "tolerant",
        "namespace",
        "quiet",
        "report_errors",
        "show_warnings",
        "whitespace",
        "download_dtds",
    ):
        element.text(f"XPath.{name}")
    element.text(f"{prefix}.namespaces")
    one: dict[str, Any] = {"xpath": context.text(element, query or "/")}
    return [one | ({"invert": True} if element.flag("XPath.negate") or element.flag(f"{prefix}.negate") else {})]


def _pattern(context: Context, element: Element, text: str) -> str:
    """A regular expression; `$` and braces that are no placeholders stay."""
    if "${" not in text:
        return text
    try:
        return show_template(
            context.texts.template(text.replace("\\", "\\\\") if re.search(r"\\[$,\\]", text) else text)
        )
    except CannotRun as error:
        context.cannot(element, str(error))
        return text


_FIELDS = {
    "Assertion.response_data": "body",
    "Assertion.response_data_as_document": "body",
    "Assertion.response_code": "status",
    "Assertion.response_message": "message",
    "Assertion.response_headers": "headers",
    "Assertion.request_headers": "request_headers",
    "Assertion.request_data": "request_body",
    # The label of a sample: for JMeter's own samplers that is the URL.
    "Assertion.sample_label": "url",
    "": "body",
}
_SEARCHED = {
    "true": "headers", "request_headers": "request_headers", "URL": "url", "code": "status", "message": "message",
}  # fmt: skip
"""What an extractor searches by its `useHeaders`; the body otherwise."""
_ALTERED = ("unescaped", "as_document")
_NOT_RUN = frozenset({"XPathExtractor", "XPath2Extractor", "XPathAssertion", "XPath2Assertion"})
_EXTRACTORS = {
    "RegexExtractor": _regex,
    "JSONPostProcessor": _json,
    "BoundaryExtractor": _boundary,
    "HtmlExtractor": _css,
    "XPathExtractor": _xpath,
    "XPath2Extractor": _xpath,
    "JMESPathExtractor": jmes_extractors,
    "JSONPathExtractor": plugin_extractors,
}
_ASSERTIONS = {
    "ResponseAssertion": _response,
    "DurationAssertion": _duration,
    "SizeAssertion": _size,
    "JSONPathAssertion": _json_path,
    "XPathAssertion": _xpath_check,
    "XPath2Assertion": _xpath_check,
    "JMESPathAssertion": jmes_checks,
}
