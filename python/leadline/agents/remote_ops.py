"""Files, commands and the network of a given host, wherever it is: all of it through the host's agent.

A host that a plan gives is not ours: `close` puts back the settings and routes that were changed, and removes
the files. Before each change the agent learns how to undo it, and does that when it ends without a `close`. What it
runs is POSIX sh, coreutils and `ip`. Its processes have the agent's rights.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import itertools
import time
from dataclasses import dataclass
from pathlib import Path

from leadline.agents.agent import Agent
from leadline.agents.host_ops import GRACE_MS, AgentOps, Completed, HostProcess
from leadline.contract.models import Prepared, ProcessWorkload, UndoWorkload
from leadline.errors import AgentLost, LabError, LeadlineError, MissingBinary, SutFailed, TaskFailed

_DAEMONS_PATH = 'PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"; export PATH; '
_PIECE_BYTES = 60_000
"""Of a file's content in one variable of the environment, where the kernel allows 128 KiB."""
_LINE_BYTES = 2_000
"""Of encoded text in a line; an agent cuts lines of 4096 bytes."""
_PREPARE_WITHIN_S = 10.0
_UNDO_WITHIN_S = 10.0
OTHERS_WITHIN_S = 45.0
"""An agent ends after 20 s of silence, and undoes its changes then."""
_LOOK_AGAIN_S = 0.25

# The scripts get names and values as arguments or variables, never as part of the script.
_WRITE = 'umask 077; mkdir -p -- "${1%/*}" && rm -f -- "$1" && set -C && : > "$1"'
_APPEND = 'printf %s "$CONTENT" | base64 -d >> "$1"'
_READ = 'test -r "$1" && base64 -w "$2" < "$1"'
_LAST_LINES = 'grep -a "[^[:space:]]" -- "$1" 2>/dev/null | tail -n "$2"'
_FIND = f'{_DAEMONS_PATH}command -v -- "$1"'
_WHEREABOUTS = 'readlink /proc/self/ns/net; printf "%s\\n" "${SSH_CONNECTION%% *}"'
_OTHERS = """
own=$(readlink /proc/self/ns/net)
for file in $(grep -lzx undo /proc/[0-9]*/cmdline 2>/dev/null); do
    folder=${file%/cmdline}
    [ "$(readlink "$folder/ns/net" 2>/dev/null)" = "$own" ] || continue
    case $(readlink "$folder/exe") in */leadline-agent*) echo "${folder#/proc/}" ;; esac
done
"""
_REMOVE_FOLDER = 'rm -rf -- "$1"'
_SHOW_SETTINGS = 'cd /proc/sys && for file in $1; do printf "%s %s\\n" "$file" "$(cat "$file")"; done'
"""The argument is split into words, which may have wildcards."""
_SET = """
failed=0
while [ $# -gt 1 ]; do
    # An interface may be gone.
    if [ -e "/proc/sys/$1" ]; then printf %s "$2" > "/proc/sys/$1" || failed=1; fi
    shift 2
done
exit $failed
"""
_SHOW = f'{_DAEMONS_PATH}exec ip -o "$1" route show exact "$2"'
_ADD = f'{_DAEMONS_PATH}exec ip "$1" route "$2" $3'
"""The third argument is split into words: a route as `ip route show` prints it."""
_PUT_BACK = f"""
{_DAEMONS_PATH}family=$1 network=$2 failed=0
shift 2
while ip "$family" route del "$network" 2>/dev/null; do :; done
for route; do ip "$family" route append $route || failed=1; done
exit $failed
"""
"""Makes the routes to a network those of the further arguments."""

_STATES = frozenset({"linkdown", "dead", "offload", "offload_failed", "trap", "rt_offload", "rt_trap"})
"""Words of a route that `ip route show` prints and `ip route append` does not take."""
_CHANGED_BY = {
    "net/ipv4/ip_forward": "net/ipv4/conf/*/forwarding net/ipv4/conf/all/accept_redirects",
    "net/ipv6/conf/all/forwarding": "net/ipv6/conf/*/forwarding",
}
"""Settings that the kernel changes with another one (net/ipv4/devinet.c, net/ipv6/addrconf.c)."""
_IPROUTE_HINT = "apt-get install iproute2"
_NOT_FOUND = 127
"""Exit status of a shell that does not find a program."""


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """Where an agent runs, and from where it is commanded."""

    namespace: str
    """Its network namespace, as in `net:[4026531840]`; the same text may mean another one on another machine."""
    reached_from: str | None
    """The address that its SSH connection comes from; None without SSH."""


