"""Each construct of LoadRunner's scripts becomes what its case in `tests/corpus/loadrunner` says."""

from __future__ import annotations

from pathlib import Path

import pytest
from loadrunner_cases import CASES, convert, read_case


@pytest.mark.parametrize("path", sorted(CASES.glob("*.case")), ids=lambda path: path.stem)
def test_construct_becomes_its_native_form(path: Path) -> None:
    case = read_case(path)
    assert case.expected, "a case says what it becomes"
    found = convert(case.files)
    if "refused" not in case.expected:
        assert "refused" not in found, found["refused"]
    assert {key: found.get(key) for key in case.expected} == case.expected
