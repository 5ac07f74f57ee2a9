"""A scenario that hosts share: users, iterations, rates, rows and numbers are those of one load."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from leadline.plan.portions import Portion
from leadline.scenario.dealing import deal_plan, most_hosts, multiply_plan

HOSTS = st.integers(1, 20)
FEED = {"action": {"kind": "feed", "feeder": "people"}}


def plan(arrivals: dict[str, Any], rows: int = 0, flow: list[Any] | None = None, **more: Any) -> dict[str, Any]:
    """A plan with one population, or with those of `more`."""
    feeder = {"name": "people", "columns": ["name"], "rows": [[f"p{number}"] for number in range(rows)]}
    feeders = [{**feeder, "share": "test", "order": "sequential", "at_end": {"kind": "stop_user"}}] if rows else []
    return {
        "name": "s",
        "variables": [],
        "feeders": feeders,
        "populations": [population("main", arrivals, [*([FEED] if rows else []), *(flow or [])])],
        **more,
    }


def population(name: str, arrivals: dict[str, Any], flow: list[Any], phase: str = "main") -> dict[str, Any]:
    return {"name": name, "phase": phase, "after": [], "arrivals": arrivals, "flow": flow}


def users(number: int, **more: Any) -> dict[str, Any]:
    return {"model": "users", "initial": number, "stages": [], "first": "at_start", **more}


def on_each(whole: dict[str, Any], hosts: int) -> list[dict[str, Any]]:
    taking_part = min(hosts, most_hosts(whole) or hosts)
    return [deal_plan(whole, Portion(index, taking_part)) for index in range(taking_part)]


def arrivals_of(dealt: list[dict[str, Any]], name: str = "main") -> list[dict[str, Any]]:
    return [one["arrivals"] for part in dealt for one in part["populations"] if one["name"] == name]


@given(st.integers(1, 200), st.integers(1, 5), HOSTS)
def test_each_user_has_the_rows_of_the_whole_load(number: int, iterations: int, hosts: int) -> None:
    dealt = on_each(plan(users(number, iterations=iterations), rows=number * iterations), hosts)
    assert len(dealt) == min(hosts, number)
    taken: Counter[str] = Counter()
    for part, arrivals in zip(dealt, arrivals_of(dealt), strict=True):
        rows = [row[0] for row in part["feeders"][0]["rows"]]
        assert len(rows) == arrivals["initial"] * iterations, "as many as its users take"
        taken.update(rows)
    assert taken == Counter(f"p{row}" for row in range(number * iterations))
    assert sum(arrivals["initial"] for arrivals in arrivals_of(dealt)) == number


@given(st.integers(1, 50), st.integers(1, 300), HOSTS)
def test_iterations_that_users_share_and_their_rows_add_up(number: int, iterations: int, hosts: int) -> None:
    whole = plan({"model": "shared_iterations", "users": number, "iterations": iterations}, rows=iterations)
    dealt = on_each(whole, hosts)
    found = arrivals_of(dealt)
    assert sum(one["users"] for one in found) == number
    assert sum(one["iterations"] for one in found) == iterations
    assert all(one["users"] and one["iterations"] for one in found)
    for part, one in zip(dealt, found, strict=True):
        assert len(part["feeders"][0]["rows"]) == one["iterations"]
    rows = [row[0] for part in dealt for row in part["feeders"][0]["rows"]]
    assert sorted(rows) == sorted(f"p{row}" for row in range(iterations))


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500)), min_size=1, max_size=4), HOSTS)
def test_rates_are_shared_at_both_ends_of_each_stage(ends: list[tuple[int, int]], hosts: int) -> None:
    stages = [{"from_per_s": float(a), "to_per_s": float(b), "duration_ms": 1000, "at_once": a} for a, b in ends]
    whole = plan({"model": "open", "stages": stages, "users_at_start": 40, "users_most": 600})
    dealt = on_each(whole, hosts)
    for index, stage in enumerate(stages):
        parts = [one["stages"][index] for one in arrivals_of(dealt)]
        assert sum(part["at_once"] for part in parts) == stage["at_once"]
        for name in ("from_per_s", "to_per_s"):
            assert abs(float(sum(Fraction(part[name]) for part in parts) - Fraction(stage[name]))) <= 2**-40
    assert sum(one["users_at_start"] for one in arrivals_of(dealt)) == 40
    assert sum(one["users_most"] for one in arrivals_of(dealt)) == 600


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=60), HOSTS)
def test_due_times_are_dealt_in_turn(due: list[int], hosts: int) -> None:
    whole = plan({"model": "schedule", "due_us": sorted(due), "users_at_start": 99, "users_most": None})
    found = arrivals_of(on_each(whole, hosts))
    assert sorted(at for one in found for at in one["due_us"]) == sorted(due)
    assert all(one["due_us"] for one in found)


@given(st.integers(1, 60), HOSTS, st.sampled_from(["initial", "stages"]))
def test_users_have_the_numbers_of_the_whole_load(number: int, hosts: int, how: str) -> None:
    arrivals = users(number) if how == "initial" else users(0, stages=[{"users": number, "duration_ms": 1000}])
    dealt = on_each(plan(arrivals, flow=[{"op": "user_number"}]), hosts)
    numbers = []
    for part, one in zip(dealt, arrivals_of(dealt), strict=True):
        (expression,) = part["populations"][0]["flow"]
        own = one["initial"] or one["stages"][0]["users"]
        numbers += [evaluate(expression, {"user_number": local}) for local in range(1, own + 1)]
    assert sorted(numbers) == list(range(1, number + 1))


@given(HOSTS, st.integers(0, 40), st.integers(-5, 100), st.integers(1, 9))
def test_counters_and_iterations_are_never_the_same_on_two_hosts(hosts: int, taken: int, start: int, step: int) -> None:
    counter = {"op": "counter", "name": "n", "arguments": [literal(start), literal(step)]}
    flow = [counter, {"op": "population_iteration"}]
    counts, iterations = set(), set()
    for part in on_each(plan(users(hosts), flow=flow), hosts):
        dealt, iteration = part["populations"][0]["flow"]
        first, distance = [evaluate(one, {}) for one in dealt["arguments"]] if hosts > 1 else (start, step)
        counts |= {first + distance * asked for asked in range(taken)}
        iterations |= {evaluate(iteration, {"population_iteration": local}) for local in range(taken)}
    assert counts == {start + step * number for number in range(hosts * taken)}
    assert iterations == set(range(hosts * taken))


@given(st.integers(0, 1000), HOSTS)
def test_numbers_of_all_users_in_steps_add_up(number: int, hosts: int) -> None:
    flow = [
        {"kind": "times", "is_per_user": False, "times": literal(number)},
        {"kind": "times", "is_per_user": True, "times": literal(number)},
        {"kind": "rendezvous", "users": literal(number)},
        {"kind": "throughput", "scope": "test", "per_minute": literal(60), "stages": []},
        {"kind": "throughput", "scope": "user", "per_minute": literal(60), "stages": []},
    ]
    parts = [part["populations"][0]["flow"] for part in on_each(plan(users(hosts), flow=flow), hosts)]
    assert sum(evaluate(part[0]["times"], {}) for part in parts) == number
    assert all(part[1] == flow[1] for part in parts)
    assert sum(evaluate(part[2]["users"], {}) for part in parts) == number
    assert abs(sum(evaluate(part[3]["per_minute"], {}) for part in parts) - 60) < 1e-9
    assert all(part[4] == flow[4] for part in parts)


def test_a_counter_that_starts_again_is_as_it_is() -> None:
    counter = {"op": "counter", "name": "n", "arguments": [literal(1), literal(1), literal(3)]}
    for part in on_each(plan(users(5), flow=[counter]), 5):
        assert part["populations"][0]["flow"] == [counter]


def test_small_groups_are_on_few_hosts_and_large_ones_on_all() -> None:
    whole = plan(users(10))
    whole["populations"].append({**population("admin", users(1), []), "after": ["main"]})
    whole["populations"].append({**population("last", users(10), []), "after": ["admin", "main"]})
    dealt = on_each(whole, 4)
    assert [[one["name"] for one in part["populations"]] for part in dealt] == [
        ["main", "admin", "last"],
        *[["main", "last"]] * 3,
    ]
    assert dealt[1]["populations"][1]["after"] == ["main"], "it waits for no group that its host does not have"


def test_what_comes_before_the_load_is_done_on_every_host() -> None:
    whole = plan(users(8))
    whole["populations"].insert(0, population("prepare", users(1, iterations=1), [], "setup"))
    dealt = on_each(whole, 4)
    assert [one["initial"] for one in arrivals_of(dealt, "prepare")] == [1] * 4
    assert [one["initial"] for one in arrivals_of(dealt)] == [2] * 4


def test_rows_that_each_user_has_alone_are_not_dealt() -> None:
    whole = plan(users(6), rows=3)
    whole["feeders"][0]["share"] = "user"
    assert all(part["feeders"] == whole["feeders"] for part in on_each(whole, 6))


def test_few_rows_limit_the_hosts_unless_any_row_is_for_any_user() -> None:
    whole = plan(users(6), rows=3)
    assert [part["feeders"][0]["rows"] for part in on_each(whole, 6)] == [[["p0"]], [["p1"]], [["p2"]]]
    whole["feeders"][0]["order"] = "random"
    assert [part["feeders"] for part in on_each(whole, 6)] == [whole["feeders"]] * 6


def test_clients_of_one_host_are_as_many_users_with_all_rows() -> None:
    whole = plan(users(2, stages=[{"users": 5, "duration_ms": 10}]), rows=3)
    stage = {"from_per_s": 0.0, "to_per_s": 2.5, "duration_ms": 1000, "at_once": 1}
    whole["populations"].append(population("open", {"model": "open", "stages": [stage], "users_most": 7}, []))
    whole["populations"].append(population("shared", {"model": "shared_iterations", "users": 2, "iterations": 9}, []))
    whole["populations"].append(population("due", {"model": "schedule", "due_us": [5, 7], "users_most": None}, []))
    found = {one["name"]: one["arrivals"] for one in multiply_plan(whole, 3)["populations"]}
    assert (found["main"]["initial"], found["main"]["stages"]) == (6, [{"users": 15, "duration_ms": 10}])
    assert found["open"]["stages"] == [{"from_per_s": 0.0, "to_per_s": 7.5, "duration_ms": 1000, "at_once": 3}]
    assert (found["shared"]["users"], found["shared"]["iterations"]) == (6, 27)
    assert found["due"]["due_us"] == [5, 5, 5, 7, 7, 7]
    assert multiply_plan(whole, 3)["feeders"] == whole["feeders"]


def literal(value: float) -> dict[str, Any]:
    return {"op": "literal", "value": value}


def evaluate(expression: dict[str, Any], values: dict[str, int]) -> Any:
    """The value of an expression, as an agent computes it."""
    op = expression["op"]
    if op == "literal":
        return expression["value"]
    if op in values:
        return values[op]
    first, second = (evaluate(one, values) for one in expression["arguments"])
    return {"add": first + second, "multiply": first * second, "divide_whole": first // second if second else 0}[op]
