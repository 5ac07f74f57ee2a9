"""Converts a `packets` test to the workloads of its generator and of its receivers. Pure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from leadline.kinds.packets import fields, pktgen
from leadline.kinds.packets.model import PacketsTest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leadline.contract.models import PacketGeneratorWorkload, PacketReceiverWorkload
    from leadline.trial.workloads import Receiver

DRAIN_MS = 200
"""What is on its way in a path's queues; more than the queue of a link of the lab."""
TEST_ID = 0x1EAD_11E0
"""Marks the frames of a test; each load of a run has a number of its own instead."""
_TAG, _OUTER_TAG = 0x8100, 0x88A8
_TTL = 64


def generator(test: PacketsTest, destination: str) -> PacketGeneratorWorkload:
    """The workload of the host that sends; frames without a destination of their own go to this one."""
    from leadline.contract.models import PacketGeneratorWorkload

    return PacketGeneratorWorkload.model_validate(
        {
            "kind": "packet_generator",
            "device": test.device,
            "via": "pcap" if test.pcap is not None else test.via,
            "frame": _frame(test, destination),
            "flows": {"count": test.flows, "order": test.flow_order, "zipf": test.zipf, "seed": test.seed},
            "rate_pps": test.rate_pps,
            "number": test.number,
            "duration_ms": test.duration_ms,
            "warmup_ms": test.warmup_ms,
            "threads": test.threads,
            "batch": test.batch,
            "stamp_every": test.stamps,
            "test_id": TEST_ID,
            "interval_ms": test.interval_ms,
            "capture": _capture(test),
            "may_use_default_route": test.yes_i_mean is not None and test.yes_i_mean == test.device,
            "pktgen": test.pktgen,
            "new_flows_per_s": test.new_flows,
        }
    )


def receivers(test: PacketsTest, address: str | None) -> list[Receiver]:
    """What counts the frames at the test's far interface, or at the one that has this address; with `echo`, what sends
    them back from there, and what counts them where they come back."""
    from leadline.trial.workloads import Receiver

    far = {"device": test.to, "address": address}
    if not test.echo:
        return [Receiver(_receiver(test, far, then=test.then), DRAIN_MS)]
    destination = address if test.dst is None else fields.addresses(test.dst).first
    near = {"device": test.device, "toward": destination}
    return [
        Receiver(_receiver(test, far, then="echo", measures=False), DRAIN_MS, sends_back=True),
        Receiver(_receiver(test, near, then="drop"), DRAIN_MS, is_at_client=True),
    ]


def _receiver(
    test: PacketsTest, where: Mapping[str, str | None], *, then: str, measures: bool = True
) -> PacketReceiverWorkload:
    from leadline.contract.models import PacketReceiverWorkload

    return PacketReceiverWorkload.model_validate(
        {
            "kind": "packet_receiver",
            "device": None,
            "address": None,
            "toward": None,
            **where,
            "via": "xdp" if then == "echo" else test.receive_via,
            "test_id": TEST_ID,
            "pktgen": _pktgen_streams(test),
            "flows": test.threads if test.via == "pktgen" else test.flows,
            "then": then,
            "measures_delay": measures and test.stamps > 0,
            "is_round_trip": test.echo,
            "clock_ahead_ns": 0,
            "duration_ms": test.duration_ms,
            "drain_ms": DRAIN_MS,
            "warmup_ms": test.warmup_ms,
            "interval_ms": test.interval_ms,
        }
    )


def _pktgen_streams(test: PacketsTest) -> dict[str, Any] | None:
    """What tells pktgen's packets: each thread numbers its own, and has its own part of the source ports. Copies of a
    packet have its number."""
    if test.via != "pktgen":
        return None
    ports = fields.ports(test.sport)
    count = int(ports.last) - int(ports.first) + 1
    span = 1 if test.flows == 1 else count if ports.is_random else min(count, test.flows)
    copies = (test.batch or 1) > 1 or test.pktgen.get("clone_skb", "0") != "0"
    is_split = test.threads > 1
    return {
        "first_port": int(ports.first) if is_split else 0,
        "ports": max(1, span // test.threads) if is_split else 0,
        "has_numbers": not copies,
    }


def _capture(test: PacketsTest) -> dict[str, Any] | None:
    if test.pcap is None:
        return None
    return {
        "file": str(Path(test.pcap).resolve()),
        "timing": "top" if test.top else "rate" if test.rate is not None else "own",
        "speed": test.speed,
        "loops": test.loop or None,
        "networks": test.rewrite,
        "rewrites_macs": test.rewrite_macs,
        "vlan": test.set_vlan,
        "pads_cut_frames": test.pad_cut,
    }


def _frame(test: PacketsTest, destination: str) -> dict[str, Any]:
    destinations = fields.addresses(test.dst or destination)
    vlans = fields.vlans(test.vlan) if test.vlan is not None else []
    tags = [_OUTER_TAG if len(vlans) == 2 and not place else _TAG for place in range(len(vlans))]
    tunnel = {
        "kind": test.tunnel,
        "source": test.tunnel_src,
        "destination": test.tunnel_dst,
        "identifier": test.tunnel_id,
    }
    return {
        "sizes": [{"bytes": size, "count": count} for size, count in test.frame_bytes.items()],
        "source_mac": test.src_mac,
        "destination_mac": test.dst_mac,
        "vlans": [
            {"protocol": tag, "first": int(vlan.first), "last": int(vlan.last), "priority": 0}
            for tag, vlan in zip(tags, vlans, strict=True)
        ],
        "outer": tunnel if test.tunnel is not None else None,
        "sources": _range(fields.addresses(test.src)) if test.src is not None else None,
        "destinations": _range(destinations),
        "transport": {"tcp-syn": "tcp_syn", "tcp-ack": "tcp_ack", "icmp": "icmp_echo"}.get(test.protocol, "udp"),
        "source_ports": _numbers(fields.ports(test.sport)),
        "destination_ports": _numbers(fields.ports(test.dport)),
        "ttl": test.ttl or (pktgen.TTL if test.via == "pktgen" else _TTL),
        "dscp": test.dscp or 0,
        "has_udp_checksum": test.checksum,
        "template": test.template,
    }


def _range(found: fields.Range) -> dict[str, Any]:
    return {"first": found.first, "last": found.last, "order": found.order}


def _numbers(found: fields.Range) -> dict[str, Any]:
    return {"first": int(found.first), "last": int(found.last), "order": found.order}
