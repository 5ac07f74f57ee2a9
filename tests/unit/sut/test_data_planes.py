"""What the kernel of a host has: as the attempts say, and in the words of ip(8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from sites import FakeHost

from leadline.agents import kernel_support
from leadline.agents.host_ops import Completed
from leadline.errors import MissingBinary, MissingKernelFeature
from leadline.plan.sut import CpuAttribution
from leadline.sut.strongswan import data_plane
from leadline.sut.strongswan.parameters import StrongswanSut

REFUSED = Completed(2, "Error: Requested AEAD algorithm not found.\n")


class Kernel(FakeHost):
    """A host whose attempts end as given, by the word that the command contains."""

    name = "gateway"

    def __init__(self, *, programs: Sequence[str] = ("ip",), ends: Mapping[str, Completed] | None = None) -> None:
        super().__init__(None)
        self.programs = programs
        self.ends = ends or {}
        self.tried: list[str] = []

    async def find_program(self, name: str) -> str | None:
        return f"/sbin/{name}" if name in self.programs else None

    async def run(self, *argv: str, within_s: float = 10.0) -> Completed:
        self.tried.append(argv[-1])
        return next((end for word, end in self.ends.items() if f"proto {word}" in argv[-1]), Completed(0, ""))


def test_attempt_adds_a_state_and_deletes_it_in_a_namespace_of_its_own() -> None:
    argv = kernel_support.ESP.argv()
    assert argv[:2] == ("unshare", "--net")
    assert argv[-1].index("ip xfrm state add") < argv[-1].index("ip xfrm state delete")
    assert "--map-root-user" in kernel_support.ESP.argv(as_root=False)


@pytest.mark.parametrize(
    ("output", "cause"),
    [
        ("Error: Unknown device type.\n", "Unknown device type"),
        ("RTNETLINK answers: Operation not permitted\n", "RTNETLINK answers: Operation not permitted"),
        ("unshare: unshare failed: Operation not permitted\n", "unshare: unshare failed: Operation not permitted"),
        ("", "no reason"),
    ],
)
def test_cause_is_what_ip_says(output: str, cause: str) -> None:
    assert kernel_support.cause_in(output) == cause


async def test_auto_is_the_kernel_where_it_has_esp_and_libipsec_elsewhere() -> None:
    assert await data_plane.choose(StrongswanSut(), Kernel()) == "kernel"
    assert await data_plane.choose(StrongswanSut(), Kernel(ends={"esp": REFUSED})) == "libipsec"


async def test_asked_for_libipsec_tries_nothing() -> None:
    host = Kernel(programs=())
    assert await data_plane.choose(StrongswanSut(data_plane="libipsec"), host) == "libipsec"
    assert host.tried == []


@pytest.mark.parametrize(
    ("parameters", "ends", "message"),
    [
        (
            StrongswanSut(data_plane="kernel"),
            {"esp": REFUSED},
            "data_plane: kernel needs ESP in the kernel, and gateway's",
        ),
        (StrongswanSut(compression=True), {"esp": REFUSED}, "compression: true needs ESP in the kernel, and gateway's"),
        (
            StrongswanSut(compression=True),
            {"comp": REFUSED},
            "compression: true needs IPComp, and the kernel of gateway",
        ),
    ],
)
async def test_what_the_kernel_lacks_is_refused(
    parameters: StrongswanSut, ends: dict[str, Completed], message: str
) -> None:
    with pytest.raises(MissingKernelFeature) as refused:
        await data_plane.choose(parameters, Kernel(ends=ends))
    assert refused.value.message.startswith(message)
    assert "(Requested AEAD algorithm not found)" in refused.value.message and refused.value.hint


async def test_without_ip_the_kernel_cannot_be_tried() -> None:
    with pytest.raises(MissingBinary, match="ip is not installed"):
        await data_plane.choose(StrongswanSut(), Kernel(programs=()))


def test_version_and_names_tell_the_data_plane() -> None:
    said = "connecting to 'unix:///var/run/charon.vici' failed: No such file\nstrongSwan 5.9.8 swanctl\nusage:\n"
    assert data_plane.version(said, "libipsec", "6.18") == "strongSwan 5.9.8 with kernel-libipsec (user space)"
    assert data_plane.version(said, "kernel", "6.18") == "strongSwan 5.9.8 with ESP of Linux 6.18"
    assert data_plane.version("", "kernel", "6.18").startswith("strongSwan (unknown version) with")
    assert "libipsec" in data_plane.NAMES["libipsec"] and "libipsec" in data_plane.TITLES["libipsec"]
    assert data_plane.ATTRIBUTION == {"kernel": CpuAttribution.KERNEL, "libipsec": CpuAttribution.PROCESS}
