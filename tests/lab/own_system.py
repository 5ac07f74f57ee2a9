"""`leadline` with one more system under test, which this file adds: a gateway that the kernel throttles by tc."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from leadline.errors import SutFailed
from leadline.plan.field_types import RateBps
from leadline.plan.need import Need
from leadline.plan.sut import BaseSut, CpuAttribution
from leadline.registry import SYSTEMS
from leadline.sut.daemons import Daemons
from leadline.sut.model import BringUp, Site
from leadline.sut.route import route_and_confirm
from leadline.sut.system import System


class ThrottleSut(BaseSut):
    """The kernel forwards, at a limited rate towards the server."""

    kind: Literal["throttle"] = "throttle"
    rate_bps: RateBps = Field(validation_alias="rate")
    """What the gateway sends to the server's network."""


class Throttle(System[ThrottleSut]):
    """Routes, and a token bucket on the gateway."""

    name = "throttle"
    model = ThrottleSut

    def needs(self, parameters: ThrottleSut, *, fleet: bool) -> list[Need]:
        return [Need("program", "tc", "the gateway is throttled by it", parameters.optional)]

    def cpu_attribution(self, parameters: ThrottleSut) -> CpuAttribution:
        return CpuAttribution.KERNEL

    def bring_up_seconds(self, parameters: ThrottleSut) -> tuple[float, float]:
        return 0.5, 0.25

    async def bring_up(self, parameters: ThrottleSut, site: Site, daemons: Daemons) -> BringUp:
        gateway = site.hosts[site.addressing.gateway]
        bucket = ("tbf", "rate", f"{parameters.rate_bps}bit", "burst", "32kb", "latency", "50ms")
        done = await gateway.run("tc", "qdisc", "add", "dev", "lan", "root", *bucket)
        if done.status != 0:
            raise SutFailed(f"tc on {gateway.name}: {done.output.strip()}")
        up = await route_and_confirm(site)
        return BringUp(f"tc at {parameters.rate_bps} bit/s", up.clients, up.target, ())

    async def take_down(self, parameters: ThrottleSut, site: Site) -> None:
        await site.hosts[site.addressing.gateway].run("tc", "qdisc", "del", "dev", "lan", "root")


if __name__ == "__main__":
    with SYSTEMS.added("throttle", Throttle()):
        from leadline.cli.app import main

        main()
