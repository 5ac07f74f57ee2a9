"""All mistakes of a plan are shown at once, each with its line and once, and none that only follows from another."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from small_plan import SMALL

from leadline.errors import PlanError
from leadline.plan import Plan, load_plan

Load = Callable[..., Plan]


def mistakes(load: Load, text: str, *overrides: str) -> list[str]:
    with pytest.raises(PlanError) as raised:
        load(text, *overrides)
    found = [str(error) for error in (raised.value, *raised.value.others)]
    return [line.rpartition("/plan.yaml:")[2] for line in found]


def test_mistakes_of_every_part_are_shown_in_the_order_of_their_lines(load: Load) -> None:
    text = """\
name: a b
sut: {kind: openvpn, transport: sctp}
repeat: 0
colour: red
tests:
  - {name: load, kind: udp, packte: 100, duration: -1s}
  - {name: bulk, kind: tcp, flows: 0}
targets: [load.lost_ratoi < 1, bulk.throughput_bps > fast]
"""
    assert [line.partition(";")[0] for line in mistakes(load, text)] == [
        "1: name: 'a b' is not a name",
        "2: sut.transport: 'sctp' is not possible",
        "3: repeat: 0 is not possible",
        "4: unknown key 'colour'",
        "6: unknown key 'packte' in tests.load",
        "6: tests.load.duration: '-1s' is negative",
        "7: tests.bulk.flows: 0 is not possible",
        "8: target 'load.lost_ratoi < 1': unknown metric 'lost_ratoi' of a udp test",
        "8: target 'bulk.throughput_bps > fast': 'fast' is not a rate",
    ]


def test_a_mistake_that_every_point_shares_is_shown_once(load: Load) -> None:
    text = SMALL.replace("packet: 100", "packet: 1") + "axes: {clients: [1, 2, 3], sut.transport: [udp, tcp]}\n"
    assert len(mistakes(load, text)) == 1


def test_each_impossible_value_of_an_axis_is_shown(load: Load) -> None:
    text = SMALL.replace("packet: 100", 'packet: "{size}"') + "axes:\n  size:\n    - 10\n    - 100\n    - 15\n"
    assert [line.partition(" bytes")[0] for line in mistakes(load, text)] == [
        "8: tests.load.packet: 10",
        "10: tests.load.packet: 15",
    ]


def test_a_wrong_axis_leaves_the_rest_checked(load: Load) -> None:
    text = SMALL.replace("packet: 100", 'packet: "{size}", durtion: 1s') + "axes: {sut.ciper: [A], size: [1, 100]}\n"
    assert [line.partition(";")[0] for line in mistakes(load, text)] == [
        "4: unknown key 'durtion' in tests.load",
        "6: unknown axis 'sut.ciper'",
    ]


def test_keys_that_are_twice_leave_the_rest_checked(load: Load) -> None:
    text = SMALL.replace("kind: udp", "kind: udp, kind: tcp, flow: 2")
    assert [line.partition(";")[0] for line in mistakes(load, text)] == [
        "4: the key 'kind' is here twice (first in line 4)",
        "4: unknown key 'flow' in tests.load",
    ]


def test_a_misspelt_axis_is_named_once_where_it_is_used(load: Load) -> None:
    text = SMALL.replace("packet: 100", 'packet: "{sice}"') + "axes: {size: [100]}\n"
    assert mistakes(load, text) == ["4: unknown placeholder '{sice}'; did you mean 'size'?"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("name: load", "nmae: load"),
        ("kind: udp", "knid: udp"),
        ("sut:", "stu:"),
        ("tests:", "tetss:"),
        ("name:", "nam:"),
    ],
)
def test_a_misspelt_key_is_not_missing_besides(load: Load, old: str, new: str) -> None:
    (line,) = mistakes(load, SMALL.replace(old, new, 1))
    assert "did you mean" in line


def test_all_wrong_overrides_are_named(load: Load) -> None:
    found = mistakes(load, SMALL, "repeat", "tests.buk.duration=1s", "seed=x", "clients=[")
    assert [line.partition(":")[0] for line in found] == [
        "--set repeat",
        "--set tests.buk.duration=1s",
        "--set clients=[",
        "--set seed=x",
    ]


def test_conflicts_of_several_tests_are_all_shown(load: Load) -> None:
    text = """\
name: a
sut: {kind: route}
topology: site-to-site
clients: 2
tests:
  - {name: a, kind: tcp, clients: 3, warmup: 20s}
  - {name: b, kind: udp, clients: 4}
  - {name: b, kind: tunnel}
"""
    assert [line.partition(";")[0] for line in mistakes(load, text)] == [
        "6: tests.a.warmup: 20000 ms of warm-up leave no time of 10000 ms",
    ]
    assert [line.partition(";")[0] for line in mistakes(load, text.replace(", warmup: 20s", ""))] == [
        "4: clients: a site-to-site plan has one client",
        "6: tests.a.clients: 3 is more than the 2 clients",
        "7: tests.b.clients: 4 is more than the 2 clients",
        "8: tests.b.name: two tests are called 'b'",
        "8: tests.b.kind: a tunnel test needs a fleet",
    ]


def test_mistakes_of_an_extended_plan_name_its_own_file(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(SMALL.replace("packet: 100", "packet: 1"))
    (tmp_path / "plan.yaml").write_text("extends: base.yaml\nrepeat: 0\n")
    with pytest.raises(PlanError) as raised:
        load_plan(tmp_path / "plan.yaml")
    places = [(error.file.name, error.line) for error in (raised.value, *raised.value.others)]
    assert places == [("plan.yaml", 2), ("base.yaml", 4)]
