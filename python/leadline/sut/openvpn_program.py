"""An OpenVPN program as found: its version, the options that it knows, and the keys that only it can make.

Options are asked of the program itself rather than concluded from its version, since builds differ.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from leadline.errors import MissingBinary, SutFailed
from leadline.sut.private_files import write_private

_ANSWER_WITHIN_S = 10.0
_AT_ONCE = 8
_VERSION_CHARACTERS = 100
_MORE_FOLDERS = "/usr/local/sbin:/usr/sbin:/sbin"
"""Daemons live here, and a user's PATH often leaves it out."""


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


async def find(binary: str) -> OpenvpnProgram:
    """Look the program up and ask it who it is.

    Raises:
        MissingBinary: it is not there or not executable.
        SutFailed: it is there, and is not OpenVPN or does not answer.
    """
    path = shutil.which(binary, path=f"{os.environ.get('PATH', '')}:{_MORE_FOLDERS}")
    if path is None:
        raise MissingBinary(
            binary, hint="install OpenVPN (apt-get install openvpn), or let sut.binary name its program"
        )
    # Both exit with 1 in some versions; what they print is what counts.
    _, version = await _run(path, "--version")
    _, usage = await _run(path, "--help")
    return OpenvpnProgram(path, read_version(path, version), read_options(usage))


async def describe_client(command: str) -> str:
    """A client program of any kind in words: its name, and the first line of its answer to `--version`, if any."""
    name = Path(command).name
    try:
        status, said = await _run(shutil.which(command) or command, "--version")
    except (MissingBinary, SutFailed):
        return f"{name} (it does not tell its version)"
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    # OpenVPN itself exits with 1 in some versions.
    if not lines or (status != 0 and not re.match(r"OpenVPN \d+\.", lines[0])):
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


async def wrapped_keys(program: OpenvpnProgram, folder: Path, clients: Sequence[str]) -> tuple[Path, dict[str, Path]]:
    """A new tls-crypt-v2 server key, and for each client a key that is wrapped with it.

    Raises:
        SutFailed: the program cannot make them; tls-crypt-v2 came with 2.5.
    """
    server = folder / "control-server.key"
    await _generate(program, "--genkey", "tls-crypt-v2-server", str(server))
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(client: str) -> Path:
        file = folder / f"control-{client}.key"
        async with gate:
            options = ("--tls-crypt-v2", str(server), "--genkey", "tls-crypt-v2-client", str(file))
            await _generate(program, *options)
        return file

    files = await asyncio.gather(*(one(client) for client in clients))
    return server, dict(zip(clients, files, strict=True))


async def _generate(program: OpenvpnProgram, *options: str) -> None:
    """The file's mode is OpenVPN's own doing: 600."""
    status, said = await _run(program.path, *options)
    if status != 0:
        raise SutFailed(f"{program.path} cannot make a tls-crypt-v2 key: {' '.join(said.split()) or f'exit {status}'}")


async def _run(path: str, *arguments: str) -> tuple[int, str]:
    try:
        process = await asyncio.create_subprocess_exec(
            path,
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
    except OSError as error:
        raise MissingBinary(path, hint=f"it cannot be started: {error.strerror}") from error
    try:
        async with asyncio.timeout(_ANSWER_WITHIN_S):
            output, _ = await process.communicate()
    except TimeoutError:
        raise SutFailed(f"{path} {arguments[0]} did not end in {_ANSWER_WITHIN_S:g} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return process.returncode, output.decode(errors="replace")
