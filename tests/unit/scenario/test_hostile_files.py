"""Files that were made to harm a reader end soon, with a scenario or with lines that name them; so do files cut off.

`make test-all` damages many more of them at random.
"""

from __future__ import annotations

import random
import time

import pytest
from hostile_files import FILES
from test_mutations import HAR, JMX, YAML, damaged, read_whole

from leadline.errors import PlanError

LONGEST_S = 60.0
"""Twenty times what the dearest takes; where the cost grows with the square of the size, it is hours."""
DEAREST = {
    *("values.har", "keys.yaml", "tokens.har", "steps.yaml", "braces.yaml", "long-attribute.jmx", "laughs.yaml"),
    *("deep-lists.yaml", "modules.jmx", "rows.yaml"),
}
LONGEST_LINE = 2_000
MOST_TIMES_LARGER = 200
CUTS = 24
DAMAGED_EACH = 6_000
SOUND = {"a.jmx": JMX, "a.har": HAR, "a.yaml": YAML}


def ends_soon(content: bytes, file: str) -> bool:
    """Whether the file was read; asserts that its errors are lines that name it."""
    began = time.process_time()
    try:
        text = read_whole(content, file)
        assert len(text) < MOST_TIMES_LARGER * len(content) + 10_000
        is_read = True
    except PlanError as error:
        for one in (error, *error.others):
            assert str(one).startswith(file)
            assert len(str(one).splitlines()) == 1
            assert len(str(one)) < LONGEST_LINE
            assert "sys." not in str(one)
        is_read = False
    # Of this thread's own CPU time: other processes do not count.
    assert time.process_time() - began < LONGEST_S
    return is_read


@pytest.mark.parametrize("file", sorted(FILES.keys() - DEAREST))
def test_hostile_files_end_soon(file: str) -> None:
    ends_soon(FILES[file](), file)


@pytest.mark.full_matrix
@pytest.mark.parametrize("file", sorted(DEAREST))
def test_dear_hostile_files_end_soon(file: str) -> None:
    ends_soon(FILES[file](), file)


def test_test_plans_in_two_bytes_are_read() -> None:
    assert ends_soon(FILES["wide-encoding.jmx"](), "wide-encoding.jmx")


@pytest.mark.parametrize("file", SOUND)
def test_files_cut_anywhere_end_soon(file: str) -> None:
    content = SOUND[file]
    for part in range(CUTS):
        ends_soon(content[: len(content) * part // CUTS], file)


@pytest.mark.full_matrix
@pytest.mark.takes(300)
@pytest.mark.parametrize("file", SOUND)
def test_many_damaged_files_end_soon(file: str) -> None:
    source = random.Random(f"long {file}")
    small = [make() for name, make in FILES.items() if name.endswith(file[1:]) and len(make()) < 60_000]
    for number in range(DAMAGED_EACH):
        content = SOUND[file] if number % 4 else source.choice(small)
        for _ in range(source.choice((1, 1, 4, 16))):
            content = damaged(content, source)
        ends_soon(content, file)


def test_a_web_page_is_no_har_file() -> None:
    with pytest.raises(PlanError, match=r"a\.har:1: this is XML or a web page; a HAR file is JSON"):
        read_whole(b"<!DOCTYPE html><html></html>", "a.har")


@pytest.mark.parametrize(("file", "tool"), [("a.har", "the browser"), ("a.jmx", "JMeter")])
def test_empty_file_of_another_tool_is_not_taken_for_yaml(file: str, tool: str) -> None:
    with pytest.raises(PlanError, match=rf"{file}: the file is empty; save it in {tool} again"):
        read_whole(b"\xef\xbb\xbf \n", file)
