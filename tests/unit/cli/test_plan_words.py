"""How `leadline plan` counts trials and tells their time."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from leadline.cli.plan import show
from leadline.plan import describe, load_plan

PLAN = """\
name: words
sut: {kind: given, label: a box}
hosts: {gateway: local, server: local, clients: [local]}
tests: [{name: load, kind: tcp, duration: 1}]
"""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("", "1 trial, about "),
        ("repeat: 3\n", "3 trials, 3 of each case, about "),
        ("axes: {tests.load.flows: [1, 2]}\n", "2 trials, about "),
    ],
)
def test_one_trial_is_not_called_trials(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: str, said: str
) -> None:
    assert said in plan_output(tmp_path, capsys, PLAN + change)


@pytest.mark.parametrize(
    ("duration", "said"), [("1s", r"about \d s$"), ("2m", r"about 2 min \d+ s$"), ("2h", r"about 2 h \d+ min$")]
)
def test_durations_omit_parts_that_are_zero(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], duration: str, said: str
) -> None:
    lines = plan_output(tmp_path, capsys, PLAN.replace("duration: 1", f"duration: {duration}")).splitlines()
    (line,) = [line for line in lines if line.startswith("1 trial")]
    assert re.search(said, line), line


def plan_output(folder: Path, capsys: pytest.CaptureFixture[str], text: str) -> str:
    path = folder / "plan.yaml"
    path.write_text(text)
    show(describe(load_plan(path)), json=False)
    return capsys.readouterr().out
