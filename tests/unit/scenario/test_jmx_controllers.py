"""JMeter's controllers, data sets and counters, and parts that stop the conversion, as native steps."""

# ruff: noqa: E501 (an element of XML is one line)

from __future__ import annotations

import json
from typing import Any

import pytest
from jmx_texts import converted, element, flow, get, group, headers, variables

from leadline.errors import PlanError
from leadline.scenario.conversion import tree
from leadline.scenario.lowering import lower
from leadline.scenario.native import checked


@pytest.mark.parametrize(
    ("controller", "native"),
    [
        (("LoopController", {"LoopController__loops": "3"}), {"repeat": 3}),
        (("LoopController", {"LoopController__loops": "-1"}), {"repeat": "forever"}),
        (("WhileController", {"WhileController__condition": "${more}"}), {"while": "!equals_ignore_case(more, 'false')"}),
        (("WhileController", {"WhileController__condition": "LAST"}), {"while": "last_ok()"}),
        (("OnceOnlyController", {}), {"once": []}),
        (("RunTime", {"RunTime__seconds": "5"}), {"during": "5s"}),
        (("ThroughputController", {"ThroughputController__style": "1", "ThroughputController__percentThroughput": "30.0"}), {"percent": 30.0}),
        (("ThroughputController", {"ThroughputController__style": "0", "ThroughputController__maxThroughput": "2", "ThroughputController__perThread": True}), {"at_most": 2, "per_user": True}),
        (("ForeachController", {"ForeachController__inputVal": "id", "ForeachController__returnVal": "one", "ForeachController__endIndex": "3"}), {"for_each": "id", "as": "one", "end": 3}),
        (("TransactionController", {}), {"transaction": "c", "with_waits": True}),
        (("TransactionController", {"TransactionController__parent": True, "TransactionController__includeTimers": False}), {"transaction": "c"}),
        (("GenericController", {}), {}),
    ],
)  # fmt: skip
def test_controllers_around_their_children(controller: tuple[str, dict[str, Any]], native: dict[str, Any]) -> None:
    kind, values = controller
    (step,) = flow(element(kind, "c", get("/a"), **values))
    inside = "once" if kind == "OnceOnlyController" else "steps"
    named = {} if "transaction" in native else {"name": "c"}
    assert step == {**named, **native, inside: [{"get": "/a", "name": "/a"}]}


@pytest.mark.parametrize(
    ("condition", "uses_expression", "native"),
    [
        ('"${a}" == "x"', False, "var('a', '$\\{a}') == 'x'"),
        (
            "${n} &lt; 3 &amp;&amp; ${JMeterThread.last_sample_ok}".replace("&lt;", "<").replace("&amp;", "&"),
            False,
            None,
        ),
        ("${ok}", True, "equals_ignore_case(ok, 'true')"),
        ('${__groovy(vars.get("n").toInteger() > 3)}', True, "int(var('n', null)) > 3"),
        ('${__jexl3("${a}" == "x")}', True, "var('a', '$\\{a}') == 'x'"),
        ("${__groovy(vars.get('a') == null)}", True, "!is_defined(a)"),
    ],
)
def test_condition_of_an_if_controller_is_a_native_one(
    condition: str, uses_expression: bool, native: str | None
) -> None:
    controller = element(
        "IfController", "c", get("/a"), IfController__condition=condition, IfController__useExpression=uses_expression
    )
    (step,) = flow(controller)
    assert native is None or step["if"] == native


def test_controllers_that_choose() -> None:
    children = [get("/a"), element("GenericController", "two", get("/b"), get("/c"))]
    first, second = (
        {"get": "/a", "name": "/a"},
        {"name": "two", "steps": [{"get": "/b", "name": "/b"}, {"get": "/c", "name": "/c"}]},
    )
    blocks: dict[str, Any] = {"InterleaveControl__style": "1"}
    in_turn = {"interleave": second["steps"]}
    assert flow(element("RandomController", "", *children, **blocks)) == [{"random_one": [first, second]}]
    assert flow(element("RandomController", "", *children)) == [{"random_one": [first, in_turn]}]
    assert flow(element("RandomOrderController", "", *children)) == [{"random_order": [first, second]}]
    assert flow(element("InterleaveControl", "", *children, **blocks)) == [{"interleave": [first, second]}]
    assert flow(element("InterleaveControl", "", *children)) == [{"interleave": [first, in_turn]}]
    assert flow(element("SwitchController", "", *children, SwitchController__value="${w}")) == [
        {
            "switch": "${matches(w, '[0-9]+') && int(w) >= 2 ? '0' : w}",
            "cases": {"/a": [first], "two": [second]},
        }
    ]
    assert flow(element("SwitchController", "", *children, SwitchController__value="7"))[0]["switch"] == "0"


