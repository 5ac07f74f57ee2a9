"""A program that starts a command server in a folder, prints the server's process id, and waits to be killed."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from command_server import command_server


def main() -> None:
    """Tell which process serves, and wait."""
    with command_server(Path(sys.argv[1])):
        print(Path("/proc/thread-self/children").read_text(encoding="ascii"), flush=True)
        signal.pause()


if __name__ == "__main__":
    main()
