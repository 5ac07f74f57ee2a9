"""Rows of the first minute: from a bare clone with empty caches to the first figures and to the answer.

Clones this tree's last commit, so what is not committed is not measured. What the system has installed stays.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from rows import Bound, Rounds, Row, bounded

ROOT = Path(__file__).resolve().parent.parent


def demo(_: Rounds) -> Iterator[Row]:
    """`make demo` once: it takes minutes."""
    with tempfile.TemporaryDirectory() as folder:
        first_s, whole_s, lines = _make_demo(Path(folder))
    at_most = "from a bare clone with empty caches"
    three, five = Bound("at most 180 s", lambda s: s <= 180), Bound("at most 300 s", lambda s: s <= 300)
    yield bounded(f"first figures of make demo, {at_most}", first_s, f"{first_s:.0f} s", three)
    yield bounded(f"answer of make demo, {at_most}", whole_s, f"{whole_s:.0f} s", five)
    hundred = Bound("at most 100", lambda count: count <= 100)
    yield bounded("lines that leadline demo prints", lines, f"{lines}", hundred)


def _make_demo(folder: Path) -> tuple[float, float, int]:
    """Seconds to the first trial's figures and to the end, and the lines from the first figures on."""
    clone = folder / "leadline"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    caches = {"CARGO_HOME": folder / "cargo", "UV_CACHE_DIR": folder / "uv", "XDG_CACHE_HOME": folder / "cache"}
    environment = {**os.environ, **{name: str(path) for name, path in caches.items()}}
    # The settings that lead cargo to its registry are no cache.
    settings = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo")) / "config.toml"
    if settings.is_file():
        caches["CARGO_HOME"].mkdir()
        shutil.copy(settings, caches["CARGO_HOME"])
    for name in ("LEADLINE_AGENT", "CARGO_TARGET_DIR", "MAKEFLAGS", "VIRTUAL_ENV"):
        environment.pop(name, None)
    began_s, first_s, lines = time.monotonic(), None, 0
    with subprocess.Popen(
        ["make", "demo"], cwd=clone, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as made:
        assert made.stdout is not None
        for line in made.stdout:
            if first_s is None and line.startswith("[1/"):
                first_s = time.monotonic() - began_s
            lines += first_s is not None
    if made.returncode or first_s is None:
        raise RuntimeError(f"make demo exited with {made.returncode}")
    return first_s, time.monotonic() - began_s, lines
