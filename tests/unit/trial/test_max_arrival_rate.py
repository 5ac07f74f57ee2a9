"""The rate at which a server chokes: each trial's fleet, how it is judged, and that the search finds the truth."""

# Figures are compared with pytest.approx within tuples.
# mypy: disable-error-code=comparison-overlap
from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from leadline.analysis.capacity import Conditions
from leadline.analysis.model import Metric, Reason, Validity, Verdict
from leadline.analysis.model import TestResult as Result
from leadline.contract.models import TunnelWorkload, WireguardFiles
from leadline.errors import InputError
from leadline.kinds.tunnel.model import TunnelTest
from leadline.kinds.tunnel.search import FleetSearchTarget, storm_rate_per_s
from leadline.kinds.tunnel.workload import Access, tunnel_workload
from leadline.plan.field_types import validate_input
from leadline.trial.capacity_search import Ending, SearchResult
from leadline.trial.find_rate import search_manifest
from leadline.trial.mlr_search import search

CONDITIONS = "connect_p99_ms < 2000 and unconfigured_ratio < 1%"


def search_target(number: int = 1000, **given: Any) -> FleetSearchTarget:
    test = validate_input(TunnelTest, {"name": "tunnel", "number": number, "attempt_timeout": "10s", **given})
    load: TunnelWorkload = tunnel_workload(test, Access("client\n"), number)
    return FleetSearchTarget(test, load, Conditions.read(CONDITIONS, "tunnel", "tunnel"), ["leadline"])


def result(validity: Validity = Validity(Verdict.VALID), /, **figures: float | None) -> Result:  # noqa: B008
    metrics = {name: Metric(value, "") for name, value in figures.items()}
    return Result("c01", 1, "tunnel", "tunnel", {}, "done", None, metrics, validity, None, None, {})


def test_a_trial_is_as_many_clients_as_its_rate_brings() -> None:
    asked = search_target()
    single = asked.single("c02", 40.0, 5.0)
    load: Any = single.workload
    assert (load.clients, load.arrivals[0].from_per_s) == (200, 40.0)
    assert load.arrivals[0].duration_ms >= 5_000
    assert load.duration_ms == load.arrivals[0].duration_ms + 15_000 + 2_000
    most: Any = asked.single("c03", 4000.0, 5.0).workload
    assert most.clients == 1000, "no more than were asked for"
    least: Any = asked.single("c04", 0.5, 1.0).workload
    assert least.clients == 10, "fewer say nothing of a p99"
    storm: Any = asked.single("c01", None, None).workload
    assert (storm.clients, storm.arrivals) == (1000, [])
    assert single.parameters == {"rate_per_s": 40.0, "clients": 200} and not single.alone


def test_the_best_stretch_of_a_storm_counts_not_its_stragglers() -> None:
    figures: dict[str, float | None] = {
        "configured": 100.0,
        "connect_p50_ms": 500.0,
        "connect_p90_ms": 800.0,
        "connect_max_ms": 5000.0,
    }
    assert storm_rate_per_s(figures) == pytest.approx(90 / 0.8)
    assert storm_rate_per_s({**figures, "connect_p90_ms": None}) == pytest.approx(50 / 0.5)
    assert storm_rate_per_s({"configured": 0.0, "connect_p50_ms": None}) is None


def test_a_trial_holds_where_every_condition_does() -> None:
    asked = search_target()
    good = {"connect_p99_ms": 300.0, "unconfigured_ratio": 0.0, "handshakes_per_s": 41.0, "clients": 200.0}
    held = asked.judge(result(**good), 40.0, 5.0)
    assert (held.holds, held.answered_share, held.generator_limited) == (True, 1.0, False)
    assert held.why == "connect_p99_ms 300; unconfigured_ratio 0"
    slow = asked.judge(result(**{**good, "connect_p99_ms": 2500.0}), 40.0, 5.0)
    assert not slow.holds and slow.why == "connect_p99_ms 2500 is not < 2000"
    lost = asked.judge(result(**{**good, "unconfigured_ratio": 0.25}), 40.0, 5.0)
    assert not lost.holds and lost.answered_share == 0.75
    none_connected = asked.judge(result(**{**good, "connect_p99_ms": None, "unconfigured_ratio": 1.0}), 40.0, 5.0)
    assert "connect_p99_ms has no samples" in none_connected.why
    late = Validity(Verdict.GENERATOR_LIMITED, (Reason("sends-late", "sends were 9 ms late"),))
    assert asked.judge(result(late, **good), 40.0, 5.0).generator_limited


