"""A fleet whose machines are one SSH server on addresses of this network: created, logged in to with the generated key
by ssh(1), and removed. As a program, in a network of its own, as root there: `fleet_ssh_program.py FOLDER` writes what
happened as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import asyncssh
from fleet_lines import ENVIRONMENT, SECRET, clean_environment
from openstack_server import OpenStackServer, openstack_server

_UP = (
    "up",
    "--provider",
    "openstack",
    "--type",
    "m1.small",
    "--name",
    "lab",
    "--yes",
    "--count",
    "3",
    "--wait",
    "120s",
)


class _Machine(asyncssh.SSHServer):
    """Accepts the key pairs that the provider knows, for the image's user."""

    def __init__(self, cloud: OpenStackServer) -> None:
        self._cloud = cloud

    def begin_auth(self, username: str) -> bool:
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        known = [asyncssh.import_public_key(one["public_key"]) for one in self._cloud.keys.values()]
        return username == "debian" and key in known


async def _greet(process: asyncssh.SSHServerProcess[str]) -> None:
    address = process.get_extra_info("sockname")[0]
    process.stdout.write(f"{process.command} on {address}\n")
    process.exit(0)


async def _run(folder: Path, variables: dict[str, str], *argv: str) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        *argv, cwd=folder, env=variables, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate()
    return {"code": process.returncode, "out": out.decode(), "err": err.decode()}


async def _live(cloud: OpenStackServer, folder: Path) -> dict[str, Any]:
    account = {"OS_AUTH_URL": f"{cloud.url}/identity/v3", "OS_USERNAME": "ada", "OS_PASSWORD": SECRET}
    variables = {**clean_environment(folder), **account, "OS_PROJECT_NAME": "lab"}
    fleet = (str(ENVIRONMENT / "leadline"), "fleet")
    host_key = asyncssh.generate_private_key("ssh-ed25519")
    async with asyncssh.listen(
        "0.0.0.0", 22, server_factory=lambda: _Machine(cloud), server_host_keys=[host_key], process_factory=_greet
    ):
        up = await _run(folder, variables, *fleet, *_UP, "--json")
        config = json.loads(up["out"])["ssh_config"] if up["code"] == 0 else "none"
        ssh = ("ssh", "-F", config, "-o", "BatchMode=yes")
        by_name = await _run(folder, variables, *ssh, "lead-2", "uptime")
        by_address = await _run(folder, variables, *ssh, "debian@127.0.1.3", "uptime")
        down = await _run(folder, variables, *fleet, "down", "lab", "--provider", "openstack")
    return {"up": up, "by_name": by_name, "by_address": by_address, "down": down, "is_empty": cloud.is_empty()}


if __name__ == "__main__":
    (fixtures,) = (ENVIRONMENT.parent / "lib").glob("python*/site-packages/libcloud/test/compute/fixtures")
    with openstack_server(fixtures, SECRET) as made:
        made.network = "127.0.1."
        json.dump(asyncio.run(_live(made, Path(sys.argv[1]))), sys.stdout)
