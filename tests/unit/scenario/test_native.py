"""The native format: short forms, located errors, what each part becomes for the agent, and its schema."""

# ruff: noqa: E501 (a scenario is one line)

from __future__ import annotations

import base64
from functools import cache
from typing import Any

import jsonschema
import pytest
from har_texts import entry, har
from jmx_texts import element, get, group, plan

from leadline.contract.models import ScenarioPlan
from leadline.errors import PlanError
from leadline.plan.source import plain
from leadline.scenario.due_times import random_due
from leadline.scenario.formats import FormatOptions, read_scenario
from leadline.scenario.lowering import LoweredScenario, lower
from leadline.scenario.model import scenario_schema
from leadline.scenario.native import read_native

FILES = {"users.csv": b"user,password\nada,1\nbob,2\n", "up.txt": b"hi"}


def read(name: str) -> bytes:
    if name not in FILES:
        raise ValueError(f"{name} cannot be read")
    return FILES[name]


@cache
def schema() -> jsonschema.Draft202012Validator:
    """Made by the worker that runs these tests: it takes longer than they do."""
    return jsonschema.Draft202012Validator(scenario_schema())


def lowered(text: str, **parameters: str) -> LoweredScenario:
    """The scenario for the agent; it fits the contract and the schema."""
    found = read_native(text, "a.yaml")
    schema().validate(plain(found.root))
    made = lower(found.scenario, found.root, read, parameters)
    ScenarioPlan.model_validate(made.plan)
    return made


def flow(text: str, **parameters: str) -> list[dict[str, Any]]:
    head = "base: http://shop.test/api\nvariables: {id: 1, user: u, root: r, q: x, user.name: n, n: 2, token: t}"
    found: list[dict[str, Any]] = lowered(f"{head}\nflow:\n{text}", **parameters).plan["populations"][0]["flow"]
    return found


def action(text: str, **parameters: str) -> dict[str, Any]:
    found: dict[str, Any] = flow(f"  - {text}", **parameters)[0]["action"]
    return found


def errors(text: str) -> list[str]:
    with pytest.raises(PlanError) as failure:
        found = read_native(text, "a.yaml")
        lower(found.scenario, found.root, read)
    return [str(failure.value), *(str(other) for other in failure.value.others)]


def test_a_url_and_a_rate_are_a_scenario() -> None:
    made = lowered("get: http://127.0.0.1:8080/x?a=1\nrate: 100/s\n")
    (population,) = made.plan["populations"]
    assert population["arrivals"]["stages"] == [
        {"from_per_s": 100.0, "to_per_s": 100.0, "duration_ms": 10_000, "at_once": 0}
    ]
    (node,) = population["flow"]
    request = node["action"]
    assert (request["scheme"], request["host"], request["port"], request["path"]) == (
        ["http"],
        ["127.0.0.1"],
        ["8080"],
        ["/x?a=1"],
    )
    assert node["source"] == {"file": "a.yaml", "line": 1}
    assert made.longest_ms == 10_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("get: http://shop.test", ["/"]),
        ("get: /x/${id}?q=${url_encode(q)}", None),
        ("get: http://[::1]:80/x", ["/x"]),
    ],
)
def test_url_is_split_into_server_and_path(text: str, expected: Any) -> None:
    request = action(text)
    assert expected is None or request["path"] == expected


def test_a_path_may_begin_with_a_value_that_is_a_path_or_a_whole_url() -> None:
    """The agent looks at the value when it sends the request; without a base there is no server but the value's."""
    request = lowered("base: http://shop.test:81\nvariables: {root: r}\nflow:\n  - get: ${root}/x\n").plan[
        "populations"
    ][0]["flow"][0]["action"]
    server = {key: request[key] for key in ("scheme", "host", "port")}
    assert server == {"scheme": ["http"], "host": ["shop.test"], "port": ["81"]}
    assert request["path"] == [{"op": "variable", "name": "root"}, "/x"]
    below = action("get: ${root}/x")
    assert (below["host"], below["path"][0]["op"], below["path"][1:]) == (["shop.test"], "if", request["path"])


def test_paths_are_below_the_base_and_absolute_urls_replace_it() -> None:
    assert action("get: /x")["path"] == ["/api/x"]
    assert action("get: http://other.test/x")["host"] == ["other.test"]
    assert errors("get: /x") == ["a.yaml:1: '/x' is a path, but there is no base; give base: http://HOST"]


