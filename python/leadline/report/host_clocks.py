"""The hosts' clocks over a run, as rows: the worst of each host, and when it began."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from leadline import quantities
from leadline.analysis.clock_model import HostClock
from leadline.analysis.model import RunAnalysis

MAX_ROWS = 8
"""In a terminal; the page has every host."""
TITLES = ("drift ppm", "known to ±", "began late", "known to ±")


@dataclass(frozen=True, slots=True)
class ClockRow:
    """One host over all tests."""

    host: str
    cells: tuple[str, ...]
    """By `TITLES`."""
    bound_us: float


def clock_rows(analysis: RunAnalysis) -> list[ClockRow]:
    """A row for each host with a clock of its own, the least known clock first."""
    found: dict[str, list[HostClock]] = {}
    for trial in analysis.trials:
        for test in trial.tests:
            for clock in test.clocks:
                found.setdefault(clock.host, []).append(clock)
    rows = [
        ClockRow(host, tuple(_cells(clocks)), max(one.bound_us for one in clocks)) for host, clocks in found.items()
    ]
    return sorted(rows, key=lambda row: -row.bound_us)


def _cells(clocks: list[HostClock]) -> Iterator[str]:
    # The narrowest is the truest: drifts of short tests are known to tens of ppm.
    drifts = [one for one in clocks if one.drift_ppm is not None and one.drift_bound_ppm is not None]
    best = min(drifts, key=lambda one: one.drift_bound_ppm or 0.0, default=None)
    yield "–" if best is None else f"{best.drift_ppm:+.1f} ± {best.drift_bound_ppm:.1f}"
    yield quantities.microseconds(max(one.bound_us for one in clocks))
    late = [one.start_late_us for one in clocks if one.start_late_us is not None]
    yield quantities.microseconds(max(late)) if late else "–"
    yield quantities.microseconds(max(one.start_bound_us for one in clocks))
