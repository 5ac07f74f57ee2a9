from __future__ import annotations

import struct
from pathlib import Path

import pytest

from leadline.lab import cpus, topology
from leadline.lab.topology import LinkSpec

ENDS = topology.remote_access(2, LinkSpec())
SITES = topology.site_to_site(LinkSpec())


@pytest.mark.parametrize(
    ("available", "clients", "gateway", "server"),
    [
        ((0, 1), (0,), (1,), (0,)),
        ((4, 6, 7), (4,), (7,), (6,)),
        (range(4), (0, 1), (3,), (2,)),
        (range(8), (0, 1, 2, 3), (6, 7), (4, 5)),
    ],
)
def test_gateway_has_cpus_of_its_own(
    available: tuple[int, ...], clients: tuple[int, ...], gateway: tuple[int, ...], server: tuple[int, ...]
) -> None:
    ends = {"client1": clients, "client2": clients, "server": server}
    assert cpus.split(ENDS, available) == ends | {"gateway": gateway}
    assert cpus.split(SITES, available) == {
        "client1": clients,
        "server": server,
        "gateway-a": gateway,
        "gateway-b": gateway,
    }


@pytest.mark.parametrize("available", [(), (3,)])
def test_one_cpu_is_not_split(available: tuple[int, ...]) -> None:
    assert cpus.split(ENDS, available) == {}


def test_idle_cpus_poll_until_the_device_is_closed(tmp_path: Path) -> None:
    device = tmp_path / "cpu_dma_latency"
    device.touch()
    held = cpus.IdlePoll(device)
    assert device.read_bytes() == struct.pack("i", 0)
    held.close()
    held.close()


def test_missing_device_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        cpus.IdlePoll(tmp_path / "none")
