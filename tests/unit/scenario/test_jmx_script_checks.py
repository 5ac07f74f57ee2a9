"""Scripts of JMeter that only decide whether a sample failed, as checks."""

from __future__ import annotations

import re
from typing import Any

import pytest
from jmx_texts import converted, element, flow, get, group

from leadline.errors import PlanError


def asserts(text: str) -> str:
    """An assertion in Groovy."""
    return element("JSR223Assertion", "a", script=text, scriptLanguage="groovy")


def beanshell(text: str) -> str:
    """An assertion in BeanShell."""
    return element("BeanShellAssertion", "a", BeanShellAssertion__query=text)


def after(text: str) -> str:
    """A post-processor in Groovy."""
    return element("JSR223PostProcessor", "a", script=text, scriptLanguage="groovy")


PASSES = "last_status() >= 200 && last_status() <= 399"


@pytest.mark.parametrize(
    ("script", "check"),
    [
        (
            asserts(
                "if (prev.getTime() > 800) {\nAssertionResult.setFailure(true)\n"
                "AssertionResult.setFailureMessage('x' + y)\n}"
            ),
            {"condition": "last_duration_ms() > 800", "invert": True},
        ),
        (
            asserts("if (!vars.get('url')) AssertionResult.setFailure(true)"),
            {"condition": "!var('url', null)", "invert": True},
        ),
        (
            beanshell(
                'if (ResponseCode.equals("200")) { Failure = false; } else { Failure = true; FailureMessage = "no"; }'
            ),
            {"condition": "!same_text(last_status(), '200')", "invert": True},
        ),
        (
            asserts("def body = prev.getResponseDataAsString()\nAssertionResult.setFailure(!body.contains('ok'))"),
            {"condition": "!contains(last_body(), 'ok')", "invert": True},
        ),
        (
            asserts(
                "if (SampleResult.getResponseCode() == '200') {"
                " if (prev.getTime() > 5) AssertionResult.setFailure(true) } else { log.info('x') }"
            ),
            {"condition": "last_status() == '200' ? last_duration_ms() > 5 : false", "invert": True},
        ),
        (
            after("if (prev.getResponseCode() == '501') { prev.setSuccessful(false) }"),
            {"condition": "last_status() == '501'", "invert": True},
        ),
        (
            after("if (prev.getResponseCode() == '501') { prev.setResponseOK(); }"),
            {"condition": f"{PASSES} || last_status() == '501'", "ignore_status": True},
        ),
        (
            after("if (prev.getResponseCode() == '501') { prev.setSuccessful(true) }"),
            {"condition": f"{PASSES} || last_status() == '501'", "ignore_status": True},
        ),
    ],
)
def test_a_script_that_decides_on_its_sample_is_a_check(script: str, check: dict[str, Any]) -> None:
    (step,) = flow(get("/a", script))
    assert step["check"] == [check | {"name": "a"}]
    assert "after" not in step


@pytest.mark.parametrize(
    ("values", "checks"),
    [
        (
            {"Asserion__test_strings": ["200"], "Assertion__test_type": 2, "Assertion__assume_success": True},
            [
                {
                    "condition": "(last_status() == '501') || contains(last_status(), '200')",
                    "ignore_status": True,
                    "name": "r",
                }
            ],
        ),
        (
            {"Asserion__test_strings": ["501"], "Assertion__test_type": 8},
            [
                {"condition": "!(last_status() == '501') && same_text(last_status(), '501')", "name": "r"},
                {"condition": f"{PASSES} || last_status() == '501'", "ignore_status": True, "name": "a"},
            ],
        ),
    ],
)
def test_an_assertion_of_the_status_sees_what_a_script_before_it_set(
    values: dict[str, Any], checks: list[dict[str, Any]]
) -> None:
    of_status = element("ResponseAssertion", "r", Assertion__test_field="Assertion.response_code", **values)
    (step,) = flow(get("/a", of_status, after("if (prev.getResponseCode() == '501') prev.setResponseOK()")))
    assert step["check"] == checks


def test_what_differs_of_a_check_that_was_a_script_is_listed() -> None:
    message = asserts(
        "if (prev.getTime() > 8) { AssertionResult.setFailureMessage('x')\nAssertionResult.setFailure(true) }"
    )
    _, conversion = converted(group(get("/a", message), get("/b", after("prev.setResponseOK()"))))
    assert [item.why for item in conversion.items if item.outcome == "changed"] == [
        "its message is not in results: the check has the name of the assertion",
        "results have the status of the answer, not 200",
    ]


def test_a_check_that_was_a_script_does_not_apply_to_a_script() -> None:
    sampler = element("JSR223Sampler", "s", script="vars.put('a', '1')", scriptLanguage="groovy")
    _, conversion = converted(group(asserts("AssertionResult.setFailure(true)"), sampler, get("/a")))
    assert [item.what for item in conversion.items if "not applied" in item.why] == ["JSR223Sampler 's'"]


@pytest.mark.parametrize(
    ("scripts", "words"),
    [
        ([asserts("vars.put('a', 'b')\nAssertionResult.setFailure(true)")], "beside the verdict"),
        ([asserts("AssertionResult.setFailure(!prev.isSuccessful())")], "whether the sample was successful"),
        ([asserts("Failure = true")], "Failure is not what an assertion in groovy has"),
        ([beanshell("AssertionResult.setFailure(true);")], "AssertionResult is not what an assertion in beanshell has"),
        ([beanshell("Failure = true; SampleResult.setResponseOK();")], "changes its sample and fails"),
        (
            [beanshell('if (ResponseCode.equals("Non HTTP response code: x")) SampleResult.setResponseOK();')],
            "requests without an answer",
        ),
        (
            [after("vars.put('v', 'x')"), asserts("AssertionResult.setFailure(vars.get('v') == 'x')")],
            "the variable v, by",
        ),
        ([asserts("AssertionResult.setFailure(new Random().nextInt(2) == 1)")], "by chance"),
        (
            [
                after("if (prev.getResponseCode() == '501') prev.setResponseOK()"),
                after("if (prev.getResponseCode() == '502') prev.setResponseOK()"),
            ],
            "a second script that lets a sample pass",
        ),
        (
            [
                element("ResponseAssertion", Asserion__test_strings=["a"], Assertion__test_type=2),
                asserts("SampleResult.setResponseOK()"),
            ],
            "beside others",
        ),
        (
            [
                element(
                    "ResponseAssertion",
                    Asserion__test_strings=["2.."],
                    Assertion__test_type=1,
                    Assertion__test_field="Assertion.response_code",
                ),
                after("prev.setResponseOK()"),
            ],
            "beside this check of its status",
        ),
        ([after("prev.setSuccessful(vars.get('x') == 'y')")], "use an if"),
        (
            [after("if (prev.getTime() > 5) { prev.setSuccessful(false) } else { prev.setSuccessful(true) }")],
            "lets others pass",
        ),
    ],
)
def test_a_script_that_decides_otherwise_is_refused(scripts: list[str], words: str) -> None:
    with pytest.raises(PlanError, match=re.escape(words)):
        converted(group(get("/a", *scripts)))


def test_a_skipped_script_that_decides_has_a_place_for_lua() -> None:
    refused = asserts("AssertionResult.setFailure(!prev.isSuccessful())")
    document, _ = converted(group(get("/a", refused)), skips_scripts=True)
    (step,) = document["groups"][0]["flow"]
    assert "setFailure" in step["after"][0]["lua"]
