"""One recording: starts the proxy, and a command that uses it, and ends both.

Owns their processes. The proxy ends with its stdin, so also when this process is killed; its journal is complete then.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from leadline.errors import InputError, LeadlineError
from leadline.recording import trust

PROGRAM = (sys.executable, "-P", "-m", "leadline.recording.proxy")
"""The proxy. Without the working directory among the places of modules, whatever lies there."""
INSTALL_COMMAND = "pip install 'leadline[record]'"
PROXY_TIMEOUT_S = 60.0
"""Until the proxy listens, and from the request to end until it is killed."""
COMMAND_TIMEOUT_S = 5.0
"""From the request to end until the command is killed."""
_MAX_LOG = 4096


class RecorderFailed(LeadlineError):
    """The recording proxy did not start."""

    code = "recorder_failed"


@dataclass(frozen=True, slots=True)
class ProxyOptions:
    """The configuration of the proxy's process."""

    bind: str
    port: int
    ca_dir: str
    journal: str
    max_body: int
    only_hosts: tuple[str, ...]
    insecure: bool
    ca: str | None


@dataclass(slots=True)
class Progress:
    """What has been recorded until now."""

    address: tuple[str, int] = ("", 0)
    """Where the proxy listens."""
    requests: int = 0
    pages: int = 0
    host: str = ""
    """Of the last request."""
    title: str = ""
    """Of the last page; empty if it has none."""
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Connections that came to nothing, by what refused them (`client`, `server`, `connect`) and host."""
    outstanding: int = 0
    """Requests without an answer at the end, which are not recorded."""
    failure: str | None = None
    """Why the journal is not complete."""
    command_status: int | None = None
    """None if it did not end by itself."""

    @property
    def url(self) -> str:
        """The proxy as clients name it."""
        host, port = self.address
        reached = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        return f"http://[{reached}]:{port}" if ":" in reached else f"http://{reached}:{port}"


Show = Callable[[str, Progress, dict[str, Any]], None]
"""Shows an event of the proxy: its name, what is known since, and its fields."""


def is_installed() -> bool:
    """Whether mitmproxy is there."""
    return find_spec("mitmproxy") is not None


def check_installed() -> None:
    """Check that mitmproxy is there. Raises InputError with what installs it."""
    if not is_installed():
        raise InputError(f"leadline record needs the extra: {INSTALL_COMMAND}")


def check_address(bind: str, port: int) -> None:
    """Check that the proxy can listen, for a clear message. Raises InputError."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(bind, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        hint = "name an address of this machine, and a port that is free"
        raise InputError(f"cannot listen at {bind}:{port}: {error.strerror or error}", hint=hint) from None


def check_command(argv: Sequence[str]) -> None:
    """Check that a command can be started, before anything else is. Raises InputError."""
    if argv and shutil.which(argv[0]) is None:
        raise InputError(f"{argv[0]}: there is no such command", hint="as in leadline record -o shop.yaml -- curl URL")


async def record(
    options: ProxyOptions,
    argv: Sequence[str],
    ending: asyncio.Event,
    show: Show,
    *,
    length_s: float | None,
    quiet_command: bool,
) -> Progress:
    """Record until the command ends, the time is over (from when the proxy listens), or an end is requested.

    Raises:
        RecorderFailed: the proxy did not start.
        InputError: the folder of its authority has no authority.
    """
    progress = Progress()
    started = asyncio.Event()
    proxy = await _start_proxy(options)
    log = asyncio.create_task(_read_log(proxy))
    events = asyncio.create_task(_follow(proxy, options, progress, started, show))
    try:
        await _wait_for_start(started, events, ending)
        if events.done():
            events.result()
        if not started.is_set() and not ending.is_set():
            await _end_proxy(proxy)
            raise RecorderFailed(f"the proxy did not start: {await log or _ended_how(await proxy.wait())}")
        waits = [asyncio.create_task(ending.wait()), events]
        if argv and started.is_set():
            waits.append(asyncio.create_task(_run_command(options, argv, progress, ending, quiet_command)))
        await asyncio.wait(waits, timeout=length_s, return_when=asyncio.FIRST_COMPLETED)
        if events.done() and not ending.is_set() and progress.failure is None:
            progress.failure = f"the proxy ended by itself: {await log or _ended_how(await proxy.wait())}"
        ending.set()
        await asyncio.gather(*(one for one in waits if one is not events))
    finally:
        await _end_proxy(proxy)
        await asyncio.wait([events])
        log.cancel()
    return progress


