"""A real `iperf3 -s` as the server of `tcp` and `udp` tests, and the facts about a load that iperf3's document has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from leadline.plan.base_test import Conflict

if TYPE_CHECKING:
    from leadline.analysis.iperf3_document import Iperf3Requested
    from leadline.contract.models import TcpWorkload, UdpWorkload


def peer_conflicts(peer: str) -> Iterator[Conflict]:
    """A fleet's tunnels lead to Leadline's own server."""
    if peer != "leadline":
        yield "peer", f"a fleet's clients do not speak with {peer}", "leave it out"


def iperf3_requested(
    workload: TcpWorkload | UdpWorkload,
    protocol: str,
    block_bytes: int,
    rate_bps: int | None,
    *,
    dscp: int | None = None,
    total_bytes: int | None = None,
    blocks: int | None = None,
    pacing_bps: int | None = None,
) -> Iperf3Requested:
    """One load in iperf3's terms; the rates are those of one flow."""
    from leadline import __version__
    from leadline.analysis.iperf3_document import Iperf3Requested

    return Iperf3Requested(
        host=workload.target.host,
        port=workload.target.port,
        protocol=protocol,
        flows=workload.flows,
        direction=workload.direction,
        block_bytes=block_bytes,
        duration_s=workload.duration_ms / 1000,
        warmup_s=workload.warmup_ms / 1000,
        rate_bps=rate_bps,
        version=__version__,
        type_of_service=(dscp or 0) << 2,
        total_bytes=total_bytes or 0,
        blocks=blocks or 0,
        pacing_bps=pacing_bps or 0,
    )
