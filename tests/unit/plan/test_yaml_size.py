"""Texts of too many values are found by counting keys: never more than the parser counts."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline.errors import PlanError
from leadline.plan import source
from leadline.plan.problems import Problems
from leadline.plan.yaml_size import line_of_excess

EXAMPLES = sorted(Path(__file__).parents[3].glob("examples/*.yaml"))
LINES = [
    "a: 1",
    "- b: {c: 1}",
    "  d: |",
    "    e: text",
    "  f: >-",
    "g: 'it''s",
    "  h: more'",
    'i: "a \\"',
    '  j: b"',
    "  - k: 1",
    "    l: don't",
    "# m: no",
    "- - n: 1",
    '  "o": 2',
    "p: word",
    "   - q",
    "",
]


def parsed(text: str) -> int | None:
    """How many nodes the parser composes; None if it is not YAML."""
    composed = 0

    class Counting(source._BoundedComposer):
        def compose_node(self, parent: object, index: object) -> object:
            nonlocal composed
            composed += 1
            return super().compose_node(parent, index)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "_BoundedComposer", Counting)
        try:
            source._parse(text, source.Mark("a.yaml", 1), Problems(), fixed=None)
        except PlanError:
            return None
    return composed


def counted(text: str) -> int:
    """The certain number: the largest that the text is known to exceed, and one."""
    number = 0
    while line_of_excess(text, number) is not None:
        number += 1
    return number


@given(st.lists(st.sampled_from(LINES), max_size=7).map("\n".join))
def test_never_counts_more_than_the_parser(text: str) -> None:
    composed = parsed(text)
    assert composed is None or counted(text) <= composed


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_never_counts_more_than_an_example_has(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    composed = parsed(text)
    assert composed is not None and counted(text) <= composed


def test_each_key_of_a_list_of_mappings_counts() -> None:
    text = "flow:\n" + "  - get: /\n    name: it\n" * 10
    assert counted(text) == 2 + 10 * 5
    assert line_of_excess(text, 2 + 10 * 5 - 1) == 21 and line_of_excess(text, 4) == 2


def test_block_of_text_and_open_quotation_do_not_count() -> None:
    assert counted("a: |\n  b: 1\n  c: 2\nd: 1") == 4
    assert counted("a: 1\nb: 'open\nc: 1\n") == 2


def test_text_of_too_many_values_is_refused_before_it_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(source._MOST_READ, "scenario", 30)
    monkeypatch.setattr(source, "_parse", lambda *_, **__: pytest.fail("it is parsed"))
    text = "name: x\nflow:\n" + "  - get: /\n    name: it\n" * 10
    with pytest.raises(PlanError, match=r"s\.yaml:13: too large: more than 30 keys and values; split the file"):
        source.parse_plan_text(text, "s.yaml", Problems(), "scenario")


def test_repeated_mistake_is_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []

    def matches(word: str, known: tuple[str, ...], **_: object) -> tuple[str, ...]:
        compared.append(word)
        return known

    monkeypatch.setattr("difflib.get_close_matches", matches)
    assert [source.nearest("never-seen", iter(["never-sent"])) for _ in range(3)] == ["never-sent"] * 3
    assert compared == ["never-seen"]
