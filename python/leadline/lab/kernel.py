"""The system calls that Python 3.11 lacks: namespaces, mounts, prctl. A thin layer; every failure is an OSError.

Owns: the constants and the ctypes declarations. Decides nothing, and explains no failure (`limits` does). Manual
pages: unshare(2), setns(2), mount(2), umount2(2), prctl(2), capabilities(7).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CLONE_NEWNS = 0x0002_0000
CLONE_NEWUSER = 0x1000_0000
CLONE_NEWPID = 0x2000_0000
CLONE_NEWNET = 0x4000_0000

MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_NOEXEC = 0x8
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x4_0000
MNT_DETACH = 0x2

CAP_NET_ADMIN = 12
CAP_SYS_ADMIN = 21

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mount.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p)
_libc.umount2.argtypes = (ctypes.c_char_p, ctypes.c_int)
_libc.unshare.argtypes = (ctypes.c_int,)
_libc.setns.argtypes = (ctypes.c_int, ctypes.c_int)
_libc.prctl.argtypes = (ctypes.c_int, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong)


def unshare(flags: int) -> None:
    """Leave the namespaces in `flags`. CLONE_NEWPID applies only to later children, CLONE_NEWNET to this thread."""
    _check(_libc.unshare(flags), "unshare")


def mount(source: str, target: Path, kind: str | None, flags: int, options: str | None = None) -> None:
    """mount(2). `kind` is the type of the file system, or None if the flags need none."""
    result = _libc.mount(
        source.encode(),
        os.fsencode(target),
        kind.encode() if kind else None,
        flags,
        options.encode() if options else None,
    )
    _check(result, f"mount {target}")


def detach(target: Path) -> None:
    """Unmount at once, even if files below are still open."""
    _check(_libc.umount2(os.fsencode(target), MNT_DETACH), f"umount {target}")


def die_with_parent(signal_number: int) -> None:
    """Let the kernel send `signal_number` to this process when the *thread* that is its parent ends
    (PR_SET_PDEATHSIG).
    """
    _check(_libc.prctl(_PR_SET_PDEATHSIG, signal_number, 0, 0, 0), "prctl")


def adopt_orphans(adopt: bool) -> None:
    """Become, or stop being, the parent of every descendant whose own parent ends (PR_SET_CHILD_SUBREAPER)."""
    _check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, int(adopt), 0, 0, 0), "prctl")


@contextmanager
def network_namespace(target: Path) -> Iterator[None]:
    """Move this thread to another network namespace for the block, and always back.

    Sockets opened inside stay in that namespace. /proc/sys/net and /proc/thread-self/net follow the thread.
    """
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        there = os.open(target, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _check(_libc.setns(there, CLONE_NEWNET), f"setns {target}")
        finally:
            os.close(there)
        try:
            yield
        finally:
            _check(_libc.setns(home, CLONE_NEWNET), "setns back")
    finally:
        os.close(home)


def create_network_namespace(target: Path) -> None:
    """Create a network namespace and bind it to `target`, a new file; this thread returns to its own."""
    with network_namespace(Path("/proc/thread-self/ns/net")):
        unshare(CLONE_NEWNET)
        target.touch(mode=0o400, exist_ok=False)
        mount("/proc/thread-self/ns/net", target, None, MS_BIND)


def has_capabilities(*numbers: int) -> bool:
    """Whether this process has all of these capabilities in its effective set (over its own user namespace)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            effective = int(line.split()[1], 16)
            return all(effective >> number & 1 for number in numbers)
    return False


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