def test_a_template_is_texts_and_expressions() -> None:
    request = action("post: /x\n    body: \"a${random(1, 6)}b$${c}${var('user.name')}\"")
    assert request["body"]["text"] == [
        "a",
        {"op": "random_integer", "arguments": [{"op": "literal", "value": 1}, {"op": "literal", "value": 6}]},
        "b${c}",
        {"op": "variable", "name": "user.name"},
    ]


def test_parameters_have_a_default_and_a_value() -> None:
    text = "post: /x\n    body: ${param('n', 5)}"
    assert action(text)["body"]["text"] == ["5"]
    assert action(text, n="7")["body"]["text"] == ["7"]


def test_json_bodies_are_templates() -> None:
    request = action('post: /x\n    json: {name: "${user}", tags: [1, true, null], quote: \'say "hi"\'}')
    assert request["body"]["text"][0] == '{"name": "'
    assert request["body"]["text"][2] == '", "tags": [1, true, null], "quote": "say \\"hi\\""}'
    assert request["headers"] == [{"name": ["Content-Type"], "value": ["application/json"]}]


def test_headers_of_the_nearest_level_win() -> None:
    made = lowered(
        "base: http://a.test\nheaders: {A: '1', B: '1'}\nhttp: {headers: {b: '2'}}\nflow:\n"
        "  - {get: /x, headers: {A: null, C: '3'}}\n"
    )
    headers = made.plan["populations"][0]["flow"][0]["action"]["headers"]
    assert [(header["name"], header["value"]) for header in headers] == [(["b"], ["2"]), (["C"], ["3"])]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("repeat: 3\n    steps: [{get: /x}]", "loop"),
        ("while: n < 3\n    steps: [{get: /x}]", "loop"),
        ("during: 3s\n    steps: [{get: /x}]", "loop"),
        ("for_each: ids\n    as: one\n    steps: [{get: /x}]", "loop"),
        ("if: token != ''\n    then: [{get: /x}]\n    else: [{wait: 1s}]", "if"),
        ("switch: ${w}\n    cases: {a: [{get: /x}]}", "switch"),
        ("weighted: [{weight: 3, steps: [{get: /x}]}, {steps: []}]", "weighted"),
        ("random_one: [{get: /x}, {get: /y}]", "weighted"),
        ("random_order: [{get: /x}, {get: /y}]", "shuffle"),
        ("interleave: [{get: /x}, {get: /y}]", "interleave"),
        ("once: [{get: /x}]", "once"),
        ("percent: 30\n    steps: [{get: /x}]", "percent"),
        ("at_most: 3\n    steps: [{get: /x}]", "times"),
        ("transaction: buy\n    steps: [{get: /x}]", "transaction"),
        ("parallel: [{get: /x}, {get: /y}]", "parallel"),
        ("steps: [{get: /x}]", "sequence"),
        ("wait: 1s", "wait"),
        ("wait: {uniform: [1s, 3s]}", "wait"),
        ("wait: {normal: [2s, 500ms]}", "wait"),
        ("pace: 1s", "wait"),
        ("throughput: 60", "wait"),
        ("throughput: 0\n    stages: [{to: 600, over: 30s}]", "wait"),
        ("meet: gate\n    users: 5", "wait"),
        ("set: {a: '1'}", "set"),
        ("count: n", "set"),
        ("stop: user", "control"),
        ("lua: vars.x = 1", "script"),
        ("cookie: a\n    value: b\n    domain: a.test", "set_cookie"),
    ],
)
def test_step_is_an_action_of_its_kind(text: str, kind: str) -> None:
    assert action(text)["kind"] == kind


def test_throughput_changes_in_stages() -> None:
    wait = action("throughput: 0\n    stages: [{to: 600, over: 1m}, {to: 60, over: 0s}]")["wait"]
    assert wait["stages"] == [{"per_minute": 600, "duration_ms": 60_000}, {"per_minute": 60, "duration_ms": 0}]


