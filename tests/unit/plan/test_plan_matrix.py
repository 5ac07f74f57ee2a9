"""Axes, include, exclude and placeholders."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_plan import SMALL

from leadline.kinds.http.model import HttpTest
from leadline.kinds.udp import UdpTest
from leadline.plan import LinkSpec, Plan, expand
from leadline.sut.openvpn.parameters import OpenvpnSut
from leadline.sut.route import RouteSut
from leadline.sut.wireguard import WireguardSut

Load = Callable[..., Plan]
ErrorText = Callable[..., str]
USED = SMALL.replace("packet: 100", 'packet: "{packet}"')


def udp(plan: Plan, index: int) -> UdpTest:
    test = plan.cases[index].tests[0]
    assert isinstance(test, UdpTest)
    return test


def test_axes_are_crossed_and_the_first_varies_slowest(load: Load) -> None:
    plan = load(USED + "axes: {clients: [1, 2], packet: [64, 128], sut.cipher: [A, B]}")
    cases = expand(plan)
    assert [case.id for case in cases] == [f"c0{number}" for number in range(1, 9)]
    assert cases[0].parameters == {"clients": 1, "packet": 64, "sut.cipher": "A"}
    assert cases[1].title == "clients=1 packet=64 sut.cipher=B"
    assert cases[7].parameters == {"clients": 2, "packet": 128, "sut.cipher": "B"}
    assert (cases[7].clients, udp(plan, 7).packet_bytes) == (2, 128)
    assert cases[7].sut == OpenvpnSut(cipher="B")
    assert plan.axes == {"clients": ("1", "2"), "packet": ("64", "128"), "sut.cipher": ("A", "B")}


def test_an_axis_can_be_over_whole_systems(load: Load) -> None:
    plan = load(
        SMALL.replace("sut: {kind: openvpn}\n", "")
        + "axes: {sut: [{kind: route}, {kind: wireguard}, {kind: openvpn, optional: true}]}"
    )
    assert [case.sut for case in plan.cases] == [RouteSut(), WireguardSut(), OpenvpnSut(optional=True)]
    assert [case.labels["sut"] for case in plan.cases] == ["route", "wireguard", "openvpn"]


def test_systems_of_one_kind_are_distinguished_by_their_differences(load: Load) -> None:
    systems = "[{kind: route}, {kind: openvpn, ip: 6, transport: udp}, {kind: openvpn, ip: 6, transport: tcp}]"
    plan = load(SMALL + f"axes: {{sut: {systems}}}")
    assert [case.labels["sut"] for case in plan.cases] == ["route", "openvpn(transport=udp)", "openvpn(transport=tcp)"]


def test_a_system_axis_is_put_in_before_the_paths_below_it(load: Load) -> None:
    plan = load(SMALL + "axes: {sut.ip: [4, 6], sut: [{kind: wireguard}, {kind: openvpn}]}")
    assert [case.sut for case in plan.cases] == [WireguardSut(), OpenvpnSut(), WireguardSut(ip=6), OpenvpnSut(ip=6)]


def test_paths_reach_tests_by_name_and_links(load: Load) -> None:
    plan = load(SMALL + "axes: {tests.load.duration: [1s, 2s], lab.link.rate: [10mbit]}")
    assert [udp(plan, index).duration_ms for index in (0, 1)] == [1000, 2000]
    assert plan.cases[0].link == LinkSpec(rate_bps=10_000_000)


def test_number_of_the_gateways_cpus_can_be_an_axis(load: Load) -> None:
    plan = load(SMALL + "axes: {lab.gateway_cpus: [null, 1, 2]}\n")
    assert [case.gateway_cpus for case in plan.cases] == [None, 1, 2]
    assert load(SMALL + "lab: {gateway_cpus: 3}\n").cases[0].gateway_cpus == 3


def test_null_is_a_value_of_an_axis(load: Load) -> None:
    plan = load(SMALL + "axes: {sut.compression: [null, lz4]}")
    assert [case.labels["sut.compression"] for case in plan.cases] == ["none", "lz4"]
    assert plan.cases[0].sut == OpenvpnSut()


def test_placeholders_keep_their_type_alone_and_become_text_inside_of_a_text(load: Load) -> None:
    http = "kind: http, path: '/?size={size}&x={{size}}', connections: '{size}', body: '{\"a\": {\"b\": 1}}'"
    plan = load(SMALL.replace("kind: udp, packet: 100", http) + "axes: {size: [5]}")
    test = plan.cases[0].tests[0]
    assert isinstance(test, HttpTest)
    assert (test.path, test.connections, test.body) == ("/?size=5&x={size}", 5, '{"a": {"b": 1}}')


def test_a_value_of_an_axis_may_hold_another_axis(load: Load) -> None:
    text = SMALL.replace("sut: {kind: openvpn}\n", "")
    plan = load(text + "axes: {sut: [{kind: openvpn, cipher: '{cipher}'}], cipher: [A, B]}")
    assert [case.sut for case in plan.cases] == [OpenvpnSut(cipher="A"), OpenvpnSut(cipher="B")]


def test_include_adds_points_and_exclude_removes_partial_ones(load: Load) -> None:
    plan = load(
        USED
        + """
