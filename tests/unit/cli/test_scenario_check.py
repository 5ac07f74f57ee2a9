"""What `leadline scenario`, `convert` and `run` make of the agent's refusal of a scenario."""

from __future__ import annotations

import pytest

from leadline.cli.scenario_check import check_scenario
from leadline.contract.models import ErrorReport
from leadline.errors import PlanError
from leadline.scenario.lowering import lower
from leadline.scenario.native import read_native


def test_each_line_of_a_refusal_is_a_mistake_with_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "my plan.yaml:4: `(?a)x` is not a regular expression: at 2: why\nmy plan.yaml:9: second\nwithout a place"
    report = ErrorReport(code="bad_scenario", message=lines, blame="input")
    monkeypatch.setattr("leadline.agents.refusal.refusal", lambda _: report)
    found = read_native("get: http://h.test/\nload: {users: 1, iterations: 1}\n", "my plan.yaml")
    with pytest.raises(PlanError) as failure:
        check_scenario(lower(found.scenario, found.root, lambda _: b""), "my plan.yaml")
    mistakes = [failure.value, *failure.value.others]
    assert [(one.line, str(one)) for one in mistakes] == [
        (4, "my plan.yaml:4: `(?a)x` is not a regular expression: at 2: why"),
        (9, "my plan.yaml:9: second"),
        (None, "my plan.yaml: without a place"),
    ]
