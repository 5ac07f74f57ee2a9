"""What the kernel of a host can carry by itself: ESP, IPComp, WireGuard. Each is tried in a namespace that ends with
the attempt; what a kernel lists (/proc/net/xfrm_stat, its modules) does not say whether it works.

The commands are ip(8)'s, run by unshare(1), on the host that asks.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leadline.agents.programs import program_path
from leadline.errors import MissingKernelFeature
from leadline.plan.need import Need
from leadline.plan.sut import BaseSut

if TYPE_CHECKING:
    from leadline.agents.host_ops import HostOps


@dataclass(frozen=True, slots=True)
class KernelFeature:
    """A feature of the kernel, and the shell command that tries it."""

    name: str
    """What sentences call it."""
    attempt: str
    mend: str
    """What gives it to a host."""

    def argv(self, *, as_root: bool = True) -> tuple[str, ...]:
        """The command, in a new namespace; without root in one of a new user, too."""
        return ("unshare", *(() if as_root else ("--map-root-user",)), "--net", "sh", "-c", self.attempt)


def _state(protocol: str, spi: str, algorithm: str) -> str:
    """Adds a state of XFRM, and deletes it."""
    which = f"src 192.0.2.1 dst 192.0.2.2 proto {protocol} spi {spi}"
    return f"ip xfrm state add {which} mode tunnel {algorithm} && ip xfrm state delete {which}"


_KEY_BYTES = 16 + 4
ESP = KernelFeature(
    "ESP in the kernel",
    _state("esp", "0x1000", f"aead 'rfc4106(gcm(aes))' 0x{'00' * _KEY_BYTES} 128"),
    "sudo modprobe -a esp4 esp6, or a kernel with CONFIG_INET_ESP, CONFIG_INET6_ESP and CONFIG_CRYPTO_GCM",
)
IPCOMP = KernelFeature(
    "IPComp in the kernel",
    _state("comp", "0x1000", "comp deflate"),
    "sudo modprobe ipcomp, or a kernel with CONFIG_INET_IPCOMP",
)
WIREGUARD = KernelFeature(
    "WireGuard in the kernel",
    "ip link add name try type wireguard",
    "sudo modprobe wireguard, or a kernel with CONFIG_WIREGUARD",
)
IPROUTE_HINT = "apt-get install iproute2"
_TRY_WITHIN_S = 10.0


def check_kernel(needs: Iterable[Need]) -> None:
    """Try each feature among the needs on this machine.

    Raises:
        MissingKernelFeature: its kernel lacks one.
    """
    features = {feature.name: feature for feature in (ESP, IPCOMP, WIREGUARD)}
    for need in needs:
        feature = features.get(need.name) if need.kind == "kernel" else None
        if feature is not None and (attempt := attempt_here(feature)).works is False:
            message = f"{feature.name} is missing ({attempt.why}); {need.why}"
            raise MissingKernelFeature(message, hint=f"{feature.mend}, or choose other cases with --only")


@dataclass(frozen=True, slots=True)
class Attempt:
    """How an attempt on this machine ended."""

    works: bool | None
    """None if it is unknown: the attempt itself was not possible."""
    why: str | None = None


def attempt_here(feature: KernelFeature) -> Attempt:
    """Try a feature on this machine."""
    if program_path("ip") is None or program_path("unshare") is None:
        return Attempt(None, "ip or unshare is missing, so it was not tried")
    argv = feature.argv(as_root=os.geteuid() == 0)
    try:
        tried = subprocess.run(argv, capture_output=True, text=True, timeout=_TRY_WITHIN_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Attempt(None, f"trying it failed: {error}")
    if tried.returncode == 0:
        return Attempt(True)
    why = cause_in(tried.stdout + tried.stderr)
    # What unshare says is not about the feature.
    return Attempt(None if why.startswith("unshare") else False, why)


def need_of(feature: KernelFeature, parameters: BaseSut) -> Need:
    """The need of a system whose packets the kernel carries."""
    return Need("kernel", feature.name, f"{parameters.kind} leaves its packets to the kernel", parameters.optional)


async def refusal(host: HostOps, feature: KernelFeature) -> str | None:
    """Why the host's kernel lacks a feature, in its own words; None if it has it.

    Raises:
        MissingBinary: ip(8) or unshare(1) is missing, so that it cannot be tried.
    """
    if await host.find_program("ip") is None:
        raise host.missing("ip", IPROUTE_HINT)
    done = await host.run(*feature.argv())
    return None if done.status == 0 else cause_in(done.output)


def cause_in(output: str) -> str:
    """The line of ip(8) that names the cause."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    found = next(
        (line for line in lines if line.startswith(("RTNETLINK", "Error"))), lines[-1] if lines else "no reason"
    )
    return found.removeprefix("Error: ").removesuffix(".")
