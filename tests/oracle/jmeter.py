"""JMeter as an oracle: its jars from Maven Central, one JVM for all plans, and what its engine did with each.

Nothing of it is committed but recorded answers. `make test-all` runs it; it needs Maven and a JDK.
"""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent
VERSION = "5.6.3"
HOME = HERE.parents[1] / "target" / f"jmeter-{VERSION}"
Samples = dict[str, list[int]]
"""By label: the number of samples, and of those that failed."""


def is_available() -> bool:
    """Whether JMeter can be fetched and run."""
    return shutil.which("mvn") is not None and shutil.which("java") is not None


def jars() -> Path:
    """The folder with JMeter's jars; they are fetched once."""
    jar = HOME / "jars" / f"ApacheJMeter_config-{VERSION}.jar"
    if not jar.exists():
        command: list[str | Path] = [
            "mvn",
            "-q",
            "-B",
            "-f",
            HERE / "pom.xml",
            "dependency:copy-dependencies",
            f"-DoutputDirectory={jar.parent}",
        ]
        subprocess.run(command, check=True, timeout=900, stdout=subprocess.DEVNULL)
    if not (HOME / "bin").exists():
        with zipfile.ZipFile(jar) as archive:
            archive.extractall(HOME, [name for name in archive.namelist() if name.startswith("bin/")])
    return jar.parent


class JMeter:
    """A JVM with JMeter's engine."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, plan: Path, **properties: str) -> Samples:
        """Run a plan to its end."""
        results = plan.with_suffix(".jtl")
        results.unlink(missing_ok=True)
        pairs = ";".join(f"{name}={value}" for name, value in properties.items())
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{plan}\t{results}\t{pairs}\n")
        self._process.stdin.flush()
        while (line := self._process.stdout.readline()) not in ("done\n", "failed\n"):
            assert line, "the JVM ended"
        assert line == "done\n", f"JMeter cannot run {plan}"
        return samples(results)


@contextmanager
def jmeter(folder: Path) -> Iterator[JMeter]:
    """A JVM that runs plans until the end of the block."""
    flags = [
        "-Djava.awt.headless=true",
        "-Xmx512m",
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        "-Duser.language=en",
    ]
    home = f"-Djmeter.home={HOME}"
    command: list[str | Path] = ["java", *flags, home, "-cp", f"{jars()}/*", HERE / "JMeterOracle.java", HOME]
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}
    with (folder / "jmeter.log").open("w") as log, subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=folder, text=True, env=environment
    ) as process:  # fmt: skip
        try:
            yield JMeter(process)
        finally:
            process.kill()


def samples(results: Path) -> Samples:
    """The samples of a result file in CSV by label."""
    found: Samples = {}
    with results.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            one = found.setdefault(row["label"], [0, 0])
            one[0] += 1
            one[1] += row["success"] != "true"
    # The hops of a redirect are listed as NAME-0, NAME-1 and so on.
    hops = {label for label in found if label.rpartition("-")[0] in found and label.rpartition("-")[2].isdecimal()}
    return {label: found[label] for label in sorted(found.keys() - hops)}
