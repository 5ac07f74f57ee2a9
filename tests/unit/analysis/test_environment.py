"""What differed between trials: only facts with several values, each with its trials."""

from __future__ import annotations

from typing import Any

from leadline.analysis.environment import Environment
from leadline.analysis.model import TrialResult

FACTS: dict[str, Any] = {
    "kernel": "6.1",
    "clock": {"source": "tsc", "max_error_us": 16},
    "interfaces": [{"name": "wan", "mtu": 1500, "tso": True}],
}


def trial(name: str, version: str) -> TrialResult:
    return TrialResult(name, name.partition("/")[0], 1, "done", None, "openvpn", version, None, ())


def test_changed_fact_has_the_trials_of_each_value() -> None:
    environment = Environment()
    environment.note("c01/1", "gateway", FACTS)
    environment.note("c02/1", "gateway", {**FACTS, "interfaces": [{"name": "wan", "mtu": 1500, "tso": False}]})
    environment.note("c01/2", "gateway", FACTS)
    [found] = environment.differences([])
    assert (found.of, found.fact) == ("gateway", "interfaces wan tso")
    assert found.values == {"True": ("c01/1", "c01/2"), "False": ("c02/1",)}


def test_equal_facts_and_a_clock_s_measured_error_are_no_difference() -> None:
    environment = Environment()
    environment.note("c01/1", "gateway", FACTS)
    environment.note("c02/1", "gateway", {**FACTS, "clock": {"source": "tsc", "max_error_us": 900}})
    assert environment.differences([trial("c01/1", "2.6.14"), trial("c02/1", "2.6.14")]) == ()


def test_changed_version_of_a_system_is_a_difference() -> None:
    [found] = Environment().differences([trial("c01/1", "2.6.14"), trial("c01/2", "2.7.0")])
    assert (found.of, found.fact) == ("openvpn", "version")
    assert found.values == {"2.6.14": ("c01/1",), "2.7.0": ("c01/2",)}