def test_users_may_end_with_their_running_request() -> None:
    [group] = lowered(
        "base: http://a.test\nload: {stages: [{to: 5, over: 10s}, {to: 0, over: 5s}], ends: request, grace: 7s}\nflow: [{get: /x}]\n"
    ).plan["populations"]
    assert (group["end"], group["arrivals"]["ramp_down_ms"]) == ({"kind": "request", "grace_ms": 7000}, 7000)
    assert group["arrivals"]["ramp_down_after_request"]


@pytest.mark.parametrize(
    ("load", "ramp_down_ms"),
    [
        ("{stages: [{to: 20, over: 10s}, {to: 0, over: 10s}]}", 30_000),
        ("{stages: [{to: 20, over: 10s}, {to: 0, over: 10s}], grace: 7s}", 7_000),
        ("{inject: [{ramp_concurrent_users: 20, to: 0, during: 10s}], grace: 7s}", 10_000 + 7_000),
        ("{executor: ramping-vus, stages: [{target: 0, duration: 5s}], gracefulRampDown: 0s}", 0),
    ],
)
def test_users_that_stages_remove_have_time_for_their_iteration(load: str, ramp_down_ms: int) -> None:
    arrivals = lowered(f"base: http://a.test\nload: {load}\nflow: [{{get: /x}}]\n").plan["populations"][0]["arrivals"]
    assert arrivals["ramp_down_ms"] == ramp_down_ms
    assert not arrivals.get("ramp_down_after_request", False)


def test_waits_of_a_request_are_before_it_and_add() -> None:
    nodes = flow(
        "  - {get: /x, waits: [1s, {uniform: [0s, 2s], plus: 1s}], before: [{set: {a: '1'}}], after: [{wait: 5ms}]}"
    )
    assert [node["action"]["kind"] for node in nodes] == ["set", "wait", "wait", "request", "wait"]
    assert nodes[2]["action"]["wait"]["from_ms"] == {"op": "literal", "value": 1000}


@pytest.mark.parametrize(
    ("load", "model"),
    [
        ("users: 3", {"model": "users", "users_at_start": None}),
        ("load: {users: 10, duration: 30s, ramp: 5s}", {"model": "users"}),
        ("load: {users: 2, total_iterations: 100}", {"model": "shared_iterations", "users": 2, "iterations": 100}),
        ("load: {stages: [{to: 5, over: 10s}, {to: 0, over: 5s}]}", {"model": "users", "duration_ms": 15_000}),
        ("load: {rate: 30/m, duration: 1m, most_users: 5}", {"model": "open", "users_most": 5}),
        ("load: {rate: '0:100/10s,100/60s'}", {"model": "open"}),
        ("load: {rate_stages: [{to: 60/m, over: 0s}, {to: 4, over: 5s}], most_users: 5}",
         {"model": "open", "users_most": 5, "drop_while_growing": None,
          "stages": [{"from_per_s": 1, "to_per_s": 4, "duration_ms": 5000, "at_once": 0}]}),
        ("load: {rate_stages: [{to: 4, over: 0s}, {to: 4, over: 1s, spacing: poisson}], users: 1}",
         {"model": "open", "spacing": "poisson"}),
        ("load: {inject: [{increment_users_per_sec: 5, times: 2, each_level_lasting: 10s, separated_by_ramps_lasting: 4s, starting_from: 10}]}",
         {"stages": [{"from_per_s": 10, "to_per_s": 10, "duration_ms": 10_000, "at_once": 0},
                     {"from_per_s": 10, "to_per_s": 15, "duration_ms": 4_000, "at_once": 0},
                     {"from_per_s": 15, "to_per_s": 15, "duration_ms": 10_000, "at_once": 0}]}),
        ("load: {inject: [{increment_concurrent_users: 5, times: 2, each_level_lasting: 10s, separated_by_ramps_lasting: 4s}]}",
         {"stages": [{"users": 5, "duration_ms": 0}, {"users": 5, "duration_ms": 10_000},
                     {"users": 10, "duration_ms": 4_000}, {"users": 10, "duration_ms": 10_000}]}),
        ("load: {executor: shared-iterations, vus: 3, iterations: 9}", {"model": "shared_iterations", "duration_ms": 600_000}),
        ("load: {executor: per-vu-iterations, vus: 3, iterations: 9}", {"model": "users", "iterations": 9}),
        ("load: {executor: constant-vus, vus: 3, duration: 5s}", {"model": "users", "duration_ms": 5000}),
        ("load: {executor: ramping-vus, stages: [{target: 5, duration: 5s}]}", {"first": "after_interval", "initial": 1}),
        ("load: {executor: constant-arrival-rate, rate: 30, timeUnit: 1m, duration: 5s, preAllocatedVUs: 2}", {"users_most": 2}),
        ("load: {executor: ramping-arrival-rate, preAllocatedVUs: 2, stages: [{target: 5, duration: 5s}]}", {"first": "after_interval"}),
        ("load: {inject: [{at_once_users: 5}, {nothing_for: 1s}, {ramp_users: 10, during: 5s}]}", {"model": "open"}),
        ("load: {inject: [{stress_peak_users: 10, during: 5s}]}", {"model": "schedule"}),
        ("load: {inject: [{ramp_concurrent_users: 1, to: 5, during: 5s}]}", {"model": "users"}),
        ("load: {threads: 5, ramp: 10s, loops: 3}", {"model": "users", "iterations": 3, "first": "at_start"}),
        ("load: {schedule: [{users: 5, ramp: 5s, hold: 5s, ramp_down: 5s}]}", {"model": "users", "duration_ms": 15_000}),
        ("load: {due: [0s, 100ms, 1s]}", {"model": "schedule", "due_us": [0, 100_000, 1_000_000]}),
    ],
)  # fmt: skip
def test_load_of_any_form_is_a_model_of_arrivals(load: str, model: dict[str, Any]) -> None:
    arrivals = lowered(f"base: http://a.test\n{load}\nflow: [{{get: /x}}]\n").plan["populations"][0]["arrivals"]
    assert {key: arrivals.get(key) for key in model} == model