async def _end_proxy(proxy: asyncio.subprocess.Process) -> None:
    assert proxy.stdin is not None
    proxy.stdin.close()
    try:
        await asyncio.wait_for(proxy.wait(), PROXY_TIMEOUT_S)
    except TimeoutError:
        proxy.kill()


def _ended_how(status: int) -> str:
    return f"signal {-status}" if status < 0 else f"exit code {status}"


async def _start_proxy(options: ProxyOptions) -> asyncio.subprocess.Process:
    # A session of its own: Ctrl-C on the terminal is for this process, which ends the proxy in its turn.
    proxy = await asyncio.create_subprocess_exec(
        *PROGRAM,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    assert proxy.stdin is not None
    proxy.stdin.write(json.dumps(asdict(options)).encode() + b"\n")
    return proxy


async def _read_log(proxy: asyncio.subprocess.Process) -> str:
    """The last line of the proxy's stderr, when it has ended."""
    assert proxy.stderr is not None
    kept = b""
    while part := await proxy.stderr.read(_MAX_LOG):
        kept = (kept + part)[-_MAX_LOG:]
    return next((line.strip() for line in reversed(kept.decode(errors="replace").splitlines()) if line.strip()), "")


async def _wait_for_start(started: asyncio.Event, events: asyncio.Task[None], ending: asyncio.Event) -> None:
    waits = [asyncio.create_task(started.wait()), asyncio.create_task(ending.wait())]
    await asyncio.wait([*waits, events], timeout=PROXY_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
    for one in waits:
        one.cancel()


async def _follow(
    proxy: asyncio.subprocess.Process, options: ProxyOptions, progress: Progress, started: asyncio.Event, show: Show
) -> None:
    """Take the proxy's events until it ends. Raises InputError if it has no authority."""
    assert proxy.stdout is not None
    while line := await proxy.stdout.readline():
        fields = json.loads(line)
        event = fields.pop("event")
        match event:
            case "listening":
                trust.check_authority(Path(options.ca_dir))
                progress.address = fields["host"], fields["port"]
            case "entry":
                progress.requests += 1
                progress.pages += fields["is_document"]
                progress.host = fields["host"]
                progress.title = fields["title"]
            case "refused":
                progress.refused[fields["by"], fields["host"]] += 1
            case "failed":
                progress.failure = f"the journal cannot be written: {fields['why']}"
            case "ended":
                progress.outstanding = fields["outstanding"]
        show(event, progress, fields)
        if event == "listening":
            started.set()


async def _run_command(
    options: ProxyOptions, argv: Sequence[str], progress: Progress, ending: asyncio.Event, quiet: bool
) -> None:
    """Run the command with the proxy until it ends, or an end is requested."""
    folder = Path(options.ca_dir)
    bundle = trust.write_bundle(folder, None if options.ca is None else Path(options.ca))
    with TemporaryDirectory(prefix="leadline-record-", ignore_cleanup_errors=True) as profile:
        words = trust.command_line(argv, progress.url, trust.public_key_sum(folder), Path(profile))
        variables = trust.command_environment(os.environ, progress.url, bundle)
        # What it prints must not stand in our own document or scenario.
        command = await asyncio.create_subprocess_exec(*words, env=variables, stdout=sys.stderr if quiet else None)
        end = asyncio.create_task(command.wait())
        asked = asyncio.create_task(ending.wait())
        await asyncio.wait([end, asked], return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        if command.returncode is not None:
            progress.command_status = command.returncode
        else:
            with suppress(ProcessLookupError):
                command.terminate()
            await asyncio.wait([end], timeout=COMMAND_TIMEOUT_S)
            if command.returncode is None:
                with suppress(ProcessLookupError):
                    command.kill()
        await end
