"""A guest as a host: its kernel has what the one here may lack, and its root changes nothing of this machine's.

In `make test-all`, as the kernel is downloaded.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from leadline.errors import LeadlineError
from leadline.lab import guest
from waiting import WITHIN_S

pytestmark = [
    pytest.mark.lab,
    pytest.mark.full_matrix,
    pytest.mark.takes(30),
    pytest.mark.skipif(os.geteuid() != 0, reason="the guest reads this machine's whole root"),
]
CHANGED = Path("/etc/leadline-guest-changed")
INSIDE = f"""
ip link add wg0 type wireguard && echo wireguard
ip xfrm state add src 10.0.0.1 dst 10.0.0.2 proto esp spi 0x1 mode tunnel \\
    aead 'rfc4106(gcm(aes))' 0x000102030405060708090a0b0c0d0e0f10111213 128 && echo esp
exec 3<>/dev/net/tun && echo tun
echo 1 > {CHANGED} && echo changed
while read line; do echo "answer to $line"; done
"""


def test_guest_has_modules_a_root_of_its_own_and_ends_with_its_input() -> None:
    try:
        guest.find_image()
    except LeadlineError as error:
        pytest.skip(f"no guest: {error}")
    argv = [*guest.launch_prefix(guest.Guest(memory_mib=512)), "sh", "-c", INSIDE]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        lines = iter(running.stdout.readline, "")
        assert [next(lines) for _ in range(4)] == ["wireguard\n", "esp\n", "tun\n", "changed\n"]
        running.stdin.write("ping\n")
        running.stdin.flush()
        assert next(lines) == "answer to ping\n"
        running.stdin.close()
        assert list(lines) == []
        assert running.wait(WITHIN_S) == 0
    assert not CHANGED.exists()
