"""Deals a scenario's plan to the hosts that run it together, or multiplies it by the clients of one host. Pure.

Users, iterations and rates are shared exactly, rows of data go to the host of the user that would take them, and
numbers of users, iterations and counters are those that the whole load would have. Groups before and after the main
ones run on every host, whose users need what they prepare: each has one user and one iteration at least.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from leadline.plan.portions import Portion
from leadline.scenario.lower_expressions import Lowered

_WITHOUT_LIMIT = 2**63


def most_hosts(plan: Lowered) -> int | None:
    """The largest number of hosts that can share a plan: those of its largest main group; None for any number."""
    feeders = _feeders(plan)
    most = max((_limit(one, feeders) for one in plan["populations"] if one["phase"] == "main"), default=_WITHOUT_LIMIT)
    return None if most == _WITHOUT_LIMIT else most


def deal_plan(plan: Lowered, portion: Portion) -> Lowered:
    """One host's part of a plan that all hosts share."""
    feeders = _feeders(plan)
    kept: list[Lowered] = []
    takers: dict[str, tuple[Portion, int]] = {}
    for population in plan["populations"]:
        is_main = population["phase"] == "main"
        own = replace(portion, hosts=min(portion.hosts, _limit(population, feeders))) if is_main else portion
        size = max(_size(population), own.hosts)
        for name in _fed_by(population):
            known = takers.get(name)
            if known is None or (own.hosts, size) > (known[0].hosts, known[1]):
                takers[name] = (own, size)
        if own.index < own.hosts:
            arrivals = _share(population["arrivals"], own, is_main=is_main)
            kept.append(_share_steps({**population, "arrivals": arrivals}, own))
    names = {population["name"] for population in kept}
    return {
        **plan,
        "variables": _share_steps(plan["variables"], portion),
        "populations": [{**one, "after": [name for name in one.get("after") or () if name in names]} for one in kept],
        "feeders": [{**feeder, "rows": _rows(feeder, takers.get(feeder["name"]))} for feeder in plan["feeders"]],
    }


def multiply_plan(plan: Lowered, clients: int) -> Lowered:
    """The plan of several clients on one host."""
    populations = [
        _rebuild({**one, "arrivals": _multiply(one["arrivals"], clients)}, partial(_multiply_step, clients=clients))
        for one in plan["populations"]
    ]
    return {**plan, "populations": populations}


def _feeders(plan: Lowered) -> dict[str, Lowered]:
    return {feeder["name"]: feeder for feeder in plan["feeders"]}


def _limit(population: Lowered, feeders: Mapping[str, Lowered]) -> int:
    """Number of hosts that can share a population: each has a user, an iteration and a row of its data."""
    rows = (len(feeders[name]["rows"]) for name in _fed_by(population) if name in feeders and _is_dealt(feeders[name]))
    return max(1, min((*_parts(population["arrivals"]), *rows), default=_WITHOUT_LIMIT))


def _parts(arrivals: Lowered) -> Iterator[int]:
    """The whole numbers of a load model that are shared."""
    match arrivals["model"]:
        case "users":
            yield _most_users(arrivals)
        case "shared_iterations":
            yield from (arrivals["iterations"], arrivals["users"])
        case "open":
            peak = max((max(one["from_per_s"], one["to_per_s"]) for one in arrivals["stages"]), default=0)
            peak = max(peak, max((one.get("at_once") or 0 for one in arrivals["stages"]), default=0))
            if peak == int(peak):
                yield int(peak)
        case "schedule":
            yield len(arrivals["due_us"])
    if arrivals.get("users_most") is not None:
        yield arrivals["users_most"]


def _most_users(arrivals: Lowered) -> int:
    return int(max((arrivals.get("initial") or 0, *(one["users"] for one in arrivals.get("stages") or ()))))


def _size(population: Lowered) -> int:
    """What its rows of data are dealt by: users that take one after another, iterations, or arrivals in a second."""
    return next(_parts(population["arrivals"]), _WITHOUT_LIMIT)


def _fed_by(part: Any) -> Iterator[str]:
    """The names of the feeders whose rows a population takes."""
    if isinstance(part, list):
        for one in part:
            yield from _fed_by(one)
    elif isinstance(part, dict):
        if part.get("kind") == "feed":
            yield part["feeder"]
        for name, one in part.items():
            if name != "arrivals":
                yield from _fed_by(one)


def _is_dealt(feeder: Lowered) -> bool:
    """Whether its rows are dealt. All of them are each user's own, or any row is for any user, in the other cases."""
    return bool(feeder["share"] != "user" and feeder["order"] != "random")


def _rows(feeder: Lowered, by: tuple[Portion, int] | None) -> list[list[str]]:
    """A host's rows: those of the users, iterations or arrivals that it has."""
    rows: list[list[str]] = feeder["rows"]
    if by is None or feeder["share"] == "user":
        return rows
    portion, size = by
    if len(rows) < portion.hosts:
        return rows  # in a random order
    return [row for number, row in enumerate(rows) if number % size % portion.hosts == portion.index]


