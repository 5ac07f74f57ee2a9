"""Which lines pass as observations without being read: those that reading would accept, and that have no secret."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leadline.agents import UnreadObservation
from leadline.agents.messages import MalformedLine, parse_event
from leadline.agents.observations import ObservationShapes
from leadline.masking import mask_line

GOLDEN = Path(__file__).parents[3] / "contract" / "golden" / "events.jsonl"
_KEY_WITH_DIGIT = re.compile(rb'"[^",:]*\d[^",:]*":')


def observations() -> list[bytes]:
    """The observations of the golden transcript, with the keys in an agent's order."""
    events = [json.loads(line) for line in GOLDEN.read_text().splitlines()]
    return [
        json.dumps({"type": event["type"], **event}, separators=(",", ":")).encode()
        for event in events
        if event["type"] == "observation"
    ]


def shapes_of(*lines: bytes) -> ObservationShapes:
    shapes = ObservationShapes()
    for line in lines:
        shapes.add(line)
    return shapes


def is_accepted(line: bytes) -> bool:
    try:
        parse_event(line)
    except MalformedLine:
        return False
    return True


def test_line_with_other_figures_passes_and_reads_as_they_are() -> None:
    line = observations()[0]
    shapes = shapes_of(line)
    later = re.sub(rb'"t_ns":\d+', b'"t_ns":98765432109876', line)
    assert later != line
    assert shapes.match(later)
    assert UnreadObservation(later).read() == parse_event(later)


def test_line_of_another_shape_or_type_does_not_pass() -> None:
    first, second = observations()
    shapes = shapes_of(first)
    assert not shapes.match(second)
    assert not shapes.match(b'{"type":"heartbeat","t_ns":1}')
    assert not shapes.match(b"")
    assert not ObservationShapes().match(b"")


def test_only_a_few_shapes_are_kept() -> None:
    line = observations()[0]
    lines = [line.replace(b'"trial":"', b'"trial":"' + b"x" * number) for number in range(20)]
    shapes = shapes_of(*lines)
    assert [shapes.match(line) for line in lines] == [False] * 12 + [True] * 8


def test_number_in_a_list_does_not_pass_as_an_empty_list() -> None:
    line = observations()[1]
    assert b'"processes":[]' in line
    shapes = shapes_of(line)
    assert shapes.match(line)
    assert not shapes.match(line.replace(b'"processes":[]', b'"processes":[7]'))


@pytest.mark.parametrize("line", observations())
def test_every_changed_byte_that_reading_refuses_is_refused(line: bytes) -> None:
    shapes = shapes_of(line)
    passed = 0
    for at in range(len(line) + 1):
        changed = {line[:at], line[:at] + line[at + 1 :]}
        for byte in (b"0", b"7", b"-", b".", b"e", b'"', b",", b"}", b" ", b"=", b"\x00", b"\xff"):
            changed |= {line[:at] + byte + line[at:], line[:at] + byte + line[at + 1 :]}
        for one in changed:
            if shapes.match(one):
                passed += 1
                assert is_accepted(one) or _KEY_WITH_DIGIT.search(one)
    assert passed > 100


def test_digit_in_a_key_is_refused_when_the_line_is_read() -> None:
    line = observations()[0]
    shapes = shapes_of(line)
    changed = line.replace(b"observer_cpu_s", b"observer_cpu1_s")
    assert shapes.match(changed)
    with pytest.raises(MalformedLine, match="observer_cpu_s: Field required"):
        UnreadObservation(changed).read()


@settings(max_examples=500, deadline=None)
@given(st.text("=:/?&@.%01 abtokensigpw", max_size=40), st.data())
def test_no_line_that_would_be_masked_passes(name: str, data: st.DataObject) -> None:
    line = observations()[0].replace(b'"trial":"', b'"trial":"' + name.encode())
    shapes = shapes_of(line)
    other = "".join(data.draw(st.sampled_from(["", "0", "1", "42"])) + one for one in name)
    changed = observations()[0].replace(b'"trial":"', b'"trial":"' + other.encode())
    for one in (line, changed):
        assert not shapes.match(one) or mask_line(one) == one
