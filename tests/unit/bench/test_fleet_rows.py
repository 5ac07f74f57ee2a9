"""Rows of fleets: the workload that all of them build on, and what is left of a row that failed."""

from __future__ import annotations

import os
import subprocess
from typing import Any

import agent
import ikev2_rows
import pytest

from leadline.contract.models import Ikev2Connections, TunnelExpectation

EXPECT = TunnelExpectation(pools=["10.8.0.0/16"], routes=[], dns=[], options=[])


def test_fleet_has_the_fields_of_a_row_in_place_of_the_usual_ones() -> None:
    stage = agent.arrivals(100, 40.0)
    made = agent.fleet(
        Ikev2Connections(connection=None, files=[]),
        clients=100,
        duration_ms=stage.duration_ms,
        expect=EXPECT,
        arrivals=[stage],
        attempt_ms=90_000,
    )
    assert (made.duration_ms, made.arrivals, made.attempt_ms, made.retries) == (3500, [stage], 90_000, 0)


def test_reader_of_a_log_ends_with_a_row_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[Any]] = []
    popen = subprocess.Popen

    def start(*arguments: Any, **named: Any) -> subprocess.Popen[Any]:
        started.append(popen(*arguments, **named))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", start)
    output, log = os.pipe()
    with os.fdopen(output) as readable, pytest.raises(RuntimeError, match="no figure"), ikev2_rows._reader(readable):
        raise RuntimeError("no figure")
    assert [process.poll() is not None for process in started] == [True]
    os.close(log)
