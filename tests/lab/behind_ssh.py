"""Runs a command with an SSH server on loopback beside it: behind_ssh.py FOLDER COMMAND...

`@SSH@` in the command's words, and in the plan where there is one (FOLDER/plan.yaml), becomes the server's address. A
helper of test_hosts_given.py and test_observe_hosts.py, run in a network of its own; asyncssh's server, so real SSH
with keys, without root, and nothing installed on the machine. $BEHIND_SSH_ADDRESS is an address beside loopback.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import sys
from pathlib import Path

import asyncssh

from leadline.agents import launch


async def execute(process: asyncssh.SSHServerProcess[bytes]) -> None:
    """What sshd does with a command: run it, with its three streams over the connection."""
    words = process.command or ""
    if (agent := os.environ.get("LEADLINE_AGENT")) is not None and words.startswith("leadline-agent"):
        words = f"{shlex.quote(agent)}{words.removeprefix('leadline-agent')}"
    command = await asyncio.create_subprocess_shell(
        f"exec {words}",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PATH": f"{launch.agent_binary().parent}:{os.environ['PATH']}"},
    )
    await process.redirect(command.stdin, command.stdout, command.stderr)
    process.exit(await command.wait())


async def main(folder: Path, argv: list[str]) -> int:
    """Serve while the command runs; returns its status."""
    key, host_key = asyncssh.generate_private_key("ssh-ed25519"), asyncssh.generate_private_key("ssh-ed25519")
    key.write_private_key(folder / "key")
    (folder / "key").chmod(0o600)
    key.write_public_key(folder / "authorized")
    listens_on = os.environ.get("BEHIND_SSH_ADDRESS", "127.0.0.1")
    server = await asyncssh.listen(
        listens_on,
        0,
        server_host_keys=[host_key],
        authorized_client_keys=str(folder / "authorized"),
        process_factory=execute,
        encoding=None,
    )
    port = server.get_port()
    (folder / "known").write_text(f"[{listens_on}]:{port} {host_key.export_public_key().decode().strip()}\n")
    # A user's own configuration says where keys are; here it is this file, and the program is the system's.
    program = folder / "bin" / "ssh"
    program.parent.mkdir()
    options = f"-F none -i {folder}/key -o UserKnownHostsFile={folder}/known"
    program.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} {options} "$@"\n')
    program.chmod(0o755)
    address = f"ssh://tester@{listens_on}:{port}"
    plan = folder / "plan.yaml"
    if plan.exists():
        plan.write_text(plan.read_text().replace("@SSH@", address))
    environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}
    words = [word.replace("@SSH@", address) for word in argv]
    # A group of its own, so that a test can interrupt the command as a terminal does, and not the server.
    command = await asyncio.create_subprocess_exec(*words, env=environment, process_group=0)
    status = await command.wait()
    server.close()
    await server.wait_closed()
    return status


if __name__ == "__main__":
    sys.exit(asyncio.run(main(Path(sys.argv[1]), sys.argv[2:])))
