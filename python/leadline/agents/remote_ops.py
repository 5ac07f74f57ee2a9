"""Files, commands and the network of a given host, wherever it is: all of it through the host's agent.

A host that a plan gives is not ours: `close` puts back the settings and routes that were changed, and removes
the files. What the agent runs is POSIX sh, coreutils and `ip`. Its processes have the agent's rights.
"""

from __future__ import annotations

import base64
import ipaddress
import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path

from leadline.agents.agent import Agent
from leadline.agents.host_ops import GRACE_MS, AgentOps, Completed, HostProcess
from leadline.contract.models import Prepared, ProcessWorkload
from leadline.errors import AgentError, LabError, MissingBinary, SutFailed, TaskFailed

_DAEMONS_PATH = 'PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"; export PATH; '
_PIECE_BYTES = 60_000
"""Of a file's content in one variable of the environment, where the kernel allows 128 KiB."""
_LINE_BYTES = 2_000
"""Of encoded text in a line; an agent cuts lines of 4096 bytes."""
_PREPARE_WITHIN_S = 10.0

# The scripts get names and values as arguments or variables, never as part of the script.
_WRITE = 'umask 077; mkdir -p -- "${1%/*}" && rm -f -- "$1" && set -C && : > "$1"'
_APPEND = 'printf %s "$CONTENT" | base64 -d >> "$1"'
_READ = 'test -r "$1" && base64 -w "$2" < "$1"'
_LAST_LINES = 'grep -a "[^[:space:]]" -- "$1" 2>/dev/null | tail -n "$2"'
_FIND = f'{_DAEMONS_PATH}command -v -- "$1"'
_SET = 'printf %s "$2" > "/proc/sys/$1"'
_SHOW = f'{_DAEMONS_PATH}ip "$1" route show exact "$2"'
_ADD = f'{_DAEMONS_PATH}exec ip "$1" route "$2" $3'
"""The third argument is split into words: a route as `ip route show` prints it."""


