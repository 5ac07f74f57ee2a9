"""A need of a case on its machine. A record only."""

from __future__ import annotations

from dataclasses import dataclass

TUN = "/dev/net/tun"
STRONGSWAN_INSTALL = (
    "apt-get install charon-systemd strongswan-swanctl libcharon-extra-plugins libcharon-extauth-plugins"
    " libstrongswan-extra-plugins libstrongswan-standard-plugins"
)
"""Debian has some of its plugins in packages of their own."""


@dataclass(frozen=True, slots=True)
class Need:
    """Something that a host must have. With `optional`, trials are skipped if it is missing."""

    kind: str
    """program | privilege | device | kernel"""
    name: str
    why: str
    optional: bool = False
    install: str | None = None
    """The command that installs a program; None if it is not known."""
    where: str | None = None
    """The given hosts that must have it, in words; None: this machine."""
