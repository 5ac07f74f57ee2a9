"""JMeter's thread groups, and those of its plugins, as native loads."""

from __future__ import annotations

import math
from typing import Any

from leadline.scenario.jmx.context import Context
from leadline.scenario.jmx.open_model import rate_stages
from leadline.scenario.jmx.tree import Element, inner_text, texts

THREAD_GROUPS = (
    "ThreadGroup", "SetupThreadGroup", "PostThreadGroup", "ConcurrencyThreadGroup", "ArrivalsThreadGroup",
    "FreeFormArrivalsThreadGroup", "SteppingThreadGroup", "UltimateThreadGroup", "OpenModelThreadGroup",
)  # fmt: skip


def group(context: Context, element: Element) -> dict[str, Any]:
    """The native group of a thread group, without its flow."""
    found: dict[str, Any] = {"name": element.name or f"group at line {element.line}"}
    if element.kind == "SetupThreadGroup":
        found["phase"] = "setup"
    elif element.kind == "PostThreadGroup":
        found["phase"] = "teardown"
    found["load"] = _LOADS.get(element.kind, _threads)(context, element)
    if element.kind == "OpenModelThreadGroup":
        found["new_user"] = True
    action = element.text("ThreadGroup.on_sample_error", "continue")
    if action not in _ON_ERROR:
        context.conversion.changed(element.what, element.line, f"on_sample_error {action} is continue")
    elif action != "continue":
        found["on_error"] = _ON_ERROR[action]
    if not element.flag("ThreadGroup.same_user_on_next_iteration", True):
        # JMeter keeps variables, and cookies unless their manager says else; connections are new.
        found["new_connections"] = True
    context.finished(element, "LogFilename", "ThreadGroup.main_controller")
    return found


def _threads(context: Context, element: Element) -> dict[str, Any]:
    load: dict[str, Any] = {"threads": context.number(element, element.text("ThreadGroup.num_threads"), "1")}
    ramp = element.text("ThreadGroup.ramp_time").strip()
    if ramp not in ("", "0"):
        load["ramp"] = context.seconds(element, ramp)
    load["loops"] = _loops(context, element)
    has_scheduler = element.flag("ThreadGroup.scheduler")
    duration, delay = element.text("ThreadGroup.duration").strip(), element.text("ThreadGroup.delay").strip()
    if has_scheduler and delay not in ("", "0"):
        load["delay"] = context.seconds(element, delay)
    if has_scheduler and duration not in ("", "0"):
        load["duration"] = context.seconds(element, duration)
    elif not has_scheduler and duration not in ("", "0"):
        context.conversion.changed(element.what, element.line, "duration and delay are ignored: its scheduler is off")
    if load["loops"] == "forever" and "duration" not in load:
        context.conversion.changed(element.what, element.line, "it runs for ever: give --duration")
    return load


def _loops(context: Context, element: Element) -> Any:
    controller = element.tag("ThreadGroup.main_controller")
    if controller is None:
        return 1
    text = inner_text(controller, "LoopController.loops", "1").strip() or "1"
    if inner_text(controller, "LoopController.continue_forever").strip().lower() != "false" and text != "-1":
        why = "it runs for ever, as in JMeter: LoopController.continue_forever is not false"
        context.conversion.changed(element.what, element.line, why)
        return "forever"
    if text == "-1":
        return "forever"
    loops = context.number(element, text, "1")
    if isinstance(loops, int) and loops < 0:
        return "forever"
    return 0 if isinstance(loops, int | float) and loops < 1 else loops


def _unit(element: Element) -> str:
    return "m" if element.text("Unit", "M").strip().upper().startswith("M") else "s"


def _length(context: Context, element: Element, name: str, unit: str) -> str:
    text = element.text(name).strip() or "0"
    seconds = context.seconds(element, text)
    return seconds if unit == "s" else (seconds[:-1] + "m")


def _steps(context: Context, element: Element, unit: str, *, of_users: bool) -> list[tuple[Any, str]]:
    """Targets, each with the time to reach it, for a ramp in a number of steps. Users are whole, a rate is not."""
    target = context.number(element, element.text("TargetLevel"), "1")
    ramp, hold = _length(context, element, "RampUp", unit), _length(context, element, "Hold", unit)
    count = int(context.static(element, element.text("Steps"), 1)) if element.has("Steps") else 0
    if count > _MOST_STAGES:
        context.conversion.changed(element.what, element.line, f"{count} steps are too many: they become a ramp")
    if count <= 0 or count > _MOST_STAGES:
        return [(target, ramp), (target, hold)]
    if count == 1:
        return [(target, "0s"), (target, ramp), (target, hold)]
    # A staircase: each step begins at once and lasts its part of the ramp.
    level = context.static(element, element.text("TargetLevel"), 1)
    length_s = context.static(element, element.text("RampUp")) * (60 if unit == "m" else 1)
    found: list[tuple[Any, str]] = []
    for index in range(1, count + 1):
        reached = level * index / count
        shown = round(reached) if of_users else f"{reached:.9g}"
        found += [(shown, "0s"), (shown, f"{length_s / count:.3f}s")]
    return [*found, (target, hold)]


def _concurrency(context: Context, element: Element) -> dict[str, Any]:
    unit = _unit(element)
    element.text("Iterations")
    found: dict[str, Any] = {
        "stages": [{"to": to, "over": over} for to, over in _steps(context, element, unit, of_users=True)]
    }
    if element.text("Iterations").strip() not in ("", "0"):
        found["iterations"] = context.number(element, element.text("Iterations"))
    return found | _AFTER_SAMPLE


