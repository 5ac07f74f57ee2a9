"""The real SSH server, unpacked below target/ and not installed, on a port of a network of the test's own."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

UNPACKED = Path(__file__).resolve().parents[2] / "target" / "sshd"
PROGRAM = UNPACKED / "usr" / "sbin" / "sshd"
PORT = 2222

needs_sshd = pytest.mark.skipif(
    os.geteuid() != 0 or not PROGRAM.exists(), reason="needs root, and what `make test-tools` unpacks"
)

# The server wants a user of its own and a folder in /run: both exist in its own view of the files alone.
START = """
cp /etc/passwd "$1/passwd" && echo 'sshd:x:65533:65534::/run/sshd:/usr/sbin/nologin' >>"$1/passwd"
mount --bind "$1/passwd" /etc/passwd
mount -t tmpfs -o mode=755 none /run && mkdir /run/sshd
exec "$2" -D -e -f "$1/sshd_config"
"""


@dataclass(frozen=True, slots=True)
class Keys:
    """A user's key, and the one of all servers."""

    folder: Path

    @classmethod
    def make(cls, folder: Path) -> Keys:
        """Make both in the folder."""
        for name in ("key", "host_key"):
            words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(folder / name)]
            subprocess.run(words, check=True)
        return cls(folder)

    def write_client(self) -> Path:
        """The folder of an `ssh` that uses the key and knows the servers: the system's, as a user's own configuration
        would have it."""
        host_key = (self.folder / "host_key.pub").read_text()
        (self.folder / "known").write_text(f"* {host_key}")
        program = self.folder / "bin" / "ssh"
        program.parent.mkdir(exist_ok=True)
        options = f"-F none -i {self.folder}/key -o UserKnownHostsFile={self.folder}/known"
        program.write_text(f'#!/bin/sh\nexec /usr/bin/ssh {options} "$@"\n')
        program.chmod(0o755)
        return program.parent

    def start_server(self, address: str, *inside: str, **settings: str) -> subprocess.Popen[bytes]:
        """Start a server at the address; `inside` is put before its command. Returns when it listens."""
        place = self.folder / f"sshd-{address}"
        place.mkdir()
        lines = {
            "Port": str(PORT),
            "ListenAddress": address,
            "HostKey": f"{self.folder}/host_key",
            "AuthorizedKeysFile": f"{self.folder}/key.pub",
            "UsePAM": "no",
            "StrictModes": "no",
            "PidFile": "none",
            # Of the host: where the agent is copied to.
            "SetEnv": f"XDG_CACHE_HOME={place}/cache LEADLINE_PEER_PATIENCE_MS="
            f"{os.environ.get('LEADLINE_PEER_PATIENCE_MS', '600000')}",
            **settings,
        }
        (place / "sshd_config").write_text("".join(f"{name} {value}\n" for name, value in lines.items()))
        libraries = ":".join(str(path) for path in (UNPACKED / "usr" / "lib").glob("*-linux-gnu"))
        process = subprocess.Popen(
            [*inside, "unshare", "--mount", "sh", "-ec", START, "sh", str(place), str(PROGRAM)],
            stderr=subprocess.PIPE,
            env={**os.environ, "LD_LIBRARY_PATH": libraries},
        )
        assert process.stderr is not None
        said = b""
        while b"Server listening" not in said:
            line = process.stderr.readline()
            assert line, f"sshd ended: {said.decode(errors='replace')}"
            said += line
        return process
