"""A need of a case on its machine. A record only."""

from __future__ import annotations

from dataclasses import dataclass

TUN = "/dev/net/tun"


@dataclass(frozen=True, slots=True)
class Need:
    """Something that a host must have. With `optional`, trials are skipped if it is missing."""

    kind: str
    """program | privilege | device | kernel"""
    name: str
    why: str
    optional: bool = False
