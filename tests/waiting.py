"""What tests of real processes need on a machine of any speed, beside any others: free ports, and
waiting for what must become true.

`WITHIN_S` guards against hanging alone: nothing that a test says depends on it.
"""

from __future__ import annotations

import atexit
import errno
import itertools
import os
import random
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

WITHIN_S = 180.0
_PAUSE_S = 0.02
# Below the ports that the kernel assigns by itself (ip_local_port_range), above those of known servers.
_FIRST, _LAST = 20_000, 31_999
_turns = itertools.cycle(range(_FIRST, _LAST + 1))
_held: list[socket.socket] = []


@atexit.register
def _give_ports_back() -> None:
    for mark in _held:
        mark.close()


def until(happened: Callable[[], Any], otherwise: Callable[[], object] = lambda: "it never happened") -> Any:
    """What `happened` gives, as soon as it gives something; `otherwise` tells what there is instead."""
    deadline = time.monotonic() + WITHIN_S
    while not (found := happened()):
        assert time.monotonic() < deadline, otherwise()
        time.sleep(_PAUSE_S)
    return found


@contextmanager
def on_one_cpu() -> Iterator[None]:
    """What is started within the block runs on one CPU. A sender that changes its CPU can overtake its own datagrams,
    which wait in a queue of the CPU that it had before.
    """
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def free_port() -> int:
    """A port that no process uses, on any address, by TCP or UDP, and that no other test gets while this process lives.

    The kernel gives none of these away, neither to a server nor to a client: what is free here stays so until it is
    used. Among tests of several processes a name that only one of them can have (unix(7), abstract) stands for it.
    """
    if not _held:  # others begin elsewhere
        next(itertools.islice(_turns, random.SystemRandom().randrange(_LAST - _FIRST), None))
    return next(port for port in itertools.islice(_turns, _LAST - _FIRST) if _is_ours(port) and _is_free(port))


def free_ports(count: int) -> int:
    """The first of several consecutive ports, each as `free_port`."""
    last = first = free_port()
    while last - first < count - 1:
        port = free_port()
        first, last = (first, port) if port == last + 1 else (port, port)
    return first


def _is_ours(port: int) -> bool:
    mark = socket.socket(socket.AF_UNIX)
    try:
        mark.bind(f"\0leadline-test-port-{port}")
    except OSError:
        mark.close()
        return False
    _held.append(mark)
    return True


def _is_free(port: int) -> bool:
    """Whether no process uses it, on any address and protocol; a family that this host lacks has no users."""
    families = [(socket.AF_INET, "0.0.0.0"), *([(socket.AF_INET6, "::")] if socket.has_dualstack_ipv6() else [])]
    for (family, address), kind in itertools.product(families, (socket.SOCK_STREAM, socket.SOCK_DGRAM)):
        with socket.socket(family, kind) as probe:
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            try:
                probe.bind((address, port))
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    return False
    return True
