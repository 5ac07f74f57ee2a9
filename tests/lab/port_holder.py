"""Starts an agent that, in the namespace of one host, already has a socket on the port that it must serve, the first
time only: `port_holder.py AGENT ADDRESS ONCE ARGUMENT...`. The file ONCE records that it has done so."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path


def main(agent: str, address: str, once: Path, arguments: list[str]) -> None:
    """Hold the port, if the address is this host's, and become the agent."""
    holder = socket.socket()
    try:
        holder.bind((address, 5201))
        once.touch(exist_ok=False)
        holder.listen()
        holder.set_inheritable(True)
    except OSError:
        holder.close()
    os.execv(agent, [agent, *arguments])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4:])
