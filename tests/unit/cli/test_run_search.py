"""The exit code of a capacity search: 0 with a rate, 3 where none holds, 4 where it is not known."""

from __future__ import annotations

import pytest

from leadline.cli.run_search import exit_code
from leadline.trial.capacity_search import Ending, SearchResult


@pytest.mark.parametrize(
    ("ending", "low_per_s", "code"),
    [
        (Ending.FOUND, 900.0, 0),
        (Ending.ALL_HELD, 900.0, 0),
        (Ending.GENERATOR_LIMITED, 900.0, 0),
        (Ending.BUDGET, 900.0, 0),
        (Ending.NONE_HELD, None, 3),
        (Ending.GENERATOR_LIMITED, None, 4),
        (Ending.BUDGET, None, 4),
        (Ending.INTERRUPTED, 900.0, 130),
        (Ending.FAILED, None, 1),
    ],
)
def test_exit_code_follows_the_search_ending(
    ending: Ending, low_per_s: float | None, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(SearchResult(ending, low_per_s, None, None), "refused") == code
    assert ("refused" in capsys.readouterr().err) == (ending is Ending.FAILED)
