"""A number of datagrams that flows share, in an agent's terms. Pure."""

from __future__ import annotations

from leadline.contract.models import UdpWorkload
from leadline.trial.workloads import PhasedWorkload


def share_number(whole: UdpWorkload) -> UdpWorkload | PhasedWorkload:
    """The load with a number that its flows share: those that send one datagram more than the others are a task of
    their own."""
    each, more = divmod(whole.number or 0, whole.flows)
    parts = {"load": (whole.flows - more, each), "load-more": (more, each + 1)}
    tasks = {
        task: whole.model_copy(update={"flows": flows, "number": number})
        for task, (flows, number) in parts.items()
        if flows and number
    }
    return PhasedWorkload(whole.kind, (dict(tasks),), whole.duration_ms) if len(tasks) > 1 else tasks.popitem()[1]
