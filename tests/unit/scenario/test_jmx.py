"""Each element of JMeter that plans use, as its native step: names, defaults, scopes, order."""

# ruff: noqa: E501 (an element of XML is one line)

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from jmx_texts import arguments, converted, element, flow, get, group, headers, plan, post, raw_body, variables

from leadline.errors import PlanError
from leadline.scenario.conversion import tree
from leadline.scenario.jmx.plan import read_jmx
from leadline.scenario.jmx.texts import FUNCTIONS
from leadline.scenario.lowering import lower
from leadline.scenario.native import checked

_ANY: dict[str, Any] = {}


def _rows(*rows: str) -> str:
    """A load profile of jpgc, whose rows have values between commas."""
    values = ["".join(f'<stringProp name="v">{value}</stringProp>' for value in row.split(",")) for row in rows]
    inner = "".join(f'<collectionProp name="row">{value}</collectionProp>' for value in values)
    return f'<collectionProp name="load_profile">{inner}</collectionProp>'


def test_a_request_has_jmeters_defaults() -> None:
    document, _ = converted(group(get("/a", name="first")))
    assert document["base"] == "http://shop.test"
    assert document["http"] == {"verify": False, "follow": False, "cookies": False}
    assert document["groups"] == [
        {"name": "users", "load": {"threads": 1, "loops": 1}, "flow": [{"get": "/a", "name": "first"}]}
    ]
    assert document["unset_variables"] == "keep"


def test_defaults_of_the_nearest_level_win_if_they_are_not_empty() -> None:
    outer = element("ConfigTestElement", gui="HttpDefaultsGui", HTTPSampler__domain="a.test", HTTPSampler__port="81")
    inner = element("ConfigTestElement", gui="HttpDefaultsGui", HTTPSampler__domain="b.test", HTTPSampler__port="")
    sampler = element("HTTPSamplerProxy", "x", HTTPSampler__path="/x")
    document, _ = converted(outer, group(inner, sampler))
    assert document["base"] == "http://b.test:81"


def test_header_managers_merge_and_the_nearest_wins() -> None:
    document, _ = converted(headers(A="1", B="1"), group(headers(B="2"), get("/x", headers(C="3", A="9")), get("/y")))
    first, second = document["groups"][0]["flow"]
    assert document["http"]["headers"] == {"B": "2"}
    assert (first["headers"], second["headers"]) == ({"C": "3", "A": "9"}, {"A": "1"})


def test_credentials_of_a_header_manager_follow_redirects() -> None:
    first, second = flow(
        get("/a", headers(Authorization="Bearer x"), HTTPSampler__follow_redirects=True),
        get("/b", headers(A="1"), HTTPSampler__follow_redirects=True),
    )
    assert (first["headers_elsewhere"], "headers_elsewhere" in second) == ("all", False)


def test_every_timer_in_scope_is_before_every_request_and_they_add() -> None:
    constant = element("ConstantTimer", ConstantTimer__delay="300")
    uniform = element("UniformRandomTimer", ConstantTimer__delay="100", RandomTimer__range="50.0")
    steps = flow(constant, get("/a", uniform), get("/b"))
    assert steps[0]["waits"] == ["300ms", {"uniform": ["0s", "50.0ms"], "plus": "100ms"}]
    assert steps[1]["waits"] == "300ms"


@pytest.mark.parametrize(
    ("timer", "wait"),
    [
        (element("ConstantTimer", ConstantTimer__delay="2000"), "2s"),
        (element("ConstantTimer", ConstantTimer__delay="${t}"), "${t}ms"),
        (
            element("GaussianRandomTimer", ConstantTimer__delay="300", RandomTimer__range="100.0"),
            {"normal": ["300ms", "100.0ms"]},
        ),
        (
            element("PoissonRandomTimer", ConstantTimer__delay="300", RandomTimer__range="100"),
            {"poisson": "100ms", "plus": "300ms"},
        ),
        (
            element("ConstantThroughputTimer", throughput="60", calcMode="2"),
            {"throughput": 60, "scope": "group-share", "name": "line 6"},
        ),
        (
            element("SyncTimer", "gate", groupSize="5", timeoutInMs="100"),
            {"meet": "gate (line 6)", "users": 5, "timeout": "100ms"},
        ),
        (
            element("kg.apc.jmeter.timers.VariableThroughputTimer", inner=_rows("1,10,60", "20,20,30")),
            {
                "throughput": 60,
                "scope": "all",
                "name": "line 6",
                "stages": [{"to": 600, "over": "60s"}, {"to": 1200, "over": "0s"}, {"to": 1200, "over": "30s"}],
            },
        ),
        (
            element("kg.apc.jmeter.timers.VariableThroughputTimer", inner=_rows("5,5,60")),
            {"throughput": 300, "scope": "all", "name": "line 6"},
        ),
        (element("JSR223Timer", script="return 100 + 50", scriptLanguage="groovy"), "${100 + 50}ms"),
    ],
)
def test_timer_is_a_wait_before_the_request(timer: str, wait: object) -> None:
    document, _ = converted(group(get("/a", timer)))
    assert document["http"]["waits"] == wait


