"""What a program that goes into a jail begins with: entering, saying lines of JSON, waiting, sockets of lab hosts.

Runs in a process of its own, perhaps as a user without rights: imports nothing of the tests, whose files that user may
be unable to read.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from typing import Any, NoReturn

from leadline.errors import LeadlineError
from leadline.lab import jail, kernel
from leadline.lab.hosts import Lab

WITHIN_S = 60.0
PORT = 7


def print_json(**what: Any) -> None:
    """Print one line of JSON, not through a buffer: a signal handler may print something while the program does."""
    os.write(1, json.dumps(what, default=str).encode() + b"\n")


def enter() -> jail.Jail:
    """Go into a jail, or end as the command would."""
    try:
        return jail.enter("test")
    except LeadlineError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)


def wait() -> NoReturn:
    """Wait for a signal. signal.pause() alone would sleep on if the signal came just before it."""
    while True:
        time.sleep(0.02)


def udp(lab: Lab, host: str, bind: str | None = None) -> socket.socket:
    """A socket in a host's namespace, bound to this address where given."""
    family = socket.AF_INET6 if bind and ":" in bind else socket.AF_INET
    with kernel.network_namespace(lab.hosts[host].netns):
        made = socket.socket(family, socket.SOCK_DGRAM)
        if bind:
            made.bind((bind, PORT))
    made.settimeout(WITHIN_S)
    return made
