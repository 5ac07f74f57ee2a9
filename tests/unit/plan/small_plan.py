"""The text that most tests of plans start from: one system, two tests, no axes."""

from __future__ import annotations

SMALL = """\
name: small
sut: {kind: openvpn}
tests:
  - {name: load, kind: udp, packet: 100, duration: 1s}
  - {name: bulk, kind: tcp, duration: 1s}
"""
