"""What a command does whose user names no host: it measures this machine's loopback, and says so in its first line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from leadline.errors import InputError

if TYPE_CHECKING:
    from leadline.trial.workloads import Server

IPV4, IPV6 = "127.0.0.1", "::1"


def refuse_without_host(options: Mapping[str, Any], what: str = "HOST") -> None:
    """Check that no option is given that concerns the way to a HOST, as there is none: `options` has the value of each
    by its flag, and something false for one that is not given.

    Raises:
        InputError: one is given.
    """
    for flag, value in options.items():
        if value:
            hint = f"name the {what} that it is for; without one, a server on this machine's loopback is measured"
            raise InputError(f"{flag} without a {what}", hint=hint)


@contextmanager
def own_server(*, ipv6: bool, https: bool = False, is_document: bool, what: str = "HOST") -> Iterator[Server]:
    """Serve this machine's loopback while the block runs, and say so: in the first line of the summary, or on stderr
    where stdout has a document.

    Raises:
        LeadlineError: the server cannot be started.
    """
    from leadline.cli.output import print_note
    from leadline.trial.loopback_server import loopback_server

    with loopback_server(IPV6 if ipv6 else IPV4, https=https) as server:
        line = f"Measuring this machine's loopback: no {what} was given"
        if is_document:
            print_note(line)
        else:
            print(line, flush=True)
        yield server
