"""`trace: true` gives each request a `traceparent`, and leaves a scenario's own one alone."""

from __future__ import annotations

import re
from typing import Any

from leadline.scenario.lowering import lower
from leadline.scenario.native import read_native
from leadline.scenario.tracing import with_trace

TEXT = """
base: http://127.0.0.1:8080
http: {headers: {Accept: text/html}}
load: {users: 1, iterations: 1}
flow:
  - get: /
  - get: /own
    headers: {Traceparent: 00-a}
"""


def headers(text: str) -> list[list[tuple[str, Any]]]:
    found = read_native(text, "users.yaml")
    flow = lower(with_trace(found.scenario), found.root, lambda name: b"").plan["populations"][0]["flow"]
    return [[(str(one["name"][0]), one["value"]) for one in node["action"]["headers"]] for node in flow]


def test_each_request_has_a_trace_of_its_own_beside_its_header_fields() -> None:
    first, _ = headers(TEXT)
    assert dict(first).keys() == {"Accept", "traceparent"}
    value = dict(first)["traceparent"]
    # Fixed parts, and two that are computed for each request.
    assert [part for part in value if isinstance(part, str)] == ["00-", "-", "-01"]
    assert [part["op"] for part in value if not isinstance(part, str)] == ["md5", "random_text"]


def test_requests_own_trace_is_sent_instead() -> None:
    _, second = headers(TEXT)
    assert [value for name, value in second if name.lower() == "traceparent"] == [["00-a"]]


def test_scenarios_own_trace_stays() -> None:
    own = re.sub("Accept: text/html", "TraceParent: 00-b", TEXT)
    first, _ = headers(own)
    assert first == [("TraceParent", ["00-b"])]