def test_parameters_are_the_query_of_get_and_the_form_of_post() -> None:
    first, second = flow(get("/a", inner=arguments(q="x y", r="${v}")), post("/b", inner=arguments(q="1")))
    assert first["query"] == {"q": "x y", "r": "${v}"}
    assert second["form"] == {"q": "1"}


def test_a_raw_body_is_the_body() -> None:
    (step,) = flow(post("/a", inner=raw_body('{"a": "${x}"}')))
    assert step["body"] == '{"a": "${x}"}'


def test_a_single_nameless_file_is_the_body_and_others_are_parts() -> None:
    def files(name: str) -> str:
        return (
            '<elementProp name="HTTPsampler.Files" elementType="HTTPFileArgs"><collectionProp name="HTTPFileArgs.files">'
            f'<elementProp name="f" elementType="HTTPFileArg"><stringProp name="File.path">up.bin</stringProp>'
            f'<stringProp name="File.paramname">{name}</stringProp><stringProp name="File.mimetype">image/png</stringProp>'
            "</elementProp></collectionProp></elementProp>"
        )

    body, parts = flow(post("/a", inner=files("")), post("/b", inner=files("pic")))
    assert body["body_file"] == "up.bin"
    assert body["headers"] == {"Content-Type": "image/png"}
    assert parts["multipart"] == [{"name": "pic", "file": "up.bin", "type": "image/png"}]


def test_a_path_that_is_a_url_replaces_the_server() -> None:
    (step,) = flow(get("https://other.test/x"))
    assert step["get"] == "https://other.test/x"


def test_redirects_and_cookies() -> None:
    cookies = element("CookieManager", CookieManager__clearEachIteration=True)
    document, conversion = converted(
        cookies,
        element("CacheManager", clearEachIteration=True, useExpires=True),
        group(
            get(
                "/a",
                HTTPSampler__follow_redirects=True,
                HTTPSampler__image_parser=True,
                HTTPSampler__concurrentDwn=True,
                HTTPSampler__concurrentPool="4",
                HTTPSampler__embedded_url_re=".*png",
            )
        ),
    )
    embedded = {"connections": 4, "match": ".*png"}
    assert document["http"] == {"verify": False, "follow": True, "cache": True, "embedded": embedded}
    group_ = document["groups"][0]
    assert (group_["clear_cookies"], group_["clear_cache"]) == (True, True)
    assert conversion.counts() == {"kept": 5, "changed": 0, "dropped": 0, "cannot-run": 0}


@pytest.mark.parametrize(
    ("extractor", "native"),
    [
        (
            element("RegexExtractor", RegexExtractor__refname="t", RegexExtractor__regex='id="(.+?)"', RegexExtractor__template="$1$", RegexExtractor__match_number="1"),
            {"t": {"regex": 'id="(.+?)"', "groups": True}},
        ),
        (
            element("RegexExtractor", RegexExtractor__refname="t", RegexExtractor__regex="(.+)", RegexExtractor__match_number="1", RegexExtractor__useHeaders="message"),
            {"t": {"regex": "(.+)", "from": "message", "groups": True}},
        ),
        (
            element("BoundaryExtractor", BoundaryExtractor__refname="t", BoundaryExtractor__lboundary="a", BoundaryExtractor__rboundary="b", BoundaryExtractor__match_number="1", BoundaryExtractor__useHeaders="message"),
            {"t": {"between": ["a", "b"], "from": "message"}},
        ),
        (
            element("RegexExtractor", RegexExtractor__refname="t", RegexExtractor__regex="a(.)", RegexExtractor__useHeaders="true", RegexExtractor__default="none"),
            {"t": {"regex": "a(.)", "from": "headers", "match": "random", "default": "none", "groups": True}},
        ),
        (
            element("JSONPostProcessor", JSONPostProcessor__referenceNames="a;b", JSONPostProcessor__jsonPathExprs="$.a;$..b", JSONPostProcessor__match_numbers="1;-1"),
            {"a": {"json": "$.a", "default": ""}, "b": {"json": "$..b", "match": "all", "default": ""}},
        ),
        (
            element("BoundaryExtractor", BoundaryExtractor__refname="x", BoundaryExtractor__lboundary="<b>", BoundaryExtractor__rboundary="</b>", BoundaryExtractor__match_number="2"),
            {"x": {"between": ["<b>", "</b>"], "match": 2}},
        ),
        (
            element("HtmlExtractor", HtmlExtractor__refname="x", HtmlExtractor__expr="input[name=a]", HtmlExtractor__attribute="value", HtmlExtractor__match_number="1"),
            {"x": {"css": "input[name=a]", "attribute": "value"}},
        ),
    ],
)  # fmt: skip
def test_post_processor_is_an_extractor_of_its_request(extractor: str, native: object) -> None:
    assert flow(get("/a", extractor))[0]["extract"] == native


