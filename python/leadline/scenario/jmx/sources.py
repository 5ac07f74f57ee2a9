"""JMeter's sources of data, as steps at the beginning of each pass of their controller."""

from __future__ import annotations

import re
from typing import Any

from leadline.scenario.expressions import Call, Literal, show
from leadline.scenario.jmx.context import Context, made
from leadline.scenario.jmx.tree import Element

SOURCES = ("CSVDataSet", "CounterConfig", "RandomVariableConfig", "RandomCSVDataSetConfig")
Steps = list[dict[str, Any]]


def source_steps(context: Context, element: Element) -> Steps:
    """The steps that take the next value."""
    found = _SOURCES[element.kind](context, element)
    context.finished(element)
    return found


def _csv(context: Context, element: Element) -> Steps:
    """One line for each pass of the nearest controller."""
    file = context.text(element, element.text("filename").strip())
    if not file:
        context.cannot(element, "it names no file")
        return []
    columns = [name.strip() for name in element.text("variableNames").split(",") if name.strip()]
    one: dict[str, Any] = made(element, name=_name(context, element, file), file=file)
    if columns:
        one["columns"] = columns
    if columns and element.flag("ignoreFirstLine"):
        one["header"] = True
    separator = element.text("delimiter", ",") or ","
    if separator != ",":
        one["separator"] = separator if len(separator) == 1 or separator == "\\t" else separator[0]
    if not element.flag("quotedData"):
        one["quoted"] = False
    encoding = element.text("fileEncoding").strip()
    if encoding and encoding.lower() not in ("utf-8", "utf8") and "${" not in encoding:
        one["encoding"] = encoding
    mode = element.text("shareMode", "shareMode.all")
    if mode == "shareMode.group":
        one["share"] = "group"
    elif mode == "shareMode.thread":
        one["share"] = "user"
    if not element.flag("recycle", True):
        one["at_end"] = "stop-user" if element.flag("stopThread") else "eof"
    element.flag("stopThread")
    one["advance"] = "explicit"
    context.data.setdefault(one["name"], one)
    return [made(element, next=one["name"])]


def _name(context: Context, element: Element, file: str) -> str:
    """A name of the source: the element's label, or the file; elements with the same name and file share rows."""
    name = element.name or file
    known = context.data.get(name)
    return name if known is None or getattr(known, "line", None) == element.line else f"{name} (line {element.line})"


def _counter(context: Context, element: Element) -> Steps:
    name = (element.text("CounterConfig.name") or element.text("name")).strip()
    if not name:
        context.conversion.dropped(element.what, element.line, "it names no variable")
        return []
    one = made(element, count=name)
    one["start"] = context.number(element, element.text("CounterConfig.start"), "0")
    step = context.number(element, element.text("CounterConfig.incr"), "0")
    if step != 1:
        one["step"] = step
    if element.has("CounterConfig.end"):
        one["most"] = context.number(element, element.text("CounterConfig.end"))
    if element.has("CounterConfig.format"):
        one["format"] = element.text("CounterConfig.format")
    if element.flag("CounterConfig.per_user"):
        one["per_user"] = True
    if element.flag("CounterConfig.reset_on_tg_iteration"):
        context.conversion.changed(element.what, element.line, "the counter goes on from iteration to iteration")
    return [one]


def _random(context: Context, element: Element) -> Steps:
    name = element.text("variableName").strip()
    if not name:
        context.conversion.dropped(element.what, element.line, "it names no variable")
        return []
    least, most = (
        context.expression(element, element.text(f"{end}imumValue").strip() or "1") for end in ("min", "max")
    )
    for key in ("perThread", "randomSeed"):
        element.text(key)
    if element.has("outputFormat"):
        context.conversion.changed(element.what, element.line, "the number has no leading zeros")
    value = Call("random", tuple(_whole(tree) for tree in (least, most)))
    return [made(element, set={name: f"${{{show(value)}}}"})]


def _whole(tree: Any) -> Any:
    text = str(tree.value).strip() if isinstance(tree, Literal) else ""
    return Literal(int(text)) if re.fullmatch(r"-?\d{1,18}", text) else tree or Literal(1)


def _random_csv(context: Context, element: Element) -> Steps:
    """The plugin's random rows."""
    file = context.text(element, element.text("filename").strip())
    names = [name.strip() for name in element.text("variableNames").split(",") if name.strip()]
    one = made(element, name=_name(context, element, file), file=file, order="random")
    if element.flag("randomOrder", True):
        one["order"] = "shuffled" if not element.flag("rewindOnTheEndOfList", True) else "random"
    else:
        one["order"] = "sequential"
    if names:
        one["columns"] = names
    if names and element.flag("ignoreFirstLine"):
        one["header"] = True
    separator = element.text("delimiter", ",") or ","
    if separator != ",":
        one["separator"] = separator
    if element.flag("independentListPerThread"):
        one["share"] = "user"
    if not element.flag("rewindOnTheEndOfList", True):
        one["at_end"] = "stop-user"
    element.text("fileEncoding")
    one["advance"] = "explicit"
    context.data.setdefault(one["name"], one)
    return [made(element, next=one["name"])]


_SOURCES = {
    "CSVDataSet": _csv,
    "CounterConfig": _counter,
    "RandomVariableConfig": _random,
    "RandomCSVDataSetConfig": _random_csv,
}
