"""`leadline` with a system that acts on given hosts through their agents: it delivers a file to the server over SSH,
runs a process there, and lets the gateway forward. Says on stderr what is left afterwards, also of the trial's folders.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Literal
from unittest import mock

from leadline.plan.sut import BaseSut
from leadline.registry import SYSTEMS
from leadline.sut.daemons import Daemon, Daemons
from leadline.sut.model import BringUp, ClientState, Site
from leadline.sut.system import System
from leadline.trial import environment
from leadline.trial.site import given_site

FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")
FOLDERS: list[Path] = []


class ForwarderSut(BaseSut):
    """A gateway that forwards, and a process beside the server."""

    kind: Literal["forwarder"] = "forwarder"


class Forwarder(System[ForwarderSut]):
    """Not for use: it proves what can be done."""

    name = "forwarder"
    model = ForwarderSut
    on_given_hosts = True

    async def bring_up(self, parameters: ForwarderSut, site: Site, daemons: Daemons) -> BringUp:
        server, gateway = site.hosts["server"], site.hosts["gateway"]
        text = await server.write_file(site.files("forwarder") / "text", "hello")
        daemon = Daemon(
            "speaker",
            ("sh", "-c", 'cat "$1"; echo; exec sleep 60', "sh", str(text)),
            site.log_file("speaker", "server"),
            ("hello",),
            "server",
        )
        await daemons.start(daemon)
        await daemons.wait_for_output(daemon, "hello", 10.0)
        before = (await gateway.read_file(FORWARDING)).strip()
        await gateway.set_sysctl("net/ipv4/ip_forward", 1)
        after = (await gateway.read_file(FORWARDING)).strip()
        said = " ".join(daemons.reported(daemon))
        clients = [ClientState(name, "connected", None) for name in site.clients]
        version = f"server says: {said}; forwarding {before} -> {after}"
        return BringUp(version, clients, dict(site.server_address), ("speaker",))


def recorded_site(*arguments: Any, **named: Any) -> Site:
    site = given_site(*arguments, **named)
    FOLDERS.append(site.folder)
    return site


if __name__ == "__main__":
    with (
        SYSTEMS.added("forwarder", Forwarder()),
        mock.patch.object(environment, "given_site", recorded_site),
    ):
        from leadline.cli.app import main

        try:
            main()
        finally:
            left = [str(folder) for folder in FOLDERS if folder.exists()]
            print(f"left: forwarding {FORWARDING.read_text().strip()}, folders {left}", file=sys.stderr)
