"""Options take their type, limits and default from the fields of a model."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from leadline.plan import units
from leadline.plan.dscp import Dscp
from leadline.plan.field_types import DurationMs, Items, PlanModel, RateBps, Share, SizeBytes, Total, within
from leadline.plan.option_fields import OptionField, option_field
from leadline.plan.options import Command, Option


class Section(PlanModel):
    """A part of the model."""

    verify: bool = True
    names: Items[str] = ()


class Model(PlanModel):
    """A field of each type."""

    duration_ms: DurationMs = Field(default=1_500, validation_alias="duration")
    block_bytes: Annotated[SizeBytes, within(1, 2**20, " bytes")] = Field(default=2**17, validation_alias="block")
    rate_bps: RateBps | None = Field(default=None, validation_alias="rate")
    share: Share = 0.05
    flows: Annotated[int, Field(ge=1, lt=257)] = 4
    weight: Annotated[int, Field(gt=0, le=100)] = 1
    number: Total | None = None
    connections: Annotated[int, within(1, 5_000, "")] = 1
    dscp: Dscp | None = None
    send: Literal["write", "sendfile"] = "write"
    tool: Literal["iperf3"] | None = None
    path: str = "/"
    gso: bool | None = None
    needed: str
    section: Section | None = None


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("duration", OptionField(str, "1500ms", None, None, "TIME")),
        ("block", OptionField(str, "128KiB", None, None, "SIZE")),
        ("rate", OptionField(str, None, None, None, "RATE")),
        ("share", OptionField(str, "5%", None, None, "SHARE")),
        ("flows", OptionField(int, 4, 1, 256, None)),
        ("weight", OptionField(int, 1, 1, 100, None)),
        # A limit of 10**12 only catches mistakes.
        ("number", OptionField(int, None, 1, None, None)),
        ("connections", OptionField(int, 1, 1, 5_000, None)),
        # A number or a name: text.
        ("dscp", OptionField(str, None, None, None, None)),
        ("send", OptionField(("write", "sendfile"), "write", None, None, None)),
        ("tool", OptionField(("iperf3",), None, None, None, None)),
        ("path", OptionField(str, "/", None, None, None)),
        ("gso", OptionField(bool, None, None, None, None)),
        ("needed", OptionField(str, None, None, None, None)),
        ("section", OptionField(str, None, None, None, None)),
        ("section.verify", OptionField(bool, True, None, None, None)),
        ("section.names", OptionField(list, None, None, None, None)),
    ],
)
def test_a_field_says_what_its_option_is(key: str, expected: OptionField) -> None:
    assert option_field(Model, key) == expected


@pytest.mark.parametrize("key", ["duration_ms", "section.other", "other.verify"])
def test_an_unknown_key_is_an_error(key: str) -> None:
    with pytest.raises(KeyError):
        option_field(Model, key)


@pytest.mark.parametrize(
    ("row", "type_", "default", "value"),
    [
        (Option(("--block",), "", key="block"), str, "128KiB", None),
        (Option(("--block",), "", key="block", default=None), str, None, None),
        (Option(("--json",), ""), str, None, None),
        # A flag without a negative form sets what is not the default; another one its own value.
        (Option(("--insecure",), "", key="section.verify"), bool, False, False),
        (Option(("--verify/--no-verify",), "", key="section.verify"), bool, True, None),
        (Option(("--gso",), "", key="gso"), bool, None, None),
        (Option(("--sendfile",), "", key="send", value="sendfile"), bool, False, "sendfile"),
    ],
)
def test_an_option_takes_from_its_field_what_it_leaves_out(row: Option, type_: Any, default: Any, value: Any) -> None:
    (option,) = Command(Model, "", "", 1, (row,)).options
    assert (option.type, option.default, option.value) == (type_, default, value)


@pytest.mark.parametrize("ms", [0, 1, 999, 1_000, 1_500, 60_000, 86_400_000])
def test_the_text_of_a_duration_is_read_as_the_same_duration(ms: int) -> None:
    assert units.duration_ms(units.duration_text(ms)) == ms


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0"), (64, "64"), (1_023, "1023"), (1_024, "1KiB"), (1_400, "1400"), (2**17, "128KiB"), (3 * 2**30, "3GiB")],
)
def test_the_text_of_a_size_is_read_as_the_same_size(size: int, text: str) -> None:
    assert units.size_text(size) == text
    assert units.size_bytes(text) == size


def test_the_text_of_a_share_is_read_as_the_same_share() -> None:
    assert units.fraction(units.share_text(0.025)) == 0.025
