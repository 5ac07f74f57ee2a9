"""Checks of this host: each feature that Leadline uses, what needs it, and the command that fixes it if it is
missing.

Owns the wording of `leadline doctor` and of the column "here" in `leadline plan`. The package `lab` tries the kernel.
"""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from leadline.agents import kernel_support
from leadline.agents.kernel_support import KernelFeature
from leadline.agents.programs import program_path
from leadline.errors import LeadlineError

if TYPE_CHECKING:
    from leadline.contract.models import Capability, ClockQuality, Hello
    from leadline.plan import Need
from leadline.plan.need import STRONGSWAN_INSTALL, TUN

UNKNOWN_ERROR_US = 16_000_000
"""The kernel's limit for the error of an undisciplined clock (NTP_PHASE_LIMIT). At this value the error is
unknown."""
FEW_FILES = 65_536


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check."""

    what: str
    works: bool | None
    """None if it is unknown or does not apply."""
    needed_for: str
    why: str | None = None
    """What the check observed."""
    mend: str | None = None
    """How to fix it: a command if there is one."""


def lab_checks() -> list[Check]:
    """Checks the lab, and the kernel features that its links need. Forks, so call it before threads exist."""
    from leadline.lab import facilities

    lab = facilities.lab()
    checks = [Check("lab", lab.has, "plans without `hosts`", lab.why, lab.mend), _user_namespaces()]
    for name, one in facilities.link_facilities().items():
        checks.append(Check(name, one.has, _LINKS[name], one.why, one.mend))
    return checks


def kernel_checks() -> list[Check]:
    """Checks what the kernel of this host carries by itself, by trying it in a namespace of its own."""
    return [kernel_check(feature) for feature in FEATURES]


def program_checks() -> list[Check]:
    """Checks the programs that some plans or options run."""
    found = [_program(name, why, f"sudo {install}") for name, why, install in _PROGRAMS if name != "perf"]
    return [*found, _perf()]


def agent_check(hello: Hello, path: Path) -> Check:
    """The agent that measures here, and whether it was built for that."""
    profile = hello.build_profile
    said = f"{hello.agent_version}, {f'built as {profile}' if profile else 'build profile unknown'}, {path}"
    is_slow = profile in _SLOW_PROFILES
    mend = "make build, or unset LEADLINE_AGENT" if is_slow else None
    return Check("agent", not is_slow, "generating load, and watching hosts", said, mend)


_SLOW_PROFILES = ("checked", "debug")
"""Builds that check their arithmetic: for tests."""


def host_checks() -> list[Check]:
    """Checks limits and the speed of this host."""
    return [_open_files(), _governor(), _tables(), _recorder()]


def clock_check(clock: ClockQuality) -> Check:
    """Checks the wall clock. Durations and rates use the monotonic clock and do not depend on it."""
    if clock.synchronised and clock.max_error_us is not None:
        why = f"at most {clock.max_error_us / 1000:g} ms off"
    elif clock.synchronised:
        why = "its error is unknown"
    elif clock.max_error_us is None or clock.max_error_us >= UNKNOWN_ERROR_US:
        why = "not synchronised: the error of the time of day is unknown"
    else:
        why = f"not synchronised: the time of day is up to {clock.max_error_us / 1e6:g} s off, and drifts"
    why += f"; the monotonic clock's source is {clock.source or 'unknown'}"
    needed = "correct times of day in run folders; without it durations and rates have an error of up to 0.01 %"
    mend = "sudo timedatectl set-ntp true (or: sudo apt-get install chrony)"
    return Check("synchronised clock", clock.synchronised, needed, why, mend)


def capability_check(found: Capability) -> Check:
    """The check for a capability that the agent reported about its host."""
    needed, mend = _CAPABILITIES.get(found.name, ("counters of the host", None))
    if found.name == "tun" and not found.available:
        return _device("tun", TUN, needed)
    why = found.reason
    if found.name == "io_uring" and not found.available and _number("/proc/sys/kernel/io_uring_disabled") in (1, 2):
        mend = "sudo sysctl -w kernel.io_uring_disabled=0"
    # Only the agents of a run get a cgroup, so its absence here does not matter.
    works = None if found.name == "cgroup" and not found.available else found.available
    return Check(found.name, works, needed, why, mend)


def is_here(need: Need, lab: dict[str, Check]) -> Check:
    """Whether this host meets a need of a plan. `lab` has the results of `lab_checks` by name."""
    if need.name in lab:
        return lab[need.name]
    if need.kind == "privilege":
        return lab["lab"]
    if need.name == "leadline-agent":
        from leadline.agents import agent_binary

        try:
            return Check(need.name, True, need.why, str(agent_binary()))
        except LeadlineError as error:
            return Check(need.name, False, need.why, error.message, error.hint)
    if need.kind == "device":
        return _device(need.name, need.name, need.why)
    known = need.install or next((how for name, _, how in _PROGRAMS if name == need.name), None)
    install = "install it" if known is None else f"sudo {known}"
    return _program(need.name, need.why, install)


def _program(name: str, needed: str, install: str) -> Check:
    path = program_path(name)
    return Check(name, path is not None, needed, path or "not in PATH", install)


def kernel_check(feature: KernelFeature) -> Check:
    """Checks a feature of this host's kernel, by trying it."""
    needed = FEATURES[feature]
    attempt = kernel_support.attempt_here(feature)
    mend = {True: None, False: feature.mend, None: _IP_INSTALL}[attempt.works]
    return Check(feature.name, attempt.works, needed, attempt.why, mend)


