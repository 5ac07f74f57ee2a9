"""The kind `scenario` in plans and on the command line: its file, length, thresholds, and what the agent gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from leadline.errors import InputError
from leadline.kinds.scenario.command import EXAMPLE
from leadline.kinds.scenario.model import LoadedScenario, ScenarioTest
from leadline.kinds.scenario.targets import targets_of
from leadline.kinds.scenario.workload import scenario_workload
from leadline.plan.external_inputs import ExternalReader, PlanText
from leadline.plan.field_types import validate_input
from leadline.scenario.native import read_native
from leadline.scenario.thresholds import read_threshold
from leadline.trial.workloads import kind_of


def loaded(text: str) -> LoadedScenario:
    return LoadedScenario("a.yaml", read_native(text, "a.yaml"), lambda name: b"")


def test_the_example_is_a_whole_scenario() -> None:
    test = ScenarioTest(name="s", file=loaded(EXAMPLE), params={"password": "x1"})
    assert test.duration_ms == 5_000
    assert test.secrets == ("x1",)
    load = scenario_workload(test, {"host": "h.test:81"}, None)
    assert load.plan.populations[0].flow
    assert (load.tls is not None, load.duration_ms, load.threads) == (True, 5_000, 1)


def test_iterations_may_go_on_for_their_grace() -> None:
    text = "get: http://h.test/\nload: {users: 1, duration: 3s, grace: 40s}\n"
    load = scenario_workload(ScenarioTest(name="s", file=loaded(text)), {}, None)
    assert load.duration_ms == 3_000
    assert kind_of(load).longest_ms(load) == 43_000


def test_a_plans_file_is_read_beside_it() -> None:
    texts = {Path("/p/s.yaml"): b"get: http://${param('server')}/\nload: {users: 1, duration: 3s}\n"}
    external = ExternalReader(lambda path: texts[path], lambda name: "")
    test = validate_input(
        ScenarioTest, {"name": "s", "kind": "scenario", "file": PlanText.at("s.yaml", Path("/p"))}, external
    )
    assert test.duration_ms == 3_000
    assert test.model_dump()["file"] == "s.yaml"
    load = scenario_workload(test, {"server": "10.0.0.1"}, "v4")
    assert load.model_dump()["plan"]["populations"][0]["flow"][0]["action"]["host"] == ["10.0.0.1"]


@pytest.mark.parametrize(
    ("metric", "rule", "target"),
    [
        ("http_req_duration", "p(95)<500", "service_p95_us < 500000"),
        ("http_req_duration", "p(99.9) <= 1.5", "service_p999_us <= 1500"),
        ("http_req_duration", "avg<200", "service_mean_us < 200000"),
        ("http_req_waiting", "med<20", "first_byte_p50_us < 20000"),
        ("http_req_failed", "rate<0.01", "error_ratio < 0.01"),
        ("iterations", "count>=10", "iterations >= 10"),
        ("checks", "rate>0.9", "checks_ratio > 0.9"),
    ],
)
def test_thresholds_are_targets(metric: str, rule: str, target: str) -> None:
    assert targets_of([(read_threshold(metric, rule), True, 0)]) == ([target], True)


@pytest.mark.parametrize(
    ("metric", "rule"), [("http_req_duration{name:a}", "avg<1"), ("vus", "value<1"), ("iterations", "count!=1")]
)
def test_thresholds_without_a_figure_are_named(metric: str, rule: str) -> None:
    with pytest.raises(InputError, match="the threshold"):
        targets_of([(read_threshold(metric, rule), False, 0)])


def test_single_requests_are_reported_only_if_they_are_asked_for() -> None:
    asked = {
        kept: scenario_workload(ScenarioTest(name="s", file=loaded(EXAMPLE), single_requests=kept), {}, None).samples
        for kept in ("none", "all", "urls")
    }
    assert asked["none"] is None
    assert [one.model_dump() for one in (asked["all"], asked["urls"]) if one is not None] == [
        {"kind": "all", "with_urls": False},
        {"kind": "all", "with_urls": True},
    ]
