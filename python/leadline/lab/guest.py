"""A host with Debian's kernel, in QEMU: for what the kernel of this machine has not, as pktgen, ESP or WireGuard.

Run as a module it is a launcher, as `nsenter` is: `python -m leadline.lab.guest -- COMMAND` boots the kernel and runs
the command there, with a serial port for messages and a virtio port as its stdin and stdout. The guest ends with the
command, and the command with its stdin. Its root is this machine's, with a file system in memory over it: it reads
every file here and changes none. What the command has of the network, it makes itself.

Owns the image (kernel, modules, first file system) and QEMU's command line. Software executes every instruction of a
guest (QEMU's TCG), so that it runs everywhere, and its figures are never compared with those of a real machine.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from leadline.errors import EnvironmentLimit, InputError, LeadlineError, MissingBinary

CACHE_VARIABLE = "XDG_CACHE_HOME"
BOOT_WITHIN_S = 180.0
"""A guest is up in 5 s on a machine that does nothing else."""
_KERNEL_PACKAGE = "linux-image-amd64"
_DOWNLOAD_WITHIN_S = 600
_PORT = "leadline.command"
_MAX_CPUS = 64
# What the first file system needs to find the rest: the host's root over 9p, and the command's port.
_BOOT_MODULES = ("virtio_pci", "virtio_console", "9pnet_virtio", "9p", "overlay")

_INIT = """#!/bin/busybox sh
export PATH=/bin
/bin/busybox --install -s /bin
fail() { echo "guest: $1"; poweroff -f; }
mkdir -p /dev /proc /sys /host /memory /new
mount -t devtmpfs dev /dev; mount -t proc proc /proc; mount -t sysfs sys /sys
for module in /modules/*; do insmod "$module" || fail "$module"; done
mount -t 9p -o trans=virtio,version=9p2000.L,cache=loose,msize=262144,ro host /host || fail "no root over 9p"
mount -t tmpfs memory /memory; mkdir /memory/upper /memory/work
mount -t overlay -o lowerdir=/host,upperdir=/memory/upper,workdir=/memory/work root /new || fail "no overlay"
for name in dev proc sys; do mount --move /$name /new/$name; done
mount -t tmpfs run /new/run
mkdir -p /new/dev/pts /new/dev/shm /new/dev/net /new/run/guest /new/run/lock
mknod /new/dev/net/tun c 10 200
mount -t devpts pts /new/dev/pts; mount -t tmpfs shm /new/dev/shm
cp /bin/busybox /command /new/run/guest
ln -s busybox /new/run/guest/modprobe
echo /run/guest/modprobe > /new/proc/sys/kernel/modprobe
exec switch_root /new /run/guest/busybox sh /run/guest/command
"""
# Runs in the new root, as process 1, which must not end before the guest. BusyBox's shell runs its own `sh` and `ip`
# instead of those of the root, unless a path is given.
_COMMAND = """
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/run/guest
mkdir -p {modules} /usr/lib/modules
mount --bind {modules} /usr/lib/modules
ip link set lo up
hostname guest
port=
while [ -z "$port" ]; do
    for name in /sys/class/virtio-ports/*; do [ "$(cat $name/name)" = {port_name} ] && port=/dev/${{name##*/}}; done
done
/usr/bin/env {command} <>$port >&0
sync
busybox poweroff -f
"""


@dataclass(frozen=True, slots=True)
class Image:
    """A kernel that a guest boots."""

    version: str
    kernel: Path
    modules: Path
    """The folder that has a folder of modules for each version."""
    busybox: Path


@dataclass(frozen=True, slots=True)
class Guest:
    """How a guest is made."""

    cpus: int = 1
    memory_mib: int = 1024


def launch_prefix(guest: Guest) -> tuple[str, ...]:
    """The words before a command that run it in a guest."""
    options = ("--cpus", str(guest.cpus), "--memory", str(guest.memory_mib))
    return (sys.executable, "-m", "leadline.lab.guest", *options, "--")


def find_image(cache: Path | None = None) -> Image:
    """The image, whose kernel is downloaded when it is needed first.

    Raises:
        MissingBinary: QEMU or BusyBox is not installed.
        EnvironmentLimit: this machine is none of Debian's, or the download failed.
    """
    if platform.machine() != "x86_64":
        raise EnvironmentLimit(f"a guest needs an x86_64 machine; this is {platform.machine()}")
    _find_program("qemu-system-x86_64", "qemu-system-x86")
    busybox = _find_program("busybox", "busybox-static")
    folder = cache or Path(os.environ.get(CACHE_VARIABLE) or Path.home() / ".cache") / "leadline" / "guest"
    known = sorted(folder.glob("*/complete"))
    root = known[-1].parent if known else _unpack_kernel(folder, busybox)
    version = (root / "complete").read_text().strip()
    modules = next(path for path in (root / "lib/modules", root / "usr/lib/modules") if path.is_dir())
    return Image(version, root / "boot" / f"vmlinuz-{version}", modules, busybox)


def _find_program(name: str, package: str) -> Path:
    found = shutil.which(name)
    if found is None:
        raise MissingBinary(name, hint=f"a guest needs it: apt-get install {package}")
    return Path(found)


def _unpack_kernel(folder: Path, busybox: Path) -> Path:
    """Download the kernel that Debian's newest package depends on; several processes may do so at once."""
    for program in ("apt-get", "apt-cache", "dpkg"):
        if shutil.which(program) is None:
            raise EnvironmentLimit(f"a guest has Debian's kernel, which {program} gets; it is not on this machine")
    depends = _run(["apt-cache", "depends", _KERNEL_PACKAGE], folder.parent)
    found = re.search(r"Depends: (linux-image-(\S+))", depends)
    if found is None:
        raise EnvironmentLimit(f"apt knows no kernel ({_KERNEL_PACKAGE})", hint="run apt-get update")
    package, version = found.groups()
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="new-", dir=folder) as name:
        new = Path(name)
        _run(["apt-get", "download", "-qq", package], new)
        (archive,) = new.glob("*.deb")
        _run(["dpkg", "-x", str(archive), str(new / "root")], new)
        _run([str(busybox), "depmod", "-b", str(new / "root"), version], new)
        (new / "root" / "complete").write_text(version)
        try:
            (new / "root").rename(folder / version)
        except OSError as error:
            if not (folder / version / "complete").exists():
                raise EnvironmentLimit(f"{folder / version}: {error.strerror}") from error
    return folder / version


