"""The order of trials, `--only`, the expected time, what is needed, and the description of it all."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_plan import GIVEN, SMALL

from leadline.errors import InputError
from leadline.plan import Plan, describe, expand, expected_seconds, needs, schedule, select, trial_seconds

Load = Callable[..., Plan]
WIDE = SMALL + "axes: {clients: [1, 5, 20], sut: [{kind: route}, {kind: openvpn, cipher: A}]}\n"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(repeat=st.integers(1, 20), seed=st.integers(0, 2**63 - 1), kept=st.sets(st.integers(0, 5), min_size=1))
def test_each_round_has_each_case_once_and_leaving_some_out_moves_none(
    load: Load, repeat: int, seed: int, kept: set[int]
) -> None:
    cases = expand(load(WIDE))
    trials = schedule(cases, repeat, seed)
    rounds = [trials[start : start + len(cases)] for start in range(0, len(trials), len(cases))]
    assert [{trial.repeat for trial in each} for each in rounds] == [{number} for number in range(1, repeat + 1)]
    assert all(sorted(trial.case.id for trial in each) == [case.id for case in cases] for each in rounds)
    assert trials == schedule(cases, repeat, seed)
    some = [cases[index] for index in sorted(kept)]
    ids = {case.id for case in some}
    assert schedule(some, repeat, seed) == [trial for trial in trials if trial.case.id in ids]


def test_order_of_a_seed_never_changes(load: Load) -> None:
    """Recorded figures refer to it: another Python or another version must not change it."""
    order = [trial.label for trial in schedule(expand(load(WIDE)), 2, 7)]
    assert " ".join(order) == ORDER_OF_SEED_7


ORDER_OF_SEED_7 = "c03/1 c01/1 c04/1 c05/1 c06/1 c02/1 c05/2 c06/2 c03/2 c01/2 c02/2 c04/2"


def test_rounds_have_different_orders(load: Load) -> None:
    trials = schedule(expand(load(WIDE)), 8, 1)
    assert len({tuple(trial.case.id for trial in trials[start : start + 6]) for start in range(0, 48, 6)}) > 4


def test_a_derived_seed_depends_on_content_alone(load: Load) -> None:
    plain, commented = load(WIDE), load(f"# a remark\n{WIDE}")
    assert plain.seed_is_derived
    assert plain.seed == commented.seed != load(WIDE, "repeat=2").seed
    assert (load(WIDE, "seed=5").seed, load(WIDE, "seed=5").seed_is_derived) == (5, False)


@pytest.mark.parametrize(
    ("patterns", "ids"),
    [
        ([], "123456"),
        (["c02"], "2"),
        (["c0[12]", "c05"], "125"),
        (["clients=5"], "34"),
        (["clients=5", "clients=20"], "3456"),
        (["clients=5", "sut=route"], "3"),
        (["sut=open*"], "246"),
        (["sut.kind=route"], "135"),
        (["sut.cipher=A", "c04", "c03"], "4"),
        (["topology=remote-access"], "123456"),
    ],
)
def test_only_picks_cases(load: Load, patterns: list[str], ids: str) -> None:
    assert [case.id for case in select(expand(load(WIDE)), patterns)] == [f"c0{digit}" for digit in ids]


def test_only_picks_tests(load: Load) -> None:
    chosen = select(expand(load(WIDE)), ["bulk", "clients=1"])
    assert [(case.id, [test.name for test in case.tests]) for case in chosen] == [("c01", ["bulk"]), ("c02", ["bulk"])]


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (["clients=7"], "--only clients=7: no case has clients '7'; there is 1, 5, 20"),
        (["cleints=7"], "--only cleints=7: no case has an axis 'cleints'; did you mean 'clients'?"),
        (
            ["blk"],
            "--only blk: neither a case, a test nor AXIS=VALUE; cases c01 to c06; tests load, bulk; axes clients, sut",
        ),
        (
            ["c01", "clients=5"],
            "--only c01 --only clients=5: no case matches all of these; cases c01 to c06; tests load, bulk; axes...",
        ),
    ],
)
def test_only_without_a_match_lists_the_choices(load: Load, patterns: list[str], expected: str) -> None:
    with pytest.raises(InputError) as raised:
        select(expand(load(WIDE)), patterns)
    assert str(raised.value).startswith(expected.removesuffix("..."))


def test_estimate_grows_with_tests_clients_and_systems(load: Load) -> None:
    route, openvpn, *_ = cases = expand(load(WIDE))
    assert trial_seconds(route) > 2.0
    assert trial_seconds(openvpn) > trial_seconds(route)
    assert trial_seconds(cases[5]) > trial_seconds(openvpn)
    (longer, *_) = expand(load(WIDE, "tests.load.duration=61s"))
    assert trial_seconds(longer) - trial_seconds(route) == pytest.approx(60.0)
    trials = schedule(cases, 3, 0)
    assert expected_seconds(trials) == pytest.approx(3 * sum(map(trial_seconds, cases)))


def test_needs_come_once_and_with_reasons(load: Load) -> None:
    plan = load(WIDE + "lab: {emulator: netem, link: {rate: 1gbit, loss: 1%, delay: 5ms}}")
    found = {(need.kind, need.name): need for need in needs(plan.cases)}
    assert list(found) == [
        ("program", "leadline-agent"),
        ("privilege", "root or user namespaces"),
        ("kernel", "netem"),
        ("kernel", "tbf"),
        ("kernel", "nftables"),
        ("program", "openvpn"),
        ("device", "/dev/net/tun"),
    ]
    assert all(need.why for need in found.values())
    own = load(WIDE + "lab: {emulator: own, link: {rate: 1gbit, loss: 1%, delay: 5ms}}")
    assert "kernel" not in {need.kind for need in needs(own.cases)}
    assert [need.name for need in needs(load(WIDE, "axes.sut=[{kind: route}]").cases)] == [
        "leadline-agent",
        "root or user namespaces",
    ]


def test_a_need_is_optional_where_every_system_that_has_it_is(load: Load) -> None:
    optional = "{kind: openvpn, optional: true}"

    def program(systems: str) -> bool:
        found = needs(load(WIDE, f"axes.sut={systems}").cases)
        return next(need.optional for need in found if need.name == "openvpn")

    assert program(f"[{optional}]")
    assert not program(f"[{optional}, {{kind: openvpn, ip: 6}}]")


def test_given_hosts_need_ssh_and_no_namespaces(load: Load) -> None:
    hosts = "hosts: {gateway: 'ssh://gw', server: local, clients: [local]}"
    names = [need.name for need in needs(load(GIVEN + hosts).cases)]
    assert names == ["leadline-agent", "ssh"]


def test_a_description_is_plain_data(load: Load) -> None:
    plan = load(WIDE + "repeat: 2\ntargets: [load.lost < 1]")
    description = json.loads(json.dumps(dataclasses.asdict(describe(plan))))
    assert len(description["cases"]) == 6
    assert len(description["order"]) == 12
    assert description["targets"] == ["load.lost < 1"]
    assert description["cases"][3]["title"] == "clients=5 sut=openvpn"
    assert description["cases"][0]["tests"][0]["parameters"]["duration_ms"] == 1000
    chosen = describe(plan, select(expand(plan), ["c02"]))
    assert chosen.order == ("c02/1", "c02/2")
    assert chosen.expected_seconds < description["expected_seconds"]
