"""When tests that need a CPU to themselves are skipped: by what the machine does before them, or after they fail."""

from __future__ import annotations

import pytest

import quiet_machine


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What each look finds, in CPUs, the last one for ever."""
    given: list[float] = []
    monkeypatch.setattr(quiet_machine, "_busy_before", [])
    monkeypatch.setattr(quiet_machine, "_busy_cpus", lambda: given.pop(0) if len(given) > 1 else given[0])
    return given


def test_quiet_machine_is_seen_at_the_first_look(looks: list[float]) -> None:
    looks += [0.02, 2.0]
    assert quiet_machine.why_not_quiet() is None
    assert looks == [2.0]


def test_what_the_test_before_left_is_waited_for(looks: list[float]) -> None:
    looks += [1.0, 0.6, 0.1]
    assert quiet_machine.why_not_quiet() is None


def test_busy_machine_is_looked_at_once_by_the_tests_after(looks: list[float]) -> None:
    looks += [2.0] * quiet_machine.LOOKS + [1.5, 0.1]
    assert "2.00 CPUs were busy" in (quiet_machine.why_not_quiet() or "")
    assert "1.50 CPUs were busy" in (quiet_machine.why_not_quiet() or "")
    assert quiet_machine.why_not_quiet() is None


def test_bursts_after_a_failure_are_found(looks: list[float]) -> None:
    looks += [0.0, 0.0, 0.9, 0.0]
    assert "0.90 CPUs were busy after it" in (quiet_machine.why_disturbed() or "")
    assert quiet_machine.why_disturbed() is None
