"""Measuring threads that waited for a CPU, which other work, or other threads of the test, took from a load without a
rate of its own.

Both ends of a stream or of a closed loop take turns, so that neither is busy all the time, even on a machine without a
CPU to spare. How long each was runnable and did not run is the kernel's own account. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from leadline.analysis.advice import OWN_CPUS
from leadline.analysis.model import Limit, LimitedBy
from leadline.analysis.test_data import TestData
from leadline.contract import records
from leadline.quantities import rounded_share

WAITED = 0.25
"""Of a thread's time, from where on its waiting for a CPU counts as what limited it: with a CPU of its own it could do
a quarter more."""


NOTICED = 0.05
"""Of a thread's time, from where on its waiting for a CPU is mentioned where no limit is known."""


def limits(data: TestData) -> Iterator[Limit]:
    """The side whose thread waited longest, if that was long."""
    spec = data.spec
    if spec.paced or spec.connects_clients:
        return
    share, by, where = _longest(data)
    if share >= WAITED:
        yield Limit(by, _text(share, where), f"{_CLAUSES[by]} is the limit: it waits for a CPU", OWN_CPUS)


def noticed(data: TestData) -> str | None:
    """How long the thread waited that waited longest, if that may have mattered."""
    share, _, where = _longest(data)
    return _text(share, where) if share >= NOTICED else None


_CLAUSES = {LimitedBy.GENERATOR: "the load generator", LimitedBy.ANSWERING_SIDE: "the answering side"}


def _text(share: float, where: str) -> str:
    return f"a thread on {where} was ready to run and waited for a CPU {rounded_share(share)} of the time"


def _longest(data: TestData) -> tuple[float, LimitedBy, str]:
    """The share of its time that the thread waited which waited longest, its side, and where it ran."""
    found: list[tuple[float, LimitedBy, str]] = []
    own, other = (
        (LimitedBy.ANSWERING_SIDE, LimitedBy.GENERATOR)
        if data.spec.server_generates
        else (LimitedBy.GENERATOR, LimitedBy.ANSWERING_SIDE)
    )
    for one in data.load_outcomes():
        far = one.outcome.get("receiver")
        found.append((_share(one.outcome["generator"]), own, one.host))
        if far is not None:
            found.append((_share(far), other, f"the server that {one.host} used"))
    return max(found, key=lambda side: side[0], default=(0.0, LimitedBy.UNKNOWN, ""))


def _share(load: records.LoadReport) -> float:
    shares = [(one.get("runnable_wait_s") or 0.0) / one["wall_s"] for one in load["threads"] if one["wall_s"] > 0]
    return max(shares, default=0.0)
