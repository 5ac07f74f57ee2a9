"""What a case needs of the machine that it runs on. A record only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Need:
    """Something that a host must have; `optional` where trials without it are skipped."""

    kind: str
    """program | privilege | device | kernel"""
    name: str
    why: str
    optional: bool = False
