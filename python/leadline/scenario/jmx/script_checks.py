"""Scripts that only decide whether a sample failed, as native checks.

`AssertionResult.setFailure(true)`, `Failure = true` and `prev.setSuccessful(false)` fail a request;
`prev.setResponseOK()` and `prev.setSuccessful(true)` let one pass whose status fails. A script that does more than
that is no check.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from leadline.scenario.expressions import Call, Expression, Literal, Variable, show
from leadline.scenario.jmx.script_statements import read_arguments, read_branch, read_statements, shorten
from leadline.scenario.jmx.scripts import LONGEST_VALUE, Scripts, bounded, check_language, has_no_effect, length
from leadline.scenario.jmx.texts import CannotRun

_FALSE = Literal(False)
_STATUS_PASSES = Call(
    "and",
    (
        Call("greater_equal", (Call("last_status"), Literal(200))),
        Call("less_equal", (Call("last_status"), Literal(399))),
    ),
)


@dataclass(slots=True)
class _Verdict:
    """What a script says of a sample, so far: conditions."""

    local: dict[str, Expression]
    fails: Expression = _FALSE
    passes: Expression = _FALSE


def is_verdict(text: str, *, is_assertion: bool) -> bool:
    """Whether a script says whether its sample failed."""
    return (_OF_ANY if is_assertion else _OF_RESULT).search(text) is not None


def has_message(text: str) -> bool:
    """Whether a script has a message for its failure."""
    return re.search(_MESSAGE.pattern, text) is not None


def adapt_status_checks(passes: str, others: list[dict[str, Any]]) -> None:
    """Let checks of the status see 200 where a script before them passes a request. Raises CannotRun."""
    for check in others:
        if "condition" in check and "ignore_status" in check:
            raise CannotRun("a second script that lets a sample pass has no native form")
        if check.get("from") != "status" and "status" not in check:
            continue
        key = next((key for key in ("contains_match", "contains", "equals", "matches") if key in check), "")
        text = check[key][0] if key and len(check[key]) == 1 else ""
        if not re.fullmatch(r"\d{1,3}", text) or check.get("invert"):
            raise CannotRun("a script that lets a sample pass, beside this check of its status, has no native form")
        is_part = key.startswith("contains")
        test = show(Call("contains" if is_part else "same_text", (Call("last_status"), Literal(text))))
        is_met = text in "200" if is_part else text == "200"
        del check["from"], check[key]
        check["condition"] = f"({passes}) || {test}" if is_met else f"!({passes}) && {test}"


def read_verdict(
    scripts: Scripts, text: str, language: str, local: dict[str, Expression], changing: frozenset[str] | None
) -> tuple[list[dict[str, Any]], str]:
    """The checks that a script is, and the condition by which it lets a sample pass.

    `local` has the names that its element gives to it, and `changing` the variables that change between the checks and
    the script, None for any. Raises CannotRun.
    """
    check_language(language)
    wrong = "AssertionResult" if "ResponseCode" in local else "Failure"
    if re.search(rf"\b{wrong}\s*[.=](?!=)", text):
        raise CannotRun(f"{wrong} is not what an assertion in {language} has")
    if _OF_RESULT.search(text) and _OF_ASSERTION.search(text):
        raise CannotRun("a script that changes its sample and fails its assertion has no native form")
    verdict = _Verdict(local)
    with bounded(text):
        _read_block(scripts, text, language, verdict)
    for condition in (verdict.fails, verdict.passes):
        _refuse_unknown(condition, changing)
    if verdict.passes == _FALSE:
        return [] if verdict.fails == _FALSE else [{"condition": show(verdict.fails), "invert": True}], ""
    if verdict.fails != _FALSE:
        raise CannotRun("a script that fails some samples and lets others pass has no native form")
    either = show(Call("or", (_STATUS_PASSES, verdict.passes)))
    return [{"condition": either, "ignore_status": True}], show(verdict.passes)


def names_set(steps: list[dict[str, Any]]) -> frozenset[str] | None:
    """The variables that steps may set; None if any."""
    found: set[str] = set()
    for step in steps:
        if "lua" in step:
            return None
        found |= step.get("set", {}).keys()
        inner = names_set([*step.get("then", ()), *step.get("else", ())])
        if inner is None:
            return None
        found |= inner
    return frozenset(found)


def _read_block(scripts: Scripts, text: str, language: str, verdict: _Verdict) -> None:
    for statement in read_statements(text):
        if has_no_effect(statement) or _MESSAGE.match(statement):
            continue
        if (branch := read_branch(statement)) is not None:
            _read_branch(scripts, branch, language, verdict)
        elif (match := _SETS.match(statement)) is not None:
            _set(scripts, match, statement, language, verdict)
        elif (named := scripts.read_local(statement, language, verdict.local)) is not None:
            verdict.local[named[0]] = named[1]
        else:
            raise CannotRun(f"the statement '{shorten(statement)}' beside the verdict has no native form")


def _read_branch(scripts: Scripts, branch: tuple[str, str, str | None], language: str, verdict: _Verdict) -> None:
    """An if: what its blocks say, by its condition."""
    condition, then, otherwise = branch
    decides = scripts.value(condition, language, verdict.local)
    first = _Verdict(dict(verdict.local), verdict.fails, verdict.passes)
    second = _Verdict(dict(verdict.local), verdict.fails, verdict.passes)
    _read_block(scripts, then, language, first)
    _read_block(scripts, otherwise or "", language, second)
    for name, value in verdict.local.items():
        if first.local[name] != value or second.local[name] != value:
            raise CannotRun(f"the variable {name} has a value by a condition, which has no native form here")
    verdict.fails = _either(decides, first.fails, second.fails)
    verdict.passes = _either(decides, first.passes, second.passes)
    if length(verdict.fails) + length(verdict.passes) > LONGEST_VALUE:
        raise CannotRun(f"a condition of more than {LONGEST_VALUE} parts has no native form")


def _either(decides: Expression, first: Expression, second: Expression) -> Expression:
    if first == second:
        return first
    if (first, second) == (Literal(True), _FALSE):
        return decides
    if (first, second) == (Literal(False), Literal(True)):
        return Call("not", (decides,))
    return Call("if", (decides, first, second))


def _set(scripts: Scripts, match: re.Match[str], statement: str, language: str, verdict: _Verdict) -> None:
    """A statement that fails the sample, or lets it pass."""
    if match["ok"]:
        value: Expression = Literal(True)
    else:
        text = statement[match.end() :] if match["assigned"] else read_arguments(statement[match.end() - 1 :])[0]
        value = scripts.value(text, language, verdict.local)
    if match["result"] is None:
        verdict.fails = value
    elif value in (Literal(True), Literal(False)):
        verdict.fails = Literal(value == Literal(False))
        verdict.passes = value
    else:
        raise CannotRun(f"the statement '{shorten(statement)}' by a condition has no native form; use an if")


def _refuse_unknown(condition: Expression, changing: frozenset[str] | None) -> None:
    """Refuse a condition over what is not known yet when checks run. Raises CannotRun."""
    if isinstance(condition, Literal):
        if isinstance(condition.value, str) and condition.value.startswith("Non HTTP"):
            raise CannotRun("a script that decides on requests without an answer has no native form")
        return
    name = condition.name if isinstance(condition, Variable) else None
    if isinstance(condition, Call):
        if condition.function == "last_ok":
            raise CannotRun("a script that decides by whether the sample was successful has no native form")
        if condition.function.startswith("random"):
            raise CannotRun("a script that decides by chance has no native form")
        if condition.function == "var":
            first = condition.arguments[0]
            name = str(first.value) if isinstance(first, Literal) else ""
        for argument in condition.arguments:
            _refuse_unknown(argument, changing)
    if name is not None and (changing is None or not name or name in changing):
        raise CannotRun(f"the variable {name}, by which it decides, is set after the checks of the request")


_RESULT = r"(?:prev|SampleResult)\s*\.\s*"
_SETS = re.compile(
    rf"(?:(?P<result>{_RESULT})(?:(?P<ok>setResponseOK)|setSuccessful)|AssertionResult\s*\.\s*setFailure)\s*\("
    r"|(?P<assigned>Failure\s*=(?!=))\s*"
)
_MESSAGE = re.compile(r"(?:AssertionResult\s*\.\s*setFailureMessage\s*\(|FailureMessage\s*=(?!=))")
_OF_RESULT = re.compile(rf"\b{_RESULT}(?:setResponseOK|setSuccessful)\s*\(")
_OF_ASSERTION = re.compile(r"\bAssertionResult\s*\.\s*setFailure\s*\(|\bFailure\s*=(?!=)")
_OF_ANY = re.compile(f"{_OF_RESULT.pattern}|{_OF_ASSERTION.pattern}")
