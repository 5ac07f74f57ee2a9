"""Plans with a stack: axes over the keys of its tiers, and the tests that it answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from leadline.errors import PlanError
from leadline.plan import Plan, load_plan

PLAN = """
name: bank
sut:
  kind: stack
  tiers:
    - {{name: router, kind: haproxy}}
    - {{name: app, kind: node}}
    - {{name: store, kind: redis}}
axes:
  {axis}
tests:
  - {{name: load, kind: {kind}, duration: 1s}}
targets: [{target}]
"""


def load(folder: Path, axis: str = "clients: [1]", kind: str = "http", target: str = "'error_ratio < 1%'") -> Plan:
    path = folder / "plan.yaml"
    path.write_text(PLAN.format(axis=axis, kind=kind, target=target))
    return load_plan(path)


def test_axis_names_a_key_of_a_tier(tmp_path: Path) -> None:
    plan = load(tmp_path, "sut.tiers.app.workers: [1, 6]")
    assert [case.sut.model_dump()["tiers"][1]["workers"] for case in plan.cases] == [1, 6]
    assert [case.title for case in plan.cases] == ["sut.tiers.app.workers=1", "sut.tiers.app.workers=6"]


def test_unknown_key_of_a_tier_has_a_hint(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"unknown axis 'sut.tiers.app.worker'; did you mean 'sut.tiers.app.workers'"):
        load(tmp_path, "sut.tiers.app.worker: [1, 6]")


def test_key_of_another_kind_of_tier_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"unknown key 'nbthread' in sut\.tiers\.app"):
        load(tmp_path, "sut.tiers.app.nbthread: [1, 6]")


def test_http_test_speaks_as_the_first_tier_does(tmp_path: Path) -> None:
    with pytest.raises(
        PlanError, match=r"tests\.load\.scheme: the stack's first tier, 'router', speaks TLS; write scheme"
    ):
        load(tmp_path, "sut.tiers.router.tls: ['1.2']")


def test_stack_answers_no_tests_of_other_protocols(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="stack answers HTTP itself, and no udp test; use http or scenario"):
        load(tmp_path, kind="udp", target="'lost_ratio < 1%'")


def test_workers_that_no_router_asks_are_refused_in_one_line(tmp_path: Path) -> None:
    text = PLAN.format(axis="sut.tiers.app.workers: [1, 4]", kind="http", target="'error_ratio < 1%'")
    path = tmp_path / "plan.yaml"
    path.write_text(text.replace("    - {name: router, kind: haproxy}\n", ""))
    with pytest.raises(PlanError) as refused:
        load_plan(path)
    assert refused.value.exit_code == 2
    (line,) = str(refused.value).splitlines()
    assert "the node tier 'app' has 4 workers, but only its first one would be asked" in line
    assert "put a tier of kind haproxy right before it, or write workers: 1" in line
