"""When a single HTTP measurement has its generator's ceiling measured: where a verdict may depend on it. The load is
real; the ceiling and whether the load's threads were busy are made.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from in_process import leadline
from leadline.analysis.model import Ceiling
from leadline.contract.models import HttpWorkload

pytestmark = pytest.mark.agent

LOAD = ("http", "-n", "20", "-d", "60s", "--json")


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[HttpWorkload]:
    """The loads whose ceilings were measured; none is known before."""
    loads: list[HttpWorkload] = []

    async def note(load: HttpWorkload, *_: object) -> Ceiling:
        loads.append(load)
        return Ceiling(5000.0, extrapolated=False)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("leadline.cli.calibration.ceiling_for", note)
    return loads


def generator(*options: str) -> dict[str, Any]:
    ended = leadline(*LOAD, *options)
    assert ended.returncode in (0, 3, 4), ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)["generator"]
    return found


@pytest.mark.parametrize("had_spare_time", [True, False])
def test_load_has_a_ceiling_if_its_threads_were_busy(
    measured: list[HttpWorkload], had_spare_time: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leadline.trial.single.threads_had_spare_time", lambda _: had_spare_time)
    assert generator()["ceiling_per_s"] == (None if had_spare_time else 5000.0)
    assert len(measured) == (not had_spare_time)


@pytest.mark.decided_by("whether a ceiling is measured, which a stand-in decides")
def test_targets_that_may_end_the_load_are_judged_by_a_ceiling_from_the_start(
    measured: list[HttpWorkload], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leadline.trial.single.threads_had_spare_time", lambda _: True)
    assert generator("--target", "requests > 1", "--stop-on-miss")["ceiling_per_s"] == 5000.0
    assert len(measured) == 1


def test_no_ceiling_is_measured_if_none_is_wanted(
    measured: list[HttpWorkload], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leadline.trial.single.threads_had_spare_time", lambda _: False)
    assert generator("--no-calibrate")["ceiling_per_s"] is None
    assert measured == []
