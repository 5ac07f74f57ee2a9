"""Checks by interface counters whether a test's payload went through the gateway that a plan gives by address.

A gateway receives and sends each crossing byte on one of its interfaces. Headers, tunnels and other traffic only add
bytes, so fewer bytes than the payload prove that some payload took another path. More bytes prove little, since a
tunnel's interfaces count its payload twice. The gateway's agent reads the counters (`observe`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from leadline.analysis.flows import Flow
from leadline.analysis.model import Reason, Verdict
from leadline.analysis.test_data import HostSample, TestData

NOT_CROSSED = "gateway-not-crossed"
UNKNOWN = "gateway-counters-unknown"


def findings(data: TestData, flows: Sequence[Flow]) -> Iterator[tuple[Verdict, Reason]]:
    """The findings against each given gateway; none for the lab's gateways, which traffic cannot bypass."""
    payload = payload_bytes(data, flows)
    begun = [flow.start_ns for flow in flows if flow.start_ns is not None]
    ended = [found.t_ns for found in data.load_outcomes()]
    if not payload or not begun or not ended:
        return
    for gateway, on_one_stack in data.given_gateways.items():
        growth = Growth.between(data.samples.get(gateway, ()), min(begun), max(ended))
        yield from _findings_of(gateway, on_one_stack, payload, growth)


def payload_bytes(data: TestData, flows: Sequence[Flow]) -> float:
    """Bytes that are known to have reached the other side, in both directions. Bytes that were only sent may have
    been lost before the gateway."""
    total = 0.0
    for flow in flows:
        if flow.delivered_bytes is not None and flow.evidence != "sender":
            total += flow.delivered_bytes.total
        # Each counted answer means that a request arrived.
        if data.spec.counts_units and flow.delivered_units is not None and flow.sent_units:
            total += (flow.sent_bytes or 0.0) * min(1.0, flow.delivered_units.total / flow.sent_units)
    return total


@dataclass(frozen=True, slots=True)
class Growth:
    """The growth of a host's interface counters around a test, summed over all interfaces."""

    received: int
    sent: int
    whole: bool
    """Whether the counters were read before the test and after it, and never decreased."""

    @classmethod
    def between(cls, samples: Sequence[HostSample], start_ns: int, end_ns: int) -> Growth | None:
        """The growth from the last reading before `start_ns` to the first one after `end_ns`; None without two
        readings."""
        read = [(sample.t_ns, sample.network_bytes) for sample in samples if sample.network_bytes is not None]
        before = [number for number, (t_ns, _) in enumerate(read) if t_ns <= start_ns]
        after = [number for number, (t_ns, _) in enumerate(read) if t_ns >= end_ns]
        around = read[before[-1] if before else 0 : after[0] + 1 if after else len(read)]
        if len(around) < 2:
            return None
        steps = [(later[0] - earlier[0], later[1] - earlier[1]) for (_, earlier), (_, later) in pairwise(around)]
        # A counter decreases if its interface was removed or created again.
        fell = any(step < 0 for pair in steps for step in pair)
        received, sent = (sum(max(0, pair[side]) for pair in steps) for side in (0, 1))
        return cls(received, sent, bool(before and after) and not fell)


def _findings_of(
    gateway: str, on_one_stack: Sequence[str], payload: float, growth: Growth | None
) -> Iterator[tuple[Verdict, Reason]]:
    if growth is None:
        text = f"{gateway}'s interface counters were not read around the test: whether its payload crossed is unknown"
        yield Verdict.UNDETERMINED, Reason(UNKNOWN, text)
        return
    seen = f"{gateway}'s interfaces received {_amount(growth.received)} and sent {_amount(growth.sent)}"
    moved = f"the test moved {_amount(payload)} of payload"
    if min(growth.received, growth.sent) < payload:
        if growth.whole:
            yield Verdict.INCOMPLETE, Reason(NOT_CROSSED, f"{seen} while {moved}: not all of it went through {gateway}")
        else:
            text = f"{seen} while {moved}, but were not read throughout: whether all of it crossed is unknown"
            yield Verdict.UNDETERMINED, Reason(UNKNOWN, text)
    elif on_one_stack:
        others = " and ".join(on_one_stack)
        text = f"{gateway} shares its interfaces with {others}: its counters do not show what went through it"
        yield Verdict.UNDETERMINED, Reason(UNKNOWN, text)


def _amount(count: float) -> str:
    return f"{count / 1e6:,.3f} MB" if count >= 1e6 else f"{count:,.0f} bytes"
