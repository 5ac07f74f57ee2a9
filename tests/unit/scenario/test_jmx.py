"""JMeter's thread groups, modules, included files and whole plans as native scenarios."""

# ruff: noqa: E501 (an element of XML is one line)

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from jmx_texts import converted, element, flow, get, group, plan, post, raw_body, variables

from leadline.errors import PlanError
from leadline.scenario.jmx.plan import read_jmx
from leadline.scenario.jmx.texts import FUNCTIONS

_ANY: dict[str, Any] = {}


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


def test_a_request_of_which_a_part_is_left_out_is_not_sent() -> None:
    body = raw_body("${__StringFromFile(a.txt)}")
    loop = element("WhileController", "w", get("/never"), WhileController__condition="${__StringFromFile(a.txt)}")
    document, conversion = converted(
        variables(v="${__machineName}"), group(post("/a", inner=body), loop, get("/b/${v}")), skips_scripts=True
    )
    assert [step["get"] for step in document["groups"][0]["flow"]] == ["/b/${v}"] and "variables" not in document
    assert [item.why for item in conversion.items if item.outcome == "dropped"] == [
        "skipped: the function __machineName has no native form",
        "skipped: the function __StringFromFile has no native form",
        "it is not sent: a part of it was left out",
        "skipped: the function __StringFromFile has no native form",
    ]


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
