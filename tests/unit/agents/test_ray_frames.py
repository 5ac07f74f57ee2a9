"""The frames between a controller and a Ray driver."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline.agents.launchers.ray_driver.frames import (
    MAX_FRAME_BYTES,
    FrameReader,
    Kind,
    encode_frame,
    encode_object,
)


@given(
    frames=st.lists(st.tuples(st.sampled_from(Kind), st.integers(0, 2**32 - 1), st.binary(max_size=40)), max_size=8),
    cuts=st.lists(st.integers(1, 30), max_size=30),
)
def test_frames_survive_any_cuts(frames: list[tuple[Kind, int, bytes]], cuts: list[int]) -> None:
    stream = b"".join(encode_frame(*frame) for frame in frames)
    reader = FrameReader()
    found: list[tuple[Kind, int, bytes]] = []
    at = 0
    for cut in (*cuts, len(stream)):
        found += reader.feed(stream[at : at + cut])
        at += cut
    assert found == frames


def test_object_is_json() -> None:
    assert FrameReader().feed(encode_object(Kind.EXITED, 3, {"status": 1})) == [(Kind.EXITED, 3, b'{"status": 1}')]


@pytest.mark.parametrize(
    "header", [(MAX_FRAME_BYTES + 1).to_bytes(4, "big") + bytes(4) + b"\1", bytes(8) + b"\xff"], ids=["long", "unknown"]
)
def test_other_bytes_are_refused(header: bytes) -> None:
    with pytest.raises(ValueError):
        FrameReader().feed(header)