def _share(arrivals: Lowered, portion: Portion, *, is_main: bool) -> Lowered:
    least = 0 if is_main else 1
    found = dict(arrivals)

    def whole(total: int) -> int:
        return max(portion.share(total), min(least, total))

    for name in ("initial", "users", "users_at_start", "users_most"):
        if found.get(name) is not None:
            found[name] = whole(found[name])
    if found["model"] == "shared_iterations":
        found["iterations"] = whole(found["iterations"])
    if found.get("due_us"):
        found["due_us"] = found["due_us"][portion.index :: portion.hosts]
    if found["model"] == "users":
        found["stages"] = [{**one, "users": whole(one["users"])} for one in found.get("stages") or ()]
    if found["model"] == "open":
        found["stages"] = [
            {
                **one,
                "from_per_s": portion.share_of_rate(one["from_per_s"]),
                "to_per_s": portion.share_of_rate(one["to_per_s"]),
                "at_once": whole(one.get("at_once") or 0),
            }
            for one in found["stages"]
        ]
    return found


def _multiply(arrivals: Lowered, clients: int) -> Lowered:
    found = dict(arrivals)
    for name in ("initial", "users", "users_at_start", "users_most"):
        if found.get(name) is not None:
            found[name] *= clients
    if found["model"] == "shared_iterations":
        found["iterations"] *= clients
    if found.get("due_us"):
        found["due_us"] = [at for at in found["due_us"] for _ in range(clients)]
    if found["model"] in ("users", "open"):
        names = ("users", "from_per_s", "to_per_s", "at_once")
        found["stages"] = [
            {name: value * clients if name in names else value for name, value in one.items()}
            for one in found.get("stages") or ()
        ]
    return found


def _rebuild(part: Any, change: Callable[[Lowered], Lowered]) -> Any:
    """A part of a plan with each of its mappings changed, the inner ones first; load models stay as they are."""
    if isinstance(part, list):
        return [_rebuild(one, change) for one in part]
    if not isinstance(part, dict):
        return part
    return change({name: one if name == "arrivals" else _rebuild(one, change) for name, one in part.items()})


def _share_steps(part: Any, portion: Portion) -> Any:
    return part if portion.hosts == 1 else _rebuild(part, partial(_share_step, portion=portion))


def _share_step(step: Lowered, portion: Portion) -> Lowered:
    """A step or an expression whose value is that of all hosts' users."""
    found = step
    match step:
        case {"op": "user_number"}:  # from 1
            found = _sum(_product(step, portion.hosts), portion.index + 1 - portion.hosts)
        case {"op": "population_iteration"}:  # from 0
            found = _sum(_product(step, portion.hosts), portion.index)
        case {"op": "counter"}:
            found = _counter(step, portion)
        case {"kind": "times", "is_per_user": False}:
            found = {**step, "times": _share_of(step["times"], portion)}
        case {"kind": "rendezvous"}:
            found = {**step, "users": _share_of(step["users"], portion)}
        case {"kind": "throughput"}:
            found = _throughput(step, 1 / portion.hosts)
    return found


def _multiply_step(step: Lowered, clients: int) -> Lowered:
    """A step whose rate or number is that of all users of a client."""
    found = step
    match step:
        case {"kind": "times", "is_per_user": False}:
            found = {**step, "times": _product(step["times"], clients)}
        case {"kind": "throughput"}:
            found = _throughput(step, clients)
    return found


def _throughput(wait: Lowered, factor: float) -> Lowered:
    """A pace of all users by a factor; that of each user as it is."""
    if wait["scope"] == "user":
        return wait
    stages = [{**one, "per_minute": one["per_minute"] * factor} for one in wait.get("stages") or ()]
    return {**wait, "per_minute": _product(wait["per_minute"], factor), "stages": stages}


def _counter(counter: Lowered, portion: Portion) -> Lowered:
    """A counter that takes every Nth number. One that starts again uses its numbers repeatedly in any case."""
    given: list[Lowered] = counter.get("arguments") or []
    start, step, *end = (*given, *_FROM_ONE[len(given) :])
    if end:
        return counter
    shifted = {"op": "add", "arguments": [start, _product(step, portion.index)]}
    return {**counter, "arguments": [shifted, _product(step, portion.hosts)]}


def _share_of(total: Lowered, portion: Portion) -> Lowered:
    """A host's share of the value of an expression, as `Portion.share`."""
    raised = _sum(total, portion.hosts - 1 - portion.index)
    return {"op": "divide_whole", "arguments": [raised, _literal(portion.hosts)]}


def _sum(expression: Lowered, number: float) -> Lowered:
    return {"op": "add", "arguments": [expression, _literal(number)]}


def _product(expression: Lowered, number: float) -> Lowered:
    return {"op": "multiply", "arguments": [expression, _literal(number)]}


def _literal(value: float) -> Lowered:
    return {"op": "literal", "value": value}


_FROM_ONE: Sequence[Lowered] = (_literal(1), _literal(1))