def test_randomized_step_leaves_the_others_even() -> None:
    steps = "{constant_users_per_sec: 10, during: 2s, randomized: true}, {constant_users_per_sec: 5, during: 1s}"
    text = f"base: http://a.test\nload: {{inject: [{steps}]}}\nflow: [{{get: /x}}]\n"
    arrivals = lowered(text).plan["populations"][0]["arrivals"]
    drawn, even = arrivals["due_us"][:20], arrivals["due_us"][20:]
    assert even == [2_000_000, 2_200_000, 2_400_000, 2_600_000, 2_800_000]
    assert sorted(drawn) == drawn and drawn[-1] < 2_000_000 and drawn != [n * 100_000 for n in range(20)]
    assert lowered(text).plan["populations"][0]["arrivals"] == arrivals


def test_random_instants_are_as_dense_as_the_rate() -> None:
    due = random_due({"from_per_s": 0.0, "to_per_s": 2000.0}, 10_000_000, 1)
    assert len(due) == 10_000
    # A quarter of the area is below half of a rate that rises from 0; the deviation of its count is 43.
    assert abs(sum(at < 5_000_000 for at in due) - 2_500) < 300


def test_only_gatlings_users_are_new_in_each_iteration() -> None:
    """Without the variables, cookies and connections of one that ended."""
    steps = ("at_once_users: 5", "stress_peak_users: 10, during: 5s", "constant_concurrent_users: 2, during: 5s")
    loads = {f"{{inject: [{{{step}}}]}}": True for step in steps} | {"{rate: 10/s, duration: 1s}": False}
    for load, is_new in loads.items():
        [population] = lowered(f"base: http://a.test\nload: {load}\nflow: [{{get: /x}}]\n").plan["populations"]
        assert population["new_user_each_iteration"] == is_new, load


def test_a_schedules_rows_add() -> None:
    made = lowered(
        "base: http://a.test\nload: {schedule: [{users: 10, ramp: 10s, hold: 10s, ramp_down: 10s}, {users: 4, delay: 15s, hold: 5s}]}\n"
        "flow: [{get: /x}]\n"
    )
    stages = made.plan["populations"][0]["arrivals"]["stages"]
    assert [(stage["users"], stage["duration_ms"]) for stage in stages] == [
        (0, 0), (10, 10_000), (10, 5_000), (14, 0), (14, 5_000), (10, 0), (0, 10_000),
    ]  # fmt: skip


def test_rows_of_data_are_taken_in_each_iteration() -> None:
    made = lowered("base: http://a.test\ndata: [{file: users.csv, at_end: stop-user}]\nflow: [{get: '/${user}'}]\n")
    (feeder,) = made.plan["feeders"]
    assert (feeder["columns"], feeder["rows"]) == (["user", "password"], [["ada", "1"], ["bob", "2"]])
    assert made.plan["populations"][0]["flow"][0]["action"] == {"kind": "feed", "feeder": "users.csv"}