class RemoteOps(AgentOps):
    """A given host as `leadline.agents.host_ops.HostOps`."""

    def __init__(self, agent: Agent, trial: str, folder: Path) -> None:
        """`trial` is the label of the processes. `folder` is the trial's folder on the host; it need not exist, and is
        removed by `close`."""
        super().__init__(agent, trial)
        self._folder = folder
        self._numbers = itertools.count(1)
        self._undo: dict[str, tuple[str, tuple[str, ...]]] = {}
        self._whereabouts: Whereabouts | None = None

    def missing(self, program: str, hint: str | None = None) -> MissingBinary:
        """See `HostOps`."""
        return MissingBinary(program, host=self.name, hint=hint)

    async def whereabouts(self) -> Whereabouts:
        """Where the host's agent runs.

        Raises:
            SutFailed: the host cannot tell.
        """
        if self._whereabouts is None:
            lines = (await self._ask(_WHEREABOUTS)).splitlines()
            self._whereabouts = Whereabouts(lines[0].strip(), "".join(lines[1:]).strip() or None)
        return self._whereabouts

    async def await_other_runs(self) -> None:
        """Wait until no other agent has changes of this host to undo: one that lost its controller takes its time.

        Raises:
            LabError: one has in `OTHERS_WITHIN_S`.
        """
        deadline = time.monotonic() + OTHERS_WITHIN_S
        while others := (await self._shell(_OTHERS)).output.split():
            if time.monotonic() > deadline:
                raise LabError(
                    f"{self.name} is changed by another run: its process {others[0]} is to undo that",
                    hint="wait for that run's end",
                )
            await asyncio.sleep(_LOOK_AGAIN_S)

    async def undo_at_end(self, what: str, *argv: str) -> None:
        """See `HostOps`; the agent knows the command before the change is made, and until `close` has run it."""
        if what in self._undo:
            return
        task = f"undo-{next(self._numbers)}"
        workload = UndoWorkload(argv=list(argv), within_ms=round(_UNDO_WITHIN_S * 1000))
        try:
            await self._agent.prepare(self._trial, task, workload, _PREPARE_WITHIN_S)
        except TaskFailed as error:
            raise LabError(f"{self.name} is left as it is: {error.message}") from error
        self._undo[what] = (task, argv)

    async def close(self) -> None:
        """See `HostOps`."""
        failures = []
        for what, (task, argv) in reversed(list(self._undo.items())):
            if self._agent.lost is not None:
                return
            try:
                done = await self._execute(argv, {}, _UNDO_WITHIN_S)
                if done.status != 0:
                    failures.append(f"{what}: {done.output.strip() or f'it ended with {done.status}'}")
                    continue
                await self._agent.stop(self._trial, task)
            except AgentLost:
                return
            except LeadlineError as error:
                failures.append(f"{what}: {error}")
                continue
            del self._undo[what]
        if failures:
            raise LabError(f"{self.name} was not put back as it was: {'; '.join(failures)}")

    async def agent_program(self) -> str:
        """See `HostOps`: the agent is the parent of each command."""
        return (await self._ask("readlink /proc/$PPID/exe")).strip()

    # Files and commands.

    async def write_file(self, path: Path, content: bytes | str, *, mode: int = 0o600) -> Path:
        """See `HostOps`. The content travels in the environment of a process, which only its user and root can read,
        and is in no command line and no log."""
        data = content.encode() if isinstance(content, str) else content
        await self._own_folder()
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
            raise self.missing(argv[0])
        return await self._execute((program, *argv[1:]), {}, within_s)

    async def start(self, process: HostProcess) -> Prepared:
        """See `HostOps`; creates the folder of its log."""
        await self._own_folder()
        await self._ask('umask 077; mkdir -p -- "$1"', str(process.log.parent))
        return await super().start(process)

    # The network.

    async def add_route(self, destination: str, *, via: str | None = None, dev: str | None = None) -> None:
        """See `HostOps`; `close` puts the earlier routes back. A route that the host has already stays as it is.

        Raises:
            LabError: the network is the host's own, or the host is commanded from there.
        """
        if via is None and dev is None:
            raise LabError(f"a route to {destination} needs a neighbour or a device")
        family, network = _network(destination)
        earlier = await self._routes(family, network)
        words = [network, *(("via", via) if via else ()), *(("dev", dev) if dev else ())]
        if len(earlier) == 1 and via and words == earlier[0].split()[: len(words)]:
            return
        await self._promise_routes(family, network, earlier)
        await self._route(family, "replace", " ".join(words))

    async def remove_route(self, destination: str) -> None:
        """See `HostOps`; `close` puts it back if it was there before."""
        family, network = _network(destination)
        earlier = await self._routes(family, network)
        if earlier:
            await self._promise_routes(family, network, earlier)
        for _ in earlier:
            await self._route(family, "del", network)

    async def set_sysctl(self, name: str, value: int | str) -> None:
        """See `HostOps`; `close` puts the earlier value back, and those of settings that the kernel changes with it."""
        if not name.startswith("net/") or ".." in name.split("/"):
            raise LabError(f"{name} is not a setting of a host's network; its path below /proc/sys begins with net/")
        done = await self._shell('cat "/proc/sys/$1"', name)
        if done.status != 0:
            raise LabError(f"{name} on {self.name} cannot be set to {value}: {done.output.strip()}")
        earlier = done.output.strip()
        if earlier == str(value):
            return
        shown = await self._ask(_SHOW_SETTINGS, _CHANGED_BY[name]) if name in _CHANGED_BY else ""
        others = [word for line in shown.splitlines() for word in line.split(" ", 1)]
        await self.undo_at_end(f"sysctl {name}", "sh", "-c", _SET, "sh", name, earlier, *others)
        done = await self._shell(_SET, name, str(value))
        if done.status != 0:
            raise LabError(f"{name} on {self.name} cannot be set to {value}: {done.output.strip()}")

    async def _own_folder(self) -> None:
        """Promise to remove the trial's folder, before anything is in it."""
        await self.undo_at_end(str(self._folder), "sh", "-c", _REMOVE_FOLDER, "sh", str(self._folder))

    async def _promise_routes(self, family: str, network: str, earlier: list[str]) -> None:
        """Promise to put the routes to a network back.

        Raises:
            LabError: the host needs them itself.
        """
        if any(f" proto {origin} " in f"{route} " for route in earlier for origin in ("kernel", "ra")):
            raise LabError(
                f"{self.name} is in {network} itself, so its packets to it would go past the gateway",
                hint="put the clients, the gateway and the server into networks of their own",
            )
        peer = (await self.whereabouts()).reached_from
        if peer is not None and ipaddress.ip_address(peer.partition("%")[0]) in ipaddress.ip_network(network):
            raise LabError(
                f"{self.name} is commanded from {peer}, and its route to {network} would have to change",
                hint="start leadline where SSH reaches it from another network",
            )
        await self.undo_at_end(f"route {network}", "sh", "-c", _PUT_BACK, "sh", family, network, *earlier)

    async def _routes(self, family: str, network: str) -> list[str]:
        """The host's routes to exactly this network, as `ip route append` takes them."""
        done = await self._shell(_SHOW, family, network)
        if done.status == _NOT_FOUND:
            raise self.missing("ip", _IPROUTE_HINT)
        if done.status != 0:
            raise LabError(f"the routes of {self.name} cannot be read: {done.output.strip()}")
        return [_as_argument(line) for line in done.output.splitlines() if line.strip()]

    async def _route(self, family: str, verb: str, route: str) -> None:
        done = await self._shell(_ADD, family, verb, route)
        if done.status != 0:
            raise LabError(f"route {route} on {self.name}: {done.output.strip()}")

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
            raise self.missing(argv[0], f"it cannot be started: {error.message}") from error
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


def _as_argument(line: str) -> str:
    """A line of `ip -o route show` without words that only describe a state."""
    words = line.replace("\\", " ").split()
    kept: list[str] = []
    for before, word in zip(["", *words], words, strict=False):
        # The rest of a lifetime, which `ip` prints in a form that it does not read.
        if word not in _STATES and word != "expires" and before != "expires":
            kept.append(word)
    return " ".join(kept)