axes: {clients: [1, 2], packet: [64, 128]}
exclude: [{clients: 2, packet: 64}, {clients: 9}]
include: [{packet: 1400, sut.cipher: B}, {clients: 1, packet: 64}]
"""
    )
    assert [case.title for case in plan.cases] == [
        "clients=1 packet=64",
        "clients=1 packet=128",
        "clients=2 packet=128",
        "packet=1400 sut.cipher=B",
    ]
    assert plan.notes == ("exclude 2 removes nothing", "include 2 repeats an existing point")


def test_exclude_matches_systems_by_a_part_of_them(load: Load) -> None:
    plan = load(SMALL + "axes: {sut: [{kind: route}, {kind: openvpn, ip: 6}]}\nexclude: [{sut: {kind: openvpn}}]")
    assert [case.sut for case in plan.cases] == [RouteSut()]


def test_without_axes_the_included_points_are_all(load: Load) -> None:
    plan = load(SMALL + "include: [{clients: 3}, {clients: 4}]")
    assert [case.clients for case in plan.cases] == [3, 4]


MISTAKES = [
    (SMALL + "axes: {suut.cipher: [A]}", "6: unknown axis 'suut.cipher'; did you mean 'sut.cipher'?"),
    (SMALL + "axes:\n  clients: [1]\n  sut.cihper: [A]", "8: unknown axis 'sut.cihper'; did you mean 'sut.cipher'?"),
    (
        SMALL + "axes: {tests.laod.packet: [64]}",
        "6: unknown axis 'tests.laod.packet'; did you mean 'tests.load.packet'?",
    ),
    (SMALL + "axes: {tests.bulk.packet: [64]}", "6: unknown axis 'tests.bulk.packet'; did you mean"),
    (
        SMALL + "axes: {unused: [1]}",
        "6: unknown axis 'unused'; an axis is clients, a path such as sut.cipher, or a name used as \"{unused}\"...",
    ),
    (SMALL + "axes: {tests.load.name: [a]}", "6: unknown axis 'tests.load.name'"),
    (SMALL.replace("packet: 100", "packet: '{sut.foo}'") + "axes: {sut.foo: [1]}", "6: unknown axis 'sut.foo'"),
    (USED, "4: unknown placeholder '{packet}'; the plan has no axes; write {{name}} for the text \"{name}\""),
    (USED + "axes: {packt: [64]}", "4: unknown placeholder '{packet}'; did you mean 'packt'?"),
    (USED.replace('"', "") + "axes: {packet: [64]}", '4: a placeholder needs quotes: "{packet}"'),
    (
        USED + "axes: {packet: [64]}\ninclude: [{clients: 1}]",
        "4: '{packet}' has no value at every point; give 'packet' in each include",
    ),
    (USED + "axes: {packet: ['{packet}']}", "6: axis 'packet' stands for itself"),
    (USED + "axes:\n  packet:\n    - 64\n    - 10", "9: tests.load.packet: 10 bytes is too small; at least 16 bytes"),
    (
        USED + "axes: {packet: [64, 65, 64]}",
        "6: axes.packet: 64 is given twice; remove one; use 'repeat' for several trials",
    ),
    (SMALL + "axes: {clients: 5}", "6: axes.clients: 5 is not a list; write [5]"),
    (SMALL + "axes: {clients: []}", "6: axes.clients: the list is empty"),
    (SMALL + "axes: [clients]", "6: axes: a list is not a mapping"),
    (SMALL + "axes: {clients: [1, 0]}", "6: clients: 0 is not possible; at least 1"),
    (
        SMALL + "axes: {sut: [{kind: route}], sut.cipher: [A]}",
        "6: unknown key 'cipher' in sut; there is optional, kind",
    ),
    (
        SMALL + "axes: {clients: [1, 2]}\nexclude: [{clients: 1}, {clients: 2}]",
        "7: no case is left; exclude removes all of them",
    ),
    (
        SMALL + "axes: {clients: [1]}\nexclude: [{sut.ip: 4}]",
        "7: exclude names 'sut.ip', which is not an axis of this plan",
    ),
    (SMALL + "axes: {clients: [1]}\ninclude: [{cleints: 4}]", "7: unknown axis 'cleints'; did you mean 'clients'?"),
    (SMALL + "axes: {clients: [1]}\ninclude: {clients: 4}", "7: include: a mapping is not a list"),
    (
        SMALL + f"axes: {{clients: {list(range(1, 200))}, tests.load.flows: {list(range(1, 200))}}}",
        "6: 39601 cases are too many; at most 10000; shorten an axis, or use include",
    ),
    (
        SMALL.replace("kind: udp, packet: 100", "kind: http, path: '/{s}'") + "axes: {s: [[1, 2]]}",
        "4: '{s}' is a list or mapping and cannot be part of a text",
    ),
]


@pytest.mark.parametrize(("text", "expected"), MISTAKES, ids=[expected[:60] for _, expected in MISTAKES])
def test_a_mistake_has_its_line(error_text: ErrorText, text: str, expected: str) -> None:
    assert error_text(text).startswith(f"plan.yaml:{expected.removesuffix('...')}")


SIZES = st.lists(st.integers(40, 65507), min_size=1, max_size=4, unique=True)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(
    clients=st.lists(st.integers(1, 100), min_size=1, max_size=4, unique=True),
    packets=SIZES,
    rates=st.lists(st.integers(1, 10**9), min_size=1, max_size=3, unique=True),
    removed=st.integers(0, 3),
)
def test_the_cross_has_each_point_once(
    load: Load, clients: list[int], packets: list[int], rates: list[int], removed: int
) -> None:
    gone = clients[:removed] if removed < len(clients) else []
    plan = load(
        USED
        + f"axes: {{clients: {clients}, packet: {packets}, tests.load.rate: {rates}}}\n"
        + f"exclude: {[{'clients': count} for count in gone]}\n".replace("'", "")
    )
    left = [count for count in clients if count not in gone]
    points = [tuple(case.parameters.values()) for case in plan.cases]
    assert len(points) == len(set(points)) == math.prod(map(len, (left, packets, rates)))
    assert points == [(c, p, r) for c in left for p in packets for r in rates]
