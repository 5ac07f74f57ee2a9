"""An OpenVPN program as found: its version, the options that it knows, and the keys that only it can make.

Options are asked of the program itself rather than concluded from its version, since builds differ.
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
    """A program that answered like OpenVPN."""

    path: str
    version: str
    """Its first line and that of its libraries."""
    options: frozenset[str]
    """What its help lists, without dashes."""

    def knows(self, option: str) -> bool:
        """Whether its help lists the option."""
        return option in self.options


async def find(host: HostOps, binary: str) -> OpenvpnProgram:
    """Look the program up on a host, and ask it for its version and its options.

    Raises:
        MissingBinary: it is not there or not executable.
        SutFailed: it is there, and is not OpenVPN or does not answer.
    """
    path = await host.find_program(binary)
    if path is None:
        raise MissingBinary(
            binary, hint="install OpenVPN (apt-get install openvpn), or let sut.binary name its program"
        )
    # Both exit with 1 in some versions; what they print is what counts.
    version = await host.run(path, "--version")
    usage = await host.run(path, "--help")
    return OpenvpnProgram(path, read_version(path, version.output), read_options(usage.output))


async def describe_client(host: HostOps, command: str) -> str:
    """A client program of any kind in words: its name, and the first line of its answer to `--version`, if any."""
    name = Path(command).name
    try:
        answer = await host.run(command, "--version")
    except (MissingBinary, SutFailed):
        return f"{name} (it does not tell its version)"
    lines = [line.strip() for line in answer.output.splitlines() if line.strip()]
    # OpenVPN itself exits with 1 in some versions.
    if not lines or (answer.status != 0 and not re.match(r"OpenVPN \d+\.", lines[0])):
        return f"{name} (it does not tell its version)"
    shown = "".join(character for character in lines[0] if character.isprintable())
    return f"{name}, {shown[:_VERSION_CHARACTERS]}"


def read_version(path: str, text: str) -> str:
    """The version in words, from what `--version` printed.

    Raises:
        SutFailed: that is not how OpenVPN answers.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines or not re.match(r"OpenVPN \d+\.", lines[0]):
        said = f"it says {lines[0]!r}" if lines else "it says nothing"
        raise SutFailed(f"{path} is not OpenVPN: asked for its version, {said}")
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
        SutFailed: the program cannot make them; tls-crypt-v2 came with 2.5.
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
    """The file's mode is OpenVPN's own doing: 600."""
    done = await host.run(program.path, *options)
    if done.status != 0:
        why = " ".join(done.output.split()) or f"exit {done.status}"
        raise SutFailed(f"{program.path} cannot make a tls-crypt-v2 key: {why}")
