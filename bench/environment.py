"""On what the figures were taken: machine, kernel, versions."""

from __future__ import annotations

import datetime
import os
import platform
import shutil
import subprocess
from pathlib import Path

import fetched

_ASK = (
    ("leadline-agent", ["leadline-agent", "--version"]),
    ("iperf3 of the system", [os.environ.get("IPERF3", "iperf3"), "--version"]),
    ("wrk", ["wrk", "-v"]),
    ("ab", ["ab", "-V"]),
    ("h2load", ["h2load", "--version"]),
    ("nginx", ["nginx", "-v"]),
    ("openvpn", ["openvpn", "--version"]),
    ("openssl", ["openssl", "version"]),
    ("java", ["java", "-version"]),
)


def describe_machine() -> str:
    """CPU model, CPUs, memory, kernel, and the day."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    day = datetime.datetime.now(datetime.UTC).date()
    return f"{model}, {os.cpu_count()} CPUs, {memory_gib:.0f} GiB, Linux {platform.release()}, on {day}"


def versions() -> list[str]:
    """First line that each program says of itself, and the versions of those that were fetched."""
    lines = [f"{one}, fetched for the bench" for one in fetched.versions()]
    for name, argv in _ASK:
        if shutil.which(argv[0]) is None:
            continue
        said = subprocess.run(argv, capture_output=True, text=True, check=False)
        first = next((line.strip() for line in (said.stdout + said.stderr).splitlines() if line.strip()), name)
        lines.append(f"{name}: {first}")
    return lines