def test_clients_that_fail_do_not_hold_where_no_condition_is_about_them() -> None:
    asked = replace(search_target(), conditions=Conditions.read("connect_p99_ms < 2000", "tunnel", "tunnel"))
    figures = {"connect_p99_ms": 100.0, "unconfigured_ratio": 0.01}
    trial = asked.judge(result(**figures), 40.0, 5.0)
    assert not trial.holds and trial.why == "unconfigured_ratio is 0.01"


QUICK_MS = 20.0
"""The connect time without waiting."""


def queue(capacity: float, clients: int, rate_per_s: float | None) -> dict[str, float | None]:
    """The result of clients at a rate, or all at once, against a server that serves this number per second, in turn."""
    coming_s = 0.0 if rate_per_s is None else clients / rate_per_s
    last_ms = max(0.0, 1000 * (clients / capacity - coming_s))
    waits = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    return {
        "clients": float(clients),
        "configured": float(clients),
        "unconfigured_ratio": 0.0,
        "connect_min_ms": QUICK_MS,
        **{f"connect_{name}_ms": QUICK_MS + share * last_ms for name, share in waits.items()},
        "handshakes_per_s": clients / (coming_s + (last_ms + QUICK_MS) / 1000),
    }


@pytest.mark.parametrize(
    ("number", "capacity", "given"),
    [
        *((1000, capacity, {}) for capacity in (7.0, 80.0, 150.0, 300.0)),
        *((10_000, capacity, {}) for capacity in (300.0, 1500.0)),
        (1000, 60.0, {"duration": "10s"}),
    ],
)
def test_the_search_finds_where_a_server_chokes(number: int, capacity: float, given: dict[str, str]) -> None:
    asked = search_target(number, **given)
    storm = result(**queue(capacity, number, None))
    reached = asked.reached_per_s(storm)
    assert asked.initial_result(storm) is None and reached is not None

    def take(rate_per_s: float, duration_s: float) -> Any:
        load: Any = asked.single("c", rate_per_s, duration_s).workload
        trial = asked.judge(result(**queue(capacity, load.clients, rate_per_s)), rate_per_s, duration_s)
        assert trial.duration_s == pytest.approx(load.clients / rate_per_s), "it lasts as long as it says"
        return trial

    found = search(take, asked.limits(reached))
    assert found.ending is Ending.FOUND
    assert found.low_per_s is not None and found.high_per_s is not None
    assert capacity * 0.97 <= found.low_per_s <= found.high_per_s <= capacity * 1.09


def test_no_rate_is_tried_that_the_clients_do_not_last_for() -> None:
    few = search_target(1000).limits(900.0)
    assert few.final_s == 2.0 and few.highest_per_s == pytest.approx(500.0)
    many = search_target(10_000).limits(150.0)
    assert many.final_s == 5.0 and many.highest_per_s == pytest.approx(1500.0), "ten times what all at once came to"
    asked = search_target(1000, duration="20s").limits(300.0)
    assert asked.final_s == 20.0 and asked.highest_per_s == pytest.approx(50.0)


def test_clients_that_queue_do_not_hold_however_short_they_wait() -> None:
    asked = search_target(10_000)
    behind = asked.judge(result(**queue(300.0, 2000, 400.0)), 400.0, 5.0)
    assert not behind.holds and behind.why.startswith(
        "clients queued: connecting took 1520 ms at p90 and 20 ms at best"
    )
    assert behind.answered_share == pytest.approx(300 / 400, rel=0.01), "what it served is about what it can"
    kept_up = asked.judge(result(**queue(300.0, 1450, 290.0)), 290.0, 5.0)
    assert kept_up.holds
    stragglers = {**queue(300.0, 1450, 290.0), "connect_p99_ms": 1900.0, "connect_max_ms": 4000.0}
    assert asked.judge(result(**stragglers), 290.0, 5.0).holds, "some packets were lost and sent again"


