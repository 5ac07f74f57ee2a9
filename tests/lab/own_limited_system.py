"""`leadline` with one more system under test: WireGuard whose gateway runs in a control group with a CPU quota.

The group's folder is in `LIMITED_GROUP`; the test that makes it sets its quota.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any, Literal

from leadline.contract.models import Prepared
from leadline.plan.sut import CpuAttribution
from leadline.registry import SYSTEMS
from leadline.sut.daemons import Daemon, Daemons
from leadline.sut.model import BringUp, Site
from leadline.sut.wireguard import Wireguard, WireguardSut

_ENTER = 'echo $$ > "$LIMITED_GROUP/cgroup.procs" && exec "$@"'


class LimitedSut(WireguardSut):
    """WireGuard, as in a service with a quota."""

    kind: Literal["limited"] = "limited"  # type: ignore[assignment]


class LimitedDaemons(Daemons):
    """Starts the processes of one host in the group."""

    def __init__(self, site: Site, inner: Daemons, host: str) -> None:
        super().__init__(site)
        self._running, self.pids, self._limited = inner._running, inner.pids, host

    async def start(self, daemon: Daemon) -> Prepared:
        if daemon.host == self._limited:
            entered = f"LIMITED_GROUP={os.environ['LIMITED_GROUP']}; {_ENTER}"
            daemon = replace(daemon, argv=("/bin/sh", "-c", entered, "sh", *daemon.argv))
        return await super().start(daemon)


class Limited(Wireguard):
    """WireGuard with a gateway that is held back."""

    name = "limited"
    model = LimitedSut  # type: ignore[assignment]

    def cpu_attribution(self, parameters: Any) -> CpuAttribution:
        return CpuAttribution.PROCESS

    async def bring_up(self, parameters: Any, site: Site, daemons: Daemons) -> BringUp:
        return await super().bring_up(parameters, site, LimitedDaemons(site, daemons, site.addressing.gateway))


if __name__ == "__main__":
    with SYSTEMS.added("limited", Limited()):
        from leadline.cli.app import main

        main()
