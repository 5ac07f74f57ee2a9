"""Whatever stands at any place of a plan: it is a plan, or every mistake is one line in our own words."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leadline.errors import PlanError
from leadline.plan import Plan

RICH: dict[str, Any] = {
    "name": "rich",
    "description": "of every kind",
    "topology": "remote-access",
    "lab": {"link": {"rate": "1gbit", "mtu": 1400, "loss": "1%", "drop_every": 100, "delay": "1ms"}},
    "sut": {"kind": "openvpn", "cipher": "AES-256-GCM", "push_routes": ["10.0.0.0/8"], "connect_freq_initial": 5},
    "axes": {"clients": [1, 2], "sut.cipher": ["AES-256-GCM", "BF-CBC"], "size": [64, 100]},
    "include": [{"clients": 3, "size": 70, "sut.cipher": "AES-128-GCM"}],
    "exclude": [{"clients": 1, "size": 64}],
    "tests": [
        {"name": "t", "kind": "tcp", "flows": 2, "rate": "1mbit", "duration": 10, "warmup": "1s", "direction": "both"},
        {"name": "u", "kind": "udp", "packet": "{size}", "rate": "1mbit", "number": 10, "clients": "all"},
        {"name": "r", "kind": "rr", "protocol": "udp", "request": 64, "timeout": "1s"},
        {
            "name": "h",
            "kind": "http",
            "scheme": "https",
            "urls": ["/a", "weight=2 POST /b"],
            "rate": "0:10/1s,10/2s",
            "headers": [{"name": "A", "value": "b"}],
            "tls": {"verify": False, "versions": "1.3"},
            "tcp": {"dscp": 3},
            "resolve": ["a:80:127.0.0.1"],
        },
    ],
    "repeat": 2,
    "seed": 5,
    "interval": "100ms",
    "observe": {"period": "100ms"},
    "limits": {"stability": {"spread": "5%"}},
    "targets": ["u.lost_ratio < 1%", "latency_p99_us < 5ms"],
}
FLEET: dict[str, Any] = {
    "name": "fleet",
    "clients": {"fleet": True, "count": 5},
    "sut": {"kind": "openvpn", "client": {"command": ["x", "{{config}}"], "without": ["dev"]}},
    "tests": [
        {
            "name": "t",
            "kind": "tunnel",
            "rate": "5/s",
            "reconnect_at": ["1s/2s", 5],
            "traffic": {"kind": "echo", "rate": "5/s"},
            "expect": {"pools": ["10.0.0.0/8"], "routes": ["10.0.0.0/8"]},
            "bind": ["127.0.0.1"],
        }
    ],
}
GIVEN: dict[str, Any] = {
    "name": "given",
    "hosts": {"gateway": "local", "server": {"ssh": "local", "address": "127.0.0.1"}, "clients": ["local"]},
    "sut": {"kind": "given", "label": "a box"},
    "tests": [{"name": "r", "kind": "rr"}],
}
ODD: st.SearchStrategy[Any] = st.sampled_from(
    [
        None,
        True,
        0,
        -1,
        1.5,
        10**30,
        "",
        "x",
        "0",
        "-1",
        "10",
        "5%",
        "{size}",
        "{{size}}",
        "{nothing}",
        "{",
        "\x7f",
        "é",
        "all",
        "default",
        "tcp",
        "given",
        "tunnel",
        "@x",
        "$X",
        "1s/",
        "a:b",
        [],
        {},
        [[]],
        [None],
        [{}],
        {"kind": "udp"},
        {"kind": 5},
        {"name": None},
        {"fleet": True},
        {"x": {"y": [1]}},
        ["x", "x"],
        [1, 1],
        {"": 1},
        {"a.b": 1},
    ]
) | st.text(max_size=6)


def places(tree: Any, above: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    below = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [place for key, value in below for place in [(*above, key), *places(value, (*above, key))]]


def change(data: st.DataObject, tree: dict[str, Any]) -> None:
    *above, last = data.draw(st.sampled_from(places(tree)))
    node: Any = tree
    for part in above:
        node = node[part]
    match data.draw(st.sampled_from(["replace", "remove", "rename", "repeat"])):
        case "remove":
            del node[last]
        case "rename" if isinstance(node, dict):
            node[data.draw(st.sampled_from([f"{last}x", str(last)[1:], "kind", "name"]))] = node.pop(last)
        case "repeat" if isinstance(node, list):
            node.append(copy.deepcopy(node[last]))
        case _:
            # A value that is drawn twice would be put into itself.
            node[last] = copy.deepcopy(data.draw(ODD))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150, deadline=None)
@given(data=st.data())
def test_any_value_at_any_place_gives_a_plan_or_lines_in_our_words(
    load: Callable[..., Plan], data: st.DataObject
) -> None:
    tree = copy.deepcopy(data.draw(st.sampled_from([RICH, FLEET, GIVEN])))
    for _ in range(data.draw(st.integers(1, 3))):
        if places(tree):
            change(data, tree)
    try:
        assert load(json.dumps(tree, ensure_ascii=False)).cases
    except PlanError as error:
        for one in (error, *error.others):
            assert "\n" not in str(one)
            assert "Input should" not in str(one), "pydantic's words are not for users"
            assert one.exit_code == 2


def test_base_trees_of_the_fuzzer_are_valid_plans(load: Callable[..., Plan]) -> None:
    for tree in (RICH, FLEET, GIVEN):
        assert load(json.dumps(tree, ensure_ascii=False)).cases