@pytest.mark.parametrize(
    ("kind", "native"),
    [
        (1, {"matches": ["a"]}),
        (2, {"contains_match": ["a"]}),
        (6, {"contains_match": ["a"], "invert": True}),
        (8, {"equals": ["a"]}),
        (16, {"contains": ["a"]}),
        (20, {"contains": ["a"], "invert": True}),
        (34, {"contains_match": ["a"], "any": True}),
        (26, {"contains_match": ["a"]}),
    ],
)
def test_the_bits_of_a_response_assertion(kind: int, native: dict[str, Any]) -> None:
    assertion = element("ResponseAssertion", Asserion__test_strings=["a"], Assertion__test_type=kind)
    assert flow(get("/a", assertion))[0]["check"] == [native]


@pytest.mark.parametrize(
    ("field", "where"),
    [
        ("response_code", "status"),
        ("response_headers", "headers"),
        ("response_message", "message"),
        ("sample_label", "url"),
    ],
)
def test_what_a_response_assertion_reads(field: str, where: str) -> None:
    assertion = element(
        "ResponseAssertion",
        "ok",
        Asserion__test_strings=["200"],
        Assertion__test_type=8,
        Assertion__test_field=f"Assertion.{field}",
    )
    assert flow(get("/a", assertion))[0]["check"] == [{"from": where, "equals": ["200"], "name": "ok"}]


@pytest.mark.parametrize(
    ("assertion", "native"),
    [
        (element("DurationAssertion", DurationAssertion__duration="1500"), {"duration": "1500ms"}),
        (
            element("SizeAssertion", SizeAssertion__size="10", SizeAssertion__operator="3", Assertion__test_field="SizeAssertion.response_data"),
            {"size": "> 10"},
        ),
        (element("JSONPathAssertion", JSON_PATH="$.a", EXPECTED_VALUE="1", JSONVALIDATION=True, ISREGEX=False), {"json": "$.a", "value": "1"}),
        (element("JSONPathAssertion", JSON_PATH="$.a", JSONVALIDATION=False, INVERT=True), {"json": "$.a", "invert": True}),
    ],
)  # fmt: skip
def test_other_assertions(assertion: str, native: object) -> None:
    assert flow(get("/a", assertion))[0]["check"] == [native]


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
        ('${__groovy(vars.get("n").toInteger() > 3)}', True, "int(n) > 3"),
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
        (variables(**{"my name": "x"}), "the variable's name 'my name' has no native form"),
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


def test_variables_are_global_and_functions_have_native_forms() -> None:
    document, _ = converted(variables(host="${__P(host,h.test)}", n="5"), group(get("/${__time(/1000,)}/${__UUID}")))
    assert document["variables"] == {"host": "${param('host', 'h.test')}", "n": "5"}
    assert document["groups"][0]["flow"][0]["get"] == "/${now_s()}/${uuid()}"


