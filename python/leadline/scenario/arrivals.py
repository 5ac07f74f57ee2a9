"""Lowers loads to the agent's arrivals: the short form, k6's executors, Gatling's profiles, JMeter's groups. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from leadline.plan.field_types import PlanModel
from leadline.plan.rate import read_rate
from leadline.scenario.due_times import MOST_DUE, even_due, random_due, stress_peak
from leadline.scenario.load_models import (
    DueLoad,
    GatlingLoad,
    Injection,
    K6Load,
    Load,
    ScheduleLoad,
    ScheduleRow,
    ThreadLoad,
)
from leadline.scenario.lower_expressions import Lowered, Names
from leadline.scenario.values import duration, has_stages, number, rate_text

DEFAULT_DURATION_MS = 10_000
REQUEST_GRACE_MS = 60_000
"""Time that JMeter's running requests have at the end."""
MOST_USERS = 1_000_000
MOST_LEVELS = 1000


@dataclass(frozen=True, slots=True)
class LoweredLoad:
    """A load for the agent."""

    arrivals: Lowered
    end: Lowered
    delay_ms: int
    longest_ms: int | None
    """Time from its beginning to the last iteration's beginning; None without a limit of time."""


def lower_load(load: PlanModel, names: Names) -> LoweredLoad:
    """The load for the agent. Raises ValueError if a number cannot be computed."""
    return _Loads(names).lower(load)