def test_a_fleet_that_cannot_make_the_server_choke_is_too_small() -> None:
    asked = search_target()
    storm = {"configured": 1000.0, "connect_p50_ms": 300.0, "connect_p99_ms": 600.0, "unconfigured_ratio": 0.0}
    known = asked.initial_result(result(**storm))
    assert known is not None and (known.ending, known.low_per_s) == (Ending.ALL_HELD, pytest.approx(500 / 0.3))
    assert asked.initial_result(result(**{**storm, "connect_p99_ms": 3000.0})) is None
    assert asked.initial_result(result(**{**storm, "configured": 0.0})) is None
    validity = asked.validity(known, [], None)
    assert validity.verdict is Verdict.UNDETERMINED
    assert "1000 clients are too few to overload the server, even all at once" in validity.reasons[0].text
    assert asked.validity(SearchResult(Ending.FOUND, 90.0, 91.0, 5.0), [], None).verdict is Verdict.VALID


def test_a_highest_rate_that_holds_says_what_kept_it_from_being_higher() -> None:
    asked = search_target(1000)
    quiet = asked.judge(result(**queue(1e9, 1000, 500.0)), 500.0, 2.0)
    few = asked.validity(SearchResult(Ending.ALL_HELD, 500.0, None, 2.0), [quiet], None)
    assert (few.verdict, few.reasons[0].code) == (Verdict.UNDETERMINED, "too-few-clients")
    assert few.reasons[0].text == (
        "the highest rate tried holds: 1000 clients arrive at 500/s for 2 s and not faster; give more with -n"
    )
    slow = asked.judge(result(**queue(1e9, 150, 30.0)), 30.0, 5.0)
    other = asked.validity(SearchResult(Ending.ALL_HELD, 30.0, None, 5.0), [slow], None)
    assert other.reasons[0].text == "the highest rate tried holds: 10 times the rate of all clients at once"


def test_a_trial_waits_until_the_server_has_forgotten_the_one_before() -> None:
    """From the same port comes another client otherwise, and is refused."""
    asked = search_target(1000)
    assert asked.rest_s(result(failed_ratio=0.0)) == 6.0, "OpenVPN holds on to who has left for 5 s"
    assert asked.rest_s(result(failed_ratio=0.01)) == 6.0
    assert asked.rest_s(result(failed_ratio=0.3)) == 60.0, "and to a handshake that broke off for 60 s"
    for written, rest_s in (("hand-window 20", 20.0), ("hand-window 2", 6.0), ("# hand-window 20", 60.0)):
        profile = f"client\n{written}\nverb 3\n"
        changed = replace(asked, workload=asked.workload.model_copy(update={"profile": profile}))
        assert changed.rest_s(result(failed_ratio=0.3)) == rest_s, written
    wireguard = asked.workload.model_copy(update={"identities": WireguardFiles(files=[])})
    assert replace(asked, workload=wireguard).rest_s(result(failed_ratio=0.3)) == 6.0, "it keeps no broken handshake"


def test_a_search_without_anybody_up_says_who_was_to_come() -> None:
    none_connected = replace(result(configured=0.0), errors={"reset_unanswered": 1000})
    said = search_target(1000).failure_message(none_connected)
    assert said == ("of the 1000 clients at the start of the search, none connected (1000 x reset_unanswered)")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"retries": 3}, "--retries and --until-choke exclude each other"),
        ({"ping": "1s"}, "--ping and --until-choke exclude each other"),
        ({"rate": "50/s"}, "--rate and --until-choke exclude each other"),
        ({"settled": 5}, "only arrivals"),
        ({"reconnect_at": ["5s"]}, "only arrivals"),
        ({"traffic": {"kind": "echo", "rate": "1/s"}}, "only arrivals"),
        ({"number": 5}, "--until-choke with 5 clients"),
    ],
)
def test_what_has_no_place_in_a_search_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        search_target(**given)


def test_trials_last_as_long_as_was_asked_for() -> None:
    assert search_target().limits(10.0).final_s == 5.0
    assert search_target(duration="20s").limits(10.0).final_s == 20.0


def test_the_manifest_of_a_search_leaves_its_cases_to_the_journal() -> None:
    manifest = search_manifest(search_target(), "r01")
    assert (manifest["run_id"], manifest["command"], manifest["cases"]) == ("r01", "leadline", [])
    assert set(manifest["asked"]) == set(search_target().conditions.metrics)
