"""Asks an agent of this host whether it can prepare a workload, without running it.

Starts no thread and no event loop: `leadline run` asks before it enters the lab's namespaces.
"""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Iterator

from leadline.agents.binary import agent_binary
from leadline.agents.messages import MalformedLine, Workload, encode, parse_event
from leadline.contract.models import ErrorReport, Failed, Prepare, Prepared
from leadline.errors import AgentLost

WITHIN_S = 30.0
_NAME = "check"
_CHUNK_BYTES = 65_536


def refusal(workload: Workload) -> ErrorReport | None:
    """Why the agent cannot prepare the workload; None if it can.

    Raises:
        MissingBinary: there is no agent here.
        AgentLost: it ended, or did not answer in time.
    """
    pipe = subprocess.PIPE
    with subprocess.Popen([agent_binary()], stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as process:
        try:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(encode(Prepare(trial=_NAME, task=_NAME, workload=workload)))
            process.stdin.flush()
            for line in _lines(process.stdout.fileno()):
                event = parse_event(line)
                if isinstance(event, Prepared | Failed):
                    return event.error if isinstance(event, Failed) else None
        except (BrokenPipeError, MalformedLine) as error:
            raise AgentLost("this host", str(error)) from error
        finally:
            process.kill()
    raise AgentLost("this host", f"it did not answer within {WITHIN_S:g} s")


def _lines(descriptor: int) -> Iterator[bytes]:
    """The lines of a pipe, until its end or the time limit."""
    end_s = time.monotonic() + WITHIN_S
    pending = b""
    while (left_s := end_s - time.monotonic()) > 0 and select.select([descriptor], [], [], left_s)[0]:
        chunk = os.read(descriptor, _CHUNK_BYTES)
        if not chunk:
            return
        *lines, pending = (pending + chunk).split(b"\n")
        yield from lines
