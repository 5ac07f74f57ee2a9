"""The ceiling of a scenario's generator by the CPU time of the run itself, and what it does to the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest
from made_journals import EPOCH_NS, S, counters, facts, finished, flow, histogram, load, outcome, progress, test_data
from rich.console import Console

from leadline.analysis import analyse_test
from leadline.analysis.model import CeilingBasis, Generator, TestResult
from leadline.analysis.test_data import TestData
from leadline.report.measurement import measurement

MS = 1_000_000
OFFSET_NS = 7 * S
"""The host's clock is that far ahead."""


def threads(at_s: float, shares: Sequence[float], idle_s: float = 0.0) -> list[dict[str, Any]]:
    """Threads that did nothing for a while, and then worked for their shares of the time."""
    busy_s = [share * max(0.0, at_s - idle_s) for share in shares]
    return [
        {"name": f"scenario-{number}", "user_s": 0.25 * one, "system_s": 0.75 * one, "wall_s": at_s}
        for number, one in enumerate(busy_s)
    ]


def scenario(
    *shares: float,
    host: str = "client1",
    data: TestData | None = None,
    latency_us: int = 1000,
    due: bool = False,
    idle_s: float = 0.0,
    cpus: int = 8,
    quota: dict[str, Any] | None = None,
) -> TestData:
    """1000 requests and 100 iterations per second of 50 users for 10 s, after `idle_s` in which setup took place."""
    made = data if data is not None else test_data("scenario", hosts=("client1",))
    made.facts[host] = facts(cpus=cpus)
    for step in range(1, 101):
        at_s = step / 10
        done = round(1000 * max(0.0, at_s - idle_s))
        event = progress(
            EPOCH_NS + round(at_s * S) + OFFSET_NS,
            [counters(0, 100 * done, 100 * done, sent_units=done, received_units=done)],
            side="local",
        )
        counted = {"completed": done // 10, "failed": 0}
        event["scenario"] = {
            "populations": [{"name": "users", "users": 50, "users_active": 40, "iterations": counted}],
            "labels": [],
        }
        event["standing"] = {"counts": {"responses": done}, "errors": {}, "threads": threads(at_s, shares, idle_s)}
        made.add(host, event, OFFSET_NS)
    made.add(host, _end(shares, latency_us, due, idle_s, quota), OFFSET_NS)
    return made


def _end(
    shares: Sequence[float], latency_us: int, due: bool, idle_s: float, quota: dict[str, Any] | None
) -> dict[str, Any]:
    begin_ns, end_ns = EPOCH_NS + OFFSET_NS, EPOCH_NS + OFFSET_NS + 10 * S
    units = round(1000 * (10 - idle_s))
    counts = dict.fromkeys(("due", "begun", "late", "dropped", "not_begun", "completed", "failed", "interrupted"), 0)
    main = {
        "name": "users",
        "is_main": True,
        "iterations": counts,
        "users_begun": 50,
        "users_most": 50,
        "start_ns": begin_ns + round(idle_s * S),
        "end_ns": end_ns,
        "histograms": [histogram("start_late", [1000])] if due else [],
    }
    made = outcome(
        [flow(0, begin_ns, end_ns, sent_units=units, received_units=units, received_bytes=100 * units)],
        generator=load(*threads(10.0, shares, idle_s), quota=quota),
        histograms=[histogram("latency", [latency_us * 1000] * 100)],
        scenario={"populations": [main], "labels": [], "slowest": []},
    )
    return finished(end_ns, made)


def generator(data: TestData) -> Generator:
    found = analyse_test(data).generator
    assert found is not None
    return found


def codes(result: TestResult) -> tuple[str, list[str]]:
    return result.validity.verdict.value, [reason.code for reason in result.validity.reasons]


def test_busy_share_gives_the_rate_and_the_users_at_the_limit() -> None:
    found = generator(scenario(0.5))
    assert found.ceiling_per_s == pytest.approx(2000, rel=0.001)
    assert found.ceiling_iterations_per_s == pytest.approx(200, rel=0.001)
    assert found.ceiling_users == pytest.approx(100, rel=0.001)
    assert (found.ceiling_basis, found.ceiling_extrapolated) == (CeilingBasis.THIS_RUN, True)


def test_busiest_thread_counts_where_threads_are_uneven() -> None:
    assert generator(scenario(0.1, 0.5)).ceiling_per_s == pytest.approx(2000, rel=0.001)


@pytest.mark.parametrize(
    "limits", [{"cpus": 1}, {"quota": {"group": "g", "cpus": 1.0, "wall_s": 10, "throttled_s": 0}}]
)
def test_threads_that_share_cpus_have_the_time_of_these(limits: dict[str, Any]) -> None:
    assert generator(scenario(0.4, 0.4, **limits)).ceiling_per_s == pytest.approx(1250, rel=0.001)


def test_busiest_host_is_the_first_at_its_limit() -> None:
    both = test_data("scenario", hosts=("client1", "client2"))
    scenario(0.25, data=both)
    found = generator(scenario(0.5, host="client2", data=both))
    assert found.ceiling_per_s == pytest.approx(4000, rel=0.001) and found.ceiling_users == pytest.approx(
        200, rel=0.001
    )


def test_time_before_the_main_groups_does_not_count() -> None:
    """Setup lasted 4 s; the threads worked 60 % of the rest."""
    found = generator(scenario(0.6, idle_s=4.0))
    assert found.ceiling_per_s == pytest.approx(1000 / 0.6, rel=0.001)
    assert found.ceiling_users == pytest.approx(50 / 0.6, rel=0.001)


def test_run_shorter_than_the_delay_of_its_start_is_counted_from_its_begin() -> None:
    """Its only reading is nearer to the first request than the begin is."""
    data = scenario(0.5)
    only, outcome_of = data.scenario_points[-1], data.outcomes[0]
    data.scenario_points[:] = [only]
    outcome_of.outcome["flows"][0]["start_ns"] = EPOCH_NS + OFFSET_NS + 8 * S
    assert generator(data).ceiling_per_s == pytest.approx(2000, rel=0.001)


def test_rate_is_of_the_time_after_setup() -> None:
    """Setup lasted 4 s, in which its first request was sent."""
    result = analyse_test(scenario(0.5, idle_s=4.0))
    assert result.metrics["requests_per_s"].value == pytest.approx(1000, rel=0.001)
    assert result.window is not None and result.window.length_s == pytest.approx(6.0)


@pytest.mark.parametrize("share", [0.0, 0.19])
def test_idle_threads_say_nothing(share: float) -> None:
    found = generator(scenario(share))
    assert (found.ceiling_per_s, found.ceiling_users, found.ceiling_basis) == (None, None, None)


def short(length_s: float, *shares: float, every: float = 1.0) -> TestData:
    """The first seconds of a scenario, with a share of its answers."""
    data = scenario(*shares)
    data.scenario_points[:] = [one for one in data.scenario_points if one.t_ns <= EPOCH_NS + round(length_s * S)]
    for point in data.scenario_points:
        assert point.standing is not None
        counts = cast(dict[str, int], point.standing["counts"])
        counts["responses"] = round(counts["responses"] * every)
    return data


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (
            short(0.1, 0.5),
            "too short: 50.0 ms of CPU time in the busiest thread and 100 answers; 100 ms and 100 are needed",
        ),
        (short(0.4, 0.2, 0.24), "too short: 96.0 ms of CPU time in the busiest thread and 400 answers; "),
        (short(2.0, 0.5, every=0.049), "too short: 1.00 s of CPU time in the busiest thread and 98 answers; "),
    ],
    ids=["both", "CPU time", "answers"],
)
def test_ceiling_of_a_short_run_is_not_known(data: TestData, words: str) -> None:
    result = analyse_test(data)
    assert result.generator is not None
    assert (result.generator.ceiling_per_s, result.generator.ceiling_basis) == (None, None)
    (note,) = (one for one in result.validity.notes if one.code == "ceiling-too-short")
    assert words in note.text