def _run(argv: Sequence[str], folder: Path) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    try:
        done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=_DOWNLOAD_WITHIN_S, check=False)
    except subprocess.TimeoutExpired:
        raise EnvironmentLimit(f"{shlex.join(argv)} took longer than {_DOWNLOAD_WITHIN_S} s") from None
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
        raise EnvironmentLimit(f"{shlex.join(argv)} failed: {reason}")
    return done.stdout


def modules_in_order(dependencies: str, names: Iterable[str]) -> Iterator[str]:
    """Files of modules, each behind those that it needs, by the text of `modules.dep`. What it does not name is built
    into the kernel."""
    known: dict[str, tuple[str, Sequence[str]]] = {}
    for line in dependencies.splitlines():
        file, _, needed = line.partition(":")
        known[_module_name(file)] = (file, needed.split())
    done: set[str] = set()

    def of(name: str) -> Iterator[str]:
        if name in done or name not in known:
            return
        done.add(name)
        file, needed = known[name]
        for other in needed:
            yield from of(_module_name(other))
        yield file

    for name in names:
        yield from of(name.replace("-", "_"))


def _module_name(file: str) -> str:
    return Path(file).name.partition(".ko")[0].replace("-", "_")


def archive(files: Mapping[str, bytes]) -> bytes:
    """A cpio archive of the kind that the kernel unpacks as its first file system (newc); all files can be run."""
    out = bytearray()

    def add(number: int, name: str, mode: int, content: bytes) -> None:
        fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0)
        out.extend(b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0")
        out.extend(bytes(-len(out) % 4))
        out.extend(content)
        out.extend(bytes(-len(out) % 4))

    folders = {str(parent) for name in files for parent in Path(name).parents if str(parent) != "."}
    for number, name in enumerate(sorted(folders), 1):
        add(number, name, 0o040755, b"")
    for number, (name, content) in enumerate(files.items(), len(folders) + 1):
        add(number, name, 0o100755, content)
    add(0, "TRAILER!!!", 0, b"")
    return bytes(out)


def first_file_system(image: Image, command: Sequence[str]) -> bytes:
    """The archive that a guest boots from, with the command that it runs."""
    folder = image.modules / image.version
    files = modules_in_order((folder / "modules.dep").read_text(), _BOOT_MODULES)
    modules = {f"modules/{place:03}": (folder / file).read_bytes() for place, file in enumerate(files)}
    script = _COMMAND.format(
        modules=shlex.quote(str(image.modules.resolve())), port_name=_PORT, command=shlex.join(command)
    )
    return archive(
        {"init": _INIT.encode(), "command": script.encode(), "bin/busybox": image.busybox.read_bytes(), **modules}
    )


def qemu_argv(image: Image, guest: Guest, initial: str) -> list[str]:
    """QEMU's command line: the command's port is its stdin and stdout, and the kernel's messages go to its stderr."""
    share = "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap"
    return [
        "qemu-system-x86_64",
        *("-accel", "tcg", "-cpu", "max", "-smp", str(guest.cpus), "-m", str(guest.memory_mib)),
        *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
        *("-chardev", "stdio,id=command,signal=off", "-chardev", "file,id=console,path=/dev/fd/2,append=on"),
        *("-serial", "chardev:console", "-device", "virtio-serial-pci"),
        *("-device", f"virtserialport,chardev=command,name={_PORT}", "-virtfs", share),
        *("-kernel", str(image.kernel), "-initrd", initial),
        *("-append", "console=ttyS0 quiet loglevel=3 panic=-1 mitigations=off"),
    ]


def run(command: Sequence[str], guest: Guest) -> None:
    """Become a guest that runs the command; returns only by an error.

    Raises:
        LeadlineError: there is no image, or QEMU cannot be started.
    """
    image = find_image()
    # In memory, and QEMU's alone: nothing of it is left when QEMU ends, however it does.
    initial = os.memfd_create("leadline-guest", 0)
    with os.fdopen(os.dup(initial), "wb") as file:
        file.write(first_file_system(image, command))
    argv = qemu_argv(image, guest, f"/proc/self/fd/{initial}")
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        raise EnvironmentLimit(f"{argv[0]} cannot be started: {error.strerror}") from error


def main(words: Sequence[str]) -> int:
    """Read the options and become the guest."""
    parser = argparse.ArgumentParser(prog="python -m leadline.lab.guest", description="Run a command in a QEMU guest.")
    parser.add_argument("--cpus", type=int, default=1, help="CPUs of the guest (default 1)")
    parser.add_argument("--memory", type=int, default=1024, help="its memory in MiB (default 1024)")
    parser.add_argument("command", nargs="+", help="the command and its arguments, behind --")
    found = parser.parse_args(words)
    try:
        if not 1 <= found.cpus <= _MAX_CPUS:
            raise InputError(f"--cpus {found.cpus}", hint=f"a guest has from 1 to {_MAX_CPUS}")
        run(found.command, Guest(found.cpus, found.memory))
    except LeadlineError as error:
        print(f"guest: {error}", file=sys.stderr)
        return error.exit_code
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
