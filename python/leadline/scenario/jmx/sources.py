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
    one: dict[str, Any] = made(element, file=file)
    if columns:
        one["columns"] = columns
    if columns and element.flag("ignoreFirstLine"):
        one["header"] = True
    separator = element.text("delimiter", ",") or ","
    if separator != ",":
        # Where values may be quoted JMeter takes the first character alone.
        one["separator"] = separator[0] if element.flag("quotedData") and separator != "\\t" else separator
    if not element.flag("quotedData"):
        one["quoted"] = False
    encoding = element.text("fileEncoding").strip()
    if encoding and encoding.lower() not in ("utf-8", "utf8") and "${" not in encoding:
        one["encoding"] = encoding
    mode = element.text("shareMode").strip() or "shareMode.all"
    if mode == "shareMode.group":
        one["share"] = "group"
    elif mode == "shareMode.thread":
        one["share"] = "user"
    if not element.flag("quotedData") and not element.flag("stopThread"):
        one["blank_lines"] = "eof"
    if not element.flag("recycle", True):
        one["at_end"] = "stop-user" if element.flag("stopThread") else "eof"
    element.flag("stopThread")
    return _next_row(context, element, one, mode)


def _next_row(context: Context, element: Element, one: dict[str, Any], mode: str) -> Steps:
    """Takes a row. Elements with the same file and mode take rows from one position, each for its own variables."""
    known = context.sources.get((one["file"], mode))
    if known is None:
        return _new_source(context, element, one, mode)
    columns, others = one.get("columns", []), known.get("columns", [])
    is_read_alike = {**known, "columns": others} == {**one, **_position(known), "columns": others}
    if is_read_alike and bool(columns) == bool(others) and len(columns) <= len(others):
        steps: Steps = [made(element, next=known["name"])]
        renamed = {name: f"${{{other}}}" for name, other in zip(columns, others, strict=False) if name != other}
        if renamed or len(columns) < len(others):
            why = f"its rows are those of line {known.line}: it sets the variables {', '.join(others)} too"
            context.conversion.changed(element.what, element.line, why)
        return [*steps, made(element, set=renamed)] if renamed else steps
    why = f"it takes rows from a position of its own: it reads {one['file']} in another way than line {known.line}"
    context.conversion.changed(element.what, element.line, why)
    return _new_source(context, element, one, f"{mode} of {element.file}:{element.line}")


def _position(source: dict[str, Any]) -> dict[str, Any]:
    """What a source has beside how its file is read."""
    return {"name": source["name"], "advance": source["advance"]}


def _new_source(context: Context, element: Element, one: dict[str, Any], mode: str) -> Steps:
    """A source whose name is the element's label or its file."""
    key = (one["file"], mode)
    if key not in context.sources:
        name = element.name or one["file"]
        while name in context.data:
            name += f" (line {element.line})"
        source = made(element, **{"name": name, **one, "advance": "explicit"})
        context.sources[key] = context.data[name] = source
    return [made(element, next=context.sources[key]["name"])]


def _counter(context: Context, element: Element) -> Steps:
    name = (element.text("CounterConfig.name") or element.text("name")).strip()
    if not name:
        context.conversion.dropped(element.what, element.line, "it names no variable")
        return []
    one = made(element, count=name)
    elements = context.counters.setdefault(name, [])
    if not any(known is element for known in elements):
        elements.append(element)
    if element is not elements[0]:
        one["counter"] = f"{name} (line {element.line})"
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
    one = made(element, file=file)
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
    return _new_source(context, element, one, f"{element.file}:{element.line}")


_SOURCES = {
    "CSVDataSet": _csv,
    "CounterConfig": _counter,
    "RandomVariableConfig": _random,
    "RandomCSVDataSetConfig": _random_csv,
}
