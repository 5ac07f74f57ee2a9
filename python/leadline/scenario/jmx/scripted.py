"""JMeter's script elements, as native steps; what does not fit stops the conversion, or becomes a place for Lua."""

from __future__ import annotations

import re
from typing import Any

from leadline.scenario.expressions import Call, Expression, Literal, show
from leadline.scenario.jmx import script_checks
from leadline.scenario.jmx.context import Context, made
from leadline.scenario.jmx.texts import CannotRun
from leadline.scenario.jmx.tree import Element

SCRIPTED = {
    "JSR223Sampler": "script", "JSR223PreProcessor": "script", "JSR223PostProcessor": "script",
    "JSR223Assertion": "script", "BSFSampler": "script", "BSFPreProcessor": "script", "BSFPostProcessor": "script",
    "BSFAssertion": "script", "BeanShellPreProcessor": "script", "BeanShellPostProcessor": "script",
    "JSR223Listener": "script", "BSFListener": "script", "BeanShellListener": "script",
    "BeanShellSampler": "BeanShellSampler.query", "BeanShellAssertion": "BeanShellAssertion.query",
}  # fmt: skip
"""Script elements, and the property that has the text."""
PRE = ("JSR223PreProcessor", "BSFPreProcessor", "BeanShellPreProcessor", "UserParameters")
POST = ("JSR223PostProcessor", "BSFPostProcessor", "BeanShellPostProcessor", "ResultAction")
LISTENERS = ("JSR223Listener", "BSFListener", "BeanShellListener")
"""Those of results, which may set variables."""
ASSERTIONS = ("JSR223Assertion", "BSFAssertion", "BeanShellAssertion")
_IN_ASSERTIONS: dict[str, Expression] = {"SampleResult": Call("object result")}
_IN_BEANSHELL: dict[str, Expression] = {"ResponseCode": Call("last_status"), "ResponseData": Call("last_body")}
"""The names that assertions in BeanShell have beside those."""


def script_steps(context: Context, element: Element) -> list[dict[str, Any]]:
    """The steps of a script element."""
    text, language, parameters = _read(element)
    try:
        text = _given_text(context, element, text)
        script = context.scripts.body(text, language, parameters)
    except CannotRun as error:
        return _refused(context, element, text, f"{error} ({language})")
    files = ", ".join(dict.fromkeys(script.written))
    if script.is_only_log and not script.steps and not context.texts.before:
        why = "it only logs" if text.strip() else "it is empty"
        if files:
            why = f"files are not written: it only writes {files}, which nothing in the plan reads"
        context.conversion.dropped(element.what, element.line, why)
        return []
    if files:
        why = f"files are not written: {files}, which nothing in the plan reads"
        context.conversion.changed(element.what, element.line, why)
    _list_notes(context, element)
    context.finished(element)
    before = context.needed_before()
    return [*before, *(_with_line(element, step) for step in script.steps)]


def is_check(element: Element) -> bool:
    """Whether a script only says whether its sample failed, or tries to."""
    if element.kind not in SCRIPTED or element.kind not in (*POST, *ASSERTIONS):
        return False
    return script_checks.is_verdict(_read(element)[0], is_assertion=element.kind in ASSERTIONS)


