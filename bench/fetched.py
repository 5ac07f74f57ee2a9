"""Peers that come from no Debian package, or from none that is new enough: where each comes from, and its version.
Each is fetched once, into the bench's cache folder, and found there by later runs of any checkout.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from programs import PeerMissing, program

_ROOT = Path(__file__).resolve().parent.parent
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "leadline" / "bench"
_IPERF3, _JMETER, _K6, _LOCUST = "3.21", "5.6.3", "1.8.1", "2.47.0"
_IPERF3_SOURCE = "https://github.com/esnet/iperf"
_LIMIT_S = 900
_CLONE_LIMIT_S = 60


@cache
def iperf3() -> str:
    """The iperf3 that IPERF3 names, else the newest release, built here, else the system's.

    Raises:
        PeerMissing: there is none.
    """
    named = os.environ.get("IPERF3")
    if named:
        return named
    binary = _CACHE / f"iperf3-{_IPERF3}" / "iperf3"
    if not binary.exists():
        try:
            _build_iperf3(binary)
        except PeerMissing:
            return program("iperf3")
    return str(binary)


@cache
def iperf3_name() -> str:
    """What rows call it: with its version."""
    said = subprocess.run([iperf3(), "--version"], capture_output=True, text=True, check=False).stdout
    return "iperf3 " + (said.split() or ["", "of unknown version"])[1]


def k6() -> Path:
    """k6's binary, from the Go module proxy."""
    binary = _CACHE / f"k6-{_K6}" / "k6"
    if not binary.exists():
        _fetch([program("go"), "install", f"go.k6.io/k6@v{_K6}"], GOBIN=str(binary.parent))
    return binary


def jmeter() -> Path:
    """JMeter's home, from Maven Central: its jars, its settings, and the empty folders that it looks for."""
    program("java")
    home = _CACHE / f"jmeter-{_JMETER}"
    jar = home / "jars" / f"ApacheJMeter_config-{_JMETER}.jar"
    if not jar.exists():
        poms = _ROOT / "tests" / "oracle" / "pom.xml"
        command = [program("mvn"), "-q", "-B", "-f", str(poms)]
        _fetch([*command, "dependency:copy-dependencies", f"-DoutputDirectory={jar.parent}"])
    if not (home / "bin").exists():
        with zipfile.ZipFile(jar) as archive:
            archive.extractall(home, [name for name in archive.namelist() if name.startswith("bin/")])
    for folder in ("lib/ext", "lib/junit"):
        (home / folder).mkdir(parents=True, exist_ok=True)
    return home


def locust() -> Path:
    """Locust's command, from PyPI."""
    folder = _CACHE / f"locust-{_LOCUST}"
    command = folder / "bin" / "locust"
    if not command.exists():
        uv = str(_ROOT / "scripts" / "uv")
        _fetch([uv, "venv", "--quiet", "--clear", str(folder)])
        _fetch([uv, "pip", "install", "--quiet", "--python", f"{folder}/bin/python", f"locust=={_LOCUST}"])
    return command


def versions() -> list[str]:
    """What was fetched, for the document. Fetches nothing."""
    found = {"iperf3": _IPERF3, "k6": _K6, "JMeter": _JMETER, "Locust": _LOCUST}
    return [f"{name} {version}" for name, version in found.items() if (_CACHE / f"{name.lower()}-{version}").exists()]


def _build_iperf3(binary: Path) -> None:
    source = binary.parent.with_name(f"{binary.parent.name}-source")
    shutil.rmtree(source, ignore_errors=True)
    clone = ["clone", "--quiet", "--depth=1", f"--branch={_IPERF3}", _IPERF3_SOURCE, str(source)]
    _fetch([program("git"), *clone], limit_s=_CLONE_LIMIT_S, GIT_TERMINAL_PROMPT="0")
    _fetch(["./configure", "--quiet", "--disable-shared", "--enable-static"], folder=source)
    _fetch([program("make"), "--quiet", "-C", "src", "iperf3"], folder=source)
    binary.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source / "src" / "iperf3", binary)
    shutil.rmtree(source)


def _fetch(argv: Sequence[str], folder: Path | None = None, limit_s: int = _LIMIT_S, **environment: str) -> None:
    """Run a command that fetches or builds.

    Raises:
        PeerMissing: it failed, or took too long.
    """
    what = " ".join(argv[:3])
    try:
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            check=False,
            timeout=limit_s,
            cwd=folder,
            env={**os.environ, **environment},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerMissing(f"`{what} ...` failed: {error}") from None
    if done.returncode != 0:
        reason = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise PeerMissing(f"`{what} ...` failed: {' '.join(reason)}")
