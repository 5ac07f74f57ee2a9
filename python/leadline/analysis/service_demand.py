"""Service demand: the CPU time that each end spends per byte, packet or transaction, as netperf reports it. Pure.

Of each end there are two figures: that of the load's own threads, and that of the whole machine, which has the kernel's
work in soft interrupts, too, and whatever else ran there. Hosts of a lab share one machine: its figure is then that of
both ends together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from leadline.analysis.flows import Flow
from leadline.analysis.metrics import received_units, sum_of_flows
from leadline.analysis.model import Metric
from leadline.analysis.test_data import TestData
from leadline.contract import records
from leadline.plan.service_demand_metrics import Unit

Side = Literal["client", "server"]
_SIDES: tuple[tuple[Side, Literal["generator", "receiver"]], ...] = (("client", "generator"), ("server", "receiver"))


def service_demand(data: TestData, flows: Sequence[Flow], unit: Unit) -> dict[str, Metric]:
    """The figures of both ends."""
    found = {}
    for side, account in _SIDES:
        rows = [outcome.outcome.get(account) for outcome in data.load_outcomes()]
        loads: list[records.LoadReport] = [row for row in rows if row is not None]
        found[f"{side}_cpu_ns_per_{unit}"] = Metric(_of_threads(loads, _moved(flows, unit, side)), "ns")
        found[f"{side}_machine_cpu_ns_per_{unit}"] = Metric(_of_machines(loads, unit), "ns")
    return found


def _moved(flows: Sequence[Flow], unit: Unit, side: Side) -> float | None:
    """What went through an end, in either direction: of packets, those that it sent or received itself. A transaction
    is counted at its answer."""
    if unit == "byte":
        return sum_of_flows(flows, lambda flow: flow.delivered_bytes.total if flow.delivered_bytes else None)
    if unit == "packet":
        sends = "up" if side == "client" else "down"
        return sum_of_flows(flows, lambda flow: flow.sent_units if flow.direction == sends else received_units(flow))
    return sum_of_flows(flows, lambda flow: flow.delivered_units.total if flow.delivered_units else None)


def _of_threads(loads: Sequence[records.LoadReport], moved: float | None) -> float | None:
    threads = [thread for load in loads for thread in load["threads"]]
    if not threads or not moved:
        return None
    return 1e9 * sum(thread["user_s"] + thread["system_s"] for thread in threads) / moved


def _of_machines(loads: Sequence[records.LoadReport], unit: Unit) -> float | None:
    """The demand of one machine only: hosts that share theirs would count its time once each. The kernel counts it in
    ticks of 10 ms, so no tick at all means that it is unknown, not that the machine did nothing."""
    uses = [use for load in loads if (use := load.get("machine")) is not None]
    if len(uses) != 1 or len(loads) != 1:
        return None
    use = uses[0]
    if unit == "byte":
        moved = use["sent_bytes"] + use["received_bytes"]
    elif unit == "packet":
        moved = use["sent_units"] + use["received_units"]
    else:
        # Of requests and answers, the fewer are complete transactions.
        moved = min(use["sent_units"], use["received_units"])
    return 1e9 * use["busy_s"] / moved if moved and use["busy_s"] else None
