"""Stands in for the `leadline` command: hands arguments, environment, streams and namespaces to the server of
`command_server.py`, passes signals on, and ends as the command did.

A copy of this file with SERVER and REAL filled in is the program. It starts in 10 ms, for it imports next to
nothing: no `typing`, no `os`.
"""

import _socket
import posix
import signal
import sys

SERVER, REAL = "", ""
NAMESPACES = ("net", "pid", "mnt")
"""Those of the namespaces that the server can enter."""
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2]
IGNORED = [number for number in SIGNALS if signal.getsignal(number) is signal.SIG_IGN]


def become_the_command() -> None:
    """Run the command itself, in this process."""
    argv = [sys.executable if sys.argv[1:] and sys.argv[1].endswith(".py") else REAL, *sys.argv[1:]]
    posix.execv(argv[0], argv)


def mask() -> int:
    """The mask of the modes of new files."""
    found = posix.umask(0o077)
    posix.umask(found)
    return found


def circumstances() -> list[object]:
    """What the server cannot take over: where it differs from its own, the command must run itself."""
    own: list[object] = [posix.getuid(), mask(), posix.sched_getaffinity(0) == posix.sched_getaffinity(1)]
    for name in ("cgroup", "limits"):
        with open("/proc/self/" + name) as file:  # noqa: PTH123 - pathlib takes longer to import than all of this
            own.append(file.read())
    own += [posix.readlink("/proc/self/ns/" + name) for name in ("user", "uts", "ipc")]
    return [*own, any(map(posix.isatty, range(3)))]


def main() -> None:
    """Call the server, and end as the command ends."""
    server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    try:
        server.connect(SERVER)
    except OSError:
        become_the_command()

    def forward(number: int, _: object) -> None:
        server.send(bytes([number]))

    for number in SIGNALS:
        if number not in IGNORED:
            signal.signal(number, forward)
    files = [0, 1, 2, *(posix.open("/proc/self/ns/" + name, posix.O_RDONLY) for name in NAMESPACES)]
    environment, ignored = posix.environ, [int(number) for number in IGNORED]
    call_text = repr((sys.argv[1:], posix.getcwd(), environment, ignored, circumstances()))
    paper = posix.memfd_create("command")
    posix.write(paper, call_text.encode("ascii", "backslashreplace"))
    packed = b"".join(number.to_bytes(4, sys.byteorder) for number in [*files, paper])
    server.sendmsg([b"r"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, packed)])
    answer = server.recv(16)
    if answer == b"real":
        for number in SIGNALS:
            if number not in IGNORED:
                signal.signal(number, signal.SIG_DFL)
        become_the_command()
    end(int(answer or b"70"))


def end(code: int) -> None:
    """End with this status; a negative one is the signal that ended the command."""
    if code < 0:
        if code != -signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        posix.kill(posix.getpid(), -code)
    posix._exit(code)


if __name__ == "__main__":
    main()
