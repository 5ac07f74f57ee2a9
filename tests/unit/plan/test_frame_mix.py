"""Mixes of frame sizes: names, options, and the UDP payloads that they leave."""

from __future__ import annotations

from typing import Any

import pytest

from leadline.kinds.udp import KIND, UdpTest
from leadline.plan.field_types import validate_input
from leadline.plan.frame_mix import mean_payload
from leadline.trial.workloads import Server


def udp(**keys: Any) -> UdpTest:
    return validate_input(UdpTest, {"name": "u", "kind": "udp", **keys})


@pytest.mark.parametrize(
    "written", ["imix", "IMIX", "64:7,594:4,1518:1", {64: 7, 594: 4, 1518: 1}, {"64": 7, "594": 4, "1518": 1}]
)
def test_mix_is_written_by_name_or_by_sizes(written: object) -> None:
    assert udp(size=written).size == {64: 7, 594: 4, 1518: 1}


def test_packet_accepts_the_name_of_a_mix() -> None:
    assert udp(packet="imix") == udp(size="imix")


def test_workload_has_payloads_and_the_rate_in_datagrams() -> None:
    test = udp(size="imix", rate="100mbit", flows=2)
    load = KIND.whole_workload(test, Server("192.0.2.1", 5201, None, None, None))
    assert [(share.bytes, share.count) for share in load.sizes or ()] == [(18, 7), (548, 4), (1472, 1)]
    assert load.datagram_bytes == 1472
    assert load.rate_pps == pytest.approx(100e6 / 2 / 8 / (3790 / 12))
    assert mean_payload({64: 7, 594: 4, 1518: 1}, 4) == pytest.approx(3790 / 12)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"size": "amix"}, "no mix"),
        ({"size": {64: 0}}, "not a whole number above 0"),
        ({"size": {61: 1}}, "too small; at least 62 bytes"),
        ({"size": {64: 1}, "ip": 6}, "too small; at least 82 bytes"),
        ({"size": {9217: 1}}, "too large"),
        ({"size": {100: 1001}}, "too many"),
        ({"size": "imix", "packet": 100}, "exclude each other"),
        ({"packet": 15}, "too small; at least 16"),
    ],
)
def test_wrong_sizes_are_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        udp(**keys)
