"""Parts are found by name, added for a while, and stand in for names that nothing has."""

from __future__ import annotations

import pytest

from leadline.kinds.kind import Kind
from leadline.plan import BaseTest
from leadline.registry import KINDS


class Own(Kind[BaseTest]):
    name = "own"
    model = BaseTest


def test_added_part_is_there_only_for_a_while() -> None:
    own, before = Own(), KINDS.version
    with KINDS.added("own", own):
        assert KINDS.get("own") is own
        assert KINDS.names[-1] == "own"
        assert KINDS.version > before
    assert "own" not in KINDS
    with pytest.raises(KeyError):
        KINDS.get("own")


def test_name_that_is_taken_is_refused() -> None:
    with pytest.raises(ValueError, match="'tcp'"), KINDS.added("tcp", Own()):
        pass


def test_name_that_is_not_known_is_the_unknown_part() -> None:
    assert KINDS.find("of another version").name == "unknown"
    assert KINDS.find("tcp").name == "tcp"
