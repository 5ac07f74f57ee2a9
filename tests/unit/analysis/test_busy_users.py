"""Users without think time who wait for the tool that plays them, by Little's law."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from test_own_ceiling import scenario

from leadline.analysis import analyse_test
from leadline.analysis.busy_users import judge_users
from leadline.analysis.model import Bound, TestResult, Verdict

BANK = {
    1: (50, 350, 0.150, False),
    2: (50, 600, 0.020, True),
    3: (50, 1000, 0.020, True),
    4: (100, 3500, 0.020, False),
    5: (250, 5800, 0.020, False),
}
"""A bank's five steps from a tool to a system at its limit: users, answers per second, their mean time, and whether the
users waited for the tool. In the first step they waited for the only instance of the service, in the fourth and the
fifth for the system; the fifth opened a connection for each request, which its times leave out."""


@pytest.mark.parametrize("step", BANK)
def test_tool_is_named_in_two_of_the_five_steps_of_a_bank(step: int) -> None:
    users, rate_per_s, response_s, waits = BANK[step]
    found = judge_users(users, rate_per_s, response_s, has_think_time=False)
    assert [(verdict, reason.code) for verdict, reason in found] == [
        (Verdict.GENERATOR_LIMITED, "users-wait") for _ in range(waits)
    ]


def test_reason_names_the_users_inside_of_a_request_and_the_tool() -> None:
    ((_, reason),) = judge_users(50, 600, 0.020, has_think_time=False)
    assert reason.text == (
        "12 of 50 users were inside of a request at a time (600/s of 20.0 ms each): without think time the others, "
        "76 %, waited for the load generator"
    )


@pytest.mark.parametrize("has_think_time", [True, None])
def test_users_that_think_or_may_think_give_no_finding(has_think_time: bool | None) -> None:
    assert judge_users(50, 600, 0.020, has_think_time=has_think_time) == ()


def played(latency_ms: int, has_waits: bool | None = False, **options: Any) -> TestResult:
    """1,000 requests per second of 50 users, whose threads are half busy."""
    data = scenario(0.5, latency_us=1000 * latency_ms, **options)
    data.spec = replace(data.spec, has_waits=has_waits)
    return analyse_test(data)


@pytest.mark.parametrize(("latency_ms", "waits"), [(10, True), (20, True), (25, False), (50, False)])
def test_users_of_a_scenario_that_are_mostly_outside_of_requests_limit_it(latency_ms: int, waits: bool) -> None:
    found = played(latency_ms)
    assert [reason.code for reason in found.validity.reasons] == ["users-wait"] * waits
    rate, p99 = found.metrics["requests_per_s"], found.metrics["latency_p99_us"]
    assert (rate.bound, p99.bound) == ((Bound.LEAST, Bound.NONE) if waits else (None, None))
    assert (found.limit is not None and found.limit.by.value == "generator") is waits


@pytest.mark.parametrize("options", [{"has_waits": True}, {"has_waits": None}, {"due": True}])
def test_users_that_wait_by_themselves_do_not_wait_for_their_generator(options: dict[str, Any]) -> None:
    assert played(10, **options).validity.verdict is Verdict.VALID