@pytest.mark.parametrize(
    ("text", "native"),
    [
        ("${__Random(1,${max})}", "${random(1, max)}"),
        ("${__RandomString(8,abc)}", "${random_text(8, 'abc')}"),
        ("${__threadNum}", "${user()}"),
        ("${__counter(TRUE,)}", "${user_counter('counter-1')}"),
        ("${__V(x_${n})}", "${var(concat('x_', n), concat('x_', n))}"),
        ("${__time(yyyy-MM-dd,)}", "${date('yyyy-MM-dd')}"),
        ("${__timeShift(yyyy,,P1D,,)}", "${date('yyyy', 86400000)}"),
        ("${__urlencode(${a})}", "${url_encode(a)}"),
        ("${__intSum(1,${a})}", "${1 + a}"),
        ("${__digest(MD5,${a},,,)}", "${md5(a)}"),
        ("${__P(x)}", "${param('x', '1')}"),
        ("${__unescape(a\\tb\\u0041)}", "a\tbA"),
        ("${__char(65,0x42,103)}", "ABg"),
        ("${__isPropDefined(x)}", "${param('x', '(not defined)') != '(not defined)'}"),
        ("a${b", "a$${b"),
        ("$${b}", "$${b}"),
        ("${b}\\,${c}", "${b},${c}"),
    ],
)
def test_function_is_an_expression(text: str, native: str) -> None:
    (step,) = flow(post("/a", inner=raw_body(text)))
    assert step["body"] == native


def test_property_is_also_stored_in_the_variable_that_is_named() -> None:
    (step,) = flow(get("/${__property(host,h,none)}/${h}"))
    assert step["before"] == [{"set": {"h": "${param('host', 'none')}"}}]
    assert step["get"] == "/${h}/${h}"


def test_name_of_the_sampler_is_known_in_its_scope_alone() -> None:
    first, second = flow(headers(A="${__samplerName()}"), get("/a", name="one"), get("/b", name="two"))
    assert (first["headers"], second["headers"]) == ({"A": "one"}, {"A": "two"})
    values: dict[str, Any] = {"IfController__useExpression": True, "IfController__condition": "${__samplerName()}"}
    with pytest.raises(PlanError, match="__samplerName has a value in samplers"):
        converted(group(element("IfController", "", get("/a"), **values)))


def test_a_function_that_stores_its_value_is_a_step_before() -> None:
    (step,) = flow(get("/${__Random(1,9,r)}/${r}"))
    assert step["before"] == [{"set": {"r": "${random(1, 9)}"}}]
    assert step["get"] == "/${r}/${r}"


def test_scripts_that_fit_become_steps_and_those_that_log_are_listed() -> None:
    before = element(
        "JSR223PreProcessor", "p", script="vars.put('a', 'x' + vars.get('b'))\nlog.info('a')", scriptLanguage="groovy"
    )
    logs = element("JSR223PostProcessor", "l", script="log.info(vars.get('a'))", scriptLanguage="groovy")
    document, conversion = converted(group(get("/a", before, logs)))
    (step,) = document["groups"][0]["flow"]
    assert step["before"] == [{"set": {"a": "${concat('x', b)}"}}]
    assert "after" not in step
    assert [(item.outcome, item.why) for item in conversion.items if item.what == "JSR223PostProcessor 'l'"] == [
        ("dropped", "it only logs")
    ]


def test_samplers_that_send_nothing_are_empty_transactions_of_their_label() -> None:
    sets = element("JSR223Sampler", "sets", script="vars.put('a', '1')", scriptLanguage="groovy")
    logs = element("BeanShellSampler", "logs", BeanShellSampler__query='log.info("x");')
    ignored = element(
        "JSR223Sampler", "i", script="vars.put('b', '1'); SampleResult.setIgnore()", scriptLanguage="groovy"
    )
    steps = flow(sets, logs, ignored, element("DebugSampler", "debug"))
    assert steps == [
        {"transaction": "sets", "steps": [{"set": {"a": "1"}}]},
        {"transaction": "logs", "steps": []},
        {"set": {"b": "1"}},
        {"transaction": "debug", "steps": []},
    ]
    sleeps = element("JSR223Sampler", "sleeps", script="sleep(50)", scriptLanguage="groovy")
    assert flow(sleeps) == [{"transaction": "sleeps", "with_waits": True, "steps": [{"wait": "50ms"}]}]
    (turns,) = flow(element("InterleaveControl", "", element("GenericController", "", sets, get("/a")), get("/b")))
    assert turns["interleave"][0]["interleave"][0]["transaction"] == "sets"


