"""Small test plans whose requests go to shop.test, and what they become. Used by the tests of conversions."""

from __future__ import annotations

from typing import Any

from jmx_elements import arguments, element, group, headers, plan, property_of, raw_body, variables
from leadline.plan.source import plain
from leadline.scenario.conversion import Conversion
from leadline.scenario.jmx.plan import read_jmx
from leadline.scenario.native import checked, read_native
from leadline.scenario.native_writer import write_native

__all__ = [
    "arguments",
    "converted",
    "element",
    "flow",
    "get",
    "group",
    "headers",
    "plan",
    "post",
    "raw_body",
    "variables",
]


def get(path: str, *below: str, name: str = "", inner: str = "", **values: Any) -> str:
    """A GET request to shop.test."""
    given: dict[str, Any] = {"HTTPSampler.domain": "shop.test", "HTTPSampler.path": path, "HTTPSampler.method": "GET"}
    properties = "".join(property_of(key, value) for key, value in given.items())
    return element(
        "HTTPSamplerProxy", name or path, *below, inner=properties + inner, gui="HttpTestSampleGui", **values
    )


def post(path: str, *below: str, inner: str = "", **values: Any) -> str:
    """A POST request to shop.test."""
    return get(path, *below, inner=inner, **values).replace(">GET<", ">POST<")


def converted(
    *below: str, skips_scripts: bool = False, parameters: dict[str, str] | None = None
) -> tuple[dict[str, Any], Conversion]:
    """The native form of a plan with these elements, and the report. It is valid, and its text reads as the same."""
    root, conversion = read_jmx(plan(*below), "plan.jmx", skips_scripts=skips_scripts, parameters=parameters)
    checked(root)
    written = write_native(root, conversion)
    assert plain(read_native(written, "plan.yaml").root) == plain(root), written
    return plain(root), conversion


def flow(*below: str) -> list[dict[str, Any]]:
    """The steps of the only group, for elements in it."""
    document, _ = converted(group(*below))
    found: list[dict[str, Any]] = document["groups"][0]["flow"]
    return found
