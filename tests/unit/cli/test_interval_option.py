"""Which intervals a measurement prints: a line for each second, unless something else has its place."""

from __future__ import annotations

from typing import Any

import pytest

from leadline.cli import single_args

PLAIN = {"interval": None, "json": False, "output_format": "text", "width": None, "confidence": None}


@pytest.mark.parametrize(
    ("options", "length_ms"),
    [
        ({}, 1000),
        ({"interval": "0"}, None),
        ({"interval": "0s"}, None),
        ({"interval": "500ms"}, 500),
        # The document has rows of 100 ms.
        ({"json": True}, None),
        ({"json": True, "interval": "2s"}, 2000),
        ({"output_format": "wrk"}, None),
        # Each repeat, and each trial of a search, has a line.
        ({"width": "5%"}, None),
        ({"width": "5%", "interval": "1s"}, 1000),
        ({"find_rate": "error_ratio < 1"}, None),
    ],
)
def test_interval_of_the_options(options: dict[str, Any], length_ms: int | None) -> None:
    assert single_args.interval({**PLAIN, **options}) == length_ms


def test_command_without_repeats_or_layouts_has_the_default_too() -> None:
    assert single_args.interval({"interval": None, "json": False}) == 1000
