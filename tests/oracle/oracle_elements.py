"""Short forms of the elements that the oracle's test plans use, and a test plan as a case."""

# ruff: noqa: E501 (an element of XML is one line)

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any
from xml.sax.saxutils import escape

from jmx_elements import element, group, headers, plan, property_of


@dataclass(frozen=True, slots=True)
class Case:
    """A test plan of one shape, and what of its answers is the same in each run."""

    name: str
    content: bytes
    ordered: bool = True
    """Whether each user's requests have one order."""
    masks: tuple[str, ...] = ()
    """Expressions whose matches in requests differ from run to run."""
    files: dict[str, str] = field(default_factory=dict)
    counts: str = "all"
    """What is compared of the samples: `all`, `labels` (a load by time), or `none`."""
    by_user: bool = True
    """Whether it is the same user who sends each request."""


def case(
    name: str,
    *below: str,
    users: str = "1",
    loops: str = "1",
    ramp: str = "0",
    group_values: dict[str, Any] | None = None,
    **rest: Any,
) -> Case:
    """A plan with one group of users."""
    values = {"ThreadGroup__num_threads": users, "ThreadGroup__ramp_time": ramp, **(group_values or {})}
    return whole(name, group(*below, loops=loops, **values), **rest)


def whole(name: str, *below: str, plan_values: dict[str, Any] | None = None, **rest: Any) -> Case:
    """A plan with its groups; the server's address and the user's number are set."""
    return Case(name, plan(defaults(), headers(X_User="${__threadNum}"), *below, **(plan_values or {})), **rest)


def defaults(inner: str = "", **values: str) -> str:
    """Defaults of HTTP requests; without values the server's."""
    given: dict[str, Any] = values or {"domain": "127.0.0.1", "port": "${__P(port)}"}
    named: dict[str, Any] = {f"HTTPSampler__{name}": value for name, value in given.items()}
    arguments = inner or args()
    return element("ConfigTestElement", "defaults", inner=arguments, gui="HttpDefaultsGui", **named)


def request(method: str, path: str, *below: str, name: str = "", inner: str = "", **values: Any) -> str:
    """An HTTP request; `inner` has its parameters."""
    named = {f"HTTPSampler__{key}": value for key, value in values.items()}
    own = property_of("HTTPSampler.path", path) + property_of("HTTPSampler.method", method)
    given = {"HTTPSampler__use_keepalive": True, **named}
    shown = name or re.sub(r"\$\{[^{}]*(\{[^{}]*\}[^{}]*)*\}?", "*", path) or "/"
    return element("HTTPSamplerProxy", shown, *below, inner=own + (inner or args()), gui="HttpTestSampleGui", **given)


def get(path: str, *below: str, **values: Any) -> str:
    """A GET request."""
    return request("GET", path, *below, **values)


def post(path: str, *below: str, **values: Any) -> str:
    """A POST request."""
    return request("POST", path, *below, **values)


def args(*rows: tuple[Any, ...]) -> str:
    """Parameters: name, value, whether it is encoded, whether it has an equals sign."""
    items = []
    for row in rows:
        name, value, encodes, equals = (*row, True, True)[:4] if len(row) < 4 else row
        items.append(
            f'<elementProp name="{escape(name)}" elementType="HTTPArgument">{property_of("HTTPArgument.always_encode", bool(encodes))}'
            f"{property_of('Argument.name', name)}{property_of('Argument.value', value)}{property_of('Argument.metadata', '=')}"
            f"{property_of('HTTPArgument.use_equals', bool(equals))}</elementProp>"
        )
    return (
        '<elementProp name="HTTPsampler.Arguments" elementType="Arguments"><collectionProp name="Arguments.arguments">'
        f"{''.join(items)}</collectionProp></elementProp>"
    )


