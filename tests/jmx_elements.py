"""Elements of JMeter's test plans, and the trees that they form, as texts. Owns no meaning: JMeter's or a conversion's."""

# ruff: noqa: E501 (an element of XML is one line)

from __future__ import annotations

from typing import Any
from xml.sax.saxutils import escape, quoteattr


def element(
    kind: str, name: str = "", *below: str, inner: str = "", gui: str = "", enabled: bool = True, **values: Any
) -> str:
    """An element with properties (`__` in a name stands for `.`), the elements below it, and raw properties."""
    properties = "".join(property_of(key.replace("__", "."), value) for key, value in values.items())
    attributes = f'testclass="{kind}" testname={quoteattr(name)} enabled="{str(enabled).lower()}"'
    # JMeter wants the attribute, and reads no meaning from it.
    shown = f'guiclass="{gui or "TestBeanGUI"}"'
    return f"<{kind} {shown} {attributes}>{properties}{inner}</{kind}>\n<hashTree>{''.join(below)}</hashTree>\n"


def property_of(name: str, value: object) -> str:
    """A property: a list, a boolean or a text."""
    if isinstance(value, list):
        items = "".join(
            f'<stringProp name="{index}">{escape(str(one))}</stringProp>' for index, one in enumerate(value)
        )
        return f'<collectionProp name="{name}">{items}</collectionProp>'
    if isinstance(value, bool):
        return f'<boolProp name="{name}">{str(value).lower()}</boolProp>'
    return f'<stringProp name="{name}">{escape(str(value))}</stringProp>'


def arguments(**values: str) -> str:
    """Parameters of a request."""
    items = "".join(
        f'<elementProp name="{name}" elementType="HTTPArgument"><boolProp name="HTTPArgument.always_encode">true</boolProp>'
        f'<stringProp name="Argument.name">{name}</stringProp><stringProp name="Argument.value">{escape(value)}</stringProp>'
        "</elementProp>"
        for name, value in values.items()
    )
    return (
        '<elementProp name="HTTPsampler.Arguments" elementType="Arguments"><collectionProp name="Arguments.arguments">'
        f"{items}</collectionProp></elementProp>"
    )


def raw_body(text: str) -> str:
    """A raw body."""
    return (
        '<boolProp name="HTTPSampler.postBodyRaw">true</boolProp><elementProp name="HTTPsampler.Arguments" '
        'elementType="Arguments"><collectionProp name="Arguments.arguments"><elementProp name="" elementType="HTTPArgument">'
        f'<stringProp name="Argument.value">{escape(text)}</stringProp></elementProp></collectionProp></elementProp>'
    )


def headers(**values: str) -> str:
    """A header manager."""
    items = "".join(
        f'<elementProp name="" elementType="Header"><stringProp name="Header.name">{name.replace("_", "-")}</stringProp>'
        f'<stringProp name="Header.value">{escape(value)}</stringProp></elementProp>'
        for name, value in values.items()
    )
    inner = f'<collectionProp name="HeaderManager.headers">{items}</collectionProp>'
    return element("HeaderManager", "headers", inner=inner)


def variables(**values: str) -> str:
    """User Defined Variables."""
    items = "".join(
        f'<elementProp name="{name}" elementType="Argument"><stringProp name="Argument.name">{name}</stringProp>'
        f'<stringProp name="Argument.value">{escape(value)}</stringProp></elementProp>'
        for name, value in values.items()
    )
    inner = f'<collectionProp name="Arguments.arguments">{items}</collectionProp>'
    return element("Arguments", "variables", inner=inner, gui="ArgumentsPanel")


def group(*below: str, kind: str = "ThreadGroup", name: str = "users", loops: str = "1", **values: Any) -> str:
    """A thread group."""
    given: dict[str, Any] = {"ThreadGroup__num_threads": "1", "ThreadGroup__ramp_time": "0"} | values
    inner = (
        '<elementProp name="ThreadGroup.main_controller" elementType="LoopController">'
        '<boolProp name="LoopController.continue_forever">false</boolProp>'
        f'<stringProp name="LoopController.loops">{escape(loops)}</stringProp></elementProp>'
    )
    return element(kind, name, *below, inner=inner, **given)


def plan(*below: str, **values: Any) -> bytes:
    """A test plan."""
    top = element("TestPlan", "plan", *below, gui="TestPlanGui", **values)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<jmeterTestPlan version="1.2">\n<hashTree>{top}</hashTree></jmeterTestPlan>'.encode()
