"""The text that most tests of plans start from: one system, two tests, no axes."""

from __future__ import annotations

SMALL = """\
name: small
sut: {kind: openvpn}
tests:
  - {name: load, kind: udp, packet: 100, duration: 1s}
  - {name: bulk, kind: tcp, duration: 1s}
"""

GIVEN = SMALL.replace("kind: openvpn", "kind: given, label: pfSense 2.7 on an APU2")
"""The same for hosts that exist."""
LOCAL_HOSTS = "hosts: {gateway: local, server: local, clients: [local]}\n"