def test_variables_named_like_secrets_are_masked() -> None:
    made = lowered(
        "base: http://a.test\nvariables: {password: x, plain: y}\nsecrets: [plain2]\ndata: [{columns: [api_key], rows: [[k]]}]\n"
        "flow: [{get: /x, extract: {session_token: {json: $.t}, id: {json: $.id}}}]\n"
    )
    assert made.plan["masked"] == ["api_key", "password", "plain2", "session_token"]


def test_secret_parameters_are_masked_and_in_no_name() -> None:
    text = """
get: http://${param('host')}/a?p=${param('password')}&n=${param('n')}
load: {users: 1, iterations: 1}
secrets: [pin]
"""
    made = lowered(text, host="h.test", password="open sesame", n="1")
    assert made.plan["variables"] == [{"name": "param('password')", "value": ["open sesame"]}]
    assert "param('password')" in made.plan["masked"]
    [node] = made.plan["populations"][0]["flow"]
    assert node["action"]["path"] == ["/a?p=", {"op": "variable", "name": "param('password')"}, "&n=1"]
    named = "get: http://a.test/\nsecrets: [pin]\nload: {users: 1, iterations: 1}\nvariables: {pin: '99', free: '1'}\n"
    flow_of = 'flow: [{get: /, name: "of ${pin} ${free}"}, {get: /, name: "by ${param(\'pin\')}"}]\n'
    names = [
        one["label"]
        for one in lowered(named.replace("get: http://a.test/", "base: http://a.test") + flow_of, pin="7").plan[
            "populations"
        ][0]["flow"]
    ]
    assert names == ["of ${pin} ${free}", "by ${param('pin')}"]


def test_thresholds_are_k6s() -> None:
    made = lowered(
        "get: http://a.test/\nthresholds: {http_req_duration: ['p(95)<500', {threshold: avg<200, abortOnFail: true}]}\n"
    )
    (first, _, _), (second, aborts, _) = made.thresholds
    assert (first.metric, first.statistic, first.op, first.value) == ("request_duration", "p(95)", "<", 500.0)
    assert (second.statistic, aborts) == ("avg", True)


def test_each_mistake_has_its_line_and_what_would_be_right() -> None:
    text = """base: http://127.0.0.1
loda: 3
thresholds: {http_req_duration: p95<3}
flow:
  - gett: /x
  - get: /x
    extract: {t: {jso: $.x}}
    check: [{status: abc}]
  - if: "a <"
    then: [{wait: 1x}]
  - get: /${foo(1)}
  - wait
"""
    assert errors(text) == [
        "a.yaml:2: unknown key 'loda'; did you mean 'load'?",
        "a.yaml:3: thresholds: 'p95<3' is not a threshold; write it as in 'p(95)<500'",
        "a.yaml:5: flow[1]: no known step has the key 'gett'; did you mean 'get'?",
        "a.yaml:7: unknown key 'jso' in flow[2].extract.t; did you mean 'json'?",
        "a.yaml:8: flow[2].check[1].status: 'abc' is not a status; as in 200 or 200-299,302",
        "a.yaml:9: flow[3].if: a value is missing at the end",
        "a.yaml:10: flow[3].then[1].wait.constant: '1x' is not a duration; write 10s, 500ms or 1m",
        "a.yaml:11: flow[4].get: unknown function 'foo'; did you mean 'floor'?",
        "a.yaml:12: flow[5]: this is not a step; write it as in '- get: /path' or '- wait: 1s'",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the scenario is empty"),
        ("a: [", "is not closed"),
        ("- a", "the scenario is not a mapping"),
        ("name: x", "nothing is asked for; give get: URL, or flow: [...]"),
        ("get: http://a.test/\nflow: [{get: /x}]", "get and flow exclude each other"),
        ("get: http://a.test/\nrate: 0", "a rate must be above 0"),
        ("get: http://a.test/\nload: {executor: ramping-vus}", "ramping-vus needs 'stages'"),
        ("base: http://a.test\ndata: [{file: none.csv}]\nflow: [{get: /x}]", "none.csv cannot be read"),
        ("get: http://a.test/\nload: {users: '${n}'}", "the variable 'n' is not known before the test begins"),
        ("get: http://u:p@a.test/", "use basic"),
    ],
)
def test_mistakes_in_whole_scenarios(text: str, words: str) -> None:
    assert any(words in line for line in errors(text)), errors(text)


