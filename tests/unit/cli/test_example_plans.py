"""The plans that Leadline brings along: listed, printed, and found by name; `leadline demo` runs one of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from leadline.cli import demo, plan
from leadline.cli import run as run_command
from leadline.cli.examples import example_plan, example_plans
from leadline.errors import InputError
from leadline.plan import load_plan

ROOT = Path(__file__).resolve().parents[3]


def test_every_plan_of_the_folder_is_an_example() -> None:
    names = {plan.name for plan in example_plans()}
    assert {"demo", "gateway", "gateways", "ladder", "mirage", "openvpn-throughput"} <= names
    assert names == {path.stem for path in (ROOT / "examples").glob("*.yaml")} - {"shop", "bank-users"}, "scenarios"
    assert all(plan.summary for plan in example_plans())


def test_printed_example_is_the_plan_itself(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert plan.command(Path("gateway"), example=True) == 0
    copy = tmp_path / "gateway.yaml"
    copy.write_text(capsys.readouterr().out)
    assert len(load_plan(copy).cases) == 3


def test_both_implementations_of_mirage_meet_the_same_control_channels() -> None:
    cases = load_plan(ROOT / "examples/mirage.yaml").cases
    assert [case.baseline for case in cases] == [None, None, "c01", "c02"]
    controls = [case.sut.model_dump()["control"] for case in cases]
    assert controls == ["tls-crypt", "tls-crypt-v2"] * 2
    assert [case.sut.model_dump()["client"] is None for case in cases] == [True, True, False, False]


def test_list_of_examples_has_one_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    plan.command(example=True)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [plan.name for plan in example_plans()]
    plan.command(example=True, json=True)
    document = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in document] == [line.split()[0] for line in lines]


def test_misspelled_example_has_a_hint() -> None:
    with pytest.raises(InputError, match="there is no such example; did you mean gateway"):
        example_plan("gatway")


def test_demo_runs_its_example_and_says_how_to_go_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given: list[Any] = []

    def run(file: Path, *, out: Path, json: bool) -> int:
        given.append((file, out, json))
        return 0

    monkeypatch.setattr(run_command, "command", run)
    assert demo.command(tmp_path) == 0
    assert given == [(ROOT / "examples/demo.yaml", tmp_path, False)]
    assert "leadline run gateway.yaml" in capsys.readouterr().err


def test_demo_is_short_and_has_a_fixed_number_of_rounds() -> None:
    shown = load_plan(example_plan("demo").path)
    assert shown.until is None
    assert [test.kind for test in shown.cases[0].tests] == ["tcp", "rr", "http"]
    assert sum(test.expected_ms for case in shown.cases for test in case.tests) * shown.repeat < 40_000
