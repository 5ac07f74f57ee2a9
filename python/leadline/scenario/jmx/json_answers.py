"""Extractors and assertions by JMESPath, and the JSON path extractor of JMeter's plugins, by paths of JSON.

Only paths of names and numbers are read: these mean the same in both languages. Pure.
"""

from __future__ import annotations

import re
from typing import Any

from leadline.scenario.jmx.context import Context
from leadline.scenario.jmx.tree import Element


def jmes_extractors(context: Context, element: Element) -> dict[str, dict[str, Any]]:
    """The extractor of a JMESPath."""
    name = element.text("JMESExtractor.referenceName").strip()
    path = _json_path(context, element, element.text("JMESExtractor.jmesPathExpr"))
    number = element.text("JMESExtractor.matchNumber").strip()
    default = context.text(element, element.text("JMESExtractor.defaultValue"))
    if not name or path is None:
        return {}
    if number not in ("", "0", "1"):
        context.cannot(element, f"the match number {number} of a JMESPath has no native form")
        return {}
    context.conversion.changed(element.what, element.line, "of a list the whole is taken, not one item")
    return {name: {"json": path, "default": default}}


def jmes_checks(context: Context, element: Element) -> list[dict[str, Any]]:
    """The check of a JMESPath."""
    path = _json_path(context, element, element.text("JMES_PATH"))
    validates, expects_null = element.flag("JSONVALIDATION"), element.flag("EXPECT_NULL")
    expected, is_regex = element.text("EXPECTED_VALUE"), element.flag("ISREGEX", True)
    is_inverted = element.flag("INVERT")
    if path is None:
        return []
    if not validates or expects_null:
        # What is missing is null in a JMESPath.
        context.cannot(element, "a JMESPath that need only exist, or be null, has no native form")
        return []
    one: dict[str, Any] = {"json": path, "value": context.text(element, expected)}
    return [one | ({"regex": True} if is_regex else {}) | ({"invert": True} if is_inverted else {})]


def plugin_extractors(context: Context, element: Element) -> dict[str, dict[str, Any]]:
    """The JSON path extractor of JMeter's plugins: one variable, or also its items if the value is a list."""
    name, path = element.text("VAR").strip(), element.text("JSONPATH").strip()
    default = context.text(element, element.text("DEFAULT"))
    subject, variable = element.text("SUBJECT", "BODY").strip(), element.text("VARIABLE").strip()
    found = _json_path(context, element, path.removeprefix("$.").removeprefix("$"))
    if not name or found is None:
        return {}
    one: dict[str, Any] = {"json": found, "default": default}
    if subject == "VAR":
        one["from"] = f"variable:{variable}"
    why = f"of a list the whole is taken: {name}_1, {name}_2 and {name}_matchNr are not set"
    context.conversion.changed(element.what, element.line, why)
    return {name: one}


def _json_path(context: Context, element: Element, path: str) -> str | None:
    """A path of names and numbers as a JSONPath; None, with a report, for another one."""
    if _PATH.fullmatch(path.strip()) is None:
        context.cannot(element, f"the path {path.strip()!r} has more than names and numbers, which has no native form")
        return None
    text = path.strip()
    return f"${text}" if text.startswith("[") else f"$.{text}"


_PATH = re.compile(r"(?:[A-Za-z_]\w*|\[\d+\])(?:\.[A-Za-z_]\w*|\[\d+\])*")
