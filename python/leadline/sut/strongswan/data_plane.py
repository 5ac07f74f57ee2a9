"""Chooses what carries strongSwan's packets on a trial's hosts, and names it in results.

kernel-libipsec is not what strongSwan's users mean by "strongSwan": it passes each packet through user space. Results
therefore never have its figures under that name alone.
"""

from __future__ import annotations

import re

from leadline.agents import kernel_support
from leadline.agents.host_ops import HostOps
from leadline.errors import MissingKernelFeature
from leadline.plan.sut import USER_SPACE, CpuAttribution
from leadline.sut.strongswan.parameters import DataPlane, StrongswanSut

NAMES: dict[DataPlane, str] = {"kernel": "strongswan (kernel ESP)", "libipsec": "strongswan (kernel-libipsec)"}
"""What tables call the system."""
TITLES: dict[DataPlane, str] = {
    "kernel": "IPsec by strongSwan with ESP in the kernel",
    "libipsec": f"IPsec by strongSwan with kernel-libipsec {USER_SPACE}",
}
ATTRIBUTION = {"kernel": CpuAttribution.KERNEL, "libipsec": CpuAttribution.PROCESS}


async def choose(parameters: StrongswanSut, gateway: HostOps) -> DataPlane:
    """What the parameters ask for, or what the gateway's host has.

    Raises:
        MissingKernelFeature: the host's kernel lacks what the parameters ask for.
        MissingBinary: ip(8) is missing, so that the kernel cannot be tried.
    """
    if parameters.data_plane == "libipsec":
        return "libipsec"
    why = await kernel_support.refusal(gateway, kernel_support.ESP)
    if why is not None and (parameters.data_plane == "kernel" or parameters.compression):
        asked = "data_plane: kernel" if parameters.data_plane == "kernel" else "compression: true"
        hint = "use data_plane: libipsec, without compression, or a host whose kernel has ESP"
        raise MissingKernelFeature(f"{asked} needs ESP in the kernel, and {gateway.name}'s has none ({why})", hint=hint)
    if parameters.compression:
        cause = await kernel_support.refusal(gateway, kernel_support.IPCOMP)
        if cause is not None:
            message = f"compression: true needs IPComp, and the kernel of {gateway.name} has none ({cause})"
            raise MissingKernelFeature(message, hint="leave sut.compression out")
    return "kernel" if why is None else "libipsec"


def version(said: str, data_plane: DataPlane, kernel: str) -> str:
    """The version in results: strongSwan's own, and that of the data plane. `said` is the output of `swanctl
    --version`, which also complains that it reaches no daemon at the usual place."""
    found = re.search(r"^strongSwan (\S+)", said, flags=re.MULTILINE)
    own = f"strongSwan {found[1]}" if found is not None else "strongSwan (unknown version)"
    return (
        f"{own} with kernel-libipsec {USER_SPACE}" if data_plane == "libipsec" else f"{own} with ESP of Linux {kernel}"
    )