@pytest.mark.parametrize(
    "data", [short(0.2, 0.5), short(0.5, 0.2, 0.24), short(2.0, 0.5, every=0.05)], ids=["both", "CPU time", "answers"]
)
def test_ceiling_is_known_from_its_bound_on(data: TestData) -> None:
    assert generator(data).ceiling_per_s is not None


def test_idle_threads_of_a_short_run_need_no_note() -> None:
    assert not [one for one in analyse_test(short(0.1, 0.19)).validity.notes if one.code == "ceiling-too-short"]


def test_unknown_threads_of_one_host_leave_the_ceiling_unknown() -> None:
    both = test_data("scenario", hosts=("client1", "client2"))
    scenario(0.5, data=both)
    scenario(host="client2", data=both)
    assert generator(both).ceiling_per_s is None


@pytest.mark.parametrize("options", [{"due": True}, {"latency_us": 26_000}], ids=["at a rate", "without waits"])
def test_users_are_known_only_where_they_are_the_load_and_wait(options: dict[str, Any]) -> None:
    """At 26 ms 1000 requests per second are 26 outstanding ones: more than half of the users' time."""
    found = generator(scenario(0.5, **options))
    assert found.ceiling_per_s == pytest.approx(2000, rel=0.001) and found.ceiling_users is None


@pytest.mark.parametrize(
    ("share", "wanted"),
    [
        (0.89, ("valid", [])),
        (0.91, ("generator-limited", ["near-ceiling"])),
        (0.96, ("generator-limited", ["thread-saturated"])),
    ],
)
def test_rate_near_the_ceiling_is_the_generators(share: float, wanted: tuple[str, list[str]]) -> None:
    """Beyond 95 % the rule of threads says the same, and is enough."""
    assert codes(analyse_test(scenario(share))) == wanted


def test_saturated_threads_that_rested_before_are_near_their_ceiling() -> None:
    """Over their whole life they worked 58 % of the time."""
    result = analyse_test(scenario(0.97, idle_s=4.0))
    assert result.generator is not None and result.generator.ceiling_extrapolated is False
    assert [reason.code for reason in result.validity.reasons if reason.code == "near-ceiling"]


def test_reason_says_how_the_ceiling_is_known() -> None:
    (reason,) = analyse_test(scenario(0.92)).validity.reasons
    assert "of this generator's ceiling (about 1087/s by its CPU time in this run)" in reason.text


def test_terminal_says_what_the_generator_would_carry() -> None:
    console = Console(width=80, record=True, file=None, color_system=None)
    with console.capture() as capture:
        console.print(measurement(analyse_test(scenario(0.4)), verbose=True))
    text = " ".join(capture.get().split())
    assert "the generator would carry about 2.50 k/s, 125 users like these" in text
