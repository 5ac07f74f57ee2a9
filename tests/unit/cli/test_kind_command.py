"""Options of kinds of test are rows: each sets a key that its test has, and what they set is what a plan would hold."""

from __future__ import annotations

from typing import Any

import pytest

from leadline.errors import InputError
from leadline.plan.options import BIDIRECTIONAL, REVERSE, Option, test_values
from leadline.plan.validation_errors import keys_of
from leadline.registry import KINDS


@pytest.mark.parametrize("name", KINDS.names)
def test_every_option_sets_a_key_of_its_test(name: str) -> None:
    kind = KINDS.get(name)
    unknown = [
        option.key
        for option in kind.command.options
        if option.key is not None and option.key.partition(".")[0] not in keys_of(kind.model)
    ]
    assert unknown == []


@pytest.mark.parametrize("name", KINDS.names)
def test_no_two_options_of_a_command_have_one_name_or_flag(name: str) -> None:
    options = KINDS.get(name).command.options
    names = [option.name for option in options]
    flags = [flag for option in options for written in option.flags for flag in written.split("/")]
    assert (len(names), len(flags)) == (len(set(names)), len(set(flags)))


def test_values_are_read_and_sorted_into_sections() -> None:
    rows = (
        Option(("--ca",), "", key="tls.ca", read=str.upper),
        Option(("--insecure",), "", key="tls.verify", type=bool, default=False, value=False),
        Option(("--json",), "", type=bool, default=False),
        Option(("--rate",), "", key="rate"),
    )
    given: dict[str, Any] = {"ca": "file", "insecure": True, "json": True, "rate": None}
    assert test_values(rows, given) == {"tls": {"ca": "FILE", "verify": False}}


def test_options_of_one_key_exclude_each_other() -> None:
    rows = (REVERSE, BIDIRECTIONAL)
    assert test_values(rows, {"reverse": False, "bidir": True}) == {"direction": "both"}
    with pytest.raises(InputError, match="--reverse and --bidir exclude each other; --bidir measures both directions"):
        test_values(rows, {"reverse": True, "bidir": True})