FEATURES = {
    kernel_support.ESP: "plans with sut kind strongswan and data_plane: kernel, or libreswan",
    kernel_support.WIREGUARD: "plans with sut kind wireguard and implementation: wireguard-kernel",
}
"""What the kernel may carry, and what needs it."""
_IP_INSTALL = "sudo apt-get install iproute2 util-linux"


def _device(what: str, path: str, needed: str) -> Check:
    from leadline.agents.devices import device_problem

    problem = device_problem(path)
    if problem is None:
        return Check(what, True, needed, None, None)
    return Check(what, False, needed, problem.why, problem.mend)


def _user_namespaces() -> Check:
    for name, forbidding, right in _USERNS_SETTINGS:
        if _number(f"/proc/sys/{name.replace('.', '/')}") == forbidding:
            return Check("user namespaces", False, _USERNS, f"{name} is {forbidding}", f"sudo sysctl -w {name}={right}")
    has = Path("/proc/self/ns/user").exists()
    why = None if has else "the kernel is built without them"
    return Check("user namespaces", has, _USERNS, why, None if has else "run leadline as root")


def _perf() -> Check:
    needed = "`profile: true` in plans, and --profile"
    found = _program("perf", needed, "sudo apt-get install linux-perf (Ubuntu: linux-tools-generic)")
    if not found.works:
        return found
    paranoid = _number("/proc/sys/kernel/perf_event_paranoid")
    if os.geteuid() != 0 and paranoid is not None and paranoid > 1:
        why = f"kernel.perf_event_paranoid is {paranoid}"
        return Check("perf", False, needed, why, "sudo sysctl -w kernel.perf_event_paranoid=1")
    return found


def _open_files() -> Check:
    """Checks the hard limit of open files: the agent raises its own soft limit up to it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    is_enough = hard == resource.RLIM_INFINITY or hard >= FEW_FILES
    shown = "no limit" if hard == resource.RLIM_INFINITY else f"at most {hard} (`ulimit -Hn`)"
    mend = "sudo prlimit --pid $$ --nofile=1048576:1048576 (for good: /etc/security/limits.conf)"
    return Check("open files", is_enough, "one per connection", shown, mend)


def _governor() -> Check:
    paths = Path("/sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor")
    found = sorted({text for path in paths if (text := _text(path)) is not None})
    needed = "repeatable figures: a CPU that changes its frequency changes them"
    if not found:
        return Check("CPU governor", None, needed, "not visible here; most virtual machines hide it")
    mend = "sudo cpupower frequency-set --governor performance"
    return Check("CPU governor", found == ["performance"], needed, ", ".join(found), mend)


def _tables() -> Check:
    from leadline.dataset import INSTALL_COMMAND, may_write_tables

    needed = "samples.parquet, results.parquet and other tables in the folder of a run"
    has = may_write_tables()
    return Check("parquet tables", has, needed, None if has else "polars is not installed", INSTALL_COMMAND)


def _recorder() -> Check:
    from leadline.recording.session import INSTALL_COMMAND, is_installed

    has = is_installed()
    why = None if has else "mitmproxy is not installed"
    return Check("recorder", has, "leadline record", why, INSTALL_COMMAND)


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return None


def _number(path: str) -> int | None:
    text = _text(Path(path))
    return int(text) if text is not None and text.lstrip("-").isdecimal() else None


_USERNS = "the lab without root"
_USERNS_SETTINGS = (
    ("user.max_user_namespaces", 0, 15_000),
    ("kernel.unprivileged_userns_clone", 0, 1),
    ("kernel.apparmor_restrict_unprivileged_userns", 1, 0),
)
"""Kernel settings, the value that forbids user namespaces, and a value that allows them."""
_LINKS = {
    "netem": "lab.emulator: netem in plans",
    "tbf": "lab.link.rate in plans",
    "nftables": "lab.link.loss, drop_every and drop_udp_every in plans",
}
_PROGRAMS = (
    ("openvpn", "plans with sut kind openvpn", "apt-get install openvpn"),
    ("charon-systemd", "plans with sut kind strongswan", STRONGSWAN_INSTALL),
    ("swanctl", "plans with sut kind strongswan", STRONGSWAN_INSTALL),
    ("wireguard-go", "plans with sut kind wireguard and implementation: wireguard-go", "apt-get install wireguard-go"),
    ("wg", "plans with other implementations of WireGuard than the embedded one", "apt-get install wireguard-tools"),
    ("nsenter", "the lab's hosts", "apt-get install util-linux"),
    ("ssh", "plans with given hosts", "apt-get install openssh-client"),
    ("perf", "`profile: true` in plans", "apt-get install linux-perf"),
    ("wrk", "cross-checks of http tests with wrk", "apt-get install wrk"),
    ("ab", "cross-checks of http tests with ab", "apt-get install apache2-utils"),
    ("h2load", "cross-checks of http tests with h2load", "apt-get install nghttp2-client"),
    ("iperf3", "cross-checks of tcp and udp tests", "apt-get install iperf3"),
)
_CAPABILITIES = {
    "tun": ("plans with sut kind openvpn, strongswan or wireguard", None),
    "psi": ("how long tasks waited for CPU, memory and I/O", "boot with psi=1"),
    "irq_pressure": ("how long interrupts kept tasks from the CPU", "Linux 6.1 or newer, with IRQ time accounting"),
    "cgroup": ("CPU time of each host of the lab; `leadline run` makes one for each agent", None),
    "io_uring": ("the fastest http load; epoll is used without it", "allow it in the container's seccomp profile"),
}
