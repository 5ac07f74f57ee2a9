"""Options of kinds of test are rows: each sets a key that its test has, and what they set is what a plan would hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import create_model

from leadline.errors import InputError
from leadline.plan.field_types import PlanModel, validate_input
from leadline.plan.option_fields import field_at, option_field
from leadline.plan.options import BIDIRECTIONAL, REVERSE, Command, Option, test_values
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


@pytest.mark.parametrize("name", KINDS.names)
def test_no_option_repeats_what_its_field_says(name: str) -> None:
    assert list(_repeated(KINDS.get(name).command)) == []


@pytest.mark.parametrize(
    ("row", "repeated"),
    [
        (Option(("--size",), "", key="block", default="128KiB", metavar="SIZE"), ["size: default", "size: metavar"]),
        (Option(("--size",), "", key="block", default=None), []),
        (Option(("--rate",), "", key="rate", default=None), ["rate: default"]),
        (Option(("--parallel",), "", key="flows", type=int, least=1), ["parallel: type", "parallel: least"]),
        (Option(("--parallel",), "", key="flows", least=2, default=8), []),
        (Option(("--nagle",), "", key="nagle", type=bool), ["nagle: type"]),
    ],
)
def test_what_an_option_repeats_is_found(row: Option, repeated: list[str]) -> None:
    assert list(_repeated(Command(KINDS.get("tcp").model, "", "", 1, (row,)))) == repeated


def _repeated(command: Command) -> Iterator[str]:
    """What rows say that their fields say too."""
    for row in command.rows:
        if row.key is None:
            continue
        said = option_field(command.model, row.key)
        for part in ("type", "default", "least", "most", "metavar"):
            own = getattr(row, part)
            if own == getattr(said, part) and (part == "default" or own is not None):
                yield f"{row.flag}: {part}"


@pytest.mark.parametrize("name", KINDS.names)
def test_a_default_in_help_is_read_as_its_fields_default(name: str) -> None:
    command = KINDS.get(name).command
    for row, option in zip(command.rows, command.options, strict=True):
        if row.key is not None and row.default is ... and isinstance(option.default, str):
            field = field_at(command.model, row.key)
            key = row.key.rpartition(".")[2]
            fields: dict[str, Any] = {key: (field.annotation, field)}
            given = validate_input(create_model("One", __base__=PlanModel, **fields), {key: option.default})
            assert getattr(given, key) == field.default, row.flag


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
