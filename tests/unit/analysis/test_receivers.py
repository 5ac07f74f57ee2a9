"""A load's receivers beside its generators in a test's data, from a made journal."""

from __future__ import annotations

from typing import Any

from leadline.analysis.test_data import TestData
from leadline.analysis.test_spec import TestSpec

_OUTCOME: dict[str, Any] = {"flows": [], "errors": {}, "counts": {}}


def test_receiver_on_the_generators_host_is_none_of_the_generators() -> None:
    spec = TestSpec.read({"name": "t", "kind": "udp", "duration_ms": 1000})
    data = TestData(spec, ("here",), receivers=frozenset({("here", "receive"), ("far", "receive")}))
    for host, task in (("here", "load"), ("here", "receive"), ("far", "receive")):
        data.add(host, {"type": "finished", "task": task, "t_ns": 1, "outcome": _OUTCOME})
    assert [(found.host, found.task) for found in data.load_outcomes()] == [("here", "load")]
    assert [found.host for found in data.receiver_outcomes()] == ["here", "far"]
