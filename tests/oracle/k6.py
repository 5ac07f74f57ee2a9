"""k6 as an oracle: its binary from the Go module proxy, and what its executors did with a load.

Nothing of it is committed but recorded answers. `make test-all` runs it; it needs Go.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

VERSION = "1.8.1"
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


def is_available() -> bool:
    """Whether k6 can be built here."""
    return shutil.which("go") is not None


def k6() -> Path:
    """The binary; it is built once."""
    if not BINARY.exists():
        command = ["go", "install", f"go.k6.io/k6@v{VERSION}"]
        subprocess.run(command, check=True, timeout=900, env={**os.environ, "GOBIN": str(BINARY.parent)})
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