def test_a_blank_while_asks_after_its_first_pass() -> None:
    first, loop = flow(element("WhileController", "c", get("/a"), WhileController__condition=""))
    assert first == {"set": {"__first_5": "yes"}}
    assert loop["while"] == "__first_5 == 'yes' || last_ok()"
    assert loop["steps"][0] == {"set": {"__first_5": "no"}}


def test_rows_of_a_file_are_taken_at_each_pass_of_the_nearest_controller() -> None:
    data = element(
        "CSVDataSet",
        "people",
        filename="p.csv",
        variableNames="user,password",
        recycle=False,
        stopThread=True,
        shareMode="shareMode.group",
    )
    document, _ = converted(group(element("LoopController", "", data, get("/${user}"), LoopController__loops="2")))
    assert document["data"] == [
        {
            "name": "people",
            "file": "p.csv",
            "columns": ["user", "password"],
            "quoted": False,
            "share": "group",
            "at_end": "stop-user",
            "advance": "explicit",
        }
    ]
    (loop,) = document["groups"][0]["flow"]
    assert loop["steps"][0] == {"next": "people"}


def rows_of(file: str, columns: str, name: str = "", **more: Any) -> str:
    return element("CSVDataSet", name, filename=file, variableNames=columns, **more)


def test_data_sets_of_one_file_and_share_mode_take_rows_from_one_position() -> None:
    document, conversion = converted(
        group(rows_of("p.csv", "user,mail", "first"), get("/a"), name="a"),
        group(rows_of("p.csv", "user,mail", "second"), get("/b"), name="b"),
        group(rows_of("p.csv", "login", "third"), get("/c"), name="c"),
        group(rows_of("p.csv", "user,mail", shareMode="shareMode.group"), get("/d"), name="d"),
        group(rows_of("p.csv", "user,mail", "fifth", shareMode="night"), get("/e"), name="e"),
        group(rows_of("p.csv", "user,mail", "sixth", shareMode="night"), get("/f"), name="f"),
        group(rows_of("p.csv", "user,mail", "seventh", recycle=False), get("/g"), name="g"),
    )
    names = [one["flow"][0]["next"] for one in document["groups"]]
    assert names == ["first", "first", "first", "p.csv", "fifth", "fifth", "seventh"]
    assert document["groups"][2]["flow"][1] == {"set": {"login": "${user}"}}
    assert {one["name"]: one.get("share") for one in document["data"]} == {
        "first": None, "p.csv": "group", "fifth": None, "seventh": None,
    }  # fmt: skip
    assert [item.what for item in conversion.items if item.outcome == "changed"] == [
        "CSVDataSet 'third'", "CSVDataSet 'seventh'",
    ]  # fmt: skip


def test_data_sets_of_one_label_and_two_files_are_two_sources() -> None:
    document, _ = converted(group(rows_of("a.csv", "x", "rows"), rows_of("b.csv", "y", "rows"), get("/a")))
    assert [one["file"] for one in document["data"]] == ["a.csv", "b.csv"]


def test_weighted_switch_without_chance_takes_turns_by_weight() -> None:
    def switch(*weights: str, **values: Any) -> str:
        rows = "".join(
            f'<collectionProp name="{n}"><stringProp name="1">/{n}</stringProp><stringProp name="2">{weight}</stringProp></collectionProp>'
            for n, weight in enumerate(weights)
        )
        return element(
            "com.blazemeter.jmeter.control.WeightedSwitchController", "",
            *(get(f"/{n}") for n in range(len(weights))),
            inner=f'<collectionProp name="Weights">{rows}</collectionProp>', **values,
        )  # fmt: skip

    count, chosen = flow(switch("50", "0", "30", "20"))
    assert count == {"count": "__turn_5", "most": 9, "per_user": True}
    assert chosen["switch"] == "${split_part('0 1 2 0 1 0 2 0 1 0', ' ', __turn_5)}"
    assert [steps[0]["get"] for steps in chosen["cases"].values()] == ["/0", "/2", "/3"]
    (drawn,) = flow(switch("50", "30", isRandomChoice=True))
    assert [part["weight"] for part in drawn["weighted"]] == [50, 30]
    document, conversion = converted(group(switch("5001", "4000")))
    assert "weighted" in document["groups"][0]["flow"][0]
    assert any("the order that they need is too long" in item.why for item in conversion.items)