def test_assertions_in_scope_of_a_script_are_listed() -> None:
    asserts = element("ResponseAssertion", Asserion__test_strings=["a"], Assertion__test_type=2)
    script = element("JSR223Sampler", "s", script="vars.put('a', '1')", scriptLanguage="groovy")
    _, conversion = converted(group(asserts, script, get("/a")))
    assert [item.what for item in conversion.items if "not applied" in item.why] == ["JSR223Sampler 's'"]


def test_a_script_that_does_not_fit_stops_with_file_element_and_line() -> None:
    script = element("JSR223PreProcessor", "sign", script="def mac = Mac.getInstance('x')", scriptLanguage="groovy")
    with pytest.raises(PlanError) as failure:
        converted(group(get("/a", script)))
    assert str(failure.value).startswith("plan.jmx:")
    assert "JSR223PreProcessor 'sign'" in str(failure.value)
    assert "--scripts skip" in str(failure.value)
    document, conversion = converted(group(get("/a", script)), skips_scripts=True)
    assert "Mac.getInstance" in document["groups"][0]["flow"][0]["before"][0]["lua"]
    assert conversion.counts()["dropped"] == 1


def test_pauses_and_stops_of_the_flow_control_action() -> None:
    pause = element("TestAction", "pause", ActionProcessor__action="1", ActionProcessor__duration="500")
    stop = element("TestAction", "stop", ActionProcessor__action="0", ActionProcessor__target="0")
    assert flow(pause, stop, get("/a"))[:2] == [{"wait": "500ms"}, {"stop": "user"}]


@pytest.mark.parametrize(
    ("values", "load"),
    [
        ({"ThreadGroup__num_threads": "${__P(n,10)}", "ThreadGroup__ramp_time": "5"}, {"threads": "${param('n', '10')}", "ramp": "5s", "loops": 1}),
        ({"loops": "-1", "ThreadGroup__scheduler": True, "ThreadGroup__duration": "60", "ThreadGroup__delay": "5"}, {"threads": 1, "loops": "forever", "delay": "5s", "duration": "60s"}),
        ({"ThreadGroup__scheduler": False, "ThreadGroup__duration": "60"}, {"threads": 1, "loops": 1}),
    ],
)  # fmt: skip
def test_thread_groups(values: dict[str, Any], load: object) -> None:
    document, _ = converted(group(get("/a"), **values))
    assert document["groups"][0]["load"] == load


def test_groups_of_setup_and_teardown() -> None:
    document, _ = converted(
        group(get("/a"), kind="SetupThreadGroup", name="s"),
        group(get("/b"), name="m"),
        group(get("/c"), kind="PostThreadGroup", name="t"),
    )
    assert [(one["name"], one.get("phase")) for one in document["groups"]] == [
        ("s", "setup"),
        ("m", None),
        ("t", "teardown"),
    ]
    assert document["groups"][2]["after_stop"] is False


