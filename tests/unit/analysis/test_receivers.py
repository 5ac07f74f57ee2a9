"""A load's receivers beside its generators in a test's data, from a made journal."""

from __future__ import annotations

from typing import Any

from leadline.analysis.flows import build_flows
from leadline.analysis.test_data import TestData
from leadline.analysis.test_spec import TestSpec

_SENT = {"sent_bytes": 600, "sent_units": 10, "received_units": None}
_LOAD = {"side": "local", "wall_s": 1.0, "threads": []}
_OUTCOME: dict[str, Any] = {"flows": [], "histograms": [], "errors": {}, "counts": {}, "generator": _LOAD}


def test_receiver_on_the_generators_host_is_none_of_the_generators() -> None:
    spec = TestSpec.read({"name": "t", "kind": "udp", "duration_ms": 1000})
    data = TestData(spec, ("here",), receivers=frozenset({("here", "receive"), ("far", "receive")}))
    for host, task in (("here", "load"), ("here", "receive"), ("far", "receive")):
        data.add(host, {"type": "finished", "task": task, "t_ns": 1, "outcome": _OUTCOME})
    assert [(found.host, found.task) for found in data.load_outcomes()] == [("here", "load")]
    assert [found.host for found in data.receiver_outcomes()] == ["here", "far"]


def test_what_receivers_counted_stands_where_a_servers_report_stands() -> None:
    spec = TestSpec.read({"name": "t", "kind": "udp", "duration_ms": 1000})
    data = TestData(spec, ("here",), receivers=frozenset({("far", "receive")}))
    sent = {**_OUTCOME, "flows": [{"flow": 0, "direction": "up", "due_ns": 0, "start_ns": 0, "end_ns": 1, **_SENT}]}
    counted = {
        **_OUTCOME,
        "flows": [{"flow": 0, "received_units": 9, "received_bytes": 540, "duplicates": 1, "reordered": 0}],
        "errors": {"time_from_future": 2},
    }
    for host, task, outcome in (("here", "load", sent), ("far", "receive", counted)):
        data.add(host, {"type": "finished", "task": task, "t_ns": 1, "outcome": outcome})
        data.add(
            host,
            {
                "type": "progress",
                "task": task,
                "t_ns": 1,
                "side": "local",
                "flows": [{"flow": 0, "sent_bytes": 0, "received_bytes": 540, "received_units": 9}],
                "histograms": [],
            },
        )
    [found] = data.load_outcomes()
    assert found.outcome["flows"][0]["received_units"] == 9
    assert found.outcome["flows"][0]["sent_units"] == 10
    assert found.outcome["errors"] == {"peer_time_from_future": 2}
    far = found.outcome["receiver"]
    assert far is not None
    assert far["side"] == "peer"
    [flow] = build_flows(data)
    assert flow.key.host == "here"
    assert flow.report is not None
    assert flow.report["duplicates"] == 1
    assert [point.received_units for point in data.points(flow.key, "peer")] == [9]
