"""The links of a trial's lab: who impairs them, and the agent that does where the kernel's netem does not.

Owns the choice between the two, and the emulator's workload. `lab.topology` places the effects, and the agent's
counters are in the journal as events `emulated`.
"""

from __future__ import annotations

import asyncio
from zlib import crc32

from leadline.agents import Agent
from leadline.contract.models import EmulateWorkload, LinkEffects
from leadline.errors import LeadlineError
from leadline.lab import netlink_ops, topology
from leadline.plan import Case, LinkSpec
from leadline.trial.event_log import EventLog
from leadline.trial.workloads import kind_of

EMULATE_TASK = "emulate"
_INTERVAL_MS = 1000


async def layout_of(case: Case) -> topology.Layout:
    """The lab of a case. Without a choice in the plan, netem impairs its links if the kernel has it."""
    link = case.link
    if link is None:
        raise LeadlineError(f"case {case.id} has neither links nor hosts")
    own = case.emulator == "own"
    if case.emulator is None and link.is_impaired:
        own = link.beyond_netem is not None or not await asyncio.to_thread(netlink_ops.has_netem)
    spec = _spec(link, own)
    layout = (
        topology.site_to_site(spec) if case.topology == "site-to-site" else topology.remote_access(case.clients, spec)
    )
    return layout.with_xdp() if any(kind_of(test).sends_frames for test in case.tests) else layout


async def start_emulator(case: Case, label: str, agent: Agent, event_log: EventLog) -> None:
    """Forward frames on the emulator's host from now on, until its agent ends.

    Raises:
        TaskFailed: the agent cannot.
        AgentLost: it is gone.
    """
    assert case.link is not None, "an emulator has links"
    effects = _effects(case.link)
    # The same trial of the same case meets the same decisions again.
    seed = crc32(label.encode())
    near, far = topology.EMULATOR_ENDS
    work = EmulateWorkload(a=near, b=far, seed=seed, a_to_b=effects, b_to_a=effects, interval_ms=_INTERVAL_MS)
    await agent.prepare(f"{label}/setup", EMULATE_TASK, work)
    event_log.record("emulator", trial=label, host=agent.name, workload=work.model_dump())


def _spec(link: LinkSpec, own: bool) -> topology.LinkSpec:
    return topology.LinkSpec(
        rate_bps=link.rate_bps,
        mtu=link.mtu_bytes,
        loss=link.loss,
        drop_every=link.drop_every,
        drop_udp_every=link.drop_udp_every,
        delay_ms=_milliseconds(link.delay_us),
        jitter_ms=_milliseconds(link.jitter_us),
        loss_burst=link.loss_burst,
        reorder=link.reorder,
        duplicate=link.duplicate,
        corrupt=link.corrupt,
        queue_bytes=link.queue_bytes,
        own_emulator=own,
    )


def _milliseconds(us: int | None) -> float | None:
    return us / 1000 if us else None


def _effects(link: LinkSpec) -> LinkEffects:
    queue_bytes = link.queue_bytes
    if queue_bytes is None:
        queue_bytes = topology.queue_bytes_of(link.rate_bps, link.mtu_bytes) if link.rate_bps else 0
    return LinkEffects(
        rate_bps=link.rate_bps,
        queue_bytes=queue_bytes,
        delay_us=link.delay_us or 0,
        jitter_us=link.jitter_us or 0,
        loss=link.loss or 0.0,
        loss_burst=link.loss_burst or 1.0,
        reorder=link.reorder or 0.0,
        duplicate=link.duplicate or 0.0,
        corrupt=link.corrupt or 0.0,
    )
