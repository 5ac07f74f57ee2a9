"""Runs a command with an SSH server on loopback beside it: behind_ssh.py FOLDER COMMAND...

`@SSH@` in the command's words, and in the plan where there is one (FOLDER/plan.yaml), becomes the server's address. A
helper of test_hosts_given.py and test_observe_hosts.py, run in a network of its own. $BEHIND_SSH_ADDRESS is an address
beside loopback.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from sshd import PORT, Keys


def main(folder: Path, argv: list[str]) -> int:
    """Serve while the command runs; returns its status."""
    listens_on = os.environ.get("BEHIND_SSH_ADDRESS", "127.0.0.1")
    keys = Keys.make(folder)
    server = keys.start_server(listens_on)
    address = f"ssh://root@{listens_on}:{PORT}"
    plan = folder / "plan.yaml"
    if plan.exists():
        plan.write_text(plan.read_text().replace("@SSH@", address))
    environment = {**os.environ, "PATH": f"{keys.write_client()}:{os.environ['PATH']}"}
    words = [word.replace("@SSH@", address) for word in argv]
    # A group of its own, so that a test can interrupt the command as a terminal does, and not the server.
    try:
        with subprocess.Popen(words, env=environment, process_group=0) as command:
            return command.wait()
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