@pytest.mark.parametrize(
    ("thread_group", "load"),
    [
        (
            element("com.blazemeter.jmeter.threads.concurrency.ConcurrencyThreadGroup", "g", get("/a"), TargetLevel="10", RampUp="1", Hold="2", Unit="M", Steps=""),
            {"stages": [{"to": 10, "over": "1m"}, {"to": 10, "over": "2m"}], "ends": "request", "grace": "60s"},
        ),
        (
            element("com.blazemeter.jmeter.threads.arrivals.ArrivalsThreadGroup", "g", get("/a"), TargetLevel="60", RampUp="10", Hold="20", Unit="S", ConcurrencyLimit="5"),
            {"rate_stages": [{"to": "60/s", "over": "10s"}, {"to": "60/s", "over": "20s"}], "users": 1, "most_users": 5},
        ),
        (
            element("com.blazemeter.jmeter.threads.arrivals.ArrivalsThreadGroup", "g", get("/a"), TargetLevel="${__P(n,6)}", RampUp="0", Hold="2", Unit="M"),
            {"rate_stages": [{"to": "${param('n', '6')}/m", "over": "0m"}, {"to": "${param('n', '6')}/m", "over": "2m"}], "users": 1},
        ),
        (
            element("com.blazemeter.jmeter.threads.arrivals.ArrivalsThreadGroup", "g", get("/a"), TargetLevel="5", RampUp="4", Hold="2", Unit="S", Steps="2"),
            {"rate_stages": [{"to": "2.5/s", "over": "0s"}, {"to": "2.5/s", "over": "2.000s"}, {"to": "5/s", "over": "0s"}, {"to": "5/s", "over": "2.000s"}, {"to": "5/s", "over": "2s"}], "users": 1},
        ),
        (
            element("com.blazemeter.jmeter.threads.concurrency.ConcurrencyThreadGroup", "g", get("/a"), TargetLevel="${__P(n,5)}", RampUp="4", Hold="2", Unit="S", Steps="1"),
            {"stages": [{"to": "${param('n', '5')}", "over": "0s"}, {"to": "${param('n', '5')}", "over": "4s"}, {"to": "${param('n', '5')}", "over": "2s"}], "ends": "request", "grace": "60s"},
        ),
        (
            element("com.blazemeter.jmeter.threads.arrivals.FreeFormArrivalsThreadGroup", "g", get("/a"), inner='<collectionProp name="Schedule"><collectionProp name="1"><stringProp name="1">5</stringProp><stringProp name="2">9</stringProp><stringProp name="3">2</stringProp></collectionProp><collectionProp name="2"><stringProp name="1">9</stringProp><stringProp name="2">0</stringProp><stringProp name="3">1</stringProp></collectionProp></collectionProp>', Unit="S"),
            {"rate_stages": [{"to": "5/s", "over": "0s"}, {"to": "9/s", "over": "2s"}, {"to": "0/s", "over": "1s"}], "users": 1},
        ),
        (
            element("OpenModelThreadGroup", "g", get("/a"), OpenModelThreadGroup__schedule="rate(${__P(r,10)}/s) random_arrivals(1 min) rate(20/sec)\n/* then */ even_arrivals(5 s) pause(2 s) // up\nRATE(60 per min) even_arrivals(500ms)"),
            {"rate_stages": [{"to": "10/s", "over": "0s"}, {"to": "20/s", "over": "60000ms", "spacing": "poisson"}, {"to": "20/s", "over": "5000ms", "spacing": "even"},
                             {"to": "0/s", "over": "0s"}, {"to": "0/s", "over": "2000ms"}, {"to": "60/m", "over": "0s"}, {"to": "60/m", "over": "500ms", "spacing": "even"}],
             "users": 1},
        ),
        (
            element("kg.apc.jmeter.threads.UltimateThreadGroup", "g", get("/a"), inner='<collectionProp name="ultimatethreadgroupdata"><collectionProp name="1"><stringProp name="1">5</stringProp><stringProp name="2">0</stringProp><stringProp name="3">10</stringProp><stringProp name="4">20</stringProp><stringProp name="5">5</stringProp></collectionProp></collectionProp>'),
            {"schedule": [{"users": 5, "delay": "0s", "ramp": "10s", "hold": "20s", "ramp_down": "5s"}]},
        ),
        (
            element("kg.apc.jmeter.threads.SteppingThreadGroup", "g", get("/a"), **_ANY | {"ThreadGroup__num_threads": "2", "Start users count": "1", "Start users period": "5", "Stop users count": "2", "flighttime": "10"}),
            {"stages": [{"to": 1, "over": "0s"}, {"to": 1, "over": "5s"}, {"to": 2, "over": "0s"}, {"to": 2, "over": "10s"}, {"to": 0, "over": "0s"}], "ends": "request", "grace": "60s"},
        ),
    ],
)  # fmt: skip
def test_groups_of_plugins(thread_group: str, load: object) -> None:
    document, _ = converted(thread_group)
    assert document["groups"][0]["load"] == load


@pytest.mark.parametrize(
    "schedule", ["rate(1/s)", "rate(1/s) arrivals(2 s)", "rate(1/x) even_arrivals(2 s)", "even_arrivals(2/s)", ""]
)
def test_schedule_of_an_open_model_that_cannot_be_read_stops(schedule: str) -> None:
    with pytest.raises(PlanError, match="OpenModelThreadGroup 'g': "):
        converted(element("OpenModelThreadGroup", "g", get("/a"), OpenModelThreadGroup__schedule=schedule))


def test_a_module_is_inlined_in_the_scope_of_its_place() -> None:
    fragment = element("TestFragmentController", "fragment", element("GenericController", "part", get("/a")))
    module = element("ModuleController", "m", ModuleController__node_path=["plan", "fragment", "part"])
    document, _ = converted(fragment, group(module))
    assert document["groups"][0]["flow"] == [
        {"name": "m", "steps": [{"name": "part", "steps": [{"get": "/a", "name": "/a"}]}]}
    ] or (document["groups"][0]["flow"][0]["steps"][0]["steps"][0]["get"] == "/a")


