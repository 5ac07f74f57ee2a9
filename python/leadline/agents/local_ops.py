"""Files and commands on a host that shares this machine's file system: a lab's host, or this machine itself.

A command runs with the host's prefix, which enters its network namespace. The agent does everything else.
"""

from __future__ import annotations

import asyncio
from collections import deque
from pathlib import Path

from leadline.agents.agent import Agent
from leadline.agents.binary import agent_binary
from leadline.agents.host_ops import AgentOps, Completed
from leadline.agents.programs import program_path
from leadline.dataset.private_files import write_private
from leadline.errors import MissingBinary, SutFailed


class LocalOps(AgentOps):
    """A host that shares the files of this machine."""

    def __init__(self, agent: Agent, trial: str, prefix: tuple[str, ...] = ()) -> None:
        """`prefix` is put before each command, to run it on the host."""
        super().__init__(agent, trial)
        self._prefix = prefix

    async def agent_program(self) -> str:
        """The agent of this machine."""
        return str(agent_binary())

    async def write_file(self, path: Path, content: bytes | str, *, mode: int = 0o600) -> Path:
        """See `HostOps`."""
        return write_private(path, content, mode=mode)

    async def read_file(self, path: Path) -> str:
        """Read by a process on the host: the content of files below /proc depends on the reader."""
        done = await self.run("cat", str(path))
        if done.status != 0:
            raise SutFailed(f"{path} on {self.name} cannot be read: {done.output.strip()}")
        return done.output

    async def last_lines(self, path: Path, count: int) -> list[str]:
        """See `HostOps`."""
        try:
            with path.open(encoding="utf-8", errors="replace") as file:
                return list(deque((line.rstrip("\n") for line in file if line.strip()), maxlen=count))
        except OSError:
            return []

    async def find_program(self, name: str) -> str | None:
        """See `HostOps`; also searches the folders of daemons."""
        return program_path(name)

    async def run(self, *argv: str, within_s: float = 10.0) -> Completed:
        """See `HostOps`."""
        if await self.find_program(argv[0]) is None:
            raise MissingBinary(argv[0])
        try:
            process = await asyncio.create_subprocess_exec(
                *self._prefix,
                *argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
        except OSError as error:
            raise MissingBinary(argv[0], hint=f"it cannot be started: {error.strerror}") from error
        try:
            async with asyncio.timeout(within_s):
                output, _ = await process.communicate()
        except TimeoutError:
            raise SutFailed(f"{' '.join(argv[:2])} did not end in {within_s:g} s") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode is not None
        said = output.decode(errors="replace")
        # The prefix's program reports the failure: nsenter ends with 126 or 127, and prints the cause.
        unstarted = f"failed to execute {argv[0]}: "
        if self._prefix and process.returncode in (126, 127) and unstarted in said:
            raise MissingBinary(argv[0], hint=f"it cannot be started: {said.partition(unstarted)[2].strip()}")
        return Completed(process.returncode, said)