def files(*rows: tuple[str, str, str]) -> str:
    """Files of a request: path, name of the parameter, type."""
    items = "".join(
        f'<elementProp name="{path}" elementType="HTTPFileArg">{property_of("File.path", path)}'
        f"{property_of('File.paramname', name)}{property_of('File.mimetype', kind)}</elementProp>"
        for path, name, kind in rows
    )
    return (
        '<elementProp name="HTTPsampler.Files" elementType="HTTPFileArgs"><collectionProp name="HTTPFileArgs.files">'
        f"{items}</collectionProp></elementProp>"
    )


def simple(name: str, *below: str) -> str:
    """A simple controller."""
    return element("GenericController", name, *below)


def loop(count: str, *below: str, name: str = "loop") -> str:
    """A loop controller."""
    return element("LoopController", name, *below, LoopController__loops=count)


def if_(condition: str, *below: str, expression: bool = True, all_: bool = False) -> str:
    """An if controller."""
    return element(
        "IfController",
        "if",
        *below,
        IfController__condition=condition,
        IfController__useExpression=expression,
        IfController__evaluateAll=all_,
    )


def while_(condition: str, *below: str, name: str = "while") -> str:
    """A while controller."""
    return element("WhileController", name, *below, WhileController__condition=condition)


def transaction(name: str, *below: str, parent: bool = False, timers: bool = False) -> str:
    """A transaction controller."""
    return element(
        "TransactionController",
        name,
        *below,
        TransactionController__parent=parent,
        TransactionController__includeTimers=timers,
    )


def counter(name: str, start: str = "1", step: str = "1", **values: Any) -> str:
    """A counter."""
    named = {f"CounterConfig__{key}": value for key, value in values.items()}
    return element(
        "CounterConfig", name, CounterConfig__name=name, CounterConfig__start=start, CounterConfig__incr=step, **named
    )


def rows_of(file: str, names: str = "", **values: Any) -> str:
    """A CSV data set."""
    given = {"filename": file, "variableNames": names, "delimiter": ",", "recycle": True, "stopThread": False, "shareMode": "shareMode.all",
             "ignoreFirstLine": False, "quotedData": False, "fileEncoding": "UTF-8"}  # fmt: skip
    return element("CSVDataSet", file, gui="TestBeanGUI", **{**given, **values})


def regex(name: str, pattern: str, **values: Any) -> str:
    """A regular expression extractor."""
    given: dict[str, Any] = {"template": "$1$", "match_number": "1", "useHeaders": "false", "default": ""}
    named: dict[str, Any] = {
        f"RegexExtractor__{key}": value
        for key, value in {**given, "refname": name, "regex": pattern}.items()
        if key not in values
    }
    return element(
        "RegexExtractor",
        name,
        **named,
        **{key if "__" in key else f"RegexExtractor__{key}": value for key, value in values.items()},
    )


def json_(names: str, paths: str, numbers: str = "", default: str = "", **values: Any) -> str:
    """A JSON extractor."""
    given = {
        "referenceNames": names,
        "jsonPathExprs": paths,
        "match_numbers": numbers,
        "defaultValues": default,
        **values,
    }
    return element(
        "JSONPostProcessor",
        names,
        **{key if "__" in key else f"JSONPostProcessor__{key}": value for key, value in given.items()},
    )


def asserts(
    kind: int, *patterns: str, field_: str = "Assertion.response_data", name: str = "assertion", **values: Any
) -> str:
    """A response assertion."""
    return element(
        "ResponseAssertion",
        name,
        Asserion__test_strings=list(patterns),
        Assertion__test_type=kind,
        Assertion__test_field=field_,
        **values,
    )


def script(kind: str, text: str, name: str = "script") -> str:
    """A script in Groovy."""
    return element(kind, name, scriptLanguage="groovy", script=text, gui="TestBeanGUI")


def action(code: int, target: int = 0, duration: str = "0", *below: str) -> str:
    """A flow control action."""
    return element(
        "TestAction",
        "action",
        *below,
        ActionProcessor__action=code,
        ActionProcessor__target=target,
        ActionProcessor__duration=duration,
    )


def timer(delay: str, name: str = "timer") -> str:
    """A constant timer."""
    return element("ConstantTimer", name, ConstantTimer__delay=delay)
