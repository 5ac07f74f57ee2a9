"""A plan's ladder: its tests, its options, and the plain route beside each tunnel."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from leadline.plan import Case, Plan
from leadline.plan.ladder import all_rungs, layer_names

HEAD = "name: ladder\nlab: {link: {rate: 1gbit}}\n"
TESTS = [
    "ladder-udp",
    "ladder-tcp",
    "ladder-http",
    "ladder-https",
    "ladder-rr-udp",
    "ladder-rr-tcp",
    "ladder-http-small",
    "ladder-https-small",
]


def ladder_of(case: Case) -> tuple[str | None, str | None]:
    assert case.ladder is not None
    return case.ladder.baseline, case.ladder.why_alone


def test_layers_go_from_the_bottom_up() -> None:
    assert layer_names() == ["packets", "udp", "rr", "tcp", "http", "https"]
    assert [rung.test for _, rung in all_rungs()] == ["ladder-packets", *TESTS, "ladder-scenario"]


def test_raw_packets_are_a_layer_where_they_are_named(load: Callable[..., Plan]) -> None:
    (case,) = load(HEAD + "sut: {kind: route}\nladder: {layers: [udp, packets]}\n").cases
    assert [test.name for test in case.tests] == ["ladder-packets", "ladder-udp"]


def test_true_expands_to_a_test_of_each_layer(load: Callable[..., Plan]) -> None:
    (case,) = load(HEAD + "sut: {kind: route}\nladder: true\n").cases
    assert [test.name for test in case.tests] == TESTS
    assert {(test.duration_ms, test.warmup_ms) for test in case.tests} == {(5000, 500)}
    assert case.ladder is not None and list(case.ladder.tests) == TESTS
    assert (case.ladder.largest_bytes, case.ladder.overhead_bytes) == (1500, 0)
    assert ladder_of(case) == (None, "it is a plain route itself")


def test_false_and_no_ladder_are_the_same(load: Callable[..., Plan]) -> None:
    text = HEAD + "sut: {kind: route}\ntests: [{name: up, kind: tcp}]\n"
    for more in ("", "ladder: false\n"):
        (case,) = load(text + more).cases
        assert [test.name for test in case.tests] == ["up"] and case.ladder is None


def test_options_choose_layers_and_lengths(load: Callable[..., Plan]) -> None:
    options = "ladder: {layers: [udp, tcp], duration: 2s, warmup: 100ms}\n"
    (case,) = load(HEAD + "sut: {kind: route}\n" + options).cases
    assert [(test.name, test.duration_ms, test.warmup_ms) for test in case.tests] == [
        ("ladder-udp", 2000, 100),
        ("ladder-tcp", 2000, 100),
    ]


def test_rate_of_datagrams_can_be_searched_for(load: Callable[..., Plan]) -> None:
    (case,) = load(HEAD + "sut: {kind: route}\nladder: {layers: [udp, tcp], rate: search}\n").cases
    udp, tcp = case.tests
    assert udp.searched.until == ("lost_ratio < 0.1%",) and udp.model_dump()["rate_bps"] is None
    assert tcp.searched is None


def test_own_test_takes_the_place_of_a_rung(load: Callable[..., Plan]) -> None:
    own = "tests: [{name: ladder-udp, kind: udp, rate: 200mbit, direction: down}, {name: up, kind: tcp}]\n"
    (case,) = load(HEAD + "sut: {kind: route}\nladder: true\n" + own).cases
    names = [test.name for test in case.tests]
    assert sorted(names) == sorted([*TESTS, "up"]) and names[:2] == ["ladder-udp", "up"]
    assert case.ladder is not None and list(case.ladder.tests) == TESTS


def test_scenario_is_the_highest_layer_where_a_plan_gives_it(load: Callable[..., Plan], tmp_path: Path) -> None:
    """It needs a file, so that a ladder cannot make it by itself."""
    (tmp_path / "one.yaml").write_text("base: http://x\nload: {users: 1, duration: 1s}\nflow: [{get: /}]\n")
    own = f"tests: [{{name: ladder-scenario, kind: scenario, file: {tmp_path / 'one.yaml'}}}]\n"
    tunnel, route = load(HEAD + "sut: {kind: wireguard}\nladder: {layers: [http]}\n" + own).cases
    for case in (tunnel, route):
        assert case.ladder is not None
        assert list(case.ladder.tests) == ["ladder-http", "ladder-http-small", "ladder-scenario"]


def test_rungs_can_be_targets(load: Callable[..., Plan]) -> None:
    plan = load(HEAD + "sut: {kind: route}\nladder: true\ntargets: [ladder-tcp.throughput_bps > 100mbit]\n")
    assert [target.test for target in plan.targets] == ["ladder-tcp"]


def test_tunnel_has_a_plain_route_beside_it(load: Callable[..., Plan]) -> None:
    tunnel, route = load(HEAD + "sut: {kind: wireguard}\nladder: true\n").cases
    assert (tunnel.labels, route.labels) == ({"sut": "wireguard"}, {"sut": "route"})
    assert route.sut.kind == "route" and [test.name for test in route.tests] == TESTS
    assert ladder_of(tunnel) == ("c02", None)
    assert tunnel.ladder is not None
    assert (tunnel.ladder.largest_bytes, tunnel.ladder.overhead_bytes) == (1440, 60)


def test_plain_route_of_the_plan_is_the_baseline(load: Callable[..., Plan]) -> None:
    axes = "axes: {sut: [{kind: route}, {kind: wireguard}, {kind: openvpn}]}\n"
    cases = load(HEAD + axes + "ladder: true\n").cases
    assert [ladder_of(case)[0] for case in cases] == [None, "c01", "c01"]


def test_parameters_of_the_system_share_one_plain_route(load: Callable[..., Plan]) -> None:
    axes = "axes: {sut.cipher: [AES-128-GCM, AES-256-GCM], packet: [200, 1000]}\n"
    own = 'tests: [{name: up, kind: udp, packet: "{packet}"}]\n'
    cases = load(HEAD + "sut: {kind: openvpn}\nladder: true\n" + axes + own).cases
    assert len(cases) == 6, "two ciphers by two sizes, and one plain route for each size"
    assert [ladder_of(case)[0] for case in cases] == ["c05", "c06", "c05", "c06", None, None]
    assert cases[4].labels == {"sut": "route", "packet": "200"}


def test_what_ciphers_that_pad_add_is_not_known(load: Callable[..., Plan]) -> None:
    tunnel, _ = load(HEAD + "sut: {kind: openvpn, cipher: AES-256-CBC}\nladder: true\n").cases
    assert tunnel.ladder is not None and tunnel.ladder.overhead_bytes is None


def test_plan_can_leave_out_the_plain_route(load: Callable[..., Plan]) -> None:
    (case,) = load(HEAD + "sut: {kind: wireguard}\nladder: {baseline: false}\n").cases
    assert ladder_of(case) == (None, "the plan asks for none")


def test_given_hosts_have_no_plain_route(load: Callable[..., Plan]) -> None:
    hosts = "hosts: {gateway: local, server: {ssh: local, address: 127.0.0.1}, clients: [local]}\n"
    (case,) = load(f"name: given\n{hosts}sut: {{kind: given, label: own}}\nladder: true\n").cases
    assert ladder_of(case) == (None, "a given system is measured as it is")
    assert case.ladder is not None and case.ladder.overhead_bytes is None


def test_fleet_climbs_the_layers_that_it_carries(load: Callable[..., Plan]) -> None:
    fleet = HEAD + "sut: {kind: openvpn}\nclients: {fleet: true, count: 2}\n"
    (case,) = load(fleet + "ladder: {layers: [udp, tcp]}\n").cases
    assert ladder_of(case) == (None, "a fleet's clients need a VPN server")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("ladder: 3", "plan.yaml:4: ladder: 3 is not possible; write true, or {duration: 5s}"),
        (
            "ladder: {layers: [udp, tpc]}",
            "plan.yaml:4: ladder.layers[2]: there is no layer 'tpc'; did you mean 'tcp'?",
        ),
        ("ladder: {length: 5s}", "plan.yaml:4: unknown key 'length' in ladder"),
        ("ladder: {duration: soon}", "plan.yaml:4: ladder.duration:"),
        (
            "ladder: {duration: 400ms, warmup: 500ms}",
            "plan.yaml:4: ladder.warmup: 500 ms of warm-up leave no time of 400 ms",
        ),
    ],
)
def test_mistakes_name_their_place(error_text: Callable[..., str], given: str, said: str) -> None:
    for own in ("", "tests: [{name: up, kind: tcp}]\n"):
        assert error_text(HEAD + "sut: {kind: route}\n" + given + "\n" + own).startswith(said)
