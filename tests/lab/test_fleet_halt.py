"""The script that arms a machine's halt, run for real: in mounts of its own, where `shutdown`, `systemctl` and the
clock are stand-ins that record what they are asked.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from leadline.agents.launchers.cloud.user_data import UNIT, halt_script

pytestmark = pytest.mark.lab
NOW = datetime(2026, 11, 29, 12, 0, 0, tzinfo=UTC)
TTL_S = 7200
MOUNTS = """set -eu
mkdir -p /etc/systemd /run/systemd
mount -t tmpfs none /etc/systemd && mkdir /etc/systemd/system
mount -t tmpfs none /run/systemd
{before}
sh {script}
cp /etc/systemd/system/* {folder}/units/ 2>/dev/null || true
"""


def run_script(folder: Path, *, clock: datetime, has_systemd: bool = True) -> list[str]:
    """Run the script of a fleet that was created at NOW. Returns the commands that it ran, one a line."""
    stand_ins = folder / "bin"
    stand_ins.mkdir()
    (folder / "units").mkdir()
    calls = folder / "calls"
    for name in ("shutdown", "systemctl"):
        (stand_ins / name).write_text(f'#!/bin/sh\necho "{name} $*" >> {calls}\n')
    (stand_ins / "date").write_text(f"#!/bin/sh\necho {int(clock.timestamp())}\n")
    for one in stand_ins.iterdir():
        one.chmod(0o755)
    script = folder / "user-data"
    script.write_text(halt_script("lab", NOW + timedelta(seconds=TTL_S), TTL_S))
    before = "mkdir /run/systemd/system" if has_systemd else "true"
    lines = MOUNTS.format(script=script, folder=folder, before=before)
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", lines],
        env={**os.environ, "PATH": f"{stand_ins}:{os.environ['PATH']}"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return calls.read_text().splitlines()


@pytest.mark.parametrize(
    ("late_s", "minutes"),
    [
        (0, 120),
        (45, 120),
        (60, 119),
        (3600, 60),
        # A clock that is wrong: behind, ahead, and far ahead.
        (-86_400, 120),
        (7199, 1),
        (86_400, 1),
    ],
)
def test_halt_is_armed_for_the_end_and_never_later_than_the_time_to_live(
    late_s: int, minutes: int, tmp_path: Path
) -> None:
    calls = run_script(tmp_path, clock=NOW + timedelta(seconds=late_s))
    assert calls == [
        f"shutdown -P +{minutes} the end of the fleet lab",
        "systemctl daemon-reload",
        f"systemctl enable --now {UNIT}.timer",
    ]
    timer = (tmp_path / "units" / f"{UNIT}.timer").read_text()
    assert "OnCalendar=2026-11-29 14:00:00 UTC\n" in timer
    assert f"OnActiveSec={minutes}min\n" in timer and "Persistent=true\n" in timer


def test_machine_without_systemd_halts_by_shutdown_alone(tmp_path: Path) -> None:
    assert run_script(tmp_path, clock=NOW, has_systemd=False) == ["shutdown -P +120 the end of the fleet lab"]
    assert list((tmp_path / "units").iterdir()) == []


def test_systemd_understands_the_timer(tmp_path: Path) -> None:
    analyse = shutil.which("systemd-analyze")
    if analyse is None:
        pytest.skip("systemd-analyze is not installed")
    run_script(tmp_path, clock=NOW)
    units = [str(tmp_path / "units" / f"{UNIT}.{kind}") for kind in ("timer", "service")]
    done = subprocess.run([analyse, "verify", *units], capture_output=True, text=True, check=False)
    assert [line for line in done.stderr.splitlines() if UNIT in line] == []
    calendar = ["calendar", "--base-time=2026-11-29 12:00:00 UTC", "2026-11-29 14:00:00 UTC"]
    done = subprocess.run([analyse, *calendar], capture_output=True, text=True, check=True)
    assert "2026-11-29 14:00:00 UTC" in done.stdout
