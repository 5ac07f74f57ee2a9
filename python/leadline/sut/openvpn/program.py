"""An OpenVPN program: its version, its options, and the keys that only it can make.

The options are read from the program itself, since builds of one version differ.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from leadline.agents.host_ops import HostOps
from leadline.dataset.private_files import write_private
from leadline.errors import MissingBinary, SutFailed

_AT_ONCE = 8
_VERSION_CHARACTERS = 100


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
        raise MissingBinary(
            binary, hint="install OpenVPN (apt-get install openvpn), or let sut.binary name its program"
        )
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


async def wrapped_keys(
    host: HostOps, program: OpenvpnProgram, folder: Path, clients: Sequence[str]
) -> tuple[Path, dict[str, Path]]:
    """A new tls-crypt-v2 server key, and for each client a key that is wrapped with it.

    Raises:
        SutFailed: the program cannot make them; tls-crypt-v2 exists since 2.5.
    """
    server = folder / "control-server.key"
    await _generate(host, program, "--genkey", "tls-crypt-v2-server", str(server))
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(client: str) -> Path:
        file = folder / f"control-{client}.key"
        async with gate:
            options = ("--tls-crypt-v2", str(server), "--genkey", "tls-crypt-v2-client", str(file))
            await _generate(host, program, *options)
        return file

    files = await asyncio.gather(*(one(client) for client in clients))
    return server, dict(zip(clients, files, strict=True))


async def _generate(host: HostOps, program: OpenvpnProgram, *options: str) -> None:
    """Make a key with OpenVPN, which gives the file mode 600."""
    done = await host.run(program.path, *options)
    if done.status != 0:
        why = " ".join(done.output.split()) or f"exit {done.status}"
        raise SutFailed(f"{program.path} cannot make a tls-crypt-v2 key: {why}")