def test_parallel_requests_begin_after_the_waits_that_all_have() -> None:
    timer = element("ConstantTimer", ConstantTimer__delay="300")
    controller = "com.blazemeter.jmeter.controller.ParallelSampler"
    wait, together = flow(element(controller, "", timer, get("/a"), get("/b")))
    assert (wait, [one.keys() & {"waits"} for one in together["parallel"]]) == ({"wait": "300ms"}, [set(), set()])
    _, conversion = converted(group(element(controller, "", get("/a", timer), get("/b"))))
    assert any("begin together" in item.why for item in conversion.items)


def test_times_of_calculators_are_whole_microseconds() -> None:
    values: dict[str, Any] = {"RandomTimer__range": "117.60000000000001", "ConstantTimer__delay": "235.5"}
    document, _ = converted(group(get("/a", element("UniformRandomTimer", **values))))
    assert document["http"]["waits"] == {"uniform": ["0s", "117.6ms"], "plus": "235.5ms"}


@pytest.mark.parametrize("kind", ["JSR223Listener", "BeanShellListener", "BSFListener"])
def test_listeners_that_are_scripts_run_after_each_request(kind: str) -> None:
    listener = element(kind, "l", script="vars.put('code', prev.getResponseCode())", scriptLanguage="groovy")
    first, second = flow(listener, get("/a"), get("/b"))
    assert first["after"] == second["after"] == [{"set": {"code": "${last_status()}"}}]
    with pytest.raises(PlanError, match="'l': "):
        converted(group(element(kind, "l", script="new File('x')", scriptLanguage="groovy"), get("/a")))


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (element("HTMLAssertion", "h"), "HTMLAssertion has no native form"),
        (element("CompareAssertion", "c"), "CompareAssertion has no native form"),
        (element("ConfigTestElement", gui="HttpDefaultsGui", HTTPSampler__proxyHost="p.test"), "through a proxy"),
        (element("ConfigTestElement", gui="HttpDefaultsGui", HTTPSampler__ipSource="10.0.0.1"), "a source address"),
        (variables(**{"my {name}": "x"}), "the variable's name 'my {name}' has no native form"),
        (headers(A="${__unescape(${x})}"), "__unescape of a variable"),
    ],
)
def test_parts_with_an_effect_and_no_native_form_stop_the_conversion(part: str, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        converted(part, group(get("/a")))


def test_cookie_manager_that_ignores_cookies_keeps_none() -> None:
    document, _ = converted(element("CookieManager", CookieManager__policy="ignorecookies"), group(get("/a")))
    assert document["http"]["cookies"] is False


def test_bursts_beyond_a_number_become_a_ramp_and_are_listed() -> None:
    values: dict[str, Any] = {"ThreadGroup__num_threads": "3000", "Start users count": "1", "Start users period": "2"}
    stepping = element("kg.apc.jmeter.threads.SteppingThreadGroup", "g", get("/a"), **values)
    document, conversion = converted(stepping)
    assert {"to": 3000, "over": "3998s"} in document["groups"][0]["load"]["stages"]
    assert [item.why for item in conversion.items if item.outcome == "changed"] == [
        "its bursts are too many: the last 1999 users begin evenly over their time",
        "its bursts are too many: the last 2001 users end evenly over their time",
    ]


def test_two_counters_of_one_variable_count_apart() -> None:
    counter = element("CounterConfig", CounterConfig__name="i", CounterConfig__start="1", CounterConfig__incr="1")
    loops = [element("LoopController", "", counter, get(path), LoopController__loops="2") for path in ("/a", "/b")]
    document, _ = converted(group(*loops))
    first, second = (step["steps"][0] for step in document["groups"][0]["flow"])
    assert ("counter" in first, second["counter"].partition(" ")[0]) == (False, "i")
    lowered = checked(tree(document, "a.yaml"))
    flow_ = lower(lowered.scenario, lowered.root, lambda name: b"").plan["populations"][0]["flow"]
    values = [json.dumps(one["action"]["nodes"][0]["action"]["value"]) for one in flow_]
    assert [second["counter"] in value for value in values] == [False, True]


def test_counters_and_random_variables() -> None:
    counter = element(
        "CounterConfig",
        CounterConfig__name="n",
        CounterConfig__start="1",
        CounterConfig__incr="2",
        CounterConfig__end="9",
        CounterConfig__format="000",
        CounterConfig__per_user=True,
    )
    random = element("RandomVariableConfig", variableName="r", minimumValue="1", maximumValue="6")
    steps = flow(counter, random, get("/a"))
    assert steps[0] == {"count": "n", "start": 1, "step": 2, "most": 9, "format": "000", "per_user": True}
    assert steps[1] == {"set": {"r": "${random(1, 6)}"}}