class _Loads:
    def __init__(self, names: Names) -> None:
        self._names = names

    def lower(self, load: PlanModel) -> LoweredLoad:
        if isinstance(load, K6Load):
            return self._k6(load)
        if isinstance(load, GatlingLoad):
            return self._gatling(load)
        if isinstance(load, ThreadLoad):
            return self._threads(load)
        if isinstance(load, ScheduleLoad):
            return self._schedule(load)
        if isinstance(load, DueLoad):
            return self._due(load)
        assert isinstance(load, Load), "every model of a load is above"
        return self._plain(load)

    def _plain(self, load: Load) -> LoweredLoad:
        grace_ms, delay_ms = self._ms(load.grace), self._ms(load.delay)
        end = _request(grace_ms) if load.ends == "request" else _iteration(grace_ms)
        if load.has_rate:
            return self._open(load, end, delay_ms)
        limited = load.iterations is not None or load.total_iterations is not None
        length = None if load.duration is None else self._ms(load.duration)
        if load.stages:
            stages = [{"users": self._users(stage.to), "duration_ms": self._ms(stage.over)} for stage in load.stages]
            total = sum(stage["duration_ms"] for stage in stages)
            arrivals = self._user_arrivals(
                0 if load.users is None else load.users, stages, total if length is None else length
            )
            arrivals |= {"first": "after_interval", "ramp_down_ms": grace_ms}
            if load.ends == "request":
                arrivals |= _ramp_down_after_request(grace_ms)
        elif load.total_iterations is not None:
            count = self._count(load.total_iterations)
            arrivals = {"model": "shared_iterations", "users": self._users(load.users or 1), "iterations": count}
            arrivals |= {"duration_ms": length}
        else:
            if length is None and not limited:
                length = DEFAULT_DURATION_MS
            users, ramp_ms = self._users(load.users or 1), self._ms(load.ramp)
            stages = [{"users": users, "duration_ms": ramp_ms}] if ramp_ms else []
            arrivals = self._user_arrivals(0 if ramp_ms else users, stages, length)
        if load.iterations is not None:
            arrivals["iterations"] = self._count(load.iterations)
        return LoweredLoad(arrivals, end, delay_ms, arrivals["duration_ms"])

    def _open(self, load: Load, end: Lowered, delay_ms: int) -> LoweredLoad:
        users = 10 if load.users is None else self._users(load.users)
        most = None if load.most_users is None else self._users(load.most_users)
        if load.rate_stages:
            return self._spaced(self._rate_stages(load), (users, most), end, delay_ms)
        if has_stages(load.rate):
            read = read_rate(load.rate)
            assert isinstance(read, tuple), "it has stages"
            stages = [_stage(stage.from_per_s, stage.to_per_s, stage.duration_ms) for stage in read]
        else:
            rate = self._per_second(load.rate)
            length = DEFAULT_DURATION_MS if load.duration is None else self._ms(load.duration)
            stages = [_stage(rate, rate, length)]
        return self._open_load(stages, (load.spacing, "at_start"), (users, most), end, delay_ms)

    def _rate_stages(self, load: Load) -> list[tuple[Lowered, str]]:
        """Stages from each target to the next one, each with its spacing; one that takes no time is a jump."""
        found: list[tuple[Lowered, str]] = []
        rate = 0.0
        for stage in load.rate_stages:
            target = self._per_second(stage.to)
            if (length_ms := self._ms(stage.over)) > 0:
                found.append((_stage(rate, target, length_ms), stage.spacing or load.spacing))
            rate = target
        return found

    def _spaced(
        self, stages: list[tuple[Lowered, str]], users: tuple[int, int | None], end: Lowered, delay_ms: int
    ) -> LoweredLoad:
        """An open load whose stages have a spacing each: where they differ, its instants are computed here."""
        spacings = {spacing for stage, spacing in stages if stage["from_per_s"] or stage["to_per_s"]}
        if len(spacings) < 2:
            spacing = spacings.pop() if spacings else "even"
            return self._open_load([stage for stage, _ in stages], (spacing, "at_start"), users, end, delay_ms)
        due: list[int] = []
        start_us = 0
        for index, (stage, spacing) in enumerate(stages):
            length_us = stage["duration_ms"] * 1000
            due += [start_us] * stage["at_once"]
            own = random_due(stage, length_us, index) if spacing == "poisson" else even_due(stage, length_us)
            due += [start_us + at for at in own]
            start_us += length_us
            if len(due) > MOST_DUE:
                raise ValueError(f"more than {MOST_DUE} iterations are too many where stages differ in their spacing")
        arrivals = {"model": "schedule", "due_us": due, "users_at_start": users[0], "users_most": users[1]}
        return LoweredLoad(arrivals, end, delay_ms, start_us // 1000)

    def _per_second(self, rate: Any) -> float:
        text, seconds = rate_text(str(rate))
        return self._number(text) / seconds

    def _open_load(
        self, stages: list[Lowered], how: tuple[str, str], users: tuple[int, int | None], end: Lowered, delay_ms: int
    ) -> LoweredLoad:
        """`how` has spacing and first arrival, `users` those at the start and at most."""
        if all(stage["to_per_s"] == stage["from_per_s"] == stage["at_once"] == 0 for stage in stages):
            raise ValueError("a rate must be above 0 in some stage")
        arrivals = {
            "model": "open",
            "stages": stages,
            "spacing": how[0],
            "first": how[1],
            "users_at_start": users[0],
            "users_most": users[1],
        }
        return LoweredLoad(arrivals, end, delay_ms, sum(stage["duration_ms"] for stage in stages))

    def _user_arrivals(self, initial: Any, stages: list[Lowered], length_ms: int | None) -> Lowered:
        return {
            "model": "users",
            "initial": self._users(initial),
            "stages": stages,
            "first": "at_start",
            "duration_ms": length_ms,
        }

    def _k6(self, load: K6Load) -> LoweredLoad:
        end, delay_ms = _iteration(self._ms(load.graceful_stop)), self._ms(load.start_time)
        longest_ms = self._ms(load.max_duration)
        if load.executor == "shared-iterations":
            arrivals: Lowered = {"model": "shared_iterations", "users": self._users(load.vus)}
            arrivals |= {"iterations": self._count(load.iterations), "duration_ms": longest_ms}
            arrivals["drop_undone"] = True
        elif load.executor == "per-vu-iterations":
            arrivals = self._user_arrivals(load.vus, [], longest_ms) | {"iterations": self._count(load.iterations)}
            arrivals["drop_undone"] = True
        elif load.executor == "constant-vus":
            arrivals = self._user_arrivals(load.vus, [], self._ms(load.duration))
        elif load.executor == "ramping-vus":
            stages = [{"users": self._users(one.target), "duration_ms": self._ms(one.duration)} for one in load.stages]
            arrivals = self._user_arrivals(load.start_vus, stages, sum(one["duration_ms"] for one in stages))
            arrivals |= {"first": "after_interval", "ramp_down_ms": self._ms(load.graceful_ramp_down)}
        else:
            return self._k6_rate(load, end, delay_ms)
        return LoweredLoad(arrivals, end, delay_ms, arrivals["duration_ms"])

    def _k6_rate(self, load: K6Load, end: Lowered, delay_ms: int) -> LoweredLoad:
        unit_s = self._ms(load.time_unit) / 1000
        if unit_s <= 0:
            raise ValueError("timeUnit must be above 0")
        users = self._users(load.pre_allocated_vus)
        most = users if load.max_vus is None else self._users(load.max_vus)
        if load.executor == "constant-arrival-rate":
            rate = self._number(load.rate) / unit_s
            stages, first = [_stage(rate, rate, self._ms(load.duration))], "at_start"
        else:
            stages, first, rate = [], "after_interval", self._number(load.start_rate) / unit_s
            for stage in load.stages:
                target = self._number(stage.target) / unit_s
                if (length_ms := self._ms(stage.duration)) > 0:
                    stages.append(_stage(rate, target, length_ms))
                rate = target
        found = self._open_load(stages, ("even", first), (users, most), end, delay_ms)
        found.arrivals["drop_while_growing"] = True
        return found

    def _gatling(self, load: GatlingLoad) -> LoweredLoad:
        end = _iteration(self._ms(load.grace))
        steps = load.inject
        if any(one.is_closed for one in steps):
            return self._gatling_closed(steps, end)
        if any(one.stress_peak_users is not None for one in steps):
            due = self._gatling_due(steps)
            arrivals = {"model": "schedule", "due_us": due, "users_at_start": 10, "users_most": None}
            return LoweredLoad(arrivals, end, 0, due[-1] // 1000 + 1 if due else 1)
        stages = [
            (stage, "poisson" if one.randomized else "even") for one in steps for stage in self._gatling_stages(one)
        ]
        return self._spaced(stages, (10, None), end, 0)

    def _gatling_stages(self, step: Injection) -> list[Lowered]:
        if step.increment_users_per_sec is None:
            return [self._gatling_stage(step)]
        length_ms, ramp_ms = self._positive_ms(step.each_level_lasting), self._ms(step.separated_by_ramps_lasting)
        found: list[Lowered] = []
        for level in self._levels(step, self._number(step.increment_users_per_sec), self._number(step.starting_from)):
            if found and ramp_ms:
                found.append(_stage(found[-1]["to_per_s"], level, ramp_ms))
            found.append(_stage(level, level, length_ms))
        return found

    def _levels(self, step: Injection, increment: float, start: float) -> list[float]:
        """The levels of stairs: the first one is where they start, or one increment if they start at 0."""
        count = self._count(step.times)
        if count > MOST_LEVELS:
            raise ValueError(f"{count} levels are too many; at most {MOST_LEVELS}")
        return [start + increment * (index if start > 0 else index + 1) for index in range(count)]

    def _gatling_stage(self, step: Injection) -> Lowered:
        if step.at_once_users is not None:
            return _stage(0, 0, 0, at_once=self._users(step.at_once_users))
        if step.nothing_for is not None:
            return _stage(0, 0, self._ms(step.nothing_for))
        length_ms = self._positive_ms(step.during)
        if step.ramp_users is not None:
            rate = self._users(step.ramp_users) / (length_ms / 1000)
            return _stage(rate, rate, length_ms)
        if step.constant_users_per_sec is not None:
            rate = self._number(step.constant_users_per_sec)
            return _stage(rate, rate, length_ms)
        return _stage(self._number(step.ramp_users_per_sec), self._number(step.to), length_ms)

    def _gatling_due(self, steps: tuple[Injection, ...]) -> list[int]:
        """The instants of all users, for profiles with a stress peak."""
        due: list[int] = []
        start_us = 0
        for step in steps:
            if step.stress_peak_users is not None:
                length_us = self._positive_ms(step.during) * 1000
                due += [start_us + at for at in stress_peak(self._users(step.stress_peak_users), length_us)]
                start_us += length_us
                continue
            for stage in self._gatling_stages(step):
                length_us = stage["duration_ms"] * 1000
                due += [start_us] * stage["at_once"]
                own = random_due(stage, length_us, start_us) if step.randomized else even_due(stage, length_us)
                due += [start_us + at for at in own]
                start_us += length_us
            if len(due) > MOST_DUE:
                raise ValueError(f"more than {MOST_DUE} users are too many for a profile with a stress peak")
        return due

    def _gatling_closed(self, steps: tuple[Injection, ...], end: Lowered) -> LoweredLoad:
        stages: list[Lowered] = []
        for step in steps:
            if step.nothing_for is not None:
                stages += [_users_stage(0, 0), _users_stage(0, self._ms(step.nothing_for))]
            elif step.constant_concurrent_users is not None:
                users = self._users(step.constant_concurrent_users)
                stages += [_users_stage(users, 0), _users_stage(users, self._positive_ms(step.during))]
            elif step.increment_concurrent_users is not None:
                stages += self._user_stairs(step)
            else:
                stages.append(_users_stage(self._users(step.ramp_concurrent_users), 0))
                stages.append(_users_stage(self._users(step.to), self._positive_ms(step.during)))
        total_ms = sum(stage["duration_ms"] for stage in stages)
        # Gatling never ends a user because the number falls: each has time until the grace after the profile is over.
        arrivals = self._user_arrivals(0, stages, total_ms) | {"ramp_down_ms": total_ms + end["grace_ms"]}
        return LoweredLoad(arrivals, end, 0, total_ms)

    def _user_stairs(self, step: Injection) -> list[Lowered]:
        length_ms, ramp_ms = self._positive_ms(step.each_level_lasting), self._ms(step.separated_by_ramps_lasting)
        increment, start = self._users(step.increment_concurrent_users), self._users(step.starting_from)
        found: list[Lowered] = []
        for level in self._levels(step, increment, start):
            found += [_users_stage(int(level), ramp_ms if found else 0), _users_stage(int(level), length_ms)]
        return found

    def _threads(self, load: ThreadLoad) -> LoweredLoad:
        users, ramp_ms = self._users(load.threads), self._ms(load.ramp)
        length_ms = None if load.duration is None else self._ms(load.duration)
        stages = [_users_stage(users, ramp_ms)] if ramp_ms else []
        arrivals = self._user_arrivals(0 if ramp_ms else users, stages, length_ms)
        if load.loops != "forever":
            arrivals["iterations"] = self._count(load.loops)
        return LoweredLoad(arrivals, _request(), self._ms(load.delay), length_ms)

    def _schedule(self, load: ScheduleLoad) -> LoweredLoad:
        rows = [self._row(row) for row in load.schedule]
        instants = sorted({at for row in rows for at, _ in row})
        stages: list[Lowered] = []
        last_ms = 0
        for at_ms in instants:
            before, after = (round(sum(_users_at(row, at_ms, side) for row in rows)) for side in (0, 1))
            if at_ms > last_ms:
                stages.append(_users_stage(before, at_ms - last_ms))
            if not stages or stages[-1]["users"] != after:
                stages.append(_users_stage(after, 0))
            last_ms = at_ms
        arrivals = self._user_arrivals(0, stages, last_ms) | _ramp_down_after_request(REQUEST_GRACE_MS)
        return LoweredLoad(arrivals, _request(), 0, last_ms)

    def _row(self, row: ScheduleRow) -> list[tuple[int, int]]:
        """Corners of the number of users: (ms, users)."""
        users, start_ms = self._users(row.users), self._ms(row.delay)
        full_ms = start_ms + self._ms(row.ramp)
        down_ms = full_ms + self._ms(row.hold)
        return [(start_ms, 0), (full_ms, users), (down_ms, users), (down_ms + self._ms(row.ramp_down), 0)]

    def _due(self, load: DueLoad) -> LoweredLoad:
        due = [self._us(one) for one in load.due]
        if due != sorted(due):
            raise ValueError("the times of due are not in ascending order")
        most = None if load.most_users is None else self._users(load.most_users)
        arrivals = {"model": "schedule", "due_us": due, "users_at_start": self._users(load.users), "users_most": most}
        return LoweredLoad(arrivals, _iteration(self._ms(load.grace)), 0, due[-1] // 1000 + 1)

    def _us(self, text: Any) -> int:
        found = self._names.number(duration(text))
        if not 0 <= found <= 7 * 24 * 3600 * 1e6:
            raise ValueError(f"{text} is not a duration from 0 to 7 days")
        return round(found)

    def _ms(self, text: Any) -> int:
        return round(self._us(text) / 1000)

    def _positive_ms(self, text: Any) -> int:
        found = self._ms(text)
        if found <= 0:
            raise ValueError("a duration must be above 0")
        return found

    def _number(self, text: Any) -> float:
        found = self._names.number(number(text))
        if not 0 <= found <= 1e9:
            raise ValueError(f"{found:g} is not a rate from 0 to 1000000000")
        return found

    def _count(self, text: Any) -> int:
        found = self._names.number(number(text))
        if found != int(found) or not 1 <= found <= 1e12:
            raise ValueError(f"{found:g} is not a number of iterations from 1")
        return int(found)

    def _users(self, text: Any) -> int:
        found = self._names.number(number(text))
        if found != int(found) or not 0 <= found <= MOST_USERS:
            raise ValueError(f"{found:g} is not a number of users from 0 to {MOST_USERS}")
        return int(found)


def _users_at(corners: list[tuple[int, int]], at_ms: int, side: int) -> float:
    """The users of a row just before (side 0) or after (side 1) an instant."""
    if at_ms < corners[0][0] or (at_ms == corners[0][0] and side == 0):
        return 0
    for (left_ms, left), (right_ms, right) in pairwise(corners):
        inside = left_ms <= at_ms < right_ms if side else left_ms < at_ms <= right_ms
        if inside:
            return left + (right - left) * (at_ms - left_ms) / (right_ms - left_ms)
    return 0


def _stage(from_per_s: float, to_per_s: float, duration_ms: int, at_once: int = 0) -> Lowered:
    return {"from_per_s": from_per_s, "to_per_s": to_per_s, "duration_ms": duration_ms, "at_once": at_once}


def _users_stage(users: int, duration_ms: int) -> Lowered:
    return {"users": users, "duration_ms": duration_ms}


def _iteration(grace_ms: int) -> Lowered:
    return {"kind": "iteration", "grace_ms": grace_ms}


def _request(grace_ms: int = REQUEST_GRACE_MS) -> Lowered:
    return {"kind": "request", "grace_ms": grace_ms}


def _ramp_down_after_request(grace_ms: int) -> Lowered:
    return {"ramp_down_ms": grace_ms, "ramp_down_after_request": True}