def checks(
    context: Context, element: Element, after: list[dict[str, Any]], others: list[dict[str, Any]]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The checks of a script, beside others, and the steps after the request in their place if there are none."""
    text, language, parameters = _read(element)
    changing = script_checks.names_set(after)
    is_assertion = element.kind in ASSERTIONS
    local = context.scripts.parameters(parameters) | (_IN_ASSERTIONS if is_assertion else {})
    if element.kind == "BeanShellAssertion":
        local |= _IN_BEANSHELL
    try:
        found, passes = script_checks.read_verdict(context.scripts, text, language, local, changing)
        if context.texts.before:
            raise CannotRun(
                "a function that sets a variable, in a script that decides on its sample, has no native form"
            )
        if passes and is_assertion and others:
            raise CannotRun("an assertion that lets a sample pass, beside others, has no native form")
        if passes:
            has_own = any("ignore_status" in check for check in others)
            script_checks.adapt_status_checks(passes, others)
            # An assertion that assumes success passes any status.
            found = [] if has_own else found
            why = "results have the status of the answer, not 200"
            context.conversion.changed(element.what, element.line, why)
    except CannotRun as error:
        return [], _refused(context, element, text, f"{error} ({language})")
    if script_checks.has_message(text):
        why = "its message is not in results: the check has the name of the assertion"
        context.conversion.changed(element.what, element.line, why)
    _list_notes(context, element)
    context.finished(element)
    label = {"name": context.label(element)} if element.name else {}
    return [check | label for check in found], []


def _read(element: Element) -> tuple[str, str, str]:
    """The text of a script, its language, and its parameters."""
    prefix = element.kind if "BeanShell" in element.kind else ""
    text = element.text(SCRIPTED[element.kind]) or element.text("script")
    language = "beanshell" if prefix else element.text("scriptLanguage", "groovy").strip().lower() or "groovy"
    for name in ("resetInterpreter", "cacheKey", f"{prefix}.resetInterpreter"):
        element.text(name)
    return text, language, element.text("parameters") or element.text(f"{prefix}.parameters")


def _given_text(context: Context, element: Element, text: str) -> str:
    """The text, or that of the file which the element names. Raises CannotRun."""
    prefix = element.kind if "BeanShell" in element.kind else ""
    file = (element.text("filename") or element.text(f"{prefix}.filename")).strip()
    return _text_of_file(context, file) if file else text


def _list_notes(context: Context, element: Element) -> None:
    """List what differs in the script's values."""
    for note in dict.fromkeys(context.texts.notes):
        context.conversion.changed(element.what, element.line, note)
    context.texts.notes.clear()


def _refused(context: Context, element: Element, text: str, why: str) -> list[dict[str, Any]]:
    context.texts.before.clear()
    context.texts.notes.clear()
    context.cannot(element, why)
    return [_place_for_lua(element, text, why)] if context.skips_scripts else []


def _text_of_file(context: Context, file: str) -> str:
    """The script in a file, in which JMeter replaces nothing. Raises CannotRun."""
    if context.texts.file_text is None:
        raise CannotRun(f"the script in the file {file} is not read here")
    text = context.texts.file_text(Call("file", (context.texts.expression(file),)))
    if "${" in text:
        raise CannotRun(f"the script in the file {file} has texts with ${{...}}, which are its own variables")
    return text


def is_ignored(element: Element) -> bool:
    """Whether a script keeps its own sample out of the results."""
    text = element.text(SCRIPTED[element.kind]) if element.kind in SCRIPTED else ""
    return re.search(r"\bSampleResult\s*\.\s*setIgnore\s*\(", text) is not None


def _with_line(element: Element, step: dict[str, Any]) -> dict[str, Any]:
    return made(element, **step)


def _place_for_lua(element: Element, text: str, why: str) -> dict[str, Any]:
    """A body in Lua with the script as a comment."""
    lines = [line.rstrip() for line in text.splitlines()[:40]]
    comment = "\n".join(f"-- {line}".rstrip() for line in [f"{element.what}: {why}. Write it in Lua here.", *lines])
    return made(element, lua=comment)


def user_parameters(context: Context, element: Element) -> list[dict[str, Any]]:
    """Values by the user's number: row n for user n, and again from the first one."""
    names = [tag.text for tag in element.rows("UserParameters.names")]
    columns = [[tag.text for tag in row.tags] for row in element.rows("UserParameters.thread_values")]
    per_iteration = element.flag("UserParameters.per_iteration")
    if per_iteration:
        context.conversion.changed(element.what, element.line, "values are set before each request")
    values: dict[str, str] = {}
    for index, name in enumerate(names):
        texts = [column[index] if index < len(column) else "" for column in columns]
        values[name] = context.text(element, texts[0]) if len(texts) == 1 else _by_user(context, element, texts)
    context.finished(element)
    return [made(element, set=values)] if values else []


def _by_user(context: Context, element: Element, texts: list[str]) -> str:
    trees = [context.expression(element, text) for text in texts]
    if not trees or any(tree is None for tree in trees):
        return ""
    position = Call("modulo", (Call("subtract", (Call("user"), Literal(1))), Literal(len(trees))))
    found = trees[-1]
    for index in range(len(trees) - 2, -1, -1):
        tree = trees[index]
        assert tree is not None and found is not None, "checked above"
        found = Call("if", (Call("equal", (position, Literal(index))), tree, found))
    assert found is not None, "there is a tree"
    return f"${{{show(found)}}}"


def result_action(context: Context, element: Element) -> list[dict[str, Any]]:
    """What a user does after a failed request."""
    action = element.text("OnError.action", "0").strip()
    stop = {"1": "user", "2": "test", "3": "test-now", "4": "iteration", "5": "pass", "6": "loop"}.get(action)
    context.finished(element)
    return [made(element, **{"if": "!last_ok()"}, then=[{"stop": stop}])] if stop else []