def _arrivals(context: Context, element: Element) -> dict[str, Any]:
    unit = _unit(element)
    stages = [{"to": f"{to}/{unit}", "over": over} for to, over in _steps(context, element, unit, of_users=False)]
    return _open(context, element, stages)


def _open(context: Context, element: Element, stages: list[dict[str, Any]]) -> dict[str, Any]:
    """The load in which each arrival has a thread: a free one, or a new one up to the limit."""
    load: dict[str, Any] = {"rate_stages": stages, "users": 1}
    limit = element.text("ConcurrencyLimit").strip()
    if limit not in ("", "0"):
        load["most_users"] = context.number(element, limit)
    return load


def _free_form(context: Context, element: Element) -> dict[str, Any]:
    """Rows of start, end and duration."""
    unit = _unit(element)
    stages: list[dict[str, Any]] = []
    for row in (texts(tag) for tag in element.rows("Schedule")):
        start, end, length = (context.number(element, text) for text in (*row, "0", "0", "0")[:3])
        first = f"{start}/{unit}"
        if first != (stages[-1]["to"] if stages else f"0/{unit}"):
            stages.append({"to": first, "over": "0s"})
        stages.append({"to": f"{end}/{unit}", "over": f"{length}{unit}"})
    if not stages:
        context.cannot(element, "its schedule has no rows")
    return _open(context, element, stages)


def _stepping(context: Context, element: Element) -> dict[str, Any]:
    """jpgc's stepping group: users are added in bursts, held, and removed in bursts."""

    def number(name: str) -> float:
        return context.static(element, element.text(name))

    total, delay_s = round(number("ThreadGroup.num_threads")), number("Threads initial delay")
    burst, first = max(1, round(number("Start users count") or 1)), round(number("Start users count burst"))
    period_s, ramp_s = number("Start users period"), number("rampUp")
    away, away_s, hold_s = (
        max(1, round(number("Stop users count") or 1)),
        number("Stop users period"),
        number("flighttime"),
    )
    stages = [{"to": 0, "over": f"{delay_s:g}s"}] if delay_s else []
    users = min(first, total)
    if users:
        stages.append({"to": users, "over": f"{ramp_s:g}s"})
    while users < total and len(stages) < _MOST_STAGES:
        stages.append({"to": users, "over": f"{period_s:g}s"}) if users else None
        users = min(users + burst, total)
        stages.append({"to": users, "over": f"{ramp_s:g}s"})
    if users < total:
        why = f"its bursts are too many: the last {total - users} users begin evenly over their time"
        context.conversion.changed(element.what, element.line, why)
        rest_s = math.ceil((total - users) / burst) * (period_s + ramp_s)
        users = total
        stages.append({"to": users, "over": f"{rest_s:g}s"})
    stages.append({"to": total, "over": f"{hold_s:g}s"})
    while users > 0 and len(stages) < 2 * _MOST_STAGES:
        users = max(users - away, 0)
        stages.append({"to": users, "over": "0s"})
        if users:
            stages.append({"to": users, "over": f"{away_s:g}s"})
    if users > 0:
        why = f"its bursts are too many: the last {users} users end evenly over their time"
        context.conversion.changed(element.what, element.line, why)
        stages.append({"to": 0, "over": f"{math.ceil(users / away) * away_s:g}s"})
    return {"stages": stages} | _AFTER_SAMPLE


def _ultimate(context: Context, element: Element) -> dict[str, Any]:
    rows = []
    for tag in element.rows("ultimatethreadgroupdata"):
        users, delay, ramp, hold, down = (*texts(tag), "0", "0", "0", "0", "0")[:5]
        rows.append(
            {
                "users": context.number(element, users),
                "delay": context.seconds(element, delay),
                "ramp": context.seconds(element, ramp),
                "hold": context.seconds(element, hold),
                "ramp_down": context.seconds(element, down),
            }
        )
    if not rows:
        context.cannot(element, "its schedule has no rows")
        return {"threads": 1}
    return {"schedule": rows}


def _open_model(context: Context, element: Element) -> dict[str, Any]:
    """The load in which each arrival has a new thread; there is no limit of them."""
    element.text("OpenModelThreadGroup.random_seed")
    text = element.text("OpenModelThreadGroup.schedule")
    with context.reported(element):
        if (native := context.constant(element, text)) is not None:
            try:
                return {"rate_stages": rate_stages(native), "users": 1}
            except ValueError as error:
                context.cannot(element, str(error))
    return {"threads": 1}


_MOST_STAGES = 2000
_AFTER_SAMPLE = {"ends": "request", "grace": "60s"}
"""A user that is no longer wanted finishes its running sample, as in JMeter."""
_ON_ERROR = {
    "continue": "continue", "startnextloop": "next-iteration", "stopthread": "stop-user", "stoptest": "stop-test",
    "stoptestnow": "stop-test-now",
}  # fmt: skip
_LOADS = {
    "ConcurrencyThreadGroup": _concurrency,
    "ArrivalsThreadGroup": _arrivals,
    "FreeFormArrivalsThreadGroup": _free_form,
    "SteppingThreadGroup": _stepping,
    "UltimateThreadGroup": _ultimate,
    "OpenModelThreadGroup": _open_model,
}
