"""JMeter's variables, functions and scripts as native expressions and steps."""

from __future__ import annotations

import re
from typing import Any

import pytest
from jmx_texts import converted, element, flow, get, group, headers, plan, post, raw_body, variables

from leadline.errors import PlanError
from leadline.plan.source import plain
from leadline.scenario.jmx.plan import read_jmx


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
        ("${__timeShift(yyyy-MM-dd,HH:mm:ss,P1D,,)}", "${date('yyyy-MM-dd', 86400000)}"),
        ("${__timeShift(yyyy,,3D,,)}", "${date('yyyy', 0)}"),
        ("${__timeShift(yyyy,,P${__Random(2,5)}D,,)}", "${date('yyyy', random(2, 5) * 86400000)}"),
        ("${__timeShift(yyyy,,-PT${n}H,,)}", "${date('yyyy', n * -3600000)}"),
        ("${__env(H)}", "${param('H')}"),
        ("${__GetSecret(H)}", "${param('H')}"),
        ("${__env(H,,h.test)}", "${param('H', 'h.test')}"),
        ('${__BeanShell( System.getenv("H") )}', "${param('H')}"),
        ("${__urlencode(${a})}", "${url_encode(a)}"),
        ("${__intSum(1,${a})}", "${1 + a}"),
        ("${__digest(MD5,${a},,,)}", "${md5(a)}"),
        ("${__groovy(0x3e8 + 0XffL)}", "${1000 + 255}"),
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
    assert step["before"] == [{"set": {"a": "${concat('x', is_defined(b) ? var('b', null) : 'null')}"}}]
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


@pytest.mark.parametrize(
    ("text", "native"),
    [
        ("${__setProperty(p, ${v})};", [{"set": {"p": "${concat(' ', v)}"}, "shared": True}]),
        (
            'import org.apache.jmeter.util.JMeterUtils;\nJMeterUtils.setProperty("p", "x");\nprops.remove("p")',
            [{"set": {"p": "x"}, "shared": True}, {"set": {"p": None}, "shared": True}],
        ),
        ('vars.put("a", JMeterUtils.getPropDefault("q", "z"))', [{"set": {"a": "${param('q', 'z')}"}}]),
        ('vars.put("a", JMeterUtils.getProperty("q"))', [{"set": {"a": "${param('q', null)}"}}]),
        ('log.info "a: " + vars.get("b")\nprintln x\nlog.info \'{}\', y\nvars.put("a", "1")', [{"set": {"a": "1"}}]),
    ],
)
def test_properties_of_scripts_are_shared_variables_and_parameters(text: str, native: list[Any]) -> None:
    (step,) = flow(get("/a", element("JSR223PostProcessor", "s", script=text, scriptLanguage="groovy")))
    assert step["after"] == native


def test_a_property_that_only_a_script_sets_is_read_where_functions_name_it() -> None:
    sets = element("BeanShellPostProcessor", "s", script='JMeterUtils.setProperty("p", "x");')
    first, second = flow(get("/a", sets), get("/${__P(p,y)}"))
    assert first["after"] == [{"set": {"p": "x"}, "shared": True}]
    assert second["get"] == "/${is_defined(p) ? p : 'y'}"


def test_what_functions_and_scripts_take_from_elsewhere_is_listed() -> None:
    """JMeter 5.6.3 moves the time of now if the date is none, and by nothing if the duration is none."""
    script = element("JSR223PreProcessor", "s", script="vars.put('a', System.getenv('B'))", scriptLanguage="groovy")
    _, conversion = converted(group(get("/${__timeShift(yyyy,HH:mm,3D,,)}/${__env(A)}", script, name="x")))
    assert {item.why for item in conversion.items if item.outcome == "changed"} == {
        "__timeShift: 'HH:mm' is no date; as JMeter does, it moves the time of now",
        "__timeShift: '3D' is no duration; as JMeter does, it moves by nothing",
        "the environment variable A is the parameter A: give it with -J A=VALUE",
        "the environment variable B is the parameter B: give it with -J B=VALUE",
    }
    with pytest.raises(PlanError, match="__timeShift of a given date has no native form"):
        converted(group(get("/${__timeShift(yyyy-MM-dd,2020-01-01,P1D,,)}")))