MANY = """
base: http://h.test
load: {users: "${param('users')}", iterations: 1}
flow:
  - get: /x?${param('q')}
  - get: /y?${param('q')}
  - parallel: [{get: 'http://u:p@h/'}, {get: '/a?${param("z")}'}]
  - get: /x
    extract: {a: {xpath: //a}, b: {json: $.b, match: "${param('which')}"}}
    check: [{contains: "${param('size')}"}]
  - repeat: 3
    steps:
      - transaction: t
        steps: [{get: 'http://u@h/'}, {get: /fine}]
      - get: http://w@h/
"""


def test_mistakes_of_all_steps_are_named_and_a_missing_parameter_once() -> None:
    no_value = "the parameter '{0}' has no value; give -J {0}=VALUE"
    user = "a URL has no user and password here; use basic: {user: ..., password: ...}"
    assert errors(MANY) == [
        f"a.yaml:3: {no_value.format('users')}",
        f"a.yaml:5: {no_value.format('q')}",
        f"a.yaml:7: {user}",
        f"a.yaml:7: {no_value.format('z')}",
        "a.yaml:8: XPath cannot be executed; use css, json or regex",
        f"a.yaml:8: {no_value.format('which')}",
        f"a.yaml:8: {no_value.format('size')}",
        f"a.yaml:14: {user}",
        f"a.yaml:15: {user}",
    ]


@pytest.mark.parametrize("part", ["extract: {x: {xpath: //a}}", "check: [{xpath: //a}]"])
def test_xpath_is_refused_with_its_line(part: str) -> None:
    (error,) = errors(f"base: http://shop.test\nload: {{users: 1, iterations: 1}}\nflow:\n  - get: /a\n    {part}\n")
    assert error.startswith("a.yaml:4: ")
    assert "XPath cannot be executed; use css, json or regex" in error


def test_caches_resources_and_selectors_reach_the_agent() -> None:
    (made,) = flow(
        "  - get: /a\n    cache: true\n    embedded: {match: .*png}\n    extract: {t: {css: p, attribute: x}}\n"
    )
    assert made["action"]["uses_cache"] is True
    assert made["action"]["embedded"] == {"pattern": ".*png", "at_once": 6}
    assert made["action"]["extractors"][0]["find"] == {"kind": "css", "selector": ["p"], "attribute": ["x"]}


def test_hosts_have_their_addresses_at_the_ports_of_the_requests() -> None:
    text = "hosts: {{Shop.test: 192.0.2.7, 'b.test:8443': '[::1]'}}\nvariables: {{p: '81'}}\nflow: [{{get: 'http://shop.test:{}/'}}]\n"
    found = [(one.host, one.port, one.address) for one in lowered(text.format("${p}")).hosts]
    assert found == [("shop.test", port, "192.0.2.7") for port in (80, 81, 443)] + [("b.test", 8443, "::1")]
    assert errors(text.format("${random(1, 2)}")) == [
        "a.yaml:1: the address of shop.test needs its ports, and a request's port is computed while the test runs; write shop.test:PORT"
    ]
    assert "'staging' is not an IP address" in errors("hosts: {a.test: staging}\nget: http://a.test/")[0]


def test_a_field_may_be_sent_several_times() -> None:
    made = lowered(
        "base: http://a.test\nheaders: {A: ['1', '2'], B: '3'}\nflow: [{get: /x, headers: {b: ['4', '5']}}]\n"
    )
    headers = made.plan["populations"][0]["flow"][0]["action"]["headers"]
    assert [(one["name"][0], one["value"][0]) for one in headers] == [("A", "1"), ("A", "2"), ("b", "4"), ("b", "5")]


