"""How a lab divides the machine's CPUs among its hosts."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from leadline.errors import EnvironmentLimit
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


@pytest.mark.parametrize(
    ("number", "available", "clients", "gateway", "server"),
    [
        (1, (0, 1), (0,), (1,), (0,)),
        (2, (0, 1), (0, 1), (0, 1), (0, 1)),
        (1, range(4), (0, 1), (3,), (2,)),
        (3, range(8), (0, 1, 2), (5, 6, 7), (3, 4)),
        (8, range(8), tuple(range(8)), tuple(range(8)), tuple(range(8))),
    ],
)
def test_gateway_has_the_number_of_cpus_that_was_asked_for(
    number: int, available: tuple[int, ...], clients: tuple[int, ...], gateway: tuple[int, ...], server: tuple[int, ...]
) -> None:
    ends = {"client1": clients, "client2": clients, "server": server}
    assert cpus.with_gateway_cpus(ENDS, number, available) == ends | {"gateway": gateway}


def test_more_cpus_than_there_are_is_an_error_of_the_machine() -> None:
    with pytest.raises(EnvironmentLimit, match="3 CPUs for the gateways: this machine lets a run use 2"):
        cpus.with_gateway_cpus(ENDS, 3, (0, 1))


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
