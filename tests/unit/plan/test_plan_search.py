"""`search` of a plan's test: what it takes, and mistakes with their place."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from small_plan import LOCAL_HOSTS

from leadline.errors import PlanError
from leadline.plan import Plan, trial_seconds

PLAN = """\
name: small
sut: {kind: route}
tests:
  - {name: ndr, kind: udp, packet: 100, duration: 2s, search: {until: "lost_ratio < 0.1% and jitter_us < 5ms"}}
"""


def test_search_has_its_conditions_and_takes_several_trials(load: Callable[..., Plan]) -> None:
    plan = load(PLAN)
    (case,) = plan.cases
    (test,) = case.tests
    assert (test.searched.metric, test.searched.width) == ("rate", 0.02)
    assert test.searched.until == ("lost_ratio < 0.1% and jitter_us < 5ms",)
    assert trial_seconds(case) > 20


def test_target_may_name_the_rate_found(load: Callable[..., Plan]) -> None:
    (target,) = load(f"{PLAN}targets: [ndr.found_rate_bps > 90mbit]\n").targets
    assert (target.metric, target.value) == ("found_rate_bps", 90e6)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("jitter_us < 5ms", "latency_p9_us < 5ms", "plan.yaml:4: tests.ndr.search: "),
        ("packet: 100", "packet: 100, rate: 1mbit", "tests.ndr.rate: a search chooses the rate itself"),
        ("packet: 100", "packet: 100, number: 5", "tests.ndr.number: the trials of a search end with their duration"),
        ("packet: 100", "packet: 100, direction: both", "tests.ndr.direction: a search has one direction"),
        ('until: "lost', 'metric: size, until: "lost', "tests.ndr.search.metric"),
        (" and jitter_us < 5ms", " and", "not of the form 'METRIC < VALUE'"),
        (
            '"lost_ratio < 0.1% and jitter_us < 5ms"',
            "[lost_ratio < 1%, lost_ratio < 0.1%]",
            "a weaker form of the one before",
        ),
        (
            '"lost_ratio < 0.1% and jitter_us < 5ms"',
            "[lost_ratio < 1%, jitter_us < 5]",
            "a weaker form of the one before",
        ),
        ('"lost_ratio < 0.1% and jitter_us < 5ms"', "[]", "a search of udp finds one or 2 rates, not 0"),
    ],
)
def test_mistakes_have_their_place(error_text: Callable[..., str], old: str, new: str, words: str) -> None:
    assert words in error_text(PLAN.replace(old, new))


def test_one_search_may_have_two_conditions_of_which_one_is_weaker(load: Callable[..., Plan]) -> None:
    both = PLAN.replace('"lost_ratio < 0.1% and jitter_us < 5ms"', "[lost_ratio <= 0, lost_ratio <= 0.5%]")
    (case,) = load(f"{both}targets: [ndr.found_rate_2_per_s > 1000]\n").cases
    assert case.tests[0].searched.until == ("lost_ratio <= 0", "lost_ratio <= 0.5%")
    http = both.replace("kind: udp, packet: 100", "kind: http").replace("lost_ratio", "error_ratio")
    with pytest.raises(PlanError, match="a search of http finds one rate, not 2"):
        load(http)


def test_segments_that_open_connections_stay_in_a_lab(load: Callable[..., Plan]) -> None:
    flood = "name: small\nsut: {kind: route}\ntests: [{name: syn, kind: packets, protocol: tcp-syn, rate: 1kpps}]\n"
    assert load(flood).cases
    given = flood.replace("sut: {kind: route}", "sut: {kind: given, label: far}\n" + LOCAL_HOSTS.strip())
    with pytest.raises(PlanError, match="go to a lab's hosts only"):
        load(given)