def test_a_script_that_writes_a_file_is_dropped_only_if_nothing_reads_that() -> None:
    writes = "${__StringToFile(out/token.txt,${token}\\n,true,)}"
    only = element("JSR223PostProcessor", "only", script=writes, scriptLanguage="groovy")
    also = element("JSR223PostProcessor", "also", script=f"{writes}\nvars.put('a', '1')", scriptLanguage="groovy")
    document, conversion = converted(group(get("/a", only, also)))
    assert document["groups"][0]["flow"][0]["after"] == [{"set": {"a": "1"}}]
    assert [(item.what, item.outcome, item.why) for item in conversion.items if "files are" in item.why] == [
        (
            "JSR223PostProcessor 'only'",
            "dropped",
            "files are not written: it only writes out/token.txt, which nothing in the plan reads",
        ),
        (
            "JSR223PostProcessor 'also'",
            "changed",
            "files are not written: out/token.txt, which nothing in the plan reads",
        ),
    ]
    with pytest.raises(PlanError, match="the function __StringToFile has no native form"):
        converted(element("CSVDataSet", "c", filename="./token.txt"), group(get("/a", only)))


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


def test_a_script_in_a_file_becomes_steps_with_its_parameters() -> None:
    """JMeter replaces nothing in it; its words are those of the element."""
    given = element(
        "JSR223PreProcessor", "s", scriptLanguage="groovy", filename="set.groovy", parameters="one ${n}"
    )  # fmt: skip
    content = b'vars.put("a", args[1] + Parameters)\ndef w = "x"\nvars.put("b", "$w-" + args[0])\n'
    root, _ = read_jmx(plan(group(get("/a", given))), "plan.jmx", read_file={"set.groovy": content}.__getitem__)
    (step,) = plain(root)["groups"][0]["flow"]
    assert step["before"] == [
        {"set": {"a": "${concat(n, concat('one ', n))}"}},
        {"set": {"local_w": "x"}},
        {"set": {"b": "${concat(concat(local_w, '-'), 'one')}"}},
    ]
    for text, words in ((b'vars.put("a", "${x}")', "which are its own variables"), (b"new File('x')", "new File(")):
        with pytest.raises(PlanError, match=re.escape(words)):
            read_jmx(plan(group(get("/a", given))), "plan.jmx", read_file={"set.groovy": text}.__getitem__)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("new FileWriter('x').write('y')", "new FileWriter("),
        ("for (i in 1..3) { vars.put('a', 'b') }", "for (i in 1..3)"),
        ("vars.put('a', 'a.b'.split('.+')[0])", "by the pattern"),
        ("def j = new JsonSlurper().parseText(data)\nvars.put('a', '' + j.list.size())", "'.size()' of JSON"),
        ("def d = new Date()\nvars.put('a', '' + d)", "a value of date"),
        ('vars.put("a", "$other")', "'$other' is not known"),
        ("vars.put('a', String.format('%.2f', 1.5))", "String.format('%.2f')"),
        ("props.remove('p')", "the property p is removed, but nothing in the plan sets it"),
        ("vars.put('a', JMeterUtils.getPropDefault('p', 5))", "whose default is no text"),
        ("${__setProperty(p,x)} + 1", "the statement '${__setProperty(p,x)} + 1'"),
    ],
)
def test_a_script_with_more_than_that_is_refused_by_what_it_has(text: str, words: str) -> None:
    with pytest.raises(PlanError, match=re.escape(words)):
        converted(group(get("/a", element("JSR223PreProcessor", "s", scriptLanguage="groovy", script=text))))
