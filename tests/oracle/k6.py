"""k6 as an oracle: its binary from the Go module proxy, and what its executors did with a load.

Nothing of it is committed but recorded answers. `make test-all` runs it; it needs Go, of which it gets the version that
k6 asks for by itself.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

VERSION = "1.8.1"
OLDEST_GO = (1, 21)
"""The first that gets a newer one where a module asks for it (GOTOOLCHAIN)."""
BINARY = Path(__file__).parents[2] / "target" / f"k6-{VERSION}" / "k6"
SCRIPT = """\
import exec from "k6/execution";
import {{ sleep }} from "k6";
export const options = {{ scenarios: {{ main: {load} }} }};
export default function () {{
  console.log(`due ${{Date.now() - exec.scenario.startTime}}`);
  sleep({iteration_s});
}}
export function handleSummary(data) {{
  const count = (name) => name in data.metrics ? data.metrics[name].values.count : 0;
  return {{ stdout: JSON.stringify({{ completed: count("iterations"), dropped: count("dropped_iterations") }}) }};
}}
"""


def why_not() -> str:
    """Why k6 cannot be built here; empty where it can."""
    if shutil.which("go") is None:
        return "k6 is built by Go, which is not installed"
    said = subprocess.run(["go", "env", "GOVERSION"], capture_output=True, text=True, check=False).stdout.strip()
    version = re.match(r"go(\d+)\.(\d+)", said)
    if version is None or (int(version[1]), int(version[2])) < OLDEST_GO:
        return f"k6 is built by Go {OLDEST_GO[0]}.{OLDEST_GO[1]} or newer, and here is {said or 'a Go that names none'}"
    return ""


def k6() -> Path:
    """The binary; it is built once."""
    if not BINARY.exists():
        command = ["go", "install", f"go.k6.io/k6@v{VERSION}"]
        variables = {**os.environ, "GOBIN": str(BINARY.parent), "GOTOOLCHAIN": "auto"}
        subprocess.run(command, check=True, timeout=900, env=variables)
    return BINARY


def run(load: dict[str, Any], iteration_ms: int, folder: Path) -> dict[str, Any]:
    """What k6 did: instants of iterations in ms after the scenario's start, and counts."""
    script = folder / "load.js"
    script.write_text(SCRIPT.format(load=json.dumps(load), iteration_s=iteration_ms / 1000), encoding="utf-8")
    command: list[str | Path] = [
        k6(),
        "run",
        "--quiet",
        "--no-usage-report",
        "--log-format",
        "raw",
        "--address",
        "",
        script,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, cwd=folder)
    begun_ms = sorted(int(line.split()[1]) for line in done.stderr.splitlines() if line.startswith("due "))
    counts = json.loads(done.stdout)
    return {
        "begun_ms": begun_ms,
        "completed": counts["completed"],
        "interrupted": len(begun_ms) - counts["completed"],
        "dropped": counts["dropped"],
    }