def test_bytes_that_are_no_text_stand_in_the_scenario_as_base64() -> None:
    content = base64.b64encode(b"\xff\x00").decode()
    made = lowered(f"base: http://a.test\nflow:\n  - post: /x\n    body_base64: {content}\n"
                   f"  - post: /y\n    multipart: [{{name: f, base64: {content}, file_name: a.bin}}]\n")  # fmt: skip
    (file,) = made.plan["files"]
    first, second = (node["action"]["body"] for node in made.plan["populations"][0]["flow"])
    assert (file["content_base64"], first["file"], second["parts"][0]["file"]) == (content, file["name"], file["name"])
    assert "this is not base64" in errors("post: http://a.test/\nflow: [{post: 'http://a.test/', body_base64: '%'}]")[0]


def test_the_text_of_a_file_is_read_before_the_test() -> None:
    assert action("post: /x\n    body: \"<${file('up.txt')}>\"")["body"]["text"] == ["<hi>"]
    assert errors("flow:\n  - post: http://a.test/\n    body: \"${file('no.txt')}\"") == [
        "a.yaml:2: no.txt cannot be read"
    ]


def test_long_separators_and_blank_lines_of_data() -> None:
    FILES["long.csv"] = b"a||b\n\n||c\n"
    text = "base: http://a.test\ndata: [{{file: long.csv, columns: [x, y], separator: '||', quoted: false{}}}]\nflow: [{{get: /}}]\n"
    rows = [lowered(text.format(more)).plan["feeders"][0]["rows"] for more in ("", ", blank_lines: eof")]
    assert rows == [[["a", "b"], ["", "c"]], [["a", "b"], ["<EOF>", "<EOF>"], ["", "c"]]]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("variables: {note: x}\nflow: [{get: '/${nope}'}]", ["nope"]),
        ("flow: [{get: /, extract: {id: {json: $.id, match: all}}}, {get: '/${id_1}${id_matchNr}${x_1}'}]", ["x_1"]),
        ("data: [{rows: [[1]], columns: [user]}]\nflow: [{post: /, form: {a: '${user}', b: '${usr}'}}]", ["usr"]),
        ("flow: [{count: n}, {set: {m: '1'}}, {repeat: 2, index: i, steps: [{get: '/${n}${m}${i}'}]}]", []),
        ("flow: [{if: \"token != ''\", then: [{get: \"/${first_of(token, 'x')}\"}]}]", []),
        ("flow: [{lua: vars.made = 1}, {get: '/${made}${other}'}]", ["other"]),
        ("flow: [{lua: 'vars[name()] = 1'}, {get: '/${made}'}]", []),
    ],
)
def test_variables_that_nothing_sets_are_found_before_the_run(text: str, names: list[str]) -> None:
    if names:
        hint = "did you mean 'note'?" if names == ["nope"] else None
        (found,) = errors(f"base: http://a.test\n{text}\n")
        assert f"the variable '{names[0]}' is set nowhere" in found and (hint is None or hint in found)
    kept = lowered(f"base: http://a.test\nunset_variables: keep\n{text}\n")
    assert [one.name for one in kept.unset] == names


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        (
            "a.yaml",
            b"get: \"http://${param('host')}/\"",
            "nothing in it reads the parameter 'hst'; did you mean 'host'?",
        ),
        ("a.yaml", b"get: http://a.test/", "nothing in it reads the parameter 'hst'; it has no parameters"),
        ("a.har", har(entry("http://a.test/")), "nothing in it reads the parameter 'hst'; it has no parameters"),
        ("a.jmx", plan(group(get("/${__P(host,x)}"))), "did you mean 'host'?"),
        ("a.jmx", plan(group(get("/a", element("JSR223PreProcessor", script='props.get("hst")')))), None),
        ("a.jmx", plan(group(get("/${__P(${name})}"))), None),
        ("a.jmx", plan(group(get("/${__property(hst,,)}"))), None),
        ("a.jmx", plan(group(get("/${__env(hst)}"))), None),
        ("a.jmx", plan(group(get("/${__groovy(System.getenv('hst'))}"))), None),
        ("a.jmx", plan(group(get("/${__groovy(JMeterUtils.getPropDefault('hst'\\,'a'))}"))), None),
    ],
)
def test_a_parameter_that_the_file_does_not_have_is_refused(name: str, content: bytes, words: str | None) -> None:
    options = FormatOptions(parameters={"hst": "1"}, skips_scripts=True)
    if words is None:
        read_scenario(content, name, options)
        return
    with pytest.raises(PlanError) as failure:
        read_scenario(content, name, options)
    assert words in str(failure.value)
