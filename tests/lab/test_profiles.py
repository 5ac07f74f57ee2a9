"""Flame graphs by the real perf: of the agent while it measures ciphers, and of a gateway's daemon in a plan."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import cli_runs as cli
import pytest

from in_process import leadline
from report_page import packed_cases

pytestmark = pytest.mark.skipif(not cli.LEADLINE.exists(), reason="the leadline command is not installed")

QUICK = ("--cipher", "AES-256-GCM", "--digest", "SHA256", "-l", "1400", "--no-handshakes", "-d", "1s")


@pytest.fixture(scope="module", autouse=True)
def perf() -> None:
    path = shutil.which("perf")
    if path is None:
        pytest.skip("perf is not installed (linux-perf)")
    tried = subprocess.run([path, "stat", "-e", "cpu-clock", "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"perf may not measure here: {tried.stderr.strip()}")


def frames(svg: str) -> dict[str, int]:
    """Samples of each frame of a flame graph; of frames of one name the widest's."""
    found: dict[str, int] = {}
    for name, samples in re.findall(r"<title>([^<]*) \(([\d,]+) samples", svg):
        found[name] = max(found.get(name, 0), int(samples.replace(",", "")))
    return found


def test_ciphers_have_a_flame_graph(tmp_path: Path) -> None:
    picture = tmp_path / "crypto.svg"
    done = cli.call("crypto", *QUICK, "--profile", picture)
    assert done.returncode == 0, done.stderr
    assert "profiled: these figures include the profiler's own cost" in " ".join(done.stdout.split())
    drawn = frames(picture.read_text(encoding="utf-8"))
    assert drawn["all"] == drawn["leadline-agent"] > 10
    # Symbols are resolved: the measuring thread's way from its start is there.
    assert any("leadline_agent" in name for name in drawn), sorted(drawn)


def test_unwritable_flame_graph_path_is_refused_before_measuring(tmp_path: Path) -> None:
    done = cli.call("crypto", *QUICK, "--profile", tmp_path / "nowhere" / "crypto.svg")
    assert (done.returncode, done.stdout) == (2, "")
    assert "name a file that can be written" in done.stderr


def test_a_plan_profiles_its_gateway(tmp_path: Path) -> None:
    cli.skip_unless_possible()
    plan = """
name: profiled
profile: true
sut: {kind: wireguard}
tests:
  - {name: load, kind: tcp, duration: 5s}
  - {name: still, kind: udp, rate: 1mbit, duration: 500ms}
"""
    run = cli.run(plan, tmp_path)
    assert run.code == 0, run.err
    picture = run.folder / "profiles" / "c01-1-load-gateway.svg"
    drawn = frames(picture.read_text(encoding="utf-8"))
    assert drawn["all"] > 10
    (case,) = packed_cases((run.folder / "report.html").read_text(encoding="utf-8"))
    assert 'href="profiles/c01-1-load-gateway.svg"' in str(json.loads(case))
    # Drawn again from the journal alone.
    before = picture.read_bytes()
    picture.unlink()
    assert leadline("report", run.folder).returncode == 0
    assert picture.read_bytes() == before


def test_a_host_without_perf_is_reported_before_the_run(tmp_path: Path) -> None:
    cli.skip_unless_possible()
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        "name: p\nprofile: true\nsut: {kind: route}\ntests: [{name: t, kind: tcp, duration: 1s}]\n", encoding="utf-8"
    )
    programs = tmp_path / "bin"
    programs.mkdir()
    done = subprocess.run(
        [cli.LEADLINE, "run", plan, "--out", tmp_path / "runs"],
        capture_output=True,
        text=True,
        timeout=cli.WITHIN_S,
        check=False,
        env={**cli.environment(), "PATH": str(programs)},
    )
    assert done.returncode == 2, done.stderr
    assert "perf" in done.stderr
