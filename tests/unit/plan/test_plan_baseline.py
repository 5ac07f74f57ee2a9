"""`baseline` of a plan: which case each case is compared with, and mistakes with their place."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from leadline.plan import Plan, describe

PLAN = """\
name: small
sut: {kind: route}
axes:
  sut: [{kind: route}, {kind: wireguard}]
  clients: [1, 3]
tests:
  - {name: bulk, kind: tcp, duration: 1s}
"""


def baselines(plan: Plan) -> dict[str, str | None]:
    return {case.id: case.baseline for case in plan.cases}


@pytest.mark.parametrize(
    "written",
    ["{sut: route}", "sut=route", "{sut: {kind: route}}", "{sut: route, clients: 1}", "c01", "sut=route clients=1"],
)
def test_baseline_by_name_or_by_values(load: Callable[..., Plan], written: str) -> None:
    """Values of one axis stand for the case with the same other axes; one case stands for all."""
    found = baselines(load(f"{PLAN}baseline: {written}\n"))
    each = {"c01": None, "c02": None, "c03": "c01", "c04": "c02"}
    one = {"c01": None, "c02": "c01", "c03": "c01", "c04": "c01"}
    assert found == (each if written in ("{sut: route}", "sut=route", "{sut: {kind: route}}") else one)


def test_previous_case_is_the_baseline_of_a_series(load: Callable[..., Plan]) -> None:
    found = baselines(load(f"{PLAN}baseline: previous\n"))
    assert found == {"c01": None, "c02": "c01", "c03": "c02", "c04": "c03"}


def test_no_baseline_is_the_default(load: Callable[..., Plan]) -> None:
    assert set(baselines(load(PLAN)).values()) == {None}


def test_a_case_without_a_like_one_is_named(load: Callable[..., Plan]) -> None:
    plan = load(f"{PLAN}include:\n  - {{sut: {{kind: wireguard}}, clients: 9}}\nbaseline: {{sut: route}}\n")
    assert baselines(plan)["c05"] is None
    assert plan.notes == ("c05 (sut=wireguard clients=9) has no baseline: c01 and c02 differ from it in more",)


def test_description_has_the_baseline(load: Callable[..., Plan]) -> None:
    described = describe(load(f"{PLAN}baseline: sut=route\n"))
    assert [case.baseline for case in described.cases] == [None, None, "c01", "c02"]


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("c09", "plan.yaml:8: baseline: no case is 'c09'; there is c01 (sut=route clients=1), "),
        ("{sut: openvpn}", "plan.yaml:8: baseline: no case has sut 'openvpn'; there is route, wireguard"),
        ("{cleints: 1}", "plan.yaml:8: baseline: no case has an axis 'cleints'; did you mean 'clients'?"),
        ("{clients: 1, sut: wireguard, topology: site-to-site}", "no case has topology 'site-to-site'"),
        ("[c01]", "plan.yaml:8: baseline: neither a case nor values of axes"),
    ],
)
def test_mistakes_have_a_line(error_text: Callable[..., str], written: str, words: str) -> None:
    assert words in error_text(f"{PLAN}baseline: {written}\n")
