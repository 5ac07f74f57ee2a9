"""The generators of scenarios that ours is compared with: where each comes from, and how it runs the session of
`scenarios/` for a number of seconds. JMeter comes from Maven Central, k6 from the Go module proxy, Locust from PyPI;
each is fetched once, into `target`.

A run's CPU time has the program's start in it: of JMeter and Locust a run of two lengths is taken, and only the
difference counts, for they take seconds to start.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from peers import CONNECTIONS, Cost
from programs import first_group, program, run, timed

SCENARIOS = Path(__file__).resolve().parent / "scenarios"
_ROOT = Path(__file__).resolve().parent.parent
_JMETER, _K6, _LOCUST = "5.6.3", "1.8.1", "2.47.0"
_START_S = 4
"""The shorter of two runs: the program has started, and its code is compiled."""


def k6(url: str, seconds: int) -> Cost:
    """k6 with as many users as connections."""
    script = str(SCENARIOS / "session.js")
    argv = [str(_k6()), "run", "--quiet", "--no-usage-report", "--address", "", "-e", f"URL={url}"]
    said, cpu_s = timed([*argv, "-e", f"SECONDS={seconds}", script])
    requests = int(first_group(r"(\d+) requests, 0 failed", said))
    return Cost(requests, requests / seconds, cpu_s)


def jmeter(url: str, seconds: int) -> Cost:
    """JMeter without its windows and without listeners."""
    program("java")
    home = _jmeter()
    flags = ["-Djava.awt.headless=true", "-Xmx1g", f"-Djmeter.home={home}", "-cp", f"{home}/jars/*"]
    plan = ["-n", "-t", str(SCENARIOS / "session.jmx"), "-j", "/dev/null", f"-Jport={urlsplit(url).port}"]

    def once(length_s: int) -> tuple[int, float]:
        said, cpu_s = timed(["java", *flags, "org.apache.jmeter.NewDriver", *plan, f"-Jseconds={length_s}"])
        return int(first_group(r"summary =\s+(\d+) in .* Err:\s+0 \(0", _last(said, "summary ="))), cpu_s

    return _steady(once, seconds)


def locust(url: str, seconds: int) -> Cost:
    """Locust with FastHttpUser."""
    users = ["-u", str(CONNECTIONS), "-r", str(CONNECTIONS), "-H", url.rstrip("/")]
    argv = [str(_locust()), "-f", str(SCENARIOS / "session_locust.py"), "--headless", *users, "--only-summary"]

    def once(length_s: int) -> tuple[int, float]:
        said, cpu_s = timed([*argv, "-t", f"{length_s}s"])
        return int(first_group(r"Aggregated\s+(\d+)\s+0\(0", said)), cpu_s

    return _steady(once, seconds)


def _steady(once: Callable[[int], tuple[int, float]], seconds: int) -> Cost:
    """What the seconds after the start did, and took."""
    (first, first_s), (both, both_s) = once(_START_S), once(_START_S + seconds)
    return Cost(both - first, (both - first) / seconds, both_s - first_s)


def _last(text: str, start: str) -> str:
    return [line for line in text.splitlines() if line.startswith(start)][-1]


def _k6() -> Path:
    binary = _ROOT / "target" / f"k6-{_K6}" / "k6"
    if not binary.exists():
        command = [program("go"), "install", f"go.k6.io/k6@v{_K6}"]
        subprocess.run(command, check=True, timeout=900, env={**os.environ, "GOBIN": str(binary.parent)})
    return binary


def _jmeter() -> Path:
    """JMeter's home: its jars, its settings, and the empty folders that it looks for."""
    home = _ROOT / "target" / f"jmeter-{_JMETER}"
    jar = home / "jars" / f"ApacheJMeter_config-{_JMETER}.jar"
    if not jar.exists():
        poms = _ROOT / "tests" / "oracle" / "pom.xml"
        run(
            [
                program("mvn"),
                "-q",
                "-B",
                "-f",
                str(poms),
                "dependency:copy-dependencies",
                f"-DoutputDirectory={jar.parent}",
            ]
        )
    if not (home / "bin").exists():
        with zipfile.ZipFile(jar) as archive:
            archive.extractall(home, [name for name in archive.namelist() if name.startswith("bin/")])
    for folder in ("lib/ext", "lib/junit"):
        (home / folder).mkdir(parents=True, exist_ok=True)
    return home


def _locust() -> Path:
    folder = _ROOT / "target" / f"locust-{_LOCUST}"
    if not (folder / "bin" / "locust").exists():
        run([sys.executable, "-m", "venv", str(folder)])
        run([str(folder / "bin" / "pip"), "install", "-q", f"locust=={_LOCUST}"])
    return folder / "bin" / "locust"
