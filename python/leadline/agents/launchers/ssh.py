"""Commands on a host over SSH: by the system's own client, with the user's configuration, keys and known hosts.

All commands of a host share one connection, which the first one opens (ssh_config(5), ControlMaster), so that a fleet
is authenticated once per host. It ends with the run; of a run that was killed it ends by itself.
"""

from __future__ import annotations

import asyncio
import re
import shlex
import shutil
import signal
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from leadline.agents.launchers.processes import start_process
from leadline.errors import MissingBinary

_SSH_FAILED = 255
"""ssh(1): "ssh exits with the exit status of the remote command or with 255 if an error occurred". It does so too, and
says nothing, when a signal ended the remote command."""
_SHELL_SIGNAL = 128
"""A shell between sshd and the agent reports a signal as a status: this number and the signal's."""
_SSH_WORDS = re.compile(
    r"^(?:ssh: |ssh_|kex_|client_loop: |packet_write_|banner exchange|Bad |Connection (?:closed|reset|timed|to) "
    r"|Disconnected |Host key |Load key |No route to host|Permission denied|Read from remote |Received disconnect "
    r"|Timeout, server |Write failed|mux_client_)|: Permission denied \("
)
"""How a line begins that is ssh's own; the others are the agent's and those of the shell on its host."""
_PERSIST_S = 300
"""How long a connection outlives its last command: from one trial to the next, and that of a run that was killed."""
_CLOSE_WITHIN_S = 5.0


@dataclass(frozen=True, slots=True)
class SshHost:
    """Commands on one host."""

    destination: str
    """[user@]host, as ssh(1) takes it."""
    options: tuple[str, ...]
    is_remote: bool = True

    async def run(self, argv: Sequence[str]) -> asyncio.subprocess.Process:
        """See `Launcher`. On the host the words become a line for the user's shell."""
        return await start_process(("ssh", *self.options, "--", self.destination, shlex.join(argv)))

    def describe_end(self, status: int, words: Iterable[str]) -> str:
        """See `Launcher`."""
        return describe_ssh_end(status, words)


class SshConnections:
    """The connections of a run."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._hosts: list[SshHost] = []

    def reach(self, host: str, user: str | None, port: int | None, config: str | None = None) -> SshHost:
        """The host, as the file `config` of ssh_config(5) or the user's own has it; nothing is connected yet.

        Raises:
            MissingBinary: there is no `ssh` here.
        """
        if shutil.which("ssh") is None:
            raise MissingBinary("ssh", hint=f"install an SSH client to reach {host}, or use `local`")
        if self._folder is None:
            # Short: the path of a socket has 107 bytes at most.
            self._folder = Path(tempfile.mkdtemp(prefix="leadline-ssh-", dir="/tmp"))
        wanted = {
            # Without it, a question for a password would wait forever behind the progress display.
            "BatchMode": "yes",
            "ControlMaster": "auto",
            "ControlPath": f"{self._folder}/%C",
            "ControlPersist": str(_PERSIST_S),
            # A connection whose network is cut does not keep the next command waiting.
            "ServerAliveInterval": "5",
            "ServerAliveCountMax": "3",
        }
        options = [word for key, value in wanted.items() for word in ("-o", f"{key}={value}")]
        if config is not None:
            options += ["-F", config]
        if port is not None:
            options += ["-p", str(port)]
        found = SshHost(f"{user}@{host}" if user else host, tuple(options))
        self._hosts.append(found)
        return found

    async def aclose(self) -> None:
        """End the connections. May be called again."""
        if self._folder is None:
            return
        await asyncio.gather(*(self._end(host) for host in dict.fromkeys(self._hosts)))
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder, self._hosts = None, []

    async def _end(self, host: SshHost) -> None:
        """End the connection to a host, if there is one: the host itself has no part in it."""
        if self._folder is None or not any(self._folder.iterdir()):
            return
        quiet = asyncio.subprocess.DEVNULL
        with suppress(OSError, TimeoutError):
            process = await asyncio.create_subprocess_exec(
                *("ssh", *host.options, "-O", "exit", "--", host.destination), stdin=quiet, stdout=quiet, stderr=quiet
            )
            try:
                await asyncio.wait_for(process.wait(), _CLOSE_WITHIN_S)
            finally:
                if process.returncode is None:
                    process.kill()


def describe_ssh_end(status: int, words: Iterable[str]) -> str:
    """How a process with this status (minus the signal's number for a signal) ended, where `ssh` stands between it and
    this process. `words` are the last lines of its stderr."""
    if status < 0:
        return f"its process was ended by {signal.Signals(-status).name}"
    if status == _SSH_FAILED:
        own = next((line for line in reversed(list(words)) if _SSH_WORDS.search(line)), None)
        if own is not None:
            return f"its ssh connection ended: {own}"
        return (
            "its ssh connection ended without a reason from ssh, as it does when a signal ends the agent on its host "
            "(memory that ran out, a kill)"
        )
    number = status - _SHELL_SIGNAL
    if number in {one.value for one in signal.Signals}:
        return f"it was ended by {signal.Signals(number).name} on its host"
    return f"it exited with {status} on its host"
