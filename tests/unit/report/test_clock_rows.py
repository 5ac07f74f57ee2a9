"""The rows of the hosts' clocks: the worst over all tests, the least known host first."""

from __future__ import annotations

from leadline.analysis import analyse
from leadline.report.host_clocks import clock_rows

MS, S = 1_000_000, 1_000_000_000


def entries(test: str, clocks: dict[str, list[tuple[int, int, int]]]) -> list[dict[str, object]]:
    """A test with these comparisons: when, offset and bound, ns."""
    label = f"c/1/{test}"
    checks = [
        {"record": "clock-check", "label": label, "host": host, "at_ns": at, "offset_ns": offset, "bound_ns": bound}
        for host, found in clocks.items()
        for at, offset, bound in found
    ]
    begin = {"record": "test-begin", "at_ns": 1, "label": label, "test": {"name": test, "kind": "tcp"}, "hosts": []}
    return [*checks, begin, {"record": "test-end", "at_ns": 2, "label": label, "status": "done", "error": None}]


def test_the_least_known_clock_comes_first() -> None:
    journal = [
        {"record": "trial-begin", "at_ns": 0, "trial": "c/1", "case": "c", "repeat": 1},
        *entries("a", {"client1": [(0, 5 * S, 20_000)], "client2": [(0, 0, 30_000), (10 * S, MS, 30_000)]}),
        *entries("b", {"client1": [(0, 5 * S, 40_000), (10 * S, 5 * S, 40_000)]}),
        {"record": "trial-end", "at_ns": 3, "trial": "c/1", "status": "done"},
    ]
    rows = clock_rows(analyse({"cases": [{"id": "c", "parameters": {}}]}, journal))
    assert [row.host for row in rows] == ["client2", "client1"]
    # A millisecond in ten seconds is 100 ppm, by two comparisons that are 30 us off at most.
    assert rows[0].cells == ("+100.0 ± 6.0", "1.03 ms", "–", "30.0 µs")
    assert rows[1].cells == ("+0.0 ± 8.0", "40.0 µs", "–", "40.0 µs")
