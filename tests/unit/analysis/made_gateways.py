"""Tests through a gateway that is observed."""

from __future__ import annotations

from typing import Any

from made_journals import EPOCH_NS, S, facts, observation, process

from leadline.analysis import TestData


def with_gateway(data: TestData, **changes: Any) -> TestData:
    """A gateway that is observed each second; `changes` say what grows each second."""
    data.facts["gateway"] = facts()
    data.sut_processes = ("openvpn",)
    for second in range(-1, 13):
        past = second + 2
        own = process("openvpn", 9, changes.get("busy", 0.1) * past, 0.0, 1000)
        busiest = changes.get("busiest", lambda past: None)(past)
        own |= {"threads": changes.get("threads", 1), "busiest_thread": busiest}
        event = observation(EPOCH_NS + second * S, None, [own])
        sent = int(changes.get("bits", 0.0) / 8 * past)
        packets = int(sent / changes.get("packet_bytes", 1514))
        row = {"rx_bytes": sent, "tx_bytes": sent, "rx_packets": packets, "tx_packets": packets}
        none = {f"{way}_{what}": 0 for way in ("rx", "tx") for what in ("errors", "dropped")}
        event["network"]["interfaces"] = [{"name": "lan", **row, **none}]
        event["cgroup"] = {"usage_s": 0.1 * past, "throttled_s": changes.get("throttled", 0.0) * past}
        data.add("gateway", event)
    return data
