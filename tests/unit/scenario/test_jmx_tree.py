"""What reading a JMX file costs: a part for each piece of it, and nothing beyond its bounds."""

from __future__ import annotations

from typing import Any

import pytest

from leadline.errors import PlanError
from leadline.scenario.jmx import tree

HEAD, TAIL = b"<jmeterTestPlan><hashTree><TestPlan/><hashTree>", b"</hashTree></hashTree></jmeterTestPlan>"


def in_pieces(count: int) -> bytes:
    """A test plan whose one property has a text that a parser reports in this number of pieces."""
    return HEAD + b'<a><stringProp name="b">' + b"x<!-- -->y<![CDATA[z]]>" * count + b"</stringProp></a>" + TAIL


def copied_characters(content: bytes, monkeypatch: pytest.MonkeyPatch) -> int:
    """The characters that texts of tags are made of, each time that one is made."""
    copied = 0
    plain = tree.Tag

    class CountingTag(plain):  # type: ignore[misc, valid-type]
        def __setattr__(self, name: str, value: Any) -> None:
            nonlocal copied
            copied += len(value) if name == "text" else 0
            super().__setattr__(name, value)

    monkeypatch.setattr(tree, "Tag", CountingTag)
    found = tree.read_tree(content, "a.jmx")
    monkeypatch.setattr(tree, "Tag", plain)
    assert set(found.elements[0].text("b")) == set("xyz")
    return copied


def test_text_in_many_pieces_is_copied_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert copied_characters(in_pieces(40_000), monkeypatch) == 3 * 40_000


def test_text_is_whole_between_other_tags() -> None:
    content = HEAD + b'<a testname="n"><stringProp name="b">1&amp;<x>in</x>\n2</stringProp></a>' + TAIL
    (element,) = tree.read_tree(content, "a.jmx").elements
    tag = element.tag("b")
    assert tag is not None
    assert (tag.text, tag.tags[0].text, element.name) == ("1&\n2", "in", "n")


@pytest.mark.parametrize(
    ("bound", "limit", "content", "said"),
    [
        ("MAX_TAGS", 50, HEAD + b"<a/>" * 50 + TAIL, "more than 50 elements are too many; split the test plan"),
        ("MAX_DEPTH", 20, HEAD + b"<a>" * 20 + b"</a>" * 20 + TAIL, "elements are nested deeper than 20"),
        ("MAX_BYTES", 2**20, HEAD + b" " * 2**20 + TAIL, "is too large; at most 1 MiB of a JMeter test plan"),
    ],
)
def test_bound_is_named_in_one_line(
    bound: str, limit: int, content: bytes, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.read_tree(content, "a.jmx")
    monkeypatch.setattr(tree, bound, limit)
    with pytest.raises(PlanError) as caught:
        tree.read_tree(content, "a.jmx")
    assert str(caught.value).startswith("a.jmx") and str(caught.value).endswith(f": {said}")
