"""JMeter's timers, as the native waits of a request; the delays of all timers in scope add."""

from __future__ import annotations

from typing import Any

from leadline.scenario.expressions import Literal, show
from leadline.scenario.jmx.context import Context
from leadline.scenario.jmx.tree import Element, texts

TIMERS = (
    "ConstantTimer", "UniformRandomTimer", "GaussianRandomTimer", "PoissonRandomTimer", "ConstantThroughputTimer",
    "PreciseThroughputTimer", "SyncTimer", "JSR223Timer", "BeanShellTimer", "BSFTimer", "VariableThroughputTimer",
)  # fmt: skip


def waits(context: Context, timers: list[Element], factor: int = 1) -> list[Any]:
    """The waits of all timers, in order."""
    found = []
    for element in timers:
        wait = _TIMERS[element.kind](context, element)
        if wait is not None:
            found.append(wait)
            context.finished(element)
    return found


def _constant(context: Context, element: Element) -> Any:
    return context.milliseconds(element, element.text("ConstantTimer.delay"))


def _offset(context: Context, element: Element) -> dict[str, Any]:
    offset = context.milliseconds(element, element.text("ConstantTimer.delay"))
    return {} if offset in ("0s", "0ms") else {"plus": offset}


def _uniform(context: Context, element: Element) -> Any:
    span = context.milliseconds(element, element.text("RandomTimer.range"))
    return {"uniform": ["0s", span], **_offset(context, element)}


def _normal(context: Context, element: Element) -> Any:
    """abs(offset + deviation * N)."""
    mean = context.milliseconds(element, element.text("ConstantTimer.delay"))
    return {"normal": [mean, context.milliseconds(element, element.text("RandomTimer.range"))]}


def _poisson(context: Context, element: Element) -> Any:
    return {"poisson": context.milliseconds(element, element.text("RandomTimer.range")), **_offset(context, element)}


def _throughput(context: Context, element: Element) -> Any:
    mode = element.text("calcMode", "0").strip()
    words = {"this thread only": "0", "all active threads": "1", "all active threads in current thread group": "2"}
    scopes = {"0": "user", "1": "all-share", "2": "group-share", "3": "all", "4": "group"}
    scope = scopes.get(words.get(mode.lower(), mode), "user")
    rate = context.number(element, element.text("throughput"), "60")
    return {"throughput": rate, "scope": scope, "name": _name(element)}


def _name(element: Element) -> str:
    """One timer over several samplers counts them together; two timers do not."""
    return f"{element.name} (line {element.line})" if element.name else f"line {element.line}"


def _precise(context: Context, element: Element) -> Any:
    """Samples per period, at random instants, for the whole group."""
    count = context.static(element, element.text("throughput"), 100)
    period_s = context.static(element, element.text("throughputPeriod"), 3600)
    for name in ("duration", "batchSize", "batchThreadDelay", "randomSeed", "exactLimit", "allowedThroughputSurplus"):
        element.text(name)
    context.conversion.changed(element.what, element.line, "the instants are random, their number is not exact")
    rate = round(count * 60 / max(period_s, 1e-9), 6)
    return {"throughput": rate, "scope": "group", "spacing": "poisson", "name": _name(element)}


def _meet(context: Context, element: Element) -> Any:
    # Nothing or 0 are all users of the group, by its number and whether or not they still run.
    users = context.number(element, element.text("groupSize").strip() or "0") or context.group_users
    timeout = context.milliseconds(element, element.text("timeoutInMs"))
    return {"meet": _name(element), "users": users, "timeout": timeout}


def _script(context: Context, element: Element) -> Any:
    """A script that returns milliseconds."""
    language = element.text("scriptLanguage", "groovy") if element.kind != "BeanShellTimer" else "beanshell"
    for name in ("parameters", "filename"):
        element.text(name)
    with context.reported(element):
        tree = context.scripts.expression(element.text("script"), language)
        return f"{tree.value}ms" if isinstance(tree, Literal) else f"${{{show(tree)}}}ms"
    return None


def _shaped(context: Context, element: Element) -> Any:
    """jpgc's throughput shaping: rows of requests per second at the start and at the end, and seconds."""
    rows = [texts(row) for row in element.rows("load_profile")]
    rates = [tuple(context.static(element, text) for text in (*row, "0", "0", "0")[:3]) for row in rows]
    if not rates:
        context.cannot(element, "its schedule has no rows")
        return None
    why = "the test goes on after the last row, at its rate; JMeter's plugin stops it"
    context.conversion.changed(element.what, element.line, why)
    first, last, stages = rates[0][0], rates[0][0], []
    for start, end, seconds in rates:
        if start != last:
            stages.append({"to": start * 60, "over": "0s"})
        stages.append({"to": end * 60, "over": f"{seconds:g}s"})
        last = end
    found = {"throughput": first * 60, "scope": "all", "name": _name(element)}
    return found if all(stage["to"] == first * 60 for stage in stages) else found | {"stages": stages}


_TIMERS = {
    "ConstantTimer": _constant,
    "UniformRandomTimer": _uniform,
    "GaussianRandomTimer": _normal,
    "PoissonRandomTimer": _poisson,
    "ConstantThroughputTimer": _throughput,
    "PreciseThroughputTimer": _precise,
    "SyncTimer": _meet,
    "JSR223Timer": _script,
    "BeanShellTimer": _script,
    "BSFTimer": _script,
    "VariableThroughputTimer": _shaped,
}