class RemoteOps(AgentOps):
    """A given host as `leadline.agents.host_ops.HostOps`."""

    def __init__(self, agent: Agent, trial: str, folder: Path) -> None:
        """`trial` is the label of the processes. `folder` is the trial's folder on the host; it need not exist, and is
        removed by `close`."""
        super().__init__(agent, trial)
        self._folder = folder
        self._numbers = itertools.count(1)
        self._restore: dict[str, Callable[[], Awaitable[object]]] = {}
        self._made_folder = False

    async def agent_program(self) -> str:
        """See `HostOps`: the agent is the parent of each command."""
        return (await self._ask("readlink /proc/$PPID/exe")).strip()

    # Files and commands.

    async def write_file(self, path: Path, content: bytes | str, *, mode: int = 0o600) -> Path:
        """See `HostOps`. The content travels in the environment of a process, which only its user and root can read,
        and is in no command line and no log."""
        data = content.encode() if isinstance(content, str) else content
        self._made_folder = True
        await self._ask(_WRITE, str(path))
        for begin in range(0, len(data), _PIECE_BYTES):
            piece = base64.b64encode(data[begin : begin + _PIECE_BYTES]).decode()
            await self._ask(_APPEND, str(path), content=piece)
        await self._ask('chmod "$2" -- "$1"', str(path), f"{mode:o}")
        return path

    async def read_file(self, path: Path) -> str:
        """See `HostOps`."""
        done = await self._shell(_READ, str(path), str(_LINE_BYTES))
        if done.status != 0:
            raise SutFailed(f"{path} on {self.name} cannot be read: {done.output.strip() or 'no such file'}")
        return base64.b64decode(done.output).decode(errors="replace")

    async def last_lines(self, path: Path, count: int) -> list[str]:
        """See `HostOps`."""
        done = await self._shell(_LAST_LINES, str(path), str(count))
        return done.output.splitlines() if done.status == 0 else []

    async def find_program(self, name: str) -> str | None:
        """See `HostOps`; also searches the folders of daemons."""
        done = await self._shell(_FIND, name)
        found = done.output.strip()
        # A name without a path is the shell's own word, such as `cd`.
        return found if done.status == 0 and found.startswith("/") else None

    async def run(self, *argv: str, within_s: float = 10.0) -> Completed:
        """See `HostOps`. A line of the output that is longer than 4096 bytes becomes several."""
        program = await self.find_program(argv[0])
        if program is None:
            raise MissingBinary(argv[0], hint=f"on {self.name}")
        return await self._execute((program, *argv[1:]), {}, within_s)

    async def start(self, process: HostProcess) -> Prepared:
        """See `HostOps`; creates the folder of its log."""
        self._made_folder = True
        await self._ask('umask 077; mkdir -p -- "$1"', str(process.log.parent))
        return await super().start(process)

    # The network.

    async def add_route(self, destination: str, *, via: str | None = None, dev: str | None = None) -> None:
        """See `HostOps`; `close` puts the earlier route back."""
        if via is None and dev is None:
            raise LabError(f"a route to {destination} needs a neighbour or a device")
        family, network = _network(destination)
        earlier = await self._routes(family, network)
        words = [network, *(("via", via) if via else ()), *(("dev", dev) if dev else ())]
        await self._route(family, "replace", " ".join(words))
        self._restore.setdefault(f"route {network}", lambda: self._put_back(family, network, earlier))

    async def remove_route(self, destination: str) -> None:
        """See `HostOps`; `close` puts it back if it was there before."""
        family, network = _network(destination)
        earlier = await self._routes(family, network)
        if earlier:
            await self._route(family, "del", network)
            self._restore.setdefault(f"route {network}", lambda: self._put_back(family, network, earlier))

    async def set_sysctl(self, name: str, value: int | str) -> None:
        """See `HostOps`; `close` puts the earlier value back."""
        if not name.startswith("net/") or ".." in name.split("/"):
            raise LabError(f"{name} is not a setting of a host's network; its path below /proc/sys begins with net/")
        done = await self._shell('cat "/proc/sys/$1"', name)
        if done.status != 0:
            raise LabError(f"{name} on {self.name} cannot be set to {value}: {done.output.strip()}")
        earlier = done.output.strip()
        await self._set(name, str(value))
        self._restore.setdefault(f"sysctl {name}", lambda: self._set(name, earlier))

    async def close(self) -> None:
        """See `HostOps`."""
        failures = []
        for what, restore in reversed(self._restore.items()):
            try:
                await restore()
            except (LabError, SutFailed, AgentError) as error:
                failures.append(f"{what}: {error}")
        self._restore = {}
        if self._made_folder:
            try:
                await self._ask('rm -rf -- "$1"', str(self._folder))
                self._made_folder = False
            except (SutFailed, AgentError) as error:
                failures.append(f"{self._folder}: {error}")
        if failures:
            raise LabError(f"{self.name} was not put back as it was: {'; '.join(failures)}")

    async def _set(self, name: str, value: str) -> None:
        done = await self._shell(_SET, name, value)
        if done.status != 0:
            raise LabError(f"{name} on {self.name} cannot be set to {value}: {done.output.strip()}")

    async def _routes(self, family: str, network: str) -> list[str]:
        """The host's routes to exactly this network, as `ip` prints them."""
        done = await self._shell(_SHOW, family, network)
        if done.status != 0:
            raise LabError(f"the routes of {self.name} cannot be read: {done.output.strip()}")
        return [line.strip() for line in done.output.splitlines() if line.strip()]

    async def _route(self, family: str, verb: str, route: str) -> None:
        done = await self._shell(_ADD, family, verb, route)
        if done.status != 0:
            raise LabError(f"route {route} on {self.name}: {done.output.strip()}")

    async def _put_back(self, family: str, network: str, routes: list[str]) -> None:
        for _ in await self._routes(family, network):
            await self._route(family, "del", network)
        for route in routes:
            await self._route(family, "append", route)

    async def _ask(self, script: str, *arguments: str, content: str | None = None) -> str:
        """The output of a script that has to succeed.

        Raises:
            SutFailed: it did not.
        """
        done = await self._shell(script, *arguments, content=content)
        if done.status != 0:
            raise SutFailed(f"{self.name}: {done.output.strip() or f'sh ended with {done.status}'}")
        return done.output

    async def _shell(self, script: str, *arguments: str, content: str | None = None) -> Completed:
        environment = {"CONTENT": content} if content is not None else {}
        return await self._execute(("sh", "-c", script, "sh", *arguments), environment, _PREPARE_WITHIN_S)

    async def _execute(self, argv: tuple[str, ...], environment: dict[str, str], within_s: float) -> Completed:
        task = f"command-{next(self._numbers)}"
        workload = ProcessWorkload(name=task, argv=list(argv), env=environment, report=[""], grace_ms=GRACE_MS)
        try:
            await self._agent.prepare(self._trial, task, workload, _PREPARE_WITHIN_S)
        except TaskFailed as error:
            raise MissingBinary(argv[0], hint=f"it cannot be started: {error.message}") from error
        try:
            exited = await self._agent.exited(self._trial, task, within_s)
        except TaskFailed:
            await self._agent.stop(self._trial, task)
            raise SutFailed(f"{' '.join(argv[:2])} on {self.name} did not end in {within_s:g} s") from None
        output = "".join(f"{line.line}\n" for line in self._agent.lines(self._trial, task))
        return Completed(exited.code if exited.code is not None else -(exited.signal or 0), output)


def _network(destination: str) -> tuple[str, str]:
    """The option of `ip` for the family, and the network as the kernel writes it."""
    try:
        network = ipaddress.ip_network(destination)
    except ValueError as error:
        raise LabError(f"{destination} is not a network: {error}") from None
    return f"-{network.version}", str(network)
