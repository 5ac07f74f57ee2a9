"""Measuring threads that waited for a CPU, which other work, or other threads of the test, took from a load without a
rate of its own.

Both ends of a stream or of a closed loop take turns, so that neither is busy all the time, even on a machine without a
CPU to spare. How long each was runnable and did not run is the kernel's own account. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from leadline.analysis.model import Limit, LimitedBy
from leadline.analysis.test_data import TestData
from leadline.contract import records
from leadline.quantities import rounded_share

WAITED = 0.25
"""Of a thread's time, from where on its waiting for a CPU counts as what limited it: with a CPU of its own it could do
a quarter more."""


def limits(data: TestData) -> Iterator[Limit]:
    """The side whose thread waited longest, if that was long."""
    spec = data.spec
    if spec.paced or spec.connects_clients:
        return
    found: list[tuple[float, LimitedBy, str]] = []
    for one in data.load_outcomes():
        far = one.outcome.get("receiver")
        found.append((_longest(one.outcome["generator"]), LimitedBy.GENERATOR, one.host))
        if far is not None:
            found.append((_longest(far), LimitedBy.ANSWERING_SIDE, f"the server that {one.host} used"))
    share, by, where = max(found, key=lambda side: side[0], default=(0.0, LimitedBy.UNKNOWN, ""))
    if share >= WAITED:
        text = f"a thread on {where} was ready to run and waited for a CPU {rounded_share(share)} of the time"
        yield Limit(by, text, f"{_CLAUSES[by]} is the limit: it waits for a CPU")


_CLAUSES = {LimitedBy.GENERATOR: "the load generator", LimitedBy.ANSWERING_SIDE: "the answering side"}


def _longest(load: records.LoadReport) -> float:
    shares = [(one.get("runnable_wait_s") or 0.0) / one["wall_s"] for one in load["threads"] if one["wall_s"] > 0]
    return max(shares, default=0.0)