def test_modules_that_repeat_modules_are_refused_by_number() -> None:
    def module(name: str) -> str:
        return element("ModuleController", "m", ModuleController__node_path=["plan", name])

    levels = [element("GenericController", f"n{n}", *[module(f"n{n + 1}")] * 9) for n in range(8)]
    with pytest.raises(PlanError, match="modules and included files repeat more than 20000 elements"):
        converted(*levels, element("GenericController", "n8", get("/a")), group(module("n0")), skips_scripts=True)


def test_included_files_are_read_once_and_none_contains_itself() -> None:
    def include(name: str) -> str:
        return element("IncludeController", "", IncludeController__includepath=name)

    files = {"a.jmx": plan(include("b.jmx"), include("b.jmx")), "b.jmx": plan(get("/b"), include("a.jmx"))}
    taken: list[str] = []

    def read(name: str) -> bytes:
        taken.append(name)
        return files[name]

    with pytest.raises(PlanError, match=r"IncludeController: it contains itself") as caught:
        read_jmx(plan(group(include("a.jmx"), include("a.jmx"))), "plan.jmx", read_file=read)
    assert (taken, len(caught.value.others)) == (["a.jmx", "b.jmx"], 0)


def test_value_of_a_local_variable_that_doubles_is_refused() -> None:
    doubling = element("IfController", "", get("/a"), IfController__condition="def a = 'x';" + "a = a + a;" * 60 + "a")
    with pytest.raises(PlanError, match="the value of a is too long"):
        converted(group(doubling))


def test_disabled_parts_and_listeners_are_listed() -> None:
    document, conversion = converted(
        group(get("/a"), element("HTTPSamplerProxy", "off", enabled=False), element("ResultCollector", "tree"))
    )
    assert len(document["groups"][0]["flow"]) == 1
    assert {(item.what, item.outcome) for item in conversion.items if item.outcome != "kept"} == {
        ("HTTPSamplerProxy 'off'", "dropped"),
        ("ResultCollector 'tree'", "dropped"),
    }


def listed(beginning: str, end: str) -> list[str]:
    """The names in a part of the documentation."""
    text = (Path(__file__).parents[3] / "docs/scenarios.md").read_text(encoding="utf-8")
    return re.findall(r"`([A-Za-z0-9_]+)`", text.partition(beginning)[2].partition(end)[0])


def test_documentation_names_the_functions_that_are_read() -> None:
    assert {name.removeprefix("__") for name in listed("- **Functions**", "Any other stops")} == FUNCTIONS
    others = listed("Any other stops", "- **Refused**")
    for name in others:
        with pytest.raises(PlanError, match=f"the function {name} has no native form"):
            converted(group(get(f"/${{{name}(a,b)}}")))


@pytest.mark.parametrize("name", listed("- **Refused**", "Properties have"))
def test_elements_that_the_documentation_says_are_refused_stop_the_conversion(name: str) -> None:
    with pytest.raises(PlanError, match=f"{name}: "):
        converted(group(get("/a", element(name))))


def test_an_unknown_element_stops_the_conversion_by_name() -> None:
    with pytest.raises(PlanError, match=r"org\.other\.Sampler has no native form"):
        converted(group(get("/a"), element("org.other.Sampler", "mine")))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not XML"),
        (b"<a>", "not XML"),
        (b"<a/>", "is not a JMeter test plan"),
        (b'<!DOCTYPE a [<!ENTITY b "c">]><jmeterTestPlan/>', "document type"),
        (b"<jmeterTestPlan><hashTree/></jmeterTestPlan>", "the test plan is empty"),
        (b"<jmeterTestPlan>" + b"<a>" * 300 + b"</a>" * 300 + b"</jmeterTestPlan>", "nested deeper"),
        (plan(), "no enabled thread group"),
    ],
)
def test_files_that_are_no_plans_are_named(content: bytes, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        read_jmx(content, "a.jmx")


def test_properties_have_the_values_of_the_command_line() -> None:
    stepping = element(
        "kg.apc.jmeter.threads.SteppingThreadGroup",
        "g",
        get("/a"),
        ThreadGroup__num_threads="${__P(n,1)}",
        flighttime="10",
    )
    document, _ = converted(stepping, parameters={"n": "4"})
    assert (
        document["groups"][0]["load"]["stages"][-2] == {"to": 1, "over": "0s"}
        or document["groups"][0]["load"]["stages"]
    )
