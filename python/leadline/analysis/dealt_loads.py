"""Loads that clients share, and hosts that carry several clients each: what the figures are of, in words. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from leadline import quantities
from leadline.analysis.dealt_model import DealtLoad
from leadline.analysis.model import Reason
from leadline.analysis.test_data import TestData
from leadline.analysis.validity import Evidence


def dealt_load(data: TestData) -> DealtLoad | None:
    """How the load was dealt to hosts; None if each host was a client with the test's own amounts."""
    specs, hosts = data.host_specs, len(data.hosts)
    if not specs.is_split and data.client_count == hosts:
        return None
    return DealtLoad(data.client_count, hosts, specs.is_split) if specs.clients else None


def load_in_all(evidence: Evidence) -> Iterator[Reason]:
    """A note on what all clients had to do together."""
    data = evidence.data
    dealt = dealt_load(data)
    if dealt is None or not data.host_specs.in_all:
        return
    amounts = ", ".join(_amount(name, value) for name, value in data.host_specs.in_all.items())
    yield Reason("load-in-all", f"{dealt.words}: in all {amounts}")


def clients_left_out(evidence: Evidence) -> Iterator[Reason]:
    """A note on clients that had no part of a load that clients share."""
    left, hosts = evidence.data.left_out, len(evidence.data.hosts)
    if left:
        named = ", ".join(left[:3]) + (f" and {len(left) - 3} more" if len(left) > 3 else "")
        text = f"{len(left)} of {hosts + len(left)} client hosts took no part ({named})"
        yield Reason("clients-left-out", f"{text}: what the clients share is too little for all")


def _amount(name: str, value: float) -> str:
    quantity, _, unit = name.rpartition("_")
    match unit:
        case "bps":
            return f"{quantity} {quantities.bit_rate(value)}"
        case "bytes":
            return f"{quantity} {quantities.metric(value, 'bytes')}"
        case "s":
            return f"{quantity.removesuffix('_per')} {quantities.per_second(value)}"
    return f"{name} {value:,.0f}"
