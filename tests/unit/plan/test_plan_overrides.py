"""`--set` and `extends`: what they change, and how they complain."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from small_plan import SMALL

from leadline.errors import PlanError
from leadline.plan import Plan, load_plan
from leadline.sut.openvpn.parameters import OpenvpnSut
from leadline.sut.wireguard import WireguardSut

Load = Callable[..., Plan]
ErrorText = Callable[..., str]


def test_an_override_changes_one_value(load: Load) -> None:
    plan = load(
        SMALL, "repeat=2", "tests.bulk.duration=3s", "sut.cipher=B", "lab.link.rate=10mbit", 'description="a: b"'
    )
    (case,) = plan.cases
    assert plan.repeat == 2
    assert [test.duration_ms for test in case.tests] == [1000, 3000]
    assert case.sut == OpenvpnSut(cipher="B")
    assert case.link is not None
    assert case.link.rate_bps == 10_000_000
    assert plan.overrides[0] == "repeat=2"


def test_names_of_axes_hold_dots(load: Load) -> None:
    text = SMALL + "axes: {clients: [1, 2], sut.cipher: [A, B]}"
    plan = load(text, "axes.sut.cipher=[AES-256-GCM]", "axes.clients=[5,20]", "axes.tests.load.packet=[64]")
    assert [case.title for case in plan.cases] == [
        "clients=5 sut.cipher=AES-256-GCM tests.load.packet=64",
        "clients=20 sut.cipher=AES-256-GCM tests.load.packet=64",
    ]


def test_null_removes_an_axis(load: Load) -> None:
    plan = load(SMALL + "axes: {clients: [1, 2], sut.ip: [4, 6]}", "axes.clients=null")
    assert [case.title for case in plan.cases] == ["sut.ip=4", "sut.ip=6"]


def test_the_order_of_overrides_counts(load: Load) -> None:
    assert load(SMALL, "repeat=2", "repeat=3").repeat == 3


def test_a_whole_list_can_be_set(load: Load) -> None:
    (case,) = load(SMALL, "tests=[{name: only, kind: rr, duration: 1s}]").cases
    assert [test.name for test in case.tests] == ["only"]


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("tetss=3", "unknown key 'tetss'; did you mean 'tests'?"),
        ("repeat=x", "repeat: 'x' is not a whole number"),
        ("repeat", "not a KEY=VALUE; write it as in --set repeat=2 or --set 'axes.clients=[5, 20]'"),
        ("=3", "not a KEY=VALUE; write it as in --set repeat=2 or --set 'axes.clients=[5, 20]'"),
        ("a..b=3", "not a KEY=VALUE; write it as in --set repeat=2 or --set 'axes.clients=[5, 20]'"),
        ("tests.buk.duration=1s", "tests has no item called 'buk'; did you mean 'bulk'?"),
        ("tests.bulk.durtion=1s", "unknown key 'durtion' in tests.bulk; did you mean 'duration'?"),
        ("tests.bulk.duration=-1s", "tests.bulk.duration: '-1s' is negative; a duration is not"),
        ("axes.clients=[5,", "the '[' is not closed; close it with ']'"),
        ("axes.clients=5", "axes.clients: 5 is not a list; write [5]"),
        ("axes.clients=[5, 0]", "clients: 0 is not possible; at least 1"),
        ("axes.sut.cihper=[A]", "unknown axis 'sut.cihper'; did you mean 'sut.cipher'?"),
        ("name.x=3", "name is a single value without a key 'x'"),
        ("extends=x.yaml", "extends can only be set in a plan's file"),
        ("targets=[bulk.lost < 1]", "target 'bulk.lost < 1': unknown metric 'lost' of a tcp test; there is"),
    ],
)
def test_a_wrong_override_is_named(error_text: ErrorText, argument: str, expected: str) -> None:
    assert error_text(SMALL, argument).startswith(f"--set {argument}: {expected}")


def write(folder: Path, **texts: str) -> Path:
    for name, text in texts.items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    return folder / "plan.yaml"


def test_a_plan_inherits_and_corrects(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        base=SMALL + "axes: {clients: [1, 2], sut.cipher: [A]}\nrepeat: 3\nlab: {link: {rate: 1gbit, mtu: 1400}}",
        plan="""
extends: base.yaml
name: child
lab: {link: {rate: 10mbit}}
axes: {clients: [7], sut.cipher: null}
tests:
  - {name: bulk, duration: 2s}
  - {name: more, kind: rr}
""",
    )
    plan = load_plan(path)
    (case,) = plan.cases
    assert (plan.name, plan.repeat, case.title) == ("child", 3, "clients=7")
    assert case.link is not None
    assert (case.link.rate_bps, case.link.mtu_bytes) == (10_000_000, 1400)
    assert [(test.name, test.kind, test.duration_ms) for test in case.tests] == [
        ("load", "udp", 1000),
        ("bulk", "tcp", 2000),
        ("more", "rr", 10_000),
    ]
    assert "extends" not in plan.document


def test_another_kind_inherits_nothing(tmp_path: Path) -> None:
    base = SMALL.replace("openvpn", "openvpn, cipher: A")
    path = write(tmp_path, base=base, plan="extends: base.yaml\nsut: {kind: wireguard}\n")
    assert load_plan(path).cases[0].sut == WireguardSut()


def test_given_hosts_take_an_inherited_labs_place(tmp_path: Path) -> None:
    hosts = "hosts: {gateway: local, server: local, clients: [local]}"
    plan = f"extends: base.yaml\nsut: {{kind: given, label: a box}}\n{hosts}"
    path = write(tmp_path, base=SMALL + "lab: {link: {rate: 1gbit}}", plan=plan)
    assert load_plan(path).cases[0].link is None


def test_a_mistake_in_an_inherited_plan_has_its_own_file(tmp_path: Path) -> None:
    path = write(tmp_path, base=SMALL.replace("packet: 100", "packet: 1"), plan="extends: base.yaml\n")
    with pytest.raises(PlanError, match=r"base\.yaml:4: tests\.load\.packet: 1 bytes is too small"):
        load_plan(path)


def test_circular_extends_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, plan="extends: b.yaml\n", b="name: b\nextends: c.yaml\n", c="extends: ./plan.yaml\n")
    expected = (
        r"c\.yaml:1: extends: the plans extend each other in a circle: plan\.yaml -> b\.yaml -> c\.yaml -> plan\.yaml"
    )
    with pytest.raises(PlanError, match=expected):
        load_plan(path)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            "nowhere.yaml",
            r"plan\.yaml:1: extends: .*nowhere\.yaml: there is no such file; the path is relative to this file",
        ),
        ("[a.yaml]", r"plan\.yaml:1: extends: this is not a path; write it as in 'extends: base\.yaml'"),
    ],
)
def test_unusable_extends_is_refused(tmp_path: Path, source: str, expected: str) -> None:
    with pytest.raises(PlanError, match=expected):
        load_plan(write(tmp_path, plan=f"extends: {source}\n"))
