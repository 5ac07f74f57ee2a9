"""The options of `leadline scenario` that say how its file is read are part of the test, as in a plan."""

from __future__ import annotations

from typing import Any

from leadline.kinds.scenario.options import COMMAND
from leadline.plan.options import test_values

NOT_GIVEN: dict[str, Any] = {option.name: None for option in COMMAND.options}


def test_options_of_reading_are_keys_of_the_test() -> None:
    given = {"scripts": "skip", "only_host": ["shop.test"], "no_correlate": True, "any_file": True}
    assert test_values(COMMAND.options, NOT_GIVEN | given) == {
        "scripts": "skip",
        "only_host": ["shop.test"],
        "correlate": False,
        "any_file": True,
    }
