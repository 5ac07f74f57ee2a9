"""The table of requests and transactions while a scenario runs."""

from __future__ import annotations

from leadline.cli.live_table import live_label_lines
from leadline.trial import LiveLabel

LABELS = [
    LiveLabel("buy", True, 1_234, 5, 61.4, 91_000.0),
    LiveLabel("a page with a name that is longer than its column", False, 2_468, 0, 123.0, 850.0),
    LiveLabel("rare", False, 3, 0, 0.0, None),
]


def test_names_have_a_line_of_80_columns_each() -> None:
    lines = [line.plain for line in live_label_lines(LABELS, 20)]
    assert lines[0].split() == ["ended", "1/s", "failed", "p95"]
    assert lines[1].split() == ["buy:", "1,234", "61", "5", "91.0", "ms"]
    assert [line.strip()[:4] for line in lines[2:]] == ["a pa", "rare"]
    assert max(map(len, lines)) <= 80


def test_low_terminal_has_the_names_that_ended_most_often() -> None:
    lines = [line.plain.split()[0] for line in live_label_lines(LABELS, 3)]
    assert lines == ["ended", "a", "and"]
    assert live_label_lines(LABELS, 2) == []
