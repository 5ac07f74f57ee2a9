"""An OpenVPN program: its version, its options, and keys in its formats.

The options are read from the program itself, since builds of one version differ.
"""

from __future__ import annotations

import base64
import hmac
import re
import secrets
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from leadline.agents.host_ops import HostOps
from leadline.dataset.private_files import write_private
from leadline.errors import MissingBinary, SutFailed

_VERSION_CHARACTERS = 100
_SERVER_KEY_BYTES = 128
"""Two keys in 64 bytes each: that of AES-256 and that of HMAC-SHA256, which begin them."""
_CLIENT_KEY_BYTES = 256
_TAG_BYTES = 32
_TIMESTAMP = b"\x01"
"""The type of the metadata that OpenVPN itself writes by default: the time at which a key was made."""


@dataclass(frozen=True, slots=True)
class OpenvpnProgram:
    """A program that identified itself as OpenVPN."""

    path: str
    version: str
    """Its first version line, and the line of its libraries."""
    options: frozenset[str]
    """The options in its help, without dashes."""

    def knows(self, option: str) -> bool:
        """Whether its help lists the option."""
        return option in self.options


async def find(host: HostOps, binary: str) -> OpenvpnProgram:
    """Find the program on a host, and read its version and its options.

    Raises:
        MissingBinary: it does not exist or is not executable.
        SutFailed: it exists, but is not OpenVPN or does not answer.
    """
    path = await host.find_program(binary)
    if path is None:
        raise host.missing(binary, "install OpenVPN (apt-get install openvpn), or let sut.binary name its program")
    # Both exit with 1 in some versions, so only their output counts.
    version = await host.run(path, "--version")
    usage = await host.run(path, "--help")
    return OpenvpnProgram(path, read_version(path, version.output), read_options(usage.output))


async def describe_client(host: HostOps, command: str) -> str:
    """A client program of any kind as text: its name, and the first line of its answer to `--version`, if any."""
    name = Path(command).name
    try:
        answer = await host.run(command, "--version")
    except (MissingBinary, SutFailed):
        return f"{name} (unknown version)"
    lines = [line.strip() for line in answer.output.splitlines() if line.strip()]
    # OpenVPN itself exits with 1 in some versions.
    if not lines or (answer.status != 0 and not re.match(r"OpenVPN \d+\.", lines[0])):
        return f"{name} (unknown version)"
    shown = "".join(character for character in lines[0] if character.isprintable())
    return f"{name}, {shown[:_VERSION_CHARACTERS]}"


def read_version(path: str, text: str) -> str:
    """The version as text, from the output of `--version`.

    Raises:
        SutFailed: it is not the output of OpenVPN.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines or not re.match(r"OpenVPN \d+\.", lines[0]):
        said = f"it prints {lines[0]!r}" if lines else "it prints nothing"
        raise SutFailed(f"{path} is not OpenVPN: with --version, {said}")
    libraries = [line for line in lines[1:] if line.startswith("library versions:")]
    return "; ".join([lines[0], *libraries])


def read_options(usage: str) -> frozenset[str]:
    """The options that `--help` lists."""
    return frozenset(re.findall(r"^--([a-z0-9-]+)", usage, flags=re.MULTILINE))


def static_key(folder: Path) -> Path:
    """A new 2048-bit key for tls-auth or tls-crypt, in OpenVPN's own format."""
    digits = secrets.token_bytes(256).hex()
    lines = (digits[start : start + 32] for start in range(0, len(digits), 32))
    text = "\n".join(("-----BEGIN OpenVPN Static key V1-----", *lines, "-----END OpenVPN Static key V1-----", ""))
    return write_private(folder / "control.key", text)


def wrapped_keys(folder: Path, clients: Sequence[str]) -> tuple[Path, dict[str, Path]]:
    """A new tls-crypt-v2 server key, and for each client a key that is wrapped with it (doc/tls-crypt-v2.txt of
    OpenVPN)."""
    server = secrets.token_bytes(_SERVER_KEY_BYTES)
    file = write_private(folder / "control-server.key", _pem("server", server))
    return file, {
        client: write_private(folder / f"control-{client}.key", _pem("client", _wrapped_key(server)))
        for client in clients
    }


def _wrapped_key(server: bytes) -> bytes:
    """A client's key Kc, and the same as only the server can read it: T, then what AES-256-CTR makes of Kc and of the
    metadata, then the length of all of this."""
    client = secrets.token_bytes(_CLIENT_KEY_BYTES)
    plain = client + _TIMESTAMP + struct.pack(">Q", int(time.time()))
    length = struct.pack(">H", _TAG_BYTES + len(plain) + 2)
    tag = hmac.digest(server[64:96], length + plain, "sha256")
    encryptor = Cipher(algorithms.AES(server[:32]), modes.CTR(tag[:16])).encryptor()
    return client + tag + encryptor.update(plain) + encryptor.finalize() + length


def _pem(end: str, key: bytes) -> str:
    text = base64.b64encode(key).decode("ascii")
    lines = (text[start : start + 64] for start in range(0, len(text), 64))
    name = f"OpenVPN tls-crypt-v2 {end} key"
    return "\n".join((f"-----BEGIN {name}-----", *lines, f"-----END {name}-----", ""))
