"""Runs the `leadline` command in forks of one process that has imported what commands import: a command then begins in
a tenth of an interpreter's time. `make test` starts hundreds of them. A program of the tests, whose path ends in `.py`,
runs in the same way: `STAND_IN PROGRAM ARGUMENT...`.

Owns the server (this file, run as a program), the stand-in for the command that hands its arguments, environment,
streams and namespaces over, and its signals. What cannot be handed over (another user, a terminal, a session, a cgroup)
runs as the real command does: the stand-in becomes it.
"""

from __future__ import annotations

import ast
import ctypes
import gc
import importlib
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from stand_in import NAMESPACES

REAL = Path(sys.executable).with_name("leadline")
# What commands import when they run, beside their own modules.
LIBRARIES = (
    "asyncio",
    "cryptography.x509",
    "encodings.idna",
    "jinja2",
    "rich.console",
    "xml.parsers.expat",
)
STAND_IN = Path(__file__).with_name("stand_in.py")
EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "gateway.yaml"
OWN_TASK = str(os.getpid())
# What polars starts when it is imported: waits for files that it has put out of memory, of which commands have none.
IDLE_THREADS = {"polars-ooc-clea"}


@contextmanager
def command_server(folder: Path) -> Iterator[Path]:
    """The stand-in for the command, in a folder of its own, for as long as the block."""
    listener = folder / "server"
    stand_in = folder / "bin" / "leadline"
    stand_in.parent.mkdir(parents=True)
    given = f"SERVER, REAL = {str(listener)!r}, {str(REAL)!r}"
    text = STAND_IN.read_text(encoding="utf-8").replace('SERVER, REAL = "", ""', given)
    stand_in.write_text(f"#!{sys.executable} -IS\n{text}", encoding="utf-8")
    stand_in.chmod(0o755)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as made:
        made.bind(str(listener))
        made.listen(64)
        # Threads of a library would be missing in each fork.
        variables = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "_RJEM_MALLOC_CONF": "background_thread:false"}
        argv = [sys.executable, __file__, str(made.fileno())]
        server = subprocess.Popen(
            argv, stdin=subprocess.PIPE, pass_fds=[made.fileno()], env=variables, start_new_session=True
        )
    # Its stdin ends with this process, however that ends. Where the server has ended, nothing listens, and the stand-in
    # becomes the command.
    with server:
        yield stand_in


# --- the server -------------------------------------------------------------------------------------------------------


def main() -> NoReturn:
    """Fork a guardian for each command that is asked for, until stdin ends."""
    with socket.socket(fileno=int(sys.argv[1])) as listener:
        poll = select.poll()
        poll.register(listener, select.POLLIN)
        poll.register(0, select.POLLIN)
        is_ready = False
        while True:
            if any(number == 0 for number, _ in poll.poll()):
                sys.exit()
            if not is_ready:
                make_ready()
                is_ready = True
            connection, _ = listener.accept()
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                listener.close()
                break
            connection.close()
    guard(connection)


def make_ready() -> None:
    """Import what commands import, and make what they make at first use: the options of all commands, the models of a
    plan and of findings, the templates of a page. At the first command, since some sessions have none.
    """
    package = importlib.import_module("leadline")
    own = [found.name for found in pkgutil.walk_packages(package.__path__, "leadline.")]
    for name in [*LIBRARIES, *own]:
        importlib.import_module(name)
    typer_main: Any = importlib.import_module("typer.main")
    typer_main.get_command = cache(typer_main.get_command)
    typer_main.get_command(importlib.import_module("leadline.cli.app").app)
    importlib.import_module("leadline.plan").load_plan(EXAMPLE)
    complete(importlib.import_module("pydantic").BaseModel)
    importlib.import_module("leadline.analysis.findings_json")._adapter()
    html = importlib.import_module("leadline.report.html")
    for template in (Path(str(html.__file__)).parent / "templates").iterdir():
        html._environment().get_template(template.name)
    others = {
        (task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir() if task.name != OWN_TASK
    }
    assert others <= IDLE_THREADS, f"{others} are threads that a fork would not have"
    # Newer versions of Python warn of any thread.
    warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*fork")
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)


def complete(model: Any) -> None:
    """Make a model and those that are derived from it, which would else be made in every command that uses them."""
    for derived in model.__subclasses__():
        if derived.__module__.startswith("leadline."):
            derived.model_rebuild()
        complete(derived)


def guard(connection: socket.socket) -> NoReturn:
    """Run one command in a process of its own: pass signals on to it, end it with its stand-in, and tell its status."""
    _, (*streams, paper), _, _ = socket.recv_fds(connection, 1, 16)
    streams, namespaces = streams[:3], streams[3:]
    with os.fdopen(paper, "rb") as call_file:
        call_file.seek(0)
        argv, folder, variables, ignored, theirs = ast.literal_eval(call_file.read().decode("ascii"))
    if theirs != own_circumstances():
        connection.send(b"real")
        os._exit(0)
    join(namespaces)
    child = os.fork()
    if child == 0:
        connection.close()
        run(argv, folder, variables, ignored, streams)
    for number in streams:
        os.close(number)
    ended = os.pidfd_open(child)
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    poll.register(ended, select.POLLIN)
    while True:
        ready = {number for number, _ in poll.poll()}
        if ended in ready:
            _, status = os.waitpid(child, 0)
            with suppress(OSError):
                connection.send(b"%d" % os.waitstatus_to_exitcode(status))
            os._exit(0)
        numbers = connection.recv(1)
        os.kill(child, numbers[0] if numbers else signal.SIGKILL)
        if not numbers:
            poll.unregister(connection)


def own_circumstances() -> list[Any]:
    """What must be the same for a command here as for its stand-in."""
    mask = os.umask(0o077)
    os.umask(mask)
    found: list[Any] = [os.getuid(), mask, os.sched_getaffinity(0) == os.sched_getaffinity(1)]
    found += [Path(f"/proc/self/{name}").read_text(encoding="ascii") for name in ("cgroup", "limits")]
    found += [str(Path(f"/proc/self/ns/{name}").readlink()) for name in ("user", "uts", "ipc")]
    return [*found, False]


def join(namespaces: list[int]) -> None:
    """Go into those that this process is not in, the mounts' last: the others are found in its /proc."""
    library = ctypes.CDLL(None, use_errno=True)
    other = [
        number
        for number, name in zip(namespaces, NAMESPACES, strict=True)
        if Path(f"/proc/self/fd/{number}").readlink() != Path(f"/proc/self/ns/{name}").readlink()
    ]
    for number in other:
        if library.setns(number, 0) != 0:
            raise OSError(ctypes.get_errno(), "setns")
    for number in namespaces:
        os.close(number)


def run(
    argv: list[str], folder: str, variables: dict[bytes, bytes], ignored: list[int], streams: list[int]
) -> NoReturn:
    """Be the command."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, signal.SIG_IGN if number in ignored else default)
    os.chdir(folder)
    os.environb.clear()
    os.environb.update(variables)
    tempfile.tempdir = None
    sys.argv = [str(REAL), *argv]
    sys.stdin = open(0, encoding="utf-8")  # noqa: SIM115 - the process's own
    sys.stdout = open(1, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1)  # noqa: SIM115
    code: Any = 1
    try:
        if argv and argv[0].endswith(".py"):
            sys.argv = argv
            sys.path.insert(0, str(Path(argv[0]).parent))
            runpy.run_path(argv[0], run_name="__main__")
            code = 0
        else:
            importlib.import_module("leadline.cli").main()
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        traceback.print_exc()
    for output in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            output.flush()
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)


if __name__ == "__main__":
    main()
