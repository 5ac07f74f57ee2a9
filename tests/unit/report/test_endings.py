"""A trial that did not reach its end says why, also where it left no error."""

from __future__ import annotations

import pytest

from leadline.quantities import counted
from leadline.report.verdicts import why_ended


@pytest.mark.parametrize(
    ("status", "error", "said"),
    [
        ("failed", "connecting to 192.0.2.1: timeout", "connecting to 192.0.2.1: timeout"),
        ("interrupted", None, "stopped on request; the results until then are kept"),
        ("killed", None, "its run was killed; the results until then are kept"),
        ("failed", None, "no error was recorded; see the run's journal and logs/"),
    ],
)
def test_an_end_without_an_error_is_explained_by_its_status(status: str, error: str | None, said: str) -> None:
    assert why_ended(status, error) == said


@pytest.mark.parametrize(
    ("number", "said"), [(0, "0 connections"), (1, "1 connection"), (2, "2 connections"), (1200, "1,200 connections")]
)
def test_one_is_not_plural(number: int, said: str) -> None:
    assert counted(number, "connection") == said
