"""The schedule of a Controller's scenario: when users start, how long they run, when they end. Pure."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any
from xml.etree import ElementTree

from leadline.errors import PlanError
from leadline.scenario.loadrunner.ini import read_number


@dataclass(frozen=True, slots=True)
class UserChange:
    """A part of a schedule: users that start or end, or a time in which they run."""

    users: float
    """Users that start; below 0: that end; minus infinity: all end."""
    length_s: float


@dataclass(slots=True)
class Schedule:
    """What is scheduled for a group, or for all."""

    changes: list[UserChange] = field(default_factory=list)
    is_until_complete: bool = False
    """Whether users end with their iterations."""
    delay_s: float = 0
    after: list[str] = field(default_factory=list)
    """Groups that must have ended before."""
    has_batches: bool = False
    """Whether several users start or end at once."""

    @property
    def most_users(self) -> int:
        """Users at the same time at most."""
        most = now = 0.0
        for change in self.changes:
            now = max(0.0, now + change.users) if change.users > float("-inf") else 0.0
            most = max(most, now)
        return round(most)


def read_schedules(text: str, file: str, line: int) -> tuple[Schedule | None, dict[str, Schedule]]:
    """The schedule of all groups, or None, and those of single groups by name. Raises PlanError."""
    start = text.find("<LoadTest")
    if "<!DOCTYPE" in text or start < 0:
        raise PlanError(file, line, "the schedule is not readable", hint="save the scenario in the Controller again")
    try:
        root = ElementTree.fromstring(text[start:])
    except ElementTree.ParseError as error:
        raise PlanError(file, line, f"the schedule is not readable: {error}") from None
    current = root.findtext("./Schedulers/CurrentSchedulerId", "1")
    schedulers = root.findall("./Schedulers/Scheduler")
    scheduler = next((one for one in schedulers if one.get("ID") == current), schedulers[0] if schedulers else None)
    manual = None if scheduler is None else scheduler.find("Manual")
    if manual is None:
        raise PlanError(file, line, "the scenario is not scheduled by hand", hint="a goal has no native form")
    try:
        return _read_manual(manual)
    except ValueError as error:
        raise PlanError(file, line, str(error), hint="correct the schedule in the Controller") from None


def _read_manual(manual: Any) -> tuple[Schedule | None, dict[str, Schedule]]:
    """The schedules by hand. Raises ValueError."""
    if manual.findtext("SchedulerType", "Global") == "Global":
        return _read_schedule(manual.find("Global/Scheduling")), {}
    groups: dict[str, Schedule] = {}
    for one in manual.findall("Groups/GroupScheduler"):
        schedule = _read_schedule(one.find("Scheduling"))
        _read_start(schedule, one.find("StartupMode"))
        groups[one.findtext("GroupName", "").lower()] = schedule
    return None, groups


def _read_schedule(scheduling: Any) -> Schedule:
    found = Schedule()
    if scheduling is None:
        found.is_until_complete = True
        return found
    complete = scheduling.find("RunUntilComplete")
    if complete is not None:
        found.is_until_complete = True
        for part in complete:
            _add_action(found, part, "RampUp" if part.tag == "Run" else part.tag)
    for part in scheduling.find("DynamicScheduling") if scheduling.find("DynamicScheduling") is not None else ():
        _add_action(found, part, part.tag)
    return found


def _add_action(schedule: Schedule, part: Any, tag: str) -> None:
    """One action of a schedule."""
    if tag in ("RampUp", "RampDown", "RampDownAll"):
        count, interval = (_read_entry(part, f"Batch/{name}") for name in ("Count", "Interval"))
        total = _read_entry(part, "TotalVusersNumber")
        if tag == "RampDownAll":
            total = schedule.most_users
        length = interval * total / count if count >= 1 else 0.0
        schedule.has_batches |= count > 1
        schedule.changes.append(UserChange(total if tag == "RampUp" else -total, length))
    elif tag == "Duration":
        if part.find("RunUntilComplete") is not None or part.find("RunUntilCompletion") is not None:
            schedule.is_until_complete = True
        elif part.findtext("RunFor") is not None:
            schedule.changes.append(UserChange(0, _read_entry(part, "RunFor")))
    elif tag == "StopAll":
        schedule.changes.append(UserChange(float("-inf"), 0))


def _read_entry(part: Any, name: str) -> float:
    """The number of an entry; 0 without one. Raises ValueError."""
    text = part.findtext(name, "").strip()
    found = read_number(text, float("nan"))
    if math.isnan(found) and _is_float(text):
        raise ValueError(f"'{text}' is no number for {name}")
    return 0.0 if math.isnan(found) else found


def _is_float(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _read_start(schedule: Schedule, mode: Any) -> None:
    """When a group starts: at once, after a time, or after another group. Raises ValueError."""
    for one in mode.iter() if mode is not None else ():
        text = (one.text or "").strip()
        if text and "group" in one.tag.lower():
            schedule.after.append(text)
        elif re.fullmatch(r"[\d.,]+", text):
            schedule.delay_s = read_number(text, -1)
            if schedule.delay_s < 0:
                raise ValueError(f"a group starts after '{text}', which is no number of seconds")


def load_of(schedule: Schedule, share: float, users: int, iterations: int) -> dict[str, Any]:
    """The native load of a group with its share of the users, which number `users`."""
    load: dict[str, Any]
    ups = [change for change in schedule.changes if change.users > 0]
    if schedule.is_until_complete:
        load = {"users": users, "iterations": iterations}
        if ups and ups[0].length_s > 0:
            load["ramp"] = seconds(ups[0].length_s)
    elif len(ups) == 1 and not any(float("-inf") < change.users < 0 for change in schedule.changes):
        run = sum(change.length_s for change in schedule.changes if change.users == 0)
        load = {"users": users}
        if ups[0].length_s > 0:
            load["ramp"] = seconds(ups[0].length_s)
        # The last user starts one interval before the ramp's end.
        last_s = ups[0].length_s - ups[0].length_s / max(ups[0].users, 1)
        load["duration"] = seconds(last_s + run)
    else:
        load = {"stages": _make_stages(schedule, share)}
    if schedule.delay_s > 0:
        load["delay"] = seconds(schedule.delay_s)
    return load


def _make_stages(schedule: Schedule, share: float) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    now = 0.0
    for change in schedule.changes:
        now = max(0.0, now + change.users) if change.users > float("-inf") else 0.0
        found.append({"to": round(now * share), "over": seconds(change.length_s)})
    return found


def seconds(length_s: float) -> str:
    """A time in the native form."""
    return f"{length_s:.3f}".rstrip("0").rstrip(".") + "s"
