"""Puts the agent's program on a host: once, into a cache there, under the hash of its content.

The host needs POSIX sh, coreutils and a folder of the user's from which programs may run. A copy is verified before it
is used, and before each further use; another version has another path, so what runs is what this controller has.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import platform
import shlex
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from leadline.agents.binary import AGENT_NAME, LOG_VARIABLE, agent_binary, is_executable
from leadline.agents.launch import Launch, named
from leadline.agents.launchers.model import Launcher, Process
from leadline.agents.launchers.processes import STREAM_BYTES
from leadline.errors import AgentLost

ARCHITECTURES = ("x86_64", "aarch64")
"""As `uname -m` names them."""
MIN_RATE = 50_000
"""Bytes per second: a copy that takes longer at this rate, and a minute more, has failed."""
_ANSWER_WITHIN_S = 60.0
_SAID_BYTES = 500

# Folders that may hold the cache, the best one first. Those below /var/tmp and /tmp must be the user's own: anyone can
# make them. /dev/shm is for hosts whose disks are full.
_FOLDERS = (
    'user=$(id -u); for folder in "$XDG_CACHE_HOME" "${HOME:+$HOME/.cache}" '
    '"/var/tmp/leadline-$user" "/tmp/leadline-$user" "/dev/shm/leadline-$user"; do [ -n "$folder" ] || continue; '
    'case $folder in */"leadline-$user") %s[ -O "$folder" ] && [ ! -L "$folder" ] || continue; '
    # Its owner alone can write to it: drwx------.
    'case $(ls -ld "$folder") in d????-??-*) ;; *) continue ;; esac ;; esac; '
)
_MAKE = 'mkdir -m 700 "$folder" 2>/dev/null; '
_HASH = 'sum() { sha256sum <"$1" | cut -d" " -f1; }; '
_FIND = (
    # A shell that greets may leave its last line open.
    "echo; command -v sha256sum >/dev/null || { echo without sha256sum; exit; }; "
    'machine=$(uname -m); [ "$machine" = arm64 ] && machine=aarch64; hash=; '
    'for known; do [ "${known%%=*}" = "$machine" ] && hash=${known#*=}; done; '
    '[ -n "$hash" ] || { echo "unknown $machine"; exit; }; '
    f'{_HASH}{_FOLDERS % ""}file="$folder/leadline/agents/$hash/{AGENT_NAME}"; '
    '[ -O "$file" ] && [ -x "$file" ] && [ "$(sum "$file")" = "$hash" ] && { echo "has $file"; exit; }; done; '
    'echo "lacks $machine"'
)
"""Arguments: ARCHITECTURE=HASH for each agent there is. Prints what the host has."""
_COPY = (
    f"echo; umask 077; hash=$1; skip=$2; {_HASH}{_FOLDERS % _MAKE}"
    'folder="$folder/leadline/agents/$hash"; mkdir -p "$folder" 2>/dev/null && [ -O "$folder" ] || continue; '
    # What earlier copies left whose processes were killed.
    'find "$folder" -name "new-*" -mtime +0 -exec rm -f {} + 2>/dev/null; '
    'new=$(mktemp "$folder/new-XXXXXX") || continue; trap \'rm -f "$new"\' EXIT; trap "exit 1" HUP INT TERM; '
    # A filesystem that runs no programs.
    '{ printf "#!/bin/sh\\n" >"$new" && chmod 700 "$new" && "$new"; } 2>/dev/null || { rm -f "$new"; continue; }; '
    '[ "$skip" -gt 0 ] && { skip=$((skip - 1)); rm -f "$new"; continue; }; '
    'cat >"$new" || { echo "failed: $folder"; exit; }; '
    'found=$(sum "$new"); '
    '[ "$found" = "$hash" ] || { echo "failed: $folder: what arrived has the hash $found"; exit; }; '
    f'mv -f "$new" "$folder/{AGENT_NAME}" && echo "has $folder/{AGENT_NAME}"; exit; done; echo "nowhere"'
)
"""Arguments: the hash, and how many of the usable folders to skip. Reads the program from stdin."""


@cache
def _hash_of(path: Path, _changed_ns: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def agents_by_architecture() -> dict[str, Path]:
    """The agents that are here, by the architecture that they run on. The one of this machine is `agent_binary`; others
    are beside it or beside the interpreter, as `leadline-agent-aarch64`, where `make agents` puts them.

    Raises:
        MissingBinary: there is none for this machine.
    """
    own = agent_binary()
    found = {platform.machine(): own}
    for architecture in ARCHITECTURES:
        beside = (folder / f"{AGENT_NAME}-{architecture}" for folder in (own.parent, Path(sys.executable).parent))
        other = next((path for path in beside if is_executable(path)), None)
        if other is not None:
            found.setdefault(architecture, other)
    return found


class Deployment:
    """The agents of a run on its hosts: each host gets its copy once, however many agents it runs."""

    def __init__(self, agents: Mapping[str, Path] | None = None) -> None:
        """`agents` by architecture; by default those that are here."""
        self._agents = agents
        self._locks: dict[Launcher, asyncio.Lock] = {}
        self._verified: dict[Launcher, str] = {}

    async def launch(self, role: str, launcher: Launcher, place: str | None = None) -> Launch:
        """The launch of an agent on a host that has it, or has it now; `place` is what people call the host.

        Raises:
            AgentLost: the host is out of reach, there is no agent for its architecture, or it has no room for one.
        """
        name = named(role, place)
        agents = dict(self._agents or agents_by_architecture())
        hashes = {machine: _hash_of(path, path.stat().st_mtime_ns) for machine, path in agents.items()}
        # Agents of one host start side by side, and later ones find it verified.
        async with self._locks.setdefault(launcher, asyncio.Lock()):
            path = self._verified.get(launcher)
            if path is None:
                path = self._verified[launcher] = await self._verify(name, launcher, agents, hashes)
        filter_ = os.environ.get(LOG_VARIABLE)
        # Variables do not pass to other hosts.
        return Launch((path, *(("--log", filter_) if filter_ else ())), launcher=launcher, place=place)

    async def _verify(
        self, name: str, launcher: Launcher, agents: Mapping[str, Path], hashes: Mapping[str, str]
    ) -> str:
        """The path of the agent on a host, which has it or gets it."""
        word, _, rest = (await _find(name, launcher, hashes)).partition(" ")
        if word == "has":
            return rest
        if word == "lacks":
            return await _copy(name, launcher, agents[rest], hashes[rest])
        if word == "unknown":
            there = ", ".join(agents)
            raise AgentLost(
                name, f"it is {rest}, and here is no agent for that but for {there}: build one with `make agents`"
            )
        raise AgentLost(name, f"it has no sha256sum, by which a copy of the agent is verified ({word} {rest})")


async def _find(name: str, launcher: Launcher, hashes: Mapping[str, str]) -> str:
    known = [f"{machine}={hash_}" for machine, hash_ in hashes.items()]
    return await _ask(name, launcher, ("sh", "-c", _FIND, "sh", *known), None, _ANSWER_WITHIN_S)


async def _copy(name: str, launcher: Launcher, program: Path, hash_: str) -> str:
    """Copy the program into the first folder that takes it; returns its path there."""
    content = await asyncio.to_thread(program.read_bytes)
    failures: list[str] = []
    while True:
        argv = ("sh", "-c", _COPY, "sh", hash_, str(len(failures)))
        said = await _ask(name, launcher, argv, content, _ANSWER_WITHIN_S + len(content) / MIN_RATE)
        if said.startswith("has "):
            return said.removeprefix("has ")
        if said == "nowhere":
            why = "; ".join(failures) or "it has no folder of its user's from which programs may run"
            raise AgentLost(name, f"the agent cannot be copied to it: {why}")
        failures.append(said.removeprefix("failed: "))


async def _ask(name: str, launcher: Launcher, argv: Sequence[str], content: bytes | None, within_s: float) -> str:
    """The last line that a script prints, which gets the content on its stdin; what it prints on stderr follows a
    failure.

    Raises:
        AgentLost: it did not run to its end, or printed nothing.
    """
    try:
        process = await launcher.run(argv)
    except OSError as error:
        program = error.filename or shlex.join(argv[:1])
        raise AgentLost(name, f"{program} cannot be started: {error.strerror}") from error
    try:
        async with asyncio.timeout(within_s):
            said, complaint, _ = await asyncio.gather(
                _read(process, of_stderr=False), _read(process, of_stderr=True), _feed(process, content)
            )
            status = await process.wait()
    except TimeoutError:
        raise AgentLost(name, f"it did not answer within {within_s:g} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    lines = said.decode(errors="replace").splitlines()
    words = [line.strip() for line in complaint.decode(errors="replace").splitlines() if line.strip()]
    if status != 0 or not lines:
        reason = launcher.describe_end(status, words)
        shown = [word[:_SAID_BYTES] for word in words[-3:] if word not in reason]
        raise AgentLost(name, f"{reason}; it said: {' | '.join(shown)}" if shown else reason)
    last = lines[-1]
    return f"{last}: {words[-1][:_SAID_BYTES]}" if last.startswith("failed") and words else last


async def _read(process: Process, *, of_stderr: bool) -> bytes:
    """All that the process writes, of which the end is kept."""
    stream = process.stderr if of_stderr else process.stdout
    assert stream is not None
    kept = b""
    while chunk := await stream.read(STREAM_BYTES):
        kept = (kept + chunk)[-STREAM_BYTES:]
    return kept


async def _feed(process: Process, content: bytes | None) -> None:
    assert process.stdin is not None
    view = memoryview(content or b"")
    try:
        for begin in range(0, len(view), STREAM_BYTES):
            process.stdin.write(bytes(view[begin : begin + STREAM_BYTES]))
            await process.stdin.drain()
    except (BrokenPipeError, ConnectionResetError):
        pass  # its status and its stderr say why
    process.stdin.close()
